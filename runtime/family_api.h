// Mappings, per-CPU areas and deferred frees of the C API, as the rest of the runtime sees them: around fork,
// and when everything unused shall go.
//
// zone: nomalloc
#pragma once

namespace penumbra::runtime {

// Before the region allocator's own fork_prepare(), and after its fork_parent() and fork_child().
void family_fork_prepare();
void family_fork_parent();
void family_fork_child();

// Gives back what is kept without being used: page chunks, blocks of vm_map_ram, per-CPU chunks.
void trim_family();

}  // namespace penumbra::runtime
