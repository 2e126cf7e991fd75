#include "runtime/compiled.h"

#include <cstdint>

#include "instrument/abi/abi.h"
#include "instrument/abi/globals.h"
#include "runtime/base/raw_memory.h"
#include "runtime/pthread_stacks.h"
#include "runtime/report/code_names.h"
#include "runtime/report/report.h"
#include "runtime/signals/signals.h"
#include "runtime/stacks/stacks.h"
#include "shadow/address_map.h"

namespace penumbra::runtime {
namespace {

constinit report::Sources g_sources;

bool is_live(const heap::BlockInfo& block) {
  return block.state == heap::BlockState::kLive;
}

// A heap object, or a live or freed area of the region allocator.
bool describe_object(AppAddr address, abi::ObjectInfo& info) {
  heap::BlockInfo block;
  if (g_sources.describe_block != nullptr && g_sources.describe_block(address, block) &&
      block.state != heap::BlockState::kNone) {
    info = {block.begin, block.bytes, is_live(block), block.allocated_by, block.freed_by};
    return true;
  }
  region::AreaInfo area;
  if (g_sources.describe_area == nullptr || !g_sources.describe_area(address, area)) return false;
  if (area.state == region::AreaState::kNever || area.kind == region::AreaKind::kArena) return false;
  info = {area.begin, area.requested, area.state == region::AreaState::kLive, area.allocated_by, area.freed_by};
  return true;
}

std::size_t object_stack(AppAddr address, bool freed, std::uintptr_t* frames, std::size_t max) {
  StackId id = kNoStack;
  heap::BlockInfo block;
  region::AreaInfo area;
  if (g_sources.describe_block != nullptr && g_sources.describe_block(address, block) &&
      block.state != heap::BlockState::kNone) {
    id = freed ? block.freed : block.allocated;
  } else if (g_sources.describe_area != nullptr && g_sources.describe_area(address, area)) {
    id = freed ? area.freed : area.allocated;
  }
  return g_sources.stored_stack != nullptr ? g_sources.stored_stack(id, frames, max) : 0;
}

// The stack of __sanitizer_print_stack_trace, in the form of a report's.
void compose_stack(report::Desk& desk, const void* context) {
  std::uintptr_t frames[kMaxStackFrames];
  const std::size_t count = desk.sources.unwind(*static_cast<const CodeContext*>(context), frames, kMaxStackFrames);
  for (std::size_t i = 0; i < count; ++i) {
    if (frames[i] != stacks::kBrokenStack) desk.names.add(frames[i], true);
  }
  desk.symbolize();
  for (std::size_t i = 0; i < count; ++i) {
    if (const report::CodeName* const name = desk.names.find(frames[i])) report::append_frame(desk.out, *name);
  }
}

void print_stack(const CodeContext& context) {
  report::print(compose_stack, &context);
}

void append_range(TextBuffer& out, AppAddr address, AppAddr begin, std::size_t bytes) {
  if (address < begin) {
    out.dec(begin - address).append(" bytes to the left of");
  } else if (address - begin < bytes || bytes == 0) {
    out.dec(address - begin).append(" bytes inside of");
  } else {
    out.dec(address - begin - bytes).append(" bytes to the right of");
  }
  out.append(" [").hex_padded(begin.value, 16).append(", ").hex_padded((begin + bytes).value, 16).append(")\n");
}

// One line for __asan_describe_address.
void compose_address(report::Desk& desk, const void* argument) {
  const AppAddr address = *static_cast<const AppAddr*>(argument);
  TextBuffer& out = desk.out;
  out.append("penumbra: address ").hex_padded(address.value, 16);
  abi::GlobalInfo global;
  abi::ObjectInfo object;
  if (!shadow::has_shadow(address)) {
    out.append(" is no memory of the program\n");
  } else if (abi::describe_global(address, global)) {
    out.append(" belongs to variable ").append(global.name).append(" of ").append(global.module).append(", ");
    append_range(out, address, global.begin, global.bytes);
  } else if (describe_object(address, object)) {
    out.append(object.is_live ? " belongs to an allocated object, " : " belongs to a freed object, ");
    append_range(out, address, object.begin, object.bytes);
  } else {
    out.append(" belongs to no known object\n");
  }
}

void print_address(AppAddr address) {
  report::print(compose_address, &address);
}

void end_process() {
  report::end_process();
}

void thread_begins(void* stack) {
  enter_pthread_stack(stack);
  signals::thread_begins();
}

void thread_ends() {
  signals::thread_ends();
  leave_pthread_stack();
}

}  // namespace

bool describe_global(AppAddr address, report::GlobalInfo& info) {
  abi::GlobalInfo found;
  if (!abi::describe_global(address, found)) return false;
  info.begin = found.begin;
  info.bytes = found.bytes;
  const auto copy = [](char* to, std::size_t room, const char* from) {
    const std::size_t length = raw_length(from) < room ? raw_length(from) : room - 1;
    raw_copy(to, from, length);
    to[length] = '\0';
  };
  copy(info.name, sizeof info.name, found.name);
  copy(info.file, sizeof info.file, found.file != nullptr ? found.file : found.module);
  return true;
}

void connect_compiled_code(const report::Sources& sources) {
  g_sources = sources;
  abi::Hooks hooks;
  hooks.describe_object = describe_object;
  hooks.object_stack = object_stack;
  hooks.print_address = print_address;
  hooks.print_stack = print_stack;
  hooks.end_process = end_process;
  hooks.thread_begins = thread_begins;
  hooks.thread_ends = thread_ends;
  hooks.lend_stack = lend_pthread_stack;
  hooks.thread_created = pthread_created;
  abi::set_hooks(hooks);
  signals::set_resume_hook(abi::skip_faulting_check);
  report::set_listener({abi::note_report, abi::run_death_callback});
}

}  // namespace penumbra::runtime
