#include "instrument/rewrite/liveness.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace penumbra::rewrite {
namespace {

// System V ABI for x86-64, 3.2.1.
constexpr RegSet kCalleeSaved = reg(kRbx) | reg(kRsp) | reg(kRbp) | reg(kR12) | reg(kR13) | reg(kR14) | reg(kR15);
constexpr RegSet kCallerSaved = kAllRegisters & ~kCalleeSaved;
// Needed behind a return to a caller that knows nothing but the ABI.
constexpr RegSet kAbiReturn = kCalleeSaved | reg(kRax) | reg(kRdx) | kDirection;
// Needed before a call of something unknown: all registers, since nothing says what the callee takes, and no flags.
constexpr RegSet kAbiCall = kAllRegisters | kDirection;
// What a call of something unknown may change.
constexpr RegSet kAbiChanges = kCallerSaved | kArithmeticFlags;

// Lists of numbers by owner, packed: owner i has list[begin[i] .. begin[i+1]).
class Lists {
 public:
  Lists(std::size_t owners, const std::vector<std::pair<std::uint32_t, std::uint32_t>>& pairs) : begin_(owners + 1) {
    for (const auto& [owner, value] : pairs) ++begin_[owner + 1];
    for (std::size_t i = 0; i < owners; ++i) begin_[i + 1] += begin_[i];
    std::vector<std::uint32_t> next(begin_.begin(), begin_.end() - 1);
    values_.resize(pairs.size());
    for (const auto& [owner, value] : pairs) values_[next[owner]++] = value;
  }

  std::span<const std::uint32_t> of(std::uint32_t owner) const {
    return std::span(values_).subspan(begin_[owner], begin_[owner + 1] - begin_[owner]);
  }

 private:
  std::vector<std::uint32_t> begin_;
  std::vector<std::uint32_t> values_;
};

bool is_call(Flow flow) {
  return flow == Flow::kCall || flow == Flow::kIndirectCall;
}

// Numbers waiting to be looked at again, each at most once, last in first out.
class Worklist {
 public:
  explicit Worklist(std::size_t count) : waits_(count, false) {}

  void push(std::uint32_t number) {
    if (waits_[number]) return;
    waits_[number] = true;
    stack_.push_back(number);
  }

  bool empty() const { return stack_.empty(); }

  std::uint32_t pop() {
    const std::uint32_t number = stack_.back();
    stack_.pop_back();
    waits_[number] = false;
    return number;
  }

 private:
  std::vector<bool> waits_;
  std::vector<std::uint32_t> stack_;
};

}  // namespace

Liveness::Liveness(const Program& program) : program_(program) {
  find_callees();
  find_changes();
  solve();
}

void Liveness::find_callees() {
  callees_.reserve(program_.blocks().size());
  for (const Block& block : program_.blocks()) callees_.push_back(find_callee(block));
}

std::uint32_t Liveness::find_callee(const Block& block) const {
  const std::uint32_t i = last(block);
  const Form& form = program_.form(i);
  if (form.flow != Flow::kCall) return kNone;
  const std::uint64_t target = branch_target(form, program_.bytes(i), program_.address(i));
  const std::uint32_t function = program_.function_at(target);
  if (function == kNone || program_.functions()[function].range.begin != target) return kNone;
  return program_.functions()[function].block_count != 0 ? function : kNone;
}

Liveness::Summary Liveness::summarise(const Block& block) const {
  Summary summary;
  for (std::uint32_t i = block.first; i < block.first + block.count; ++i) {
    const Form& form = program_.form(i);
    summary.reads |= form.reads & ~summary.kills;
    summary.kills |= rewrite::kills(form, program_.bytes(i));
  }
  return summary;
}

// The least sets that contain what a function's own instructions touch and what the functions it enters may change.
void Liveness::find_changes() {
  const auto& functions = program_.functions();
  changes_.assign(functions.size(), 0);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> enters;  // entered, by
  for (std::uint32_t number = 0; number < functions.size(); ++number) {
    const Function& function = functions[number];
    if (function.block_count == 0) changes_[number] = kAbiChanges;
    for (std::uint32_t b = function.first_block; b < function.first_block + function.block_count; ++b) {
      const Block& block = program_.blocks()[b];
      for (std::uint32_t i = block.first; i < block.first + block.count; ++i)
        changes_[number] |= program_.form(i).touches;
      if (is_call(program_.form(last(block)).flow)) {
        const std::uint32_t callee = callees_[b];
        if (callee == kNone) {
          changes_[number] |= kAbiChanges;
        } else {
          enters.emplace_back(callee, number);
        }
      }
      if (block.leaves_to_unknown) changes_[number] |= kAbiChanges;
      for (const std::uint32_t to : program_.successors(block)) {
        const std::uint32_t other = program_.blocks()[to].function;
        if (other != number) enters.emplace_back(other, number);
      }
    }
  }
  const Lists enterers(functions.size(), enters);
  Worklist work(functions.size());
  for (std::uint32_t number = 0; number < functions.size(); ++number) work.push(number);
  while (!work.empty()) {
    const std::uint32_t number = work.pop();
    for (const std::uint32_t by : enterers.of(number)) {
      // A call or a tail jump preserves what it saves and restores; callee-saved registers a callee touches come back.
      const RegSet more = changes_[number] & ~changes_[by] & ~reg(kRsp);
      if (more == 0) continue;
      changes_[by] |= more;
      work.push(by);
    }
  }
  // Callee-saved registers are touched and restored; what a caller may rely on is that they come back.
  for (RegSet& set : changes_) set &= kAbiChanges;
}

RegSet Liveness::before_call(std::uint32_t number, RegSet after) const {
  const Block& block = program_.blocks()[number];
  const std::uint32_t callee = callees_[number];
  const RegSet pads = at_pads_[block.function];
  if (callee == kNone) return kAbiCall | (after & ~kAbiChanges) | pads;
  return live_in_[program_.functions()[callee].first_block] | (after & ~changes_[callee]) | kCalleeSaved |
         kDirection | pads;
}

RegSet Liveness::behind(std::uint32_t number) const {
  const Block& block = program_.blocks()[number];
  RegSet live = block.leaves_to_unknown ? kEverything : 0;
  for (const std::uint32_t to : program_.successors(block)) live |= live_in_[to];
  switch (program_.form(last(block)).flow) {
    case Flow::kCall:
    case Flow::kIndirectCall: return before_call(number, live);
    case Flow::kReturn: return at_return_[block.function];
    case Flow::kTrap:
    case Flow::kSystemCall: return kEverything;
    default: return live;
  }
}

void Liveness::solve() {
  const auto& blocks = program_.blocks();
  const auto& functions = program_.functions();
  std::vector<Summary> summaries;
  summaries.reserve(blocks.size());
  for (const Block& block : blocks) summaries.push_back(summarise(block));
  live_in_.assign(blocks.size(), 0);
  at_pads_.assign(functions.size(), 0);
  at_return_.assign(functions.size(), 0);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> into;      // to block, from block
  std::vector<std::pair<std::uint32_t, std::uint32_t>> callers;   // callee, calling block
  std::vector<std::pair<std::uint32_t, std::uint32_t>> returns;   // function, returning block
  std::vector<std::pair<std::uint32_t, std::uint32_t>> hands_on;  // function, function it jumps into
  std::vector<std::pair<std::uint32_t, std::uint32_t>> calls;     // function, calling block
  for (std::uint32_t b = 0; b < blocks.size(); ++b) {
    const Block& block = blocks[b];
    const Flow flow = program_.form(last(block)).flow;
    for (const std::uint32_t to : program_.successors(block)) {
      into.emplace_back(to, b);
      if (blocks[to].function != block.function && !is_call(flow))
        hands_on.emplace_back(block.function, blocks[to].function);
    }
    if (flow == Flow::kReturn) returns.emplace_back(block.function, b);
    if (!is_call(flow)) continue;
    calls.emplace_back(block.function, b);
    if (const std::uint32_t callee = callees_[b]; callee != kNone) callers.emplace_back(callee, b);
  }
  const Lists predecessors(blocks.size(), into);
  const Lists calling(functions.size(), callers);
  const Lists returning(functions.size(), returns);
  const Lists next_functions(functions.size(), hands_on);
  const Lists calls_in(functions.size(), calls);

  Worklist work(blocks.size());
  std::vector<std::uint32_t> grown;  // functions whose at_return_ grew
  const auto need_at_return = [&](std::uint32_t function, RegSet set) {
    grown.push_back(function);
    at_return_[function] |= set;
    while (!grown.empty()) {
      const std::uint32_t f = grown.back();
      grown.pop_back();
      for (const std::uint32_t b : returning.of(f)) work.push(b);
      for (const std::uint32_t next : next_functions.of(f)) {
        if ((at_return_[f] & ~at_return_[next]) == 0) continue;
        at_return_[next] |= at_return_[f];
        grown.push_back(next);
      }
    }
  };
  for (std::uint32_t b = 0; b < blocks.size(); ++b) work.push(b);  // popped from the end: successors first
  for (std::uint32_t f = 0; f < functions.size(); ++f) {
    // Nobody that calls it was seen: then it is somebody who was not seen.
    const bool unknown = functions[f].has_unknown_callers || calling.of(f).empty();
    const RegSet by_others = functions[f].has_doubted_callers ? kEverything : kAbiReturn;
    need_at_return(f, unknown ? by_others : kCalleeSaved | kDirection);
  }
  while (!work.empty()) {
    const std::uint32_t b = work.pop();
    const RegSet live = evaluate(b, summaries[b]);
    if (live == live_in_[b]) continue;
    live_in_[b] = live;
    const Block& block = blocks[b];
    const Function& function = functions[block.function];
    for (const std::uint32_t from : predecessors.of(b)) {
      work.push(from);
      const std::uint32_t callee = callees_[from];
      if (callee != kNone && (live & ~at_return_[callee]) != 0) need_at_return(callee, live);
    }
    if (b == function.first_block) {
      for (const std::uint32_t caller : calling.of(block.function)) work.push(caller);
    }
    // A landing pad in a cold part serves the calls of the hot one, which its table belongs to; the pads of a function
    // are found by where they lie, so both parts take what pads in either need.
    if ((block.entry & kEntryLandingPad) != 0) {
      const auto serve = [&](std::uint32_t f) {
        if ((live & ~at_pads_[f]) == 0) return;
        at_pads_[f] |= live;
        for (const std::uint32_t call : calls_in.of(f)) work.push(call);
      };
      serve(block.function);
      for (const std::uint32_t owner : program_.pad_owners(program_.address(block.first))) serve(owner);
    }
  }
}

RegSet Liveness::live_out(std::uint32_t number) const {
  const Block& block = program_.blocks()[number];
  if (is_call(program_.form(last(block)).flow)) {
    RegSet live = block.leaves_to_unknown ? kEverything : 0;
    for (const std::uint32_t to : program_.successors(block)) live |= live_in_[to];
    return live;
  }
  return behind(number);
}

std::vector<RegSet> Liveness::before_each(std::uint32_t number) const {
  const Block& block = program_.blocks()[number];
  std::vector<RegSet> result(block.count);
  RegSet live = behind(number);
  for (std::uint32_t k = block.count; k-- > 0;) {
    const std::uint32_t i = block.first + k;
    const Form& form = program_.form(i);
    live = form.reads | (live & ~rewrite::kills(form, program_.bytes(i)));
    result[k] = live;
  }
  return result;
}

void Liveness::validate() const {
  for (std::uint32_t b = 0; b < program_.blocks().size(); ++b) {
    if (evaluate(b, summarise(program_.blocks()[b])) != live_in_[b]) {
      throw std::logic_error(fmt::format("liveness: L1 does not hold for the block at {:#x}",
                                         program_.address(program_.blocks()[b].first)));
    }
  }
}

}  // namespace penumbra::rewrite
