#include "instrument/rewrite/capstone_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace penumbra::rewrite {
namespace {

CapstoneLibrary load() {
  // The version whose header this was compiled with; its name stands for its binary interface.
  const std::string name = fmt::format("libcapstone.so.{}", CS_API_MAJOR);
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(fmt::format("cannot load {}: {}", name, dlerror()));
  CapstoneLibrary functions{};
  const auto find = [&](auto& function, const char* symbol) {
    void* const address = dlsym(library, symbol);
    if (address == nullptr) throw std::runtime_error(fmt::format("{} has no {}", name, symbol));
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(address);
  };
  find(functions.open, "cs_open");
  find(functions.close, "cs_close");
  find(functions.option, "cs_option");
  find(functions.malloc, "cs_malloc");
  find(functions.free, "cs_free");
  find(functions.disasm_iter, "cs_disasm_iter");
  find(functions.insn_group, "cs_insn_group");
  find(functions.regs_access, "cs_regs_access");
  return functions;
}

}  // namespace

const CapstoneLibrary& capstone_library() {
  static const CapstoneLibrary library = load();
  return library;
}

}  // namespace penumbra::rewrite
