#include "allocator/region/rcu_frees.h"

#include "runtime/base/check.h"
#include "runtime/base/config.h"
#include "runtime/base/locks.h"
#include "runtime/base/os_linux.h"

#include <atomic>
#include <cerrno>

namespace penumbra::region {
namespace {

// Room for the head of any provider known; liburcu's has 16 bytes, the kernel's too.
constexpr std::size_t kHeadBytes = 32;

struct Node {
  alignas(16) unsigned char head[kHeadBytes];
  AppAddr object;
  Node* next;
};

constinit RcuHooks g_hooks;
constinit std::atomic<decltype(RcuProvider::call_rcu)> g_call_rcu{nullptr};
constinit std::atomic<decltype(RcuProvider::synchronize_rcu)> g_synchronize_rcu{nullptr};
constinit Mutex g_lock;  // of the nodes
constinit Node* g_unused = nullptr;

Node* take_node() {
  LockGuard guard(g_lock);
  if (g_unused == nullptr) {
    const os::Result memory = os::map_anonymous(kPageSize);
    if (!memory.ok()) return nullptr;
    Node* const nodes = memory.address().ptr<Node>();
    for (std::size_t i = 0; i < kPageSize / sizeof(Node); ++i) {
      nodes[i].next = g_unused;
      g_unused = &nodes[i];
    }
  }
  Node* const node = g_unused;
  g_unused = node->next;
  return node;
}

void put_node(Node* node) {
  LockGuard guard(g_lock);
  node->next = g_unused;
  g_unused = node;
}

void node_is_due(void* head) {
  Node* const node = static_cast<Node*>(head);
  const AppAddr object = node->object;
  put_node(node);
  g_hooks.free_object(object);
}

void head_is_due(void* head) {
  g_hooks.free_object(g_hooks.object_of(AppAddr(head)));
}

}  // namespace

void rcu_init(const RcuHooks& hooks) {
  g_hooks = hooks;
}

void rcu_set_provider(const RcuProvider& provider) {
  PENUMBRA_CHECK((provider.call_rcu == nullptr) == (provider.synchronize_rcu == nullptr));
  g_synchronize_rcu.store(provider.synchronize_rcu, std::memory_order_relaxed);
  g_call_rcu.store(provider.call_rcu, std::memory_order_release);
}

bool rcu_has_provider() {
  return g_call_rcu.load(std::memory_order_acquire) != nullptr;
}

int rcu_free_later(AppAddr object) {
  const auto call_rcu = g_call_rcu.load(std::memory_order_acquire);
  if (call_rcu == nullptr) return ENOSYS;
  if (Node* const node = take_node()) {
    node->object = object;
    call_rcu(node, node_is_due);
    return 0;
  }
  g_synchronize_rcu.load(std::memory_order_relaxed)();
  g_hooks.free_object(object);
  return 0;
}

int rcu_free_later_by_head(void* head) {
  const auto call_rcu = g_call_rcu.load(std::memory_order_acquire);
  if (call_rcu == nullptr) return ENOSYS;
  call_rcu(head, head_is_due);
  return 0;
}

void rcu_fork_prepare() {
  g_lock.lock();
}

void rcu_fork_parent() {
  g_lock.unlock();
}

void rcu_fork_child() {
  g_lock.reset_after_fork();
}

}  // namespace penumbra::region
