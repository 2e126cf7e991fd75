// Threads allocate, resize and hand blocks to each other. Every byte stays what it was, and nothing is reported.
//
// STDOUT: intact
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

static constexpr unsigned kSlots = 512;
static std::atomic<unsigned char*> slots[kSlots];

static unsigned char* make(unsigned bytes) {
  auto* const p = static_cast<unsigned char*>(std::malloc(bytes + 8));
  std::memcpy(p, &bytes, 4);
  std::memset(p + 8, static_cast<int>(bytes & 0xff), bytes);
  return p;
}

static void check(const unsigned char* p) {
  unsigned bytes;
  std::memcpy(&bytes, p, 4);
  for (unsigned i = 0; i < bytes; ++i) {
    if (p[8 + i] != (bytes & 0xff)) std::abort();
  }
}

int main() {
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 60000; ++i) {
        unsigned char* mine = make(random() % (1u << random() % 13));
        if (random() % 8 == 0) mine = static_cast<unsigned char*>(std::realloc(mine, 8 + 16384));
        unsigned char* const other = slots[random() % kSlots].exchange(mine);
        if (other != nullptr) {
          check(other);
          std::free(other);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& slot : slots) std::free(slot.exchange(nullptr));
  std::puts("intact");
}
