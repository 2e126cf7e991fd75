// What kind of program a file is: can Penumbra run in it, and if not, why.
//
// The launcher asks before it starts a program; the exec interposers ask about each child; a process that was
// started with the library asks about itself (in memory). One table of sanitizers serves all three.
//
//     kind        may be checked   the preload in its environment
//     kDynamic    yes              kept
//     kScript     its interpreter decides: follow_scripts() goes on to that
//     kOther      no: not ELF, the shell's matter                             kept
//     kUnknown    cannot be read (execute permission only): taken for dynamic, kept
//     kStatic     no: nothing loads a library there                           kept, for what it starts
//     kForeign    no: another machine or 32 bits                              dropped: its loader would complain
//     kSanitizer  no: two shadows do not fit in one process                   dropped (process ruling 6)
// A set-user-ID or set-group-ID file is marked apart from its kind: it runs with the preload dropped.
//
// Files are read with pread into fixed buffers: no mapping that a vfork child would leave in its parent, no SIGBUS
// when somebody truncates the file.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

namespace penumbra::process {

enum class ProgramKind : std::uint8_t { kUnknown, kDynamic, kScript, kOther, kStatic, kForeign, kSanitizer };

// The kernel looks at this many bytes for "#!" (BINPRM_BUF_SIZE, include/uapi/linux/binfmts.h).
inline constexpr std::size_t kScriptLineBytes = 256;
// Scripts that interpret scripts: the kernel follows this many (fs/exec.c, exec_binprm).
inline constexpr int kScriptDepth = 5;

struct ProgramFile {
  ProgramKind kind = ProgramKind::kUnknown;
  bool changes_id = false;             // set-user-ID or set-group-ID
  const char* sanitizer = nullptr;     // kSanitizer: "AddressSanitizer", ...
  char interpreter[kScriptLineBytes];  // kScript: the program behind #!
  char argument[kScriptLineBytes];     // kScript: the rest of the line, one argument; may be empty

  bool drops_preload() const {
    return changes_id || kind == ProgramKind::kForeign || kind == ProgramKind::kSanitizer;
  }
};

// `fd` is open for reading on a regular file.
void inspect_program(int fd, ProgramFile& program);

// Inspects `path` (relative to `dirfd`, AT_FDCWD for the working directory) and, while that is a script, what
// interprets it. False where the file, or one of the interpreters, cannot be opened: then `program` is kUnknown.
bool follow_scripts(int dirfd, const char* path, ProgramFile& program);

// The sanitizer that this very process was built with, executable or any library it was linked with; null if none.
// Looks at what the loader has mapped, opens nothing.
const char* sanitizer_of_this_process();

}  // namespace penumbra::process
