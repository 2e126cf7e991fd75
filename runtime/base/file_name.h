// Names of files, for code that calls nothing.
//
// zone: signal-safe
#pragma once

namespace penumbra {

// What follows the last slash; all of it where there is none.
constexpr const char* base_name(const char* path) {
  const char* name = path;
  for (; *path != '\0'; ++path) {
    if (*path == '/') name = path + 1;
  }
  return name;
}

constexpr bool starts_with(const char* text, const char* start) {
  for (; *start != '\0'; ++text, ++start) {
    if (*text != *start) return false;
  }
  return true;
}

}  // namespace penumbra
