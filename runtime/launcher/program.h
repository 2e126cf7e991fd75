// The program that a user named: where it is, what really runs when it is executed, and whether that can be checked.
//
// A script is what its `#!` line says, as far as that goes; `env` there means the program that env will look for
// (also `env -S program ...`, with options and assignments before it). Where Penumbra cannot run, the program runs
// without, and one line says why: launching is never refused for that.
//
// zone: hosted
#pragma once

#include <string>

namespace penumbra::launcher {

struct Program {
  std::string path;        // to execute; as typed where it holds a slash
  std::string native_why;  // not empty: it cannot be checked; goes behind the program's name: "is statically linked"
  bool drops_preload = false;  // native, and even its environment must be free of us
};

// The program is not there (127) or cannot be executed (126).
struct ProgramError {
  std::string what;
  int exit_status;
};

// Looks `name` up in `path_list` (the value of PATH) as execvp does, and inspects it. Throws ProgramError.
Program find_program(const std::string& name, const char* path_list);

}  // namespace penumbra::launcher
