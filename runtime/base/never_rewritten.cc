#include "runtime/base/never_rewritten.h"

namespace penumbra {
namespace {

// What the file's name begins with.
constexpr const char* kNeverRewritten[] = {"ld-linux", "linux-vdso", "libpenumbra", "libmimalloc",
                                           "libasan",  "libtsan",    "libubsan",    "liblsan"};

bool starts_with(const char* text, const char* prefix) {
  for (; *prefix != '\0'; ++prefix, ++text) {
    if (*text != *prefix) return false;
  }
  return true;
}

}  // namespace

bool is_never_rewritten(const char* path) {
  const char* name = path;
  for (; *path != '\0'; ++path) {
    if (*path == '/') name = path + 1;
  }
  for (const char* prefix : kNeverRewritten) {
    if (starts_with(name, prefix)) return true;
  }
  return false;
}

}  // namespace penumbra
