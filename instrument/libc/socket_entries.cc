// recv, send and the other calls that move bytes and addresses between sockets and the program.
//
// zone: signal-safe
#include <sys/socket.h>

#include "instrument/libc/entry.h"
#include "instrument/libc/kernel_io.h"
#include "shadow/address_map.h"

namespace penumbra::libc {
namespace {

using Size = std::size_t;

Size name_room(const msghdr* message) {
  return message != nullptr && shadow::has_shadow(AppAddr(message)) ? message->msg_namelen : 0;
}

// `result` messages were handled. The room for a received name is overwritten by its length, so names are left out.
void messages_handled(const Touch& touch, mmsghdr* messages, int result, bool is_receive) {
  if (result <= 0) return;
  const Size count = static_cast<Size>(result);
  if (is_receive) {
    touch.kernel_writes(messages, count * sizeof *messages);
  } else {
    touch.kernel_reads(messages, count * sizeof *messages);
  }
  for (Size i = 0; i < count; ++i) {
    if (is_receive) {
      message_received(touch, &messages[i].msg_hdr, 0, messages[i].msg_len);
    } else {
      message_sent(touch, &messages[i].msg_hdr, messages[i].msg_len);
    }
  }
}

}  // namespace

PENUMBRA_LIBC_CALL(ssize_t, recv, (int fd, void* p, Size bytes, int flags), (fd, p, bytes, flags), ,
                   filled(touch, p, bytes, result))
PENUMBRA_LIBC_CALL(ssize_t, __recv_chk, (int fd, void* p, Size bytes, Size object, int flags),
                   (fd, p, bytes, object, flags), , filled(touch, p, bytes, result))
PENUMBRA_LIBC_CALL(ssize_t, recvfrom, (int fd, void* p, Size bytes, int flags, sockaddr* name, socklen_t* name_bytes),
                   (fd, p, bytes, flags, name, name_bytes), const LengthAndRoom length(touch, name_bytes),
                   filled(touch, p, bytes, result);
                   length.filled(touch, name, result))
PENUMBRA_LIBC_CALL(ssize_t, __recvfrom_chk,
                   (int fd, void* p, Size bytes, Size object, int flags, sockaddr* name, socklen_t* name_bytes),
                   (fd, p, bytes, object, flags, name, name_bytes), const LengthAndRoom length(touch, name_bytes),
                   filled(touch, p, bytes, result);
                   length.filled(touch, name, result))
PENUMBRA_LIBC_CALL(ssize_t, recvmsg, (int fd, msghdr* message, int flags), (fd, message, flags),
                   const Size room = name_room(message), message_received(touch, message, room, result))
PENUMBRA_LIBC_CALL(int, recvmmsg, (int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout),
                   (fd, messages, count, flags, timeout), , messages_handled(touch, messages, result, true))

PENUMBRA_LIBC(ssize_t, send, (int fd, const void* p, Size bytes, int flags), (fd, p, bytes, flags),
              touch.kernel_reads(p, bytes))
PENUMBRA_LIBC(ssize_t, sendto,
              (int fd, const void* p, Size bytes, int flags, const sockaddr* name, socklen_t name_bytes),
              (fd, p, bytes, flags, name, name_bytes), touch.kernel_reads(p, bytes);
              if (name != nullptr) touch.kernel_reads(name, name_bytes))
PENUMBRA_LIBC_CALL(ssize_t, sendmsg, (int fd, const msghdr* message, int flags), (fd, message, flags), ,
                   message_sent(touch, message, result))
PENUMBRA_LIBC_CALL(int, sendmmsg, (int fd, mmsghdr* messages, unsigned count, int flags),
                   (fd, messages, count, flags), , messages_handled(touch, messages, result, false))

PENUMBRA_LIBC(int, bind, (int fd, const sockaddr* name, socklen_t bytes), (fd, name, bytes),
              touch.kernel_reads(name, bytes))
PENUMBRA_LIBC(int, connect, (int fd, const sockaddr* name, socklen_t bytes), (fd, name, bytes),
              touch.kernel_reads(name, bytes))
PENUMBRA_LIBC(int, setsockopt, (int fd, int level, int option, const void* p, socklen_t bytes),
              (fd, level, option, p, bytes), if (p != nullptr) touch.kernel_reads(p, bytes))

#define PENUMBRA_TELLS_NAME(name, parameters, arguments)                                         \
  PENUMBRA_LIBC_CALL(int, name, parameters, arguments, const LengthAndRoom length(touch, bytes), \
                     length.filled(touch, p, result))
PENUMBRA_TELLS_NAME(accept, (int fd, sockaddr* p, socklen_t* bytes), (fd, p, bytes))
PENUMBRA_TELLS_NAME(accept4, (int fd, sockaddr* p, socklen_t* bytes, int flags), (fd, p, bytes, flags))
PENUMBRA_TELLS_NAME(getsockname, (int fd, sockaddr* p, socklen_t* bytes), (fd, p, bytes))
PENUMBRA_TELLS_NAME(getpeername, (int fd, sockaddr* p, socklen_t* bytes), (fd, p, bytes))
PENUMBRA_TELLS_NAME(getsockopt, (int fd, int level, int option, void* p, socklen_t* bytes),
                    (fd, level, option, p, bytes))

using DescriptorPair = int[2];
PENUMBRA_LIBC_CALL(int, socketpair, (int domain, int type, int protocol, DescriptorPair* pair),
                   (domain, type, protocol, pair), , stored(touch, pair, result))
PENUMBRA_LIBC_CALL(int, pipe, (DescriptorPair * pair), (pair), , stored(touch, pair, result))
PENUMBRA_LIBC_CALL(int, pipe2, (DescriptorPair * pair, int flags), (pair, flags), , stored(touch, pair, result))

}  // namespace penumbra::libc
