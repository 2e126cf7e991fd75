// Calls before which a thread of ours stands down, when worker=1 (process ruling 17).
//
// unshare and setns want a process of one thread where user or mount namespaces are concerned. The set*id family changes
// every thread that libc knows; ours it does not know, and one with the old identity must not stay in a process that gave
// it up. (The same calls made by number: seal_entries.cc.)
//
// zone: nomalloc
#include <sys/types.h>

#include "instrument/libc/alone.h"
#include "instrument/libc/entry.h"

#define PENUMBRA_LIBC_ALONE(name, parameters, arguments) \
  PENUMBRA_LIBC_DECLARE(int, name, parameters)           \
  int entry_##name parameters {                          \
    const ::penumbra::libc::Alone alone;                 \
    return real_##name arguments;                        \
  }

namespace penumbra::libc {

PENUMBRA_LIBC_ALONE(unshare, (int flags), (flags))
PENUMBRA_LIBC_ALONE(setns, (int fd, int kind), (fd, kind))
PENUMBRA_LIBC_ALONE(setuid, (uid_t id), (id))
PENUMBRA_LIBC_ALONE(setgid, (gid_t id), (id))
PENUMBRA_LIBC_ALONE(seteuid, (uid_t id), (id))
PENUMBRA_LIBC_ALONE(setegid, (gid_t id), (id))
PENUMBRA_LIBC_ALONE(setreuid, (uid_t real, uid_t effective), (real, effective))
PENUMBRA_LIBC_ALONE(setregid, (gid_t real, gid_t effective), (real, effective))
PENUMBRA_LIBC_ALONE(setresuid, (uid_t real, uid_t effective, uid_t saved), (real, effective, saved))
PENUMBRA_LIBC_ALONE(setresgid, (gid_t real, gid_t effective, gid_t saved), (real, effective, saved))
PENUMBRA_LIBC_ALONE(setgroups, (size_t count, const gid_t* ids), (count, ids))

}  // namespace penumbra::libc
