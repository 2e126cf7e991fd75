// The wishes of this process that name its module files (runtime/base/module_key.h), with the list of optout=FILE read once.
//
// zone: nomalloc
#pragma once

#include "runtime/base/options.h"
#include "runtime/base/text_buffer.h"

namespace penumbra::runtime {

// Maps the list, if there is one; a list that cannot be read is one line, and nothing is left out. Called once, before
// modules are looked for.
void read_optout_list(const Options& options);

// As load::Settings::append_key.
void append_key(TextBuffer& out, const char* path);

}  // namespace penumbra::runtime
