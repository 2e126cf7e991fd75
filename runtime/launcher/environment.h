// The environment a checked program starts with: ours in front of LD_PRELOAD, the options in PENUMBRA_OPTIONS.
//
// LD_PRELOAD is split at blanks and colons and knows no quoting. A library in a folder whose name holds one is reached
// through a link in a folder of the user's own below /tmp.
//
// zone: hosted
#pragma once

#include <string>

namespace penumbra::launcher {

struct EnvironmentError {
  std::string what;
};

// The folder of this very binary.
std::string own_folder();
// libpenumbra.so, absolute. Throws EnvironmentError where it is not beside this binary.
std::string find_library();

// Changes this process's environment, for the exec that follows. Existing preloads stay, behind ours; options that
// were in the environment stay, in front of `options`, so that these win.
void preload(const std::string& library);
void add_options(const std::string& options);
// Takes us out again: this process may have been started by a checked one.
void remove_preload();

}  // namespace penumbra::launcher
