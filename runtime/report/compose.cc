#include "runtime/report/compose.h"

#include "runtime/base/raw_memory.h"
#include "runtime/stacks/stacks.h"
#include "shadow/address_map.h"

namespace penumbra::report {
namespace {

constexpr char kRule[] = "==================================================================";
static_assert(sizeof kRule - 1 == 66);

// What stands before the first byte of a row: mark, address, colon, blank.
constexpr std::size_t kRowPrefix = 1 + 16 + 2;

void append_address(TextBuffer& out, AppAddr a) {
  out.hex_padded(a.value, 16);
}

void append_range(TextBuffer& out, AppAddr begin, std::size_t bytes) {
  out.append("[");
  append_address(out, begin);
  out.append(", ");
  append_address(out, begin + bytes);
  out.append(")");
}

void append_task(TextBuffer& out, const Snapshot& s) {
  out.append(s.task_name[0] != '\0' ? s.task_name : "?").append("/").dec(static_cast<std::uint64_t>(s.task));
}

const CodeName& name_of(const ReportInput& input, std::uintptr_t pc) {
  static constinit const CodeName unnamed{};
  const CodeName* const name = input.names->find(pc);
  return name != nullptr ? *name : unnamed;
}

void append_place_of(TextBuffer& out, const ReportInput& input, std::uintptr_t pc) {
  const CodeName& name = name_of(input, pc);
  if (name.pc == pc) {
    append_place(out, name);
  } else {
    out.hex(pc);
  }
}

void append_stack(TextBuffer& out, const ReportInput& input, const Stack& stack) {
  if (stack.count == 0) out.append("(stack is not available)\n");
  for (std::size_t i = 0; i < stack.count; ++i) {
    const std::uintptr_t pc = stack.frames[i];
    if (pc == stacks::kBrokenStack) {
      out.append(" ? (the stack cannot be followed any further)\n");
      continue;
    }
    CodeName unnamed;
    unnamed.pc = pc;
    const CodeName& name = name_of(input, pc);
    append_frame(out, name.pc == pc ? name : unnamed);
  }
}

const char* allocator_word(AllocatorName name) {
  switch (name) {
    case AllocatorName::kMalloc: return "malloc";
    case AllocatorName::kNew: return "operator new";
    case AllocatorName::kNewArray: return "operator new[]";
    case AllocatorName::kVmalloc: return "vmalloc";
    case AllocatorName::kNone: break;
  }
  return "an unknown allocator";
}

const char* deallocator_word(AllocatorName name) {
  switch (name) {
    case AllocatorName::kMalloc: return "free";
    case AllocatorName::kNew: return "operator delete";
    case AllocatorName::kNewArray: return "operator delete[]";
    case AllocatorName::kVmalloc: return "vfree";
    case AllocatorName::kNone: break;
  }
  return "an unknown deallocator";
}

void append_access(TextBuffer& out, const ReportInput& input) {
  const Snapshot& s = *input.snapshot;
  switch (input.diagnosis.access) {
    case Access::kRead: out.append("Read"); break;
    case Access::kWrite: out.append("Write"); break;
    case Access::kFree: out.append("Free"); break;
    case Access::kUnknown: out.append("Access"); break;
  }
  if (input.diagnosis.access == Access::kFree) {
    out.append(" of addr ");
  } else {
    if (s.fault.size != 0) out.append(" of size ").dec(s.fault.size);
    out.append(" at addr ");
  }
  if (s.fault.address_known) {
    append_address(out, s.fault.addr);
  } else {
    out.append("unknown");
  }
  out.append(" by task ");
  append_task(out, s);
  out.append("\n");
}

// Lines that only some faults have; the kernel has none of them.
void append_details(TextBuffer& out, const ReportInput& input) {
  const Snapshot& s = *input.snapshot;
  const Fault& fault = s.fault;
  if (fault.function != nullptr) out.append("Checked call: ").append(fault.function).append("()\n");
  switch (fault.kind) {
    case FaultKind::kMismatchedFree:
      out.append("Allocated with ")
          .append(allocator_word(fault.allocated_by))
          .append(", freed with ")
          .append(deallocator_word(fault.freed_by))
          .append("\n");
      break;
    case FaultKind::kSizeMismatch:
      out.append("The size or alignment given to ")
          .append(deallocator_word(fault.freed_by))
          .append(" is not that of the object");
      if (fault.size != 0) out.append(": ").dec(fault.size).append(" bytes were given");
      out.append("\n");
      break;
    case FaultKind::kCorruptHeader: out.append("The header before the object was overwritten\n"); break;
    case FaultKind::kOverlap:
      out.append("Memory ranges overlap: ");
      append_range(out, fault.addr, fault.size);
      out.append(" and ");
      append_range(out, fault.other_addr, fault.size);
      out.append("\n");
      break;
    case FaultKind::kRefcount: out.append(fault.words).append("\n"); break;
    case FaultKind::kWrappedAccess:
      out.append("The size wraps around; as a signed number it is ")
          .dec_signed(static_cast<std::int64_t>(fault.size))
          .append("\n");
      break;
    case FaultKind::kWildAccess:
      // A check's own look at the shadow, or a use of it by the program: the address that this byte stands for.
      if (s.fault.address_known && fault.addr.value >= shadow::kShadowOffset && fault.addr.value < kUserAddressEnd &&
          !shadow::has_shadow(fault.addr)) {
        const AppAddr original = shadow::app_of(ShadowAddr(fault.addr.value));
        out.append("KASAN: ").append(original.value < kPageSize     ? "null-ptr-deref"
                                     : shadow::has_shadow(original) ? "probably user-memory-access"
                                                                    : "maybe wild-memory-access");
        out.append(" in range [0x")
            .hex_padded(original.value, 16)
            .append("-0x")
            .hex_padded(original.value + shadow::kGranuleSize - 1, 16)
            .append("]\n");
      }
      break;
    case FaultKind::kBadAccess:
    case FaultKind::kDoubleFree:
    case FaultKind::kInvalidFree: break;
  }
}

void append_distance(TextBuffer& out, const Diagnosis& d, const char* what) {
  out.append("The buggy address is located ").dec(d.distance);
  switch (d.side) {
    case Side::kLeft: out.append(" bytes to the left of\n "); break;
    case Side::kInside: out.append(" bytes inside of\n "); break;
    case Side::kRight: out.append(" bytes to the right of\n "); break;
  }
  out.append(what).dec(d.place_bytes).append("-byte ");
}

const char* life_word(const Diagnosis& d) {
  return d.place_is_freed ? "freed " : "allocated ";
}

void append_lives(TextBuffer& out, const ReportInput& input, std::uint32_t allocated_by, std::uint32_t freed_by) {
  out.append("Allocated by task ").dec(allocated_by).append(":\n");
  append_stack(out, input, input.allocated);
  out.append("\n");
  if (!input.diagnosis.place_is_freed) return;
  out.append("Freed by task ").dec(freed_by).append(":\n");
  append_stack(out, input, input.freed);
  out.append("\n");
}

void append_object(TextBuffer& out, const ReportInput& input) {
  const heap::BlockInfo& block = input.snapshot->block;
  append_lives(out, input, block.allocated_by, block.freed_by);
  out.append("The buggy address belongs to the object at ");
  append_address(out, block.begin);
  out.append("\n which belongs to the cache ").append(block.is_large ? "large-" : "");
  out.append(block.by == AllocatorName::kNone ? "malloc" : allocator_word(block.by));
  out.append("-").dec(block.block_bytes).append(" of size ").dec(block.block_bytes).append("\n");
  append_distance(out, input.diagnosis, life_word(input.diagnosis));
  out.append("region ");
  append_range(out, block.begin, block.bytes);
  out.append("\n\n");
}

const char* area_word(region::AreaKind kind) {
  switch (kind) {
    case region::AreaKind::kVmalloc: return "vmalloc";
    case region::AreaKind::kHeapLarge: return "large heap";
    case region::AreaKind::kArena: return "heap arena";
    case region::AreaKind::kVmap: return "vmap";
    case region::AreaKind::kMapRam: return "vm_map_ram";
    case region::AreaKind::kPages: return "mappable page";
    case region::AreaKind::kPerCpu: return "per-CPU";
    case region::AreaKind::kStack: return "stack";
    case region::AreaKind::kCode: return "code";
  }
  return "";
}

void append_region(TextBuffer& out, const ReportInput& input) {
  const region::AreaInfo& area = input.snapshot->area;
  append_lives(out, input, area.allocated_by, area.freed_by);
  out.append("The buggy address belongs to a ")
      .append(input.diagnosis.place_is_freed ? "freed " : "")
      .dec(area.area_bytes / kPageSize);
  out.append("-page ").append(area_word(area.kind)).append(" region starting at ").hex(area.begin.value);
  if (input.allocated.count != 0) {
    out.append(" allocated at ");
    append_place_of(out, input, input.allocated.frames[0]);
  }
  out.append("\n");
  if (input.diagnosis.bug_class == BugClass::kStackOverflow) {
    out.append("The thread has used it up, down to its guard ");
    append_range(out, area.begin - area.guard_before, area.guard_before);
    out.append("\n");
  }
  append_distance(out, input.diagnosis, life_word(input.diagnosis));
  out.append("region ");
  append_range(out, area.begin, area.requested);
  out.append("\n\n");
}

void append_global(TextBuffer& out, const ReportInput& input) {
  const GlobalInfo& global = input.snapshot->global;
  out.append("The buggy address belongs to the variable:\n ").append(global.name).append("+");
  out.hex(input.diagnosis.guilty.value - global.begin.value).append("/").hex(global.bytes);
  if (global.file[0] != '\0') out.append(" defined in ").append(global.file);
  out.append("\n");
  append_distance(out, input.diagnosis, "");
  out.append("variable ");
  append_range(out, global.begin, global.bytes);
  out.append("\n\n");
}

void append_frame_objects(TextBuffer& out, const ReportInput& input) {
  const Snapshot& s = *input.snapshot;
  const StackFrameInfo& frame = s.frame;
  out.append("The buggy address belongs to stack of task ");
  append_task(out, s);
  out.append("\n and is located at offset ").dec(input.diagnosis.guilty - frame.begin).append(" in frame:\n ");
  append_place_of(out, input, frame.function);
  out.append("\n\nThis frame has ")
      .dec(frame.objects_described)
      .append(frame.objects_described == 1 ? " object:\n" : " objects:\n");
  for (std::size_t i = 0; i < frame.object_count; ++i) {
    const FrameObject& object = frame.objects[i];
    out.append(" [")
        .dec(object.begin)
        .append(", ")
        .dec(object.begin + object.bytes)
        .append(") '")
        .append(object.name)
        .append("'");
    if (object.line != 0) out.append(" (line ").dec(object.line).append(")");
    out.append("\n");
  }
  out.append("\n");
}

// KASAN shows shadow only where the address has some that means anything.
bool shows_memory_state(const ReportInput& input) {
  return input.snapshot->fault.kind != FaultKind::kWildAccess ||
         (input.snapshot->in_span && input.snapshot->fault.address_known);
}

void append_memory_state(TextBuffer& out, const ReportInput& input) {
  const ShadowRows& rows = input.snapshot->rows;
  const AppAddr guilty = input.diagnosis.guilty;
  if (!shows_memory_state(input) || rows.at(guilty) < 0) return;
  out.append("Memory state around the buggy address:\n");
  for (std::size_t row = 0; row < kShadowRows; ++row) {
    const AppAddr begin = rows.begin + row * kBytesPerRow;
    const bool is_guilty = guilty >= begin && guilty - begin < kBytesPerRow;
    out.put(is_guilty ? '>' : ' ');
    append_address(out, begin);
    out.append(":");
    for (std::size_t i = 0; i < kGranulesPerRow; ++i) {
      out.put(' ');
      if (rows.known[row]) {
        out.hex_padded(rows.bytes[row][i], 2);
      } else {
        out.append("--");
      }
    }
    out.append("\n");
    if (is_guilty) {
      out.pad_to(kRowPrefix + (guilty - begin) / shadow::kGranuleSize * 3);
      out.append("^\n");
    }
  }
}

}  // namespace

void append_class(TextBuffer& out, const ReportInput& input) {
  const char* function = input.snapshot->fault.function;
  if (input.diagnosis.bug_class != BugClass::kParamOverlap || function == nullptr) {
    out.append(class_word(input.diagnosis.bug_class));
    return;
  }
  // "__memcpy_chk" is memcpy to whoever reads the report, and parsers take no underscores here.
  while (*function == '_') ++function;
  std::size_t length = raw_length(function);
  if (length > 4 && raw_compare(function + length - 4, "_chk", 4) == 0) length -= 4;
  out.append(function, length).append("-param-overlap");
}

void compose_report(TextBuffer& out, const ReportInput& input) {
  const Snapshot& s = *input.snapshot;
  out.append(kRule).append("\nBUG: KASAN: ");
  append_class(out, input);
  out.append(" in ");
  if (input.access.count > 0) {
    append_place_of(out, input, input.access.frames[0]);
  } else {
    out.hex(s.fault.context.pc);
  }
  out.append("\n");
  append_access(out, input);
  append_details(out, input);
  out.append("\nCPU: ")
      .dec(s.cpu)
      .append(" UID: ")
      .dec(s.uid)
      .append(" PID: ")
      .dec(static_cast<std::uint64_t>(s.process))
      .append(" Comm: ");
  out.append(s.task_name[0] != '\0' ? s.task_name : "?").append(" Penumbra " PENUMBRA_VERSION "\n");
  out.append("Call Trace:\n");
  append_stack(out, input, input.access);
  out.append("\n");

  switch (input.diagnosis.place) {
    case Place::kNone: break;
    case Place::kObject: append_object(out, input); break;
    case Place::kRegion: append_region(out, input); break;
    case Place::kGlobal: append_global(out, input); break;
    case Place::kStack: append_frame_objects(out, input); break;
  }
  append_memory_state(out, input);
  out.append(kRule).append("\n");
}

}  // namespace penumbra::report
