// Container annotations: for every storage offset and every pair of states of a small container, exactly the elements
// are accessible, up to what granules can express; neighbours of the storage never change.
#include <cstring>

#include "instrument/abi/abi.h"
#include "shadow/address_map.h"
#include "shadow/check.h"
#include "shadow/encoding.h"
#include "shadow/poison.h"
#include "tests/abi/fault_log.h"
#include "tests/support/shadow_map.h"

extern "C" {
void __sanitizer_annotate_contiguous_container(const void*, const void*, const void*, const void*);
void __sanitizer_annotate_double_ended_contiguous_container(const void*, const void*, const void*, const void*,
                                                            const void*, const void*);
int __sanitizer_verify_contiguous_container(const void*, const void*, const void*);
const void* __sanitizer_contiguous_container_find_bad_address(const void*, const void*, const void*);
int __sanitizer_verify_double_ended_contiguous_container(const void*, const void*, const void*, const void*);
}

namespace penumbra::abi {
namespace {

alignas(64) char g_memory[128];

class Containers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    ASSERT_TRUE(reserve_test_map().ok());
    start();
  }

  void TearDown() override { shadow::clear_stale(AppAddr(g_memory), sizeof g_memory); }
};

bool is_bad(const char* p) {
  return !shadow::is_accessible(AppAddr(p), 1);
}

void expect_elements(const char* storage, const char* storage_end, const char* begin, const char* end) {
  for (const char* p = g_memory; p < g_memory + sizeof g_memory; ++p) {
    if (p < storage || p >= storage_end || (p >= begin && p < end)) {
      ASSERT_FALSE(is_bad(p)) << p - g_memory;
      continue;
    }
    const std::size_t granule = static_cast<std::size_t>(p - g_memory) & ~std::size_t{7};
    const bool shares_front = g_memory + granule < storage;
    const bool shares_back = g_memory + granule + 8 > storage_end;
    const bool before_elements = begin != end && p < begin && g_memory + granule + 8 > begin;
    if (!shares_front && !shares_back && !before_elements) {
      ASSERT_TRUE(is_bad(p)) << p - g_memory;
    }
  }
}

TEST_F(Containers, ExactlyTheElementsAreAccessibleWhereverTheStorageLies) {
  for (int offset = 0; offset < 8; ++offset) {
    for (int bytes : {0, 1, 7, 8, 9, 30, 33}) {
      char* const storage = g_memory + 32 + offset;
      char* const end = storage + bytes;
      for (int from = 0; from <= bytes; ++from) {
        for (int to = 0; to <= bytes; ++to) {
          shadow::clear_stale(AppAddr(g_memory), sizeof g_memory);
          __sanitizer_annotate_contiguous_container(storage, end, end, storage + from);
          expect_elements(storage, end, storage, storage + from);
          __sanitizer_annotate_contiguous_container(storage, end, storage + from, storage + to);
          expect_elements(storage, end, storage, storage + to);
          ASSERT_EQ(__sanitizer_verify_contiguous_container(storage, storage + to, end), 1);
          __sanitizer_annotate_contiguous_container(storage, end, storage + to, end);
          ASSERT_TRUE(shadow::is_accessible(AppAddr(g_memory), sizeof g_memory));
        }
      }
    }
  }
}

TEST_F(Containers, ADequeGrowsAndShrinksAtBothEnds) {
  char* const storage = g_memory + 24;
  char* const end = storage + 48;
  for (int a = 0; a <= 48; a += 3) {
    for (int b = a; b <= 48; b += 3) {
      for (int c = 0; c <= 48; c += 5) {
        for (int d = c; d <= 48; d += 5) {
          shadow::clear_stale(AppAddr(g_memory), sizeof g_memory);
          __sanitizer_annotate_double_ended_contiguous_container(storage, end, storage, end, storage + a,
                                                                 storage + b);
          expect_elements(storage, end, storage + a, storage + b);
          __sanitizer_annotate_double_ended_contiguous_container(storage, end, storage + a, storage + b, storage + c,
                                                                 storage + d);
          expect_elements(storage, end, storage + c, storage + d);
          ASSERT_EQ(__sanitizer_verify_double_ended_contiguous_container(storage, storage + c, storage + d, end), 1);
        }
      }
    }
  }
}

TEST_F(Containers, TheirPoisonHasATagOfItsOwnAndWrongStatesAreFound) {
  __sanitizer_annotate_contiguous_container(g_memory, g_memory + 64, g_memory + 64, g_memory + 20);
  EXPECT_EQ(shadow::load_byte(AppAddr(g_memory + 40)), 0xe6);
  EXPECT_EQ(__sanitizer_contiguous_container_find_bad_address(g_memory, g_memory + 20, g_memory + 64), nullptr);
  EXPECT_EQ(__sanitizer_contiguous_container_find_bad_address(g_memory, g_memory + 24, g_memory + 64), g_memory + 20);
  EXPECT_EQ(__sanitizer_contiguous_container_find_bad_address(g_memory, g_memory + 16, g_memory + 64), g_memory + 16);
}

TEST_F(Containers, ImpossibleArgumentsChangeNothing) {
  __sanitizer_annotate_contiguous_container(g_memory, g_memory + 64, g_memory + 64, g_memory + 65);
  __sanitizer_annotate_contiguous_container(g_memory + 64, g_memory, g_memory, g_memory);
  EXPECT_TRUE(shadow::is_accessible(AppAddr(g_memory), sizeof g_memory));
}

}  // namespace
}  // namespace penumbra::abi
