// Asks the helper process what it knows about the frames of a report, within a time limit.
//
// Frames keep the names that the process itself gave them where the helper knows nothing, answers too late, or cannot
// be started at all; a report never waits longer than kSymbolizeMs for all of its frames together.
//
// zone: signal-safe; called by the holder of the report lock only
#pragma once

#include "runtime/report/code_names.h"

namespace penumbra::report {

inline constexpr int kSymbolizeMs = 2000;

void symbolize(NameTable& names);

// Fills in `name` from the answer to one request: lines of runtime/base/symbolize_protocol.h, without the empty one.
void take_answer(NameTable& names, CodeName& name, const char* text, std::size_t length);

// What the helper is asked about `name`, with its newline; false where it has no module to be looked up in.
bool append_request(TextBuffer& out, const CodeName& name);

}  // namespace penumbra::report
