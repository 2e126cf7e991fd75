#include <fcntl.h>
#include <sys/auxv.h>

#include "runtime/base/config.h"
#include "runtime/base/os_linux.h"
#include "runtime/base/text_buffer.h"
#include "runtime/process/exec.h"
#include "runtime/process/preload_list.h"
#include "runtime/process/program_file.h"

namespace penumbra::process {
namespace {

// Larger environments than this are not started again: the constructor may run on a small stack.
constexpr std::size_t kMostEnvironmentBytes = 256u << 10;

void start_again_without_us(char** argv, char** envp, const char* sanitizer) {
  const std::size_t bytes = bytes_without_preload(envp);
  if (argv == nullptr || bytes == 0 || bytes > kMostEnvironmentBytes) return;
  char path[kMaxPath];
  const os::Result length = os::read_link("/proc/self/exe", path, sizeof path - 1);
  if (!length.ok()) return;
  path[length.value()] = '\0';

  FixedTextBuffer<512> line;
  line.append("penumbra: ").append(path).append(" was built with ").append(sanitizer);
  line.append(": it runs without Penumbra\n");
  os::write_all(2, line.data(), line.size());
  char** const environment = build_without_preload(envp, __builtin_alloca(bytes));
  os::execute(AT_FDCWD, path, argv, environment, 0).ignore();
  // The file is gone or was replaced: its image in the kernel is still there, only the name in ps becomes "exe".
  os::execute(AT_FDCWD, "/proc/self/exe", argv, environment, 0).ignore();
}

}  // namespace

bool stands_aside(char** argv, char** envp) {
  const char* const sanitizer = sanitizer_of_this_process();
  if (sanitizer == nullptr) return false;
  if (getauxval(AT_SECURE) == 0) start_again_without_us(argv, envp, sanitizer);
  return true;
}

}  // namespace penumbra::process
