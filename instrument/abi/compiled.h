// Is there compiled (instrumented) code in this process? The interposed throw and longjmp ask, and do nothing if not.
//
// Compiled code need not call anything before it throws: inline checks and stack poisoning touch only the shadow. But
// a module that contains it imports an __asan_ name. So the answer comes from the relocations of the loaded modules, is
// asked for at the first throw or longjmp only, and again after a dlopen. An entry point that only
// compiled code calls (register_globals, report, handle_no_return) answers it as well.
//
// I1  the answer only ever goes from "ask" to "no" or "yes", from "no" back to "ask" (dlopen), never from "yes".
//
// zone: nomalloc
#pragma once

namespace penumbra::abi {

// Compiled code has called us. Signal-safe.
void note_compiled_code();
// Another module is about to be loaded: "no" becomes "ask".
void expect_new_module();
// True if some loaded module was compiled with checks. Looks through the modules when that is not known.
bool has_compiled_code();
// True if some loaded module has checks or stack poisoning *inline*, which cannot run without the shadow. Writes its
// path as the loader knows it (empty for the program itself).
bool find_inline_checks(const char** path);
// Without a shadow: if some module has inline checks, says in one line what to do and ends the process (exit status
// 1). Called when the runtime comes up and by constructors of compiled modules that come later.
void require_shadow_for_compiled_code();

}  // namespace penumbra::abi
