// Where reports go: stderr, or the file that log_path names.
//
// The file is opened for each report and closed behind it: a descriptor kept open would be one more that the program
// can close, inherit or run out of. It is opened to append, so processes that share a name do not overwrite each
// other; `%p` in the name is the id of the process that reports, so each forked child has its own.
//
// stderr is used only if it was open when the program started: a program that starts without it gets the number 2
// for one of its own files.
//
// A reader that has gone away, a full disk or a size limit costs the text, never the program: the signals that such
// a write brings (SIGPIPE, SIGXFSZ) are taken away again.
//
// zone: signal-safe
#pragma once

#include <cstddef>

#include "runtime/base/text_buffer.h"

namespace penumbra::report {

// `log_path` empty: stderr. Kept, not copied.
void open_sink(const char* log_path);

// All signals but the synchronous ones are blocked by the caller. False when not all of it could be written.
bool write_out(const char* text, std::size_t length);

// `pattern` with %p replaced by `pid` and %% by %.
void append_log_path(TextBuffer& out, const char* pattern, int pid);

}  // namespace penumbra::report
