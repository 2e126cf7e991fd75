// Capstone's functions, loaded when the first decoder is made.
//
// Linked in the usual way, Capstone costs every start of the program two thirds of its loading time: 77,000 relocations of
// its tables, for launchers that find everything prepared and for helpers that only name functions.
//
// zone: hosted
#pragma once

#include <capstone/capstone.h>

namespace penumbra::rewrite {

struct CapstoneLibrary {
  decltype(&::cs_open) open;
  decltype(&::cs_close) close;
  decltype(&::cs_option) option;
  decltype(&::cs_malloc) malloc;
  decltype(&::cs_free) free;
  decltype(&::cs_disasm_iter) disasm_iter;
  decltype(&::cs_insn_group) insn_group;
  decltype(&::cs_regs_access) regs_access;
};

// Any thread may call. Throws std::runtime_error where the library is not there or is another version.
const CapstoneLibrary& capstone_library();

}  // namespace penumbra::rewrite
