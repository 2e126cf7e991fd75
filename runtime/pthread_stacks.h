// The stacks of the program's threads, between pthread_create() and the pool that they come from.
//
// A thread that is created without a stack of the program's own gets one from region::process_stacks(), of the size and
// with the guard that its attributes say, through attributes that name it. To glibc that is a stack of the user's: it
// puts no guard on it, keeps none of it in its cache, and runs on it after the last destructor of the program, until the
// exit system call. When it may be used again is the pool's business (stack_pool.h); here it learns of joins, detaching,
// the begin and the end of threads.
//
// The program sees no difference: pthread_getattr_np() says the same stack size and guard size as without us.
//
// Left to glibc: threads that thrd_create() or libc itself begins; all threads of programs and libraries that want
// executable stacks, which glibc makes executable only where they are its own; sealed processes; stacks beyond a quarter
// of the span, or with a guard from 64 MiB.
//
// zone: nomalloc
#pragma once

#include <pthread.h>

#include "instrument/libc/init.h"
#include "runtime/base/address.h"
#include "runtime/signals/signals.h"

namespace penumbra::runtime {

// Once, at start, when regions are there. Without it threads keep glibc's stacks.
void init_pthread_stacks();
// What libc's entry points tell.
libc::ThreadHooks pthread_stack_hooks();

// As in abi::Hooks.
void* lend_pthread_stack(const pthread_attr_t* wanted, pthread_attr_t& given, const CodeContext& caller);
void pthread_created(void* stack, const pthread_attr_t* wanted, pthread_attr_t& given, int error);
// By the thread itself, first and last. `stack` null: it runs on another one.
void enter_pthread_stack(void* stack);
void leave_pthread_stack();

// For signals::init().
signals::StackPart pthread_stack_part(AppAddr a);

void fork_pthread_stacks_child(bool prepared);

}  // namespace penumbra::runtime
