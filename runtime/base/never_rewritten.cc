#include "runtime/base/never_rewritten.h"

#include "runtime/base/file_name.h"

namespace penumbra {
namespace {

// What the file's name begins with.
constexpr const char* kNeverRewritten[] = {"ld-linux", "linux-vdso", "libpenumbra", "libmimalloc",
                                           "libasan",  "libtsan",    "libubsan",    "liblsan"};

}  // namespace

bool is_never_rewritten(const char* path) {
  const char* const name = base_name(path);
  for (const char* prefix : kNeverRewritten) {
    if (starts_with(name, prefix)) return true;
  }
  return false;
}

}  // namespace penumbra
