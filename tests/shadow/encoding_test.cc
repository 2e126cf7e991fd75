// The encoding against its definition, for every prefix length and every offset: nothing sampled.
#include "shadow/encoding.h"

#include <gtest/gtest.h>

namespace penumbra::shadow {
namespace {

TEST(ShadowEncoding, PartialGranuleAllowsOnlyItsPrefix) {
  for (unsigned valid = 1; valid < kGranuleSize; ++valid) {
    for (std::size_t offset = 0; offset < kGranuleSize; ++offset) {
      EXPECT_EQ(granule_allows(static_cast<std::uint8_t>(valid), offset), offset < valid);
    }
  }
}

TEST(ShadowEncoding, NoValueFromEightToTagsAllowsAnything) {
  for (unsigned value = kGranuleSize; value < 256; ++value) {
    for (std::size_t offset = 0; offset < kGranuleSize; ++offset) {
      EXPECT_FALSE(granule_allows(static_cast<std::uint8_t>(value), offset)) << value;
    }
  }
}

TEST(ShadowEncoding, EveryTagHasAMeaningAndNothingElseHas) {
  unsigned named = 0;
  for (unsigned value = 0; value < 256; ++value) named += tag_meaning(static_cast<std::uint8_t>(value)) != nullptr;
  EXPECT_EQ(named, kTags.size());
  EXPECT_EQ(tag_meaning(0x07), nullptr);
}

TEST(ShadowEncoding, ShadowAndItsImageAreNoProgramMemory) {
  EXPECT_TRUE(has_direct_shadow(AppAddr(0x1000)));
  EXPECT_FALSE(has_direct_shadow(kLowMemoryEnd));
  EXPECT_FALSE(has_direct_shadow(AppAddr(kHighShadowEnd.value - 1)));
  EXPECT_TRUE(has_direct_shadow(AppAddr(kHighShadowEnd.value)));
  EXPECT_TRUE(has_direct_shadow(AppAddr(kUserAddressEnd - 1)));
  EXPECT_FALSE(has_direct_shadow(AppAddr(kUserAddressEnd)));
  EXPECT_FALSE(has_direct_shadow(AppAddr(~std::uintptr_t{0})));
}

}  // namespace
}  // namespace penumbra::shadow
