#include "runtime/report/snapshot.h"

#include <signal.h>
#include <ucontext.h>

#include <algorithm>

#include "runtime/base/os_process.h"
#include "runtime/base/raw_memory.h"
#include "runtime/report/proc_maps.h"
#include "runtime/report/task.h"
#include "shadow/bytes.h"

namespace penumbra::report {
namespace {

using shadow::ShadowTag;

// What a compiled frame begins with (facts: KASAN's CURRENT_STACK_FRAME magic), then description and function.
constexpr std::uintptr_t kFrameMagic = 0x41b58ab3;
// How far below a bad byte its frame may begin; larger frames are rare and only lose their description.
constexpr std::size_t kMaxFrameBytes = 64 << 10;

bool is_tag(std::uint8_t value, ShadowTag tag) {
  return value == static_cast<std::uint8_t>(tag);
}

void collect_rows(AppAddr guilty, ShadowRows& rows) {
  const std::uintptr_t middle = round_down(guilty.value, kBytesPerRow);
  rows.begin = AppAddr(middle - (kShadowRows / 2) * kBytesPerRow);
  if (middle < (kShadowRows / 2) * kBytesPerRow) rows.begin = AppAddr();
  for (std::size_t row = 0; row < kShadowRows; ++row) {
    const AppAddr begin = rows.begin + row * kBytesPerRow;
    rows.known[row] =
        shadow::is_reserved() && shadow::has_shadow(begin) && shadow::has_shadow(begin + (kBytesPerRow - 1));
    if (!rows.known[row]) continue;
    for (std::size_t i = 0; i < kGranulesPerRow; ++i) {
      rows.bytes[row][i] = shadow::load_byte(begin + i * shadow::kGranuleSize);
    }
  }
}

bool is_live_stack(const Snapshot& s) {
  return s.has_area && s.area.kind == region::AreaKind::kStack && s.area.state == region::AreaState::kLive;
}

bool belongs_to_stack(const Snapshot& s, AppAddr guilty) {
  const int value = s.rows.at(guilty);
  if (value < 0) return false;
  const auto byte = static_cast<std::uint8_t>(value);
  if (byte > 0 && byte < shadow::kGranuleSize) {
    const int next = s.rows.at(guilty + shadow::kGranuleSize);
    return next >= 0xf1 && next <= 0xf4;
  }
  return (byte >= 0xf1 && byte <= 0xf5) || byte == static_cast<std::uint8_t>(ShadowTag::kRegionInvalid);
}

// Down to the left redzone that every frame begins with, then to the beginning of it.
bool collect_frame(AppAddr guilty, StackFrameInfo& frame) {
  AppAddr at(round_down(guilty.value, shadow::kGranuleSize));
  std::size_t left = kMaxFrameBytes / shadow::kGranuleSize;
  while (left > 0 && !is_tag(shadow::load_byte(at), ShadowTag::kStackLeft)) {
    at = at - shadow::kGranuleSize;
    --left;
  }
  while (left > 0 && is_tag(shadow::load_byte(at - shadow::kGranuleSize), ShadowTag::kStackLeft)) {
    at = at - shadow::kGranuleSize;
    --left;
  }
  if (left == 0) return false;
  std::uintptr_t head[3];
  if (!os::try_read_memory(at, head, sizeof head) || head[0] != kFrameMagic) return false;
  frame.begin = at;
  frame.function = head[2];
  char text[1024];
  std::size_t filled = 0;
  // Page by page: the text may end just before memory that is not there.
  while (filled < sizeof text - 1) {
    const std::uintptr_t from = head[1] + filled;
    const std::size_t piece = std::min(sizeof text - 1 - filled, kPageSize - from % kPageSize);
    if (!os::try_read_memory(AppAddr(from), text + filled, piece)) break;
    filled += piece;
  }
  text[filled] = '\0';
  parse_frame_description(text, frame);
  return true;
}

// A push, a call or a large frame of a thread that has run out of its stack: into the guard, or past it.
void collect_overflow(const Sources& sources, Snapshot& s) {
  if (s.fault.signal != SIGSEGV || sources.describe_area == nullptr) return;
  region::AreaInfo own;  // the thread pointer is at the top of this thread's stack
  if (!sources.describe_area(os::thread_pointer(), own) || own.kind != region::AreaKind::kStack) return;
  if (s.fault.addr >= own.begin || !is_near_stack_pointer(s, s.fault.addr)) return;
  if (own.begin - s.fault.addr > own.guard_before + kOverflowReach) return;
  s.area = own;
  s.has_area = true;
}

struct StackSearch {
  std::uintptr_t stack_pointer;
  std::uintptr_t address;
  bool same = false;
};

void collect_signal(const Fault& fault, Snapshot& s) {
  if (fault.ucontext == nullptr) return;
  const auto& context = *static_cast<const ucontext_t*>(fault.ucontext);
  s.stack_pointer = static_cast<std::uintptr_t>(context.uc_mcontext.gregs[REG_RSP]);
  StackSearch search{s.stack_pointer, fault.addr.value};
  for_each_mapping(
      [](const Mapping& mapping, void* cookie) {
        auto& wanted = *static_cast<StackSearch*>(cookie);
        if (wanted.stack_pointer < mapping.begin) return false;
        if (wanted.stack_pointer >= mapping.end) return true;
        // A thread's stack pointer that has overflowed lies in the guard, which is a mapping as well.
        wanted.same = mapping.writable && wanted.address >= mapping.begin && wanted.address < mapping.end;
        return false;
      },
      &search);
  s.on_stack = search.same;
}

struct TextCursor {
  const char* at;

  bool number(std::size_t& value) {
    while (*at == ' ') ++at;
    if (*at < '0' || *at > '9') return false;
    value = 0;
    for (; *at >= '0' && *at <= '9'; ++at) value = value * 10 + static_cast<std::size_t>(*at - '0');
    return true;
  }
};

}  // namespace

void parse_frame_description(const char* text, StackFrameInfo& frame) {
  TextCursor cursor{text};
  frame.object_count = 0;
  if (!cursor.number(frame.objects_described)) return;
  for (std::size_t i = 0; i < frame.objects_described && frame.object_count < kMaxFrameObjects; ++i) {
    FrameObject& object = frame.objects[frame.object_count];
    object = FrameObject{};
    std::size_t length;
    if (!cursor.number(object.begin) || !cursor.number(object.bytes) || !cursor.number(length)) return;
    if (*cursor.at != ' ') return;
    ++cursor.at;
    // The length covers "name:line", or only the name.
    std::size_t kept = 0;
    std::size_t i_char = 0;
    for (; i_char < length && cursor.at[i_char] != '\0' && cursor.at[i_char] != ':'; ++i_char) {
      if (kept < sizeof object.name - 1) object.name[kept++] = cursor.at[i_char];
    }
    if (i_char < length && cursor.at[i_char] == ':') {
      TextCursor line{cursor.at + i_char + 1};
      std::size_t number;
      if (line.number(number)) object.line = static_cast<std::uint32_t>(number);
    }
    while (length > 0 && *cursor.at != '\0') {
      ++cursor.at;
      --length;
    }
    ++frame.object_count;
  }
}

void collect(const Sources& sources, const Fault& fault, Snapshot& s) {
  s = Snapshot{};
  s.fault = fault;
  const Task task = current_task();
  s.task = task.tid;
  s.process = task.pid;
  s.cpu = os::current_cpu();
  s.uid = os::is_sealed() ? 0 : os::getuid();
  os::thread_name(s.task_name);

  const AppAddr guilty = fault.kind == FaultKind::kBadAccess ? fault.bad : fault.addr;
  if (fault.kind == FaultKind::kWildAccess) collect_signal(fault, s);
  collect_rows(guilty, s.rows);
  s.in_span = sources.in_span != nullptr && sources.in_span(guilty);
  s.has_block = sources.describe_block != nullptr && sources.describe_block(guilty, s.block);
  s.has_area = s.in_span && sources.describe_area != nullptr && sources.describe_area(guilty, s.area);
  if (s.in_span && fault.kind == FaultKind::kWildAccess && fault.address_known) collect_overflow(sources, s);
  if (is_live_stack(s) && belongs_to_stack(s, guilty)) s.has_frame = collect_frame(guilty, s.frame);
  if (s.in_span || s.has_block) return;
  s.has_global = sources.describe_global != nullptr && sources.describe_global(guilty, s.global);
  if (!s.has_global && belongs_to_stack(s, guilty)) s.has_frame = collect_frame(guilty, s.frame);
}

void collect_stacks(const Sources& sources, const Snapshot& s, ReportInput& input) {
  input.access.count = input.allocated.count = input.freed.count = 0;
  std::uintptr_t* const frames = input.access.frames.data();
  if (s.fault.ucontext != nullptr && sources.unwind_ucontext != nullptr) {
    input.access.count = sources.unwind_ucontext(s.fault.ucontext, frames, kMaxStackFrames);
  } else if (sources.unwind != nullptr) {
    input.access.count = sources.unwind(s.fault.context, frames, kMaxStackFrames);
  }
  if (input.access.count == 0 && s.fault.context.pc != 0) {
    frames[0] = s.fault.context.pc;
    input.access.count = 1;
  }
  StackId allocated = kNoStack;
  StackId freed = kNoStack;
  if (input.diagnosis.place == Place::kObject) {
    allocated = s.block.allocated;
    freed = s.block.freed;
  } else if (input.diagnosis.place == Place::kRegion) {
    allocated = s.area.allocated;
    freed = s.area.freed;
  }
  if (sources.stored_stack == nullptr) return;
  if (allocated != kNoStack) {
    input.allocated.count = sources.stored_stack(allocated, input.allocated.frames.data(), kMaxStackFrames);
  }
  if (freed != kNoStack) input.freed.count = sources.stored_stack(freed, input.freed.frames.data(), kMaxStackFrames);
}

}  // namespace penumbra::report
