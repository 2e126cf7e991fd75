// Whether a process has compiled code: known from what the loaded modules import, without any call from them, and asked
// again after a dlopen. A program of its own, because "yes" stays.
#include "instrument/abi/compiled.h"

#include <gtest/gtest.h>
#include <dlfcn.h>

#include <cstring>

namespace penumbra::abi {
namespace {

TEST(CompiledCode, IsFoundInAModuleThatHasNotCalledUs) {
  EXPECT_FALSE(has_compiled_code());
  const char* path = nullptr;
  EXPECT_FALSE(find_inline_checks(&path));

  void* const outline = dlopen(PENUMBRA_OUTLINE_MODULE, RTLD_NOW);
  ASSERT_NE(outline, nullptr) << dlerror();
  EXPECT_FALSE(has_compiled_code());  // nobody said that a module might have come
  expect_new_module();
  EXPECT_TRUE(has_compiled_code());
  EXPECT_FALSE(find_inline_checks(&path));

  void* const with_stack = dlopen(PENUMBRA_INLINE_MODULE, RTLD_NOW);
  ASSERT_NE(with_stack, nullptr) << dlerror();
  ASSERT_TRUE(find_inline_checks(&path));
  EXPECT_NE(std::strstr(path, "inline_module"), nullptr);
}

}  // namespace
}  // namespace penumbra::abi
