// A rewritten function as a person wants to read it: each original instruction, and beside it what stands in the area for
// it, its checks first; then the slow parts of the checks with the accesses they look at; then the patches.
//
//     1139  mov dword ptr [rdi], esi       |  lea rax, [rdi+0x03]
//                                          |  shr rax, 0x03
//                                          |  cmp byte ptr [rax+0x7FFF8000], 0x00
//                                          |  jnz slow 1
//                                          |  mov dword ptr [rdi], esi
//
// Places are given in the original's terms, so that a listing says the same wherever the area lies.
//
// zone: hosted
#pragma once

#include <string>

#include "instrument/rewrite/relocator_x86_64.h"

namespace penumbra::rewrite {

// `function` is a number of the program's.
std::string list_function(const Program& program, const RewrittenModule& module, std::uint32_t function);

// The function of this name, or of an address in hexadecimal (0x...) that lies in it; kNone if there is none.
std::uint32_t find_function(const Program& program, const std::string& name);

}  // namespace penumbra::rewrite
