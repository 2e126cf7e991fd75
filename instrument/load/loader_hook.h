// Being told when the dynamic loader has loaded or unloaded modules.
//
// The loader calls an empty function, _dl_debug_state, whenever its link maps are complete again, so that debuggers have a
// place for a breakpoint. The hook is a jump in that place. Every way to load comes by (dlopen, dlmopen, the libraries
// that libc loads for iconv, NSS and cancellation), before the module is relocated and before its constructors run, where an interposed
// dlopen would be told afterwards, and of the program's own calls only. A debugger that is attached later sets its breakpoint on our
// jump, which works like any other instruction.
//
// zone: nomalloc
#pragma once

namespace penumbra::load {

// From now on `on_event` is called with the loader's lock held. False where the loader's function looks unlike what is
// known or its code may not be written: modules that come later then run unrewritten.
bool hook_loader(void (*on_event)());

}  // namespace penumbra::load
