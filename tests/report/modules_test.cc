// Modules, symbols and function bounds of this very process, held against the loader's own answers.
#include "runtime/report/modules.h"

#include <gtest/gtest.h>

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>

#include <string>

#include "runtime/report/code_names.h"
#include "runtime/report/proc_maps.h"

namespace penumbra::report {
namespace {

std::uintptr_t address_of(const void* symbol) {
  return reinterpret_cast<std::uintptr_t>(symbol);
}

TEST(ProcMaps, ALineIsTakenApart) {
  const std::string line = "7f00aa001000-7f00aa0c3000 r-xp 00021000 08:01 1234567                    /usr/lib/a b.so";
  Mapping mapping;
  ASSERT_TRUE(parse_mapping(line.data(), line.size(), mapping));
  EXPECT_EQ(mapping.begin, 0x7f00aa001000u);
  EXPECT_EQ(mapping.end, 0x7f00aa0c3000u);
  EXPECT_EQ(mapping.offset, 0x21000u);
  EXPECT_TRUE(mapping.readable && mapping.executable);
  EXPECT_FALSE(mapping.writable);
  EXPECT_STREQ(mapping.path, "/usr/lib/a b.so");
}

TEST(ProcMaps, AnonymousMemoryHasNoPath) {
  const std::string line = "7f00aa001000-7f00aa0c3000 rw-p 00000000 00:00 0 ";
  Mapping mapping;
  ASSERT_TRUE(parse_mapping(line.data(), line.size(), mapping));
  EXPECT_STREQ(mapping.path, "");
  EXPECT_FALSE(parse_mapping("nonsense", 8, mapping));
}

TEST(ProcMaps, TheListIsAscendingAndHoldsOurStack) {
  struct Seen {
    std::uintptr_t last_end = 0;
    std::uintptr_t wanted;
    bool ascending = true;
    bool found = false;
  } seen;
  int local = 0;
  seen.wanted = address_of(&local);
  ASSERT_TRUE(for_each_mapping(
      [](const Mapping& mapping, void* cookie) {
        auto& s = *static_cast<Seen*>(cookie);
        s.ascending = s.ascending && mapping.begin >= s.last_end && mapping.end > mapping.begin;
        s.last_end = mapping.end;
        s.found = s.found || (s.wanted >= mapping.begin && s.wanted < mapping.end);
        return true;
      },
      &seen));
  EXPECT_TRUE(seen.ascending);
  EXPECT_TRUE(seen.found);
}

TEST(Modules, ALibraryIsFoundByAnyAddressInItWithPathBiasAndBuildId) {
  Module module;
  ASSERT_TRUE(find_module(address_of(reinterpret_cast<void*>(&qsort)), module));
  Dl_info info;
  link_map* map = nullptr;
  ASSERT_NE(dladdr1(reinterpret_cast<void*>(&qsort), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP), 0);
  EXPECT_STREQ(module.path, info.dli_fname);
  EXPECT_EQ(module.bias, map->l_addr);
  EXPECT_TRUE(module.is_loaded);
  EXPECT_EQ(module.build_id_bytes, 20u);
  EXPECT_STREQ(module.base_name(), "libc.so.6");
}

TEST(Modules, TheExecutableHasItsPath) {
  remember_executable();
  Module module;
  ASSERT_TRUE(find_module(address_of(reinterpret_cast<void*>(&find_module)), module));
  char path[512] = {};
  ASSERT_GT(readlink("/proc/self/exe", path, sizeof path - 1), 0);
  EXPECT_STREQ(module.path, path);
}

TEST(Modules, MemoryOfNoFileIsInNoModule) {
  Module module;
  EXPECT_FALSE(find_module(0x10, module));
  int local = 0;
  EXPECT_FALSE(find_module(address_of(&local), module));
}

TEST(Modules, NearestSymbolAgreesWithTheLoader) {
  for (const void* function : {reinterpret_cast<void*>(&qsort), reinterpret_cast<void*>(&fopen),
                               reinterpret_cast<void*>(&atoi), reinterpret_cast<void*>(&getenv)}) {
    const std::uintptr_t pc = address_of(function) + 3;
    Module module;
    ASSERT_TRUE(find_module(pc, module));
    const Symbol symbol = nearest_symbol(module, pc);
    Dl_info info;
    const Elf64_Sym* entry = nullptr;
    ASSERT_NE(dladdr1(reinterpret_cast<void*>(pc), &info, reinterpret_cast<void**>(const_cast<Elf64_Sym**>(&entry)),
                      RTLD_DL_SYMENT),
              0);
    EXPECT_EQ(symbol.begin, address_of(info.dli_saddr)) << info.dli_sname;
    EXPECT_EQ(symbol.bytes, entry->st_size) << info.dli_sname;
    EXPECT_TRUE(symbol.covers);
  }
}

TEST(Modules, FunctionBoundsAgreeWithTheSymbolsOfCompiledCode) {
  for (const void* function : {reinterpret_cast<void*>(&qsort), reinterpret_cast<void*>(&fopen),
                               reinterpret_cast<void*>(&getenv), reinterpret_cast<void*>(&setenv)}) {
    const std::uintptr_t pc = address_of(function);
    Module module;
    ASSERT_TRUE(find_module(pc, module));
    const Bounds bounds = function_bounds(module, pc + 5);
    EXPECT_EQ(bounds.begin, pc);
    EXPECT_EQ(bounds.bytes, nearest_symbol(module, pc).bytes);
  }
}

TEST(Modules, AClosedModuleKeepsItsName) {
  void* const library = dlopen(PENUMBRA_TEST_PLUGIN, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const std::uintptr_t pc = address_of(dlsym(library, "plugin_function"));
  Module loaded;
  ASSERT_TRUE(find_module(pc, loaded));
  remember_all();
  dlclose(library);
  Module closed;
  ASSERT_TRUE(find_module(pc, closed));
  EXPECT_STREQ(closed.path, loaded.path);
  EXPECT_EQ(closed.bias, loaded.bias);
  EXPECT_EQ(closed.build_id, loaded.build_id);
  EXPECT_FALSE(closed.is_loaded);
}

TEST(CodeNames, AnExportedFunctionHasItsSymbolAndAHiddenOneItsBounds) {
  auto names = std::make_unique<NameTable>();
  const CodeName* const exported = names->add(address_of(reinterpret_cast<void*>(&qsort)) + 5, false);
  EXPECT_STREQ(exported->function, "qsort");
  EXPECT_EQ(exported->offset, 5u);
  EXPECT_STREQ(exported->module, "libc.so.6");

  void* const library = dlopen(PENUMBRA_TEST_PLUGIN, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto hidden_address = reinterpret_cast<std::uintptr_t (*)()>(dlsym(library, "plugin_hidden_address"))();
  const CodeName* const hidden = names->add(hidden_address + 1, false);
  Module module;
  ASSERT_TRUE(find_module(hidden_address, module));
  char expected[32];
  snprintf(expected, sizeof expected, "sub_%08zx", static_cast<std::size_t>(hidden_address - module.bias));
  EXPECT_STREQ(hidden->function, expected);
  EXPECT_EQ(hidden->offset, 1u);
  EXPECT_NE(hidden->bytes, 0u);
  dlclose(library);
}

TEST(CodeNames, AReturnAddressIsNamedAfterTheCallBeforeIt) {
  auto names = std::make_unique<NameTable>();
  const std::uintptr_t begin = address_of(reinterpret_cast<void*>(&qsort));
  Module module;
  ASSERT_TRUE(find_module(begin, module));
  const std::size_t bytes = nearest_symbol(module, begin).bytes;
  const CodeName* const name = names->add(begin + bytes, true);  // what a noreturn call at the very end returns to
  EXPECT_STREQ(name->function, "qsort");
  EXPECT_EQ(name->offset, bytes);
}

TEST(CodeNames, AFullTableAnswersNull) {
  auto names = std::make_unique<NameTable>();
  for (std::size_t i = 0; i < NameTable::kCapacity; ++i) ASSERT_NE(names->add(0x1000 + i, false), nullptr);
  EXPECT_EQ(names->add(1, false), nullptr);
  EXPECT_NE(names->add(0x1000, false), nullptr) << "a known one is still found";
}

}  // namespace
}  // namespace penumbra::report
