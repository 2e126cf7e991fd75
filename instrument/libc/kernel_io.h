// What system calls touch, told from their answers: filled buffers, read paths, vectors of buffers.
//
// Inputs whose place and size are arguments are checked before the call. What has to be read to be known (a path, an
// array of buffers, a message header) is looked at after it, and only if the kernel could read it: a program may hand
// the kernel a bad pointer and live on EFAULT, which our own load would not survive. Outputs are checked after the
// call, for the bytes that the kernel returned; where it answers EFAULT (a purged region is inaccessible to it as
// well), for all that it was asked to fill.
//
// zone: signal-safe
#pragma once

#include <errno.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstddef>

#include "instrument/libc/touch.h"

namespace penumbra::libc {

inline bool is_efault(long result) {
  return result == -1 && errno == EFAULT;
}

// The kernel was to fill [p, p+bytes) and returned a count (or -1).
inline void filled(const Touch& touch, void* p, std::size_t bytes, long result) {
  if (result > 0) {
    touch.kernel_writes(p, std::min(bytes, static_cast<std::size_t>(result)));
  } else if (is_efault(result)) {
    touch.kernel_writes(p, bytes);
  }
}

// The kernel was to write one `object` and returned 0 or more (or -1). Null: it was not asked to.
template <class Object>
void stored(const Touch& touch, Object* object, long result) {
  if (object != nullptr && (result >= 0 || is_efault(result))) touch.kernel_writes(object, sizeof *object);
}

// The kernel has read a path.
inline void path_read(const Touch& touch, const char* path, long result) {
  if (path != nullptr && !is_efault(result)) touch.text(path, PATH_MAX);
}

// `bytes` went into or came out of the buffers of a vector, from its first one on.
inline void vector_touched(const Touch& touch, const iovec* vector, std::size_t count, long bytes, bool is_write) {
  if (bytes < 0 || vector == nullptr) return;
  touch.kernel_reads(vector, count * sizeof *vector);
  std::size_t left = static_cast<std::size_t>(bytes);
  for (std::size_t i = 0; i < count && left > 0; ++i) {
    const std::size_t here = std::min(left, vector[i].iov_len);
    if (is_write) {
      touch.kernel_writes(vector[i].iov_base, here);
    } else {
      touch.kernel_reads(vector[i].iov_base, here);
    }
    left -= here;
  }
}

inline void message_sent(const Touch& touch, const msghdr* message, long result) {
  if (result < 0 || message == nullptr) return;
  touch.kernel_reads(message, sizeof *message);
  touch.kernel_reads(message->msg_name, message->msg_name != nullptr ? message->msg_namelen : 0);
  touch.kernel_reads(message->msg_control, message->msg_controllen);
  vector_touched(touch, message->msg_iov, message->msg_iovlen, result, false);
}

// `name_room` is msg_namelen before the call: the kernel writes no more, though it tells the whole length.
inline void message_received(const Touch& touch, const msghdr* message, std::size_t name_room, long result) {
  if (result < 0 || message == nullptr) return;
  touch.kernel_writes(message, sizeof *message);
  if (message->msg_name != nullptr) {
    touch.kernel_writes(message->msg_name, std::min<std::size_t>(name_room, message->msg_namelen));
  }
  touch.kernel_writes(message->msg_control, message->msg_controllen);
  vector_touched(touch, message->msg_iov, message->msg_iovlen, result, true);
}

// An output of variable length behind a pointer to its length: room before the call, length after it.
class LengthAndRoom {
 public:
  LengthAndRoom(const Touch& touch, const socklen_t* length) : length_(length) {
    if (length == nullptr) return;
    touch.kernel_reads(length, sizeof *length);
    room_ = *length;
  }

  void filled(const Touch& touch, void* p, long result) const {
    if (result < 0 || p == nullptr || length_ == nullptr) return;
    touch.kernel_writes(p, std::min(room_, *length_));
  }

 private:
  const socklen_t* length_;
  socklen_t room_ = 0;
};

}  // namespace penumbra::libc
