// The tree of free ranges against a map of single pages: random carving and giving back, the answer to every search
// compared with a scan from the lowest page.
#include "allocator/region/free_tree.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace penumbra::region {
namespace {

constexpr std::uint32_t kPages = 700;

class Model {
 public:
  explicit Model(std::uint64_t origin) : origin_(origin), is_free_(kPages, true) {}

  // Lowest range whose size alone makes it fit, else lowest place that fits exactly (memory ruling 14).
  bool find(std::uint32_t pages, std::uint32_t alignment, std::uint32_t& page) const {
    for (const std::uint64_t needed : {std::uint64_t{pages} + alignment - 1, std::uint64_t{pages}}) {
      for (std::uint32_t p = 0; p < kPages;) {
        const std::uint32_t end = run_end(p);
        if (end - p >= needed) {
          const auto begin = static_cast<std::uint32_t>(round_up(p + origin_, alignment) - origin_);
          if (begin + pages <= end) {
            page = begin;
            return true;
          }
        }
        p = end + 1;
      }
    }
    return false;
  }

  void set(std::uint32_t page, std::uint32_t pages, bool is_free) {
    for (std::uint32_t p = page; p < page + pages; ++p) {
      EXPECT_NE(is_free_[p], is_free) << p;
      is_free_[p] = is_free;
    }
  }

  std::uint32_t largest() const {
    std::uint32_t largest = 0;
    for (std::uint32_t p = 0; p < kPages; p = run_end(p) + 1) largest = std::max(largest, run_end(p) - p);
    return largest;
  }

 private:
  std::uint32_t run_end(std::uint32_t p) const {
    while (p < kPages && is_free_[p]) ++p;
    return p;
  }

  std::uint64_t origin_;
  std::vector<bool> is_free_;
};

TEST(FreeTree, EverySearchFindsWhatAScanOfPagesFinds) {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    RecordTable records;
    ASSERT_TRUE(records.init(4096).ok());
    RecordCache cache;
    FreeTree tree(&records);
    const std::uint64_t origin = random() % 1024;
    Model model(origin);
    ASSERT_TRUE(cache.ensure(records, 2));
    tree.insert(cache.pop(records), 0, kPages, cache);
    struct Taken {
      Handle h;
      std::uint32_t page, pages;
    };
    std::vector<Taken> taken;
    for (int step = 0; step < 400; ++step) {
      if (taken.empty() || random() % 5 < 3) {
        const std::uint32_t pages = 1 + random() % (random() % 4 == 0 ? 120 : 12);
        const std::uint32_t alignment = 1u << (random() % 3 == 0 ? random() % 8 : 0);
        std::uint32_t page = 0;
        std::uint32_t expected = 0;
        const bool found = tree.find(pages, alignment, origin, page);
        ASSERT_EQ(found, model.find(pages, alignment, expected));
        if (!found) continue;
        ASSERT_EQ(page, expected);
        ASSERT_TRUE(cache.ensure(records, 2));
        tree.carve(page, pages, cache);
        taken.push_back({cache.pop(records), page, pages});
        model.set(page, pages, false);
      } else {
        const std::size_t n = random() % taken.size();
        const Taken back = taken[n];
        taken[n] = taken.back();
        taken.pop_back();
        tree.insert(back.h, back.page, back.pages, cache);
        model.set(back.page, back.pages, true);
      }
      tree.validate();
      ASSERT_EQ(tree.largest(), model.largest());
    }
    for (const Taken& back : taken) tree.insert(back.h, back.page, back.pages, cache);
    EXPECT_EQ(tree.free_pages(), kPages);
    EXPECT_EQ(tree.end_of_range_at(0), kPages);
    records.destroy();
  }
}

TEST(FreeTree, FullTableRefusesInsteadOfOverrunning) {
  RecordTable records;
  ASSERT_TRUE(records.init(100).ok());
  RecordCache cache;
  int ensured = 0;
  while (cache.ensure(records, 1)) {
    cache.pop(records);
    ++ensured;
  }
  EXPECT_EQ(ensured, 96);  // three refills of 32; handle 0 is none
  records.destroy();
}

}  // namespace
}  // namespace penumbra::region
