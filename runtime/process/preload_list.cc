#include "runtime/process/preload_list.h"

#include "runtime/base/raw_memory.h"

namespace penumbra::process {
namespace {

constexpr char kVariable[] = "LD_PRELOAD=";
constexpr std::size_t kVariableLength = sizeof kVariable - 1;

bool is_preload(const char* entry) {
  for (std::size_t i = 0; i < kVariableLength; ++i) {
    if (entry[i] != kVariable[i]) return false;
  }
  return true;
}

bool separates(char c) {
  return c == ':' || c == ' ';
}

bool is_ours(const char* name, std::size_t length) {
  constexpr std::size_t kOurs = sizeof kLibraryName - 1;
  if (length < kOurs || raw_compare(name + length - kOurs, kLibraryName, kOurs) != 0) return false;
  return length == kOurs || name[length - kOurs - 1] == '/';
}

// Copies the names of `list` that are not ours to `into`, separated by colons; returns how many bytes that took.
// With `into` null it only says whether one of them is ours, in `found`.
std::size_t copy_others(const char* list, char* into, bool& found) {
  std::size_t written = 0;
  while (*list != '\0') {
    if (separates(*list)) {
      ++list;
      continue;
    }
    std::size_t length = 0;
    while (list[length] != '\0' && !separates(list[length])) ++length;
    if (is_ours(list, length)) {
      found = true;
    } else if (into != nullptr) {
      if (written > 0) into[written++] = ':';
      raw_copy(into + written, list, length);
      written += length;
    }
    list += length;
  }
  return written;
}

}  // namespace

std::size_t bytes_without_preload(char* const* envp) {
  if (envp == nullptr) return 0;
  bool found = false;
  std::size_t entries = 1;
  std::size_t text = 0;
  for (; *envp != nullptr; ++envp, ++entries) {
    if (!is_preload(*envp)) continue;
    copy_others(*envp + kVariableLength, nullptr, found);
    text += raw_length(*envp) + 1;
  }
  return found ? entries * sizeof(char*) + text : 0;
}

char** build_without_preload(char* const* envp, void* storage) {
  std::size_t entries = 1;
  for (char* const* e = envp; *e != nullptr; ++e) ++entries;
  char** const result = static_cast<char**>(storage);
  char* text = reinterpret_cast<char*>(result + entries);
  char** next = result;
  for (; *envp != nullptr; ++envp) {
    if (!is_preload(*envp)) {
      *next++ = *envp;
      continue;
    }
    bool found = false;
    raw_copy(text, kVariable, kVariableLength);
    const std::size_t others = copy_others(*envp + kVariableLength, text + kVariableLength, found);
    if (others == 0) continue;
    *next++ = text;
    text += kVariableLength + others;
    *text++ = '\0';
  }
  *next = nullptr;
  return result;
}

}  // namespace penumbra::process
