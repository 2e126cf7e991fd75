#include "runtime/stacks/cfi_expression.h"

#include "runtime/stacks/byte_cursor.h"

namespace penumbra::stacks {
namespace {

class Machine {
 public:
  Machine(ByteRange code, const Registers& registers, StackMemory& memory)
      : code_(code), cursor_(code.begin, code.end), registers_(registers), memory_(memory) {}

  void push(std::uint64_t value) {
    if (depth_ == kDepth) {
      fail(StepStatus::kBroken);
    } else {
      stack_[depth_++] = value;
    }
  }

  StepStatus run(std::uint64_t& result) {
    for (unsigned steps = 0; steps < kMaxSteps && !cursor_.at_end() && status_ == StepStatus::kOk; ++steps) execute();
    if (status_ != StepStatus::kOk) return status_;
    if (!cursor_.ok() || !cursor_.at_end() || depth_ == 0) return StepStatus::kBroken;
    result = stack_[depth_ - 1];
    return StepStatus::kOk;
  }

 private:
  static constexpr unsigned kDepth = 16;
  static constexpr unsigned kMaxSteps = 512;

  void fail(StepStatus status) {
    if (status_ == StepStatus::kOk) status_ = status;
  }

  std::uint64_t pop() {
    if (depth_ == 0) {
      fail(StepStatus::kBroken);
      return 0;
    }
    return stack_[--depth_];
  }

  std::int64_t pop_signed() { return static_cast<std::int64_t>(pop()); }

  std::uint64_t peek(unsigned below_top) {
    if (below_top >= depth_) {
      fail(StepStatus::kBroken);
      return 0;
    }
    return stack_[depth_ - 1 - below_top];
  }

  void push_register(std::uint64_t r, std::int64_t offset) {
    if (r >= kRegisters || !registers_.has(static_cast<unsigned>(r))) {
      fail(r < kRegisters ? StepStatus::kUnknownRegister : StepStatus::kBroken);
      return;
    }
    push(registers_.value[r] + static_cast<std::uint64_t>(offset));
  }

  void dereference(unsigned bytes) {
    std::uint64_t value = 0;
    if (bytes == 0 || bytes > 8 || !memory_.read_bytes(pop(), &value, bytes)) {
      fail(StepStatus::kBroken);
    } else {
      push(value);
    }
  }

  void jump(std::int64_t distance) {
    const std::int64_t target = cursor_.at() - code_.begin + distance;
    if (target < 0 || target > code_.end - code_.begin) {
      fail(StepStatus::kBroken);
    } else {
      cursor_ = ByteCursor(code_.begin + target, code_.end);
    }
  }

  // Operations on the two topmost values; `a` lies below `b`.
  bool execute_binary(std::uint8_t op) {
    if (!(op == 0x1a || op == 0x1b || op == 0x1c || op == 0x1d || op == 0x1e || op == 0x21 || op == 0x22 ||
          (op >= 0x24 && op <= 0x27) || (op >= 0x29 && op <= 0x2e))) {
      return false;
    }
    const std::uint64_t b = pop();
    const std::uint64_t a = pop();
    const auto signed_a = static_cast<std::int64_t>(a);
    const auto signed_b = static_cast<std::int64_t>(b);
    switch (op) {
      case 0x1a: push(a & b); break;
      case 0x1b:  // signed division; the one quotient that does not fit is refused with division by zero
        if (b == 0 || (signed_b == -1 && a == std::uint64_t{1} << 63))
          fail(StepStatus::kBroken);
        else
          push(static_cast<std::uint64_t>(signed_a / signed_b));
        break;
      case 0x1c: push(a - b); break;
      case 0x1d:
        if (b == 0)
          fail(StepStatus::kBroken);
        else
          push(a % b);
        break;
      case 0x1e: push(a * b); break;
      case 0x21: push(a | b); break;
      case 0x22: push(a + b); break;
      case 0x24: push(b < 64 ? a << b : 0); break;
      case 0x25: push(b < 64 ? a >> b : 0); break;
      case 0x26: push(static_cast<std::uint64_t>(signed_a >> (b < 64 ? b : 63))); break;
      case 0x27: push(a ^ b); break;
      case 0x29: push(a == b); break;
      case 0x2a: push(signed_a >= signed_b); break;
      case 0x2b: push(signed_a > signed_b); break;
      case 0x2c: push(signed_a <= signed_b); break;
      case 0x2d: push(signed_a < signed_b); break;
      default: push(a != b); break;
    }
    return true;
  }

  void execute() {
    const std::uint8_t op = cursor_.u8();
    if (execute_binary(op)) return;
    if (op >= 0x30 && op <= 0x4f) return push(op - 0x30u);                           // lit0..lit31
    if (op >= 0x50 && op <= 0x6f) return push_register(op - 0x50u, 0);               // reg0..reg31
    if (op >= 0x70 && op <= 0x8f) return push_register(op - 0x70u, cursor_.sleb());  // breg0..breg31
    switch (op) {
      case 0x03: push(cursor_.fixed<std::uint64_t>()); break;  // addr
      case 0x06: dereference(8); break;
      case 0x08: push(cursor_.u8()); break;
      case 0x09: push(static_cast<std::uint64_t>(std::int64_t{cursor_.fixed<std::int8_t>()})); break;
      case 0x0a: push(cursor_.fixed<std::uint16_t>()); break;
      case 0x0b: push(static_cast<std::uint64_t>(std::int64_t{cursor_.fixed<std::int16_t>()})); break;
      case 0x0c: push(cursor_.fixed<std::uint32_t>()); break;
      case 0x0d: push(static_cast<std::uint64_t>(std::int64_t{cursor_.fixed<std::int32_t>()})); break;
      case 0x0e:
      case 0x0f: push(cursor_.fixed<std::uint64_t>()); break;
      case 0x10: push(cursor_.uleb()); break;
      case 0x11: push(static_cast<std::uint64_t>(cursor_.sleb())); break;
      case 0x12: push(peek(0)); break;             // dup
      case 0x13: pop(); break;                     // drop
      case 0x14: push(peek(1)); break;             // over
      case 0x15: push(peek(cursor_.u8())); break;  // pick
      case 0x16: {                                 // swap
        const std::uint64_t top = pop();
        const std::uint64_t below = pop();
        push(top);
        push(below);
        break;
      }
      case 0x17: {  // rot: the topmost becomes the third
        const std::uint64_t first = pop();
        const std::uint64_t second = pop();
        const std::uint64_t third = pop();
        push(first);
        push(third);
        push(second);
        break;
      }
      case 0x19: {  // abs
        const std::int64_t value = pop_signed();
        push(value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value));
        break;
      }
      case 0x1f: push(0 - pop()); break;
      case 0x20: push(~pop()); break;
      case 0x23: push(pop() + cursor_.uleb()); break;  // plus_uconst
      case 0x28: {                                     // bra
        const std::int16_t distance = cursor_.fixed<std::int16_t>();
        if (pop() != 0) jump(distance);
        break;
      }
      case 0x2f: {  // skip
        const std::int16_t distance = cursor_.fixed<std::int16_t>();
        jump(distance);
        break;
      }
      case 0x90: push_register(cursor_.uleb(), 0); break;  // regx
      case 0x92: {                                         // bregx
        const std::uint64_t r = cursor_.uleb();
        push_register(r, cursor_.sleb());
        break;
      }
      case 0x94: dereference(cursor_.u8()); break;  // deref_size
      case 0x96: break;                             // nop
      case 0xf1: {                                  // GNU_encoded_addr
        const std::uint8_t encoding = cursor_.u8();
        push(cursor_.pointer(encoding, 0));
        break;
      }
      default: fail(StepStatus::kBroken);
    }
  }

  ByteRange code_;
  ByteCursor cursor_;
  const Registers& registers_;
  StackMemory& memory_;
  std::uint64_t stack_[kDepth];
  unsigned depth_ = 0;
  StepStatus status_ = StepStatus::kOk;
};

}  // namespace

StepStatus evaluate(ByteRange section, std::int32_t block, const Registers& registers, StackMemory& memory,
                    const std::uint64_t* cfa, std::uint64_t& result) {
  if (block < 0 || block >= section.end - section.begin) return StepStatus::kBroken;
  ByteCursor cursor(section.begin + block, section.end);
  const std::uint64_t bytes = cursor.uleb();
  if (!cursor.ok() || bytes > static_cast<std::uint64_t>(section.end - cursor.at())) return StepStatus::kBroken;
  Machine machine({cursor.at(), cursor.at() + bytes}, registers, memory);
  if (cfa != nullptr) machine.push(*cfa);
  return machine.run(result);
}

}  // namespace penumbra::stacks
