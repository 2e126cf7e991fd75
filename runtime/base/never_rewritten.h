// Which modules stay as they are, whatever they hold: the loader, what Penumbra itself is made of, and sanitizers'
// runtimes. One list for the launcher, which makes no module files for them, and the library, which looks for none.
//
// zone: signal-safe
#pragma once

namespace penumbra {

// By the name of the module's file, without its folder.
bool is_never_rewritten(const char* path);

}  // namespace penumbra
