#include "instrument/load/loader_hook.h"

#include <sys/mman.h>

#include <cstdint>

#include "instrument/load/loaded_modules.h"
#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/raw_memory.h"

namespace penumbra::load {
namespace {

constexpr std::size_t kJumpBytes = 5;
constexpr std::uint8_t kReturn = 0xc3;
constexpr std::uint8_t kEndbr64[] = {0xf3, 0x0f, 0x1e, 0xfa};
constexpr std::uint8_t kJumpNear = 0xe9;
// Functions begin at multiples of this; what lies between a one-byte function and the next is padding.
constexpr std::uintptr_t kFunctionAlignment = 16;

using LoaderEvent = void (*)();
constinit LoaderEvent g_on_event = nullptr;

void loader_event() {
  g_on_event();
}

// `ret`, with or without endbr64 before it, alone in its 16 bytes.
bool is_empty_function(std::uintptr_t at) {
  if (at == 0 || at % kFunctionAlignment != 0) return false;
  const auto* code = reinterpret_cast<const std::uint8_t*>(at);
  if (raw_compare(code, kEndbr64, sizeof kEndbr64) == 0) code += sizeof kEndbr64;
  return *code == kReturn;
}

}  // namespace

bool hook_loader(void (*on_event)()) {
  const std::uintptr_t at = loader_event_function();
  if (!is_empty_function(at)) return false;
  const auto distance =
      static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(&loader_event) - (at + kJumpBytes));
  if (distance != static_cast<std::int32_t>(distance)) return false;
  g_on_event = on_event;
  const AppAddr page(round_down(at, kPageSize));
  if (!os::protect(page, kPageSize, PROT_READ | PROT_WRITE | PROT_EXEC).ok()) return false;
  auto* const code = reinterpret_cast<volatile std::uint8_t*>(at);
  code[0] = kJumpNear;
  for (unsigned n = 0; n < 4; ++n) code[1 + n] = static_cast<std::uint8_t>(distance >> (8 * n));
  os::protect(page, kPageSize, PROT_READ | PROT_EXEC).ignore();
  return true;
}

}  // namespace penumbra::load
