// What a module is known by, and how to learn it without reading a whole file: the launcher asks for it of every file that a
// program starts with, and most of the time that is all it wants to know. It is the build-id, or the key of its contents
// (runtime/base/content_key.h) where there is none.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace penumbra::rewrite {

// In hexadecimal, from the bytes of a note segment; empty where there is none.
std::string build_id_in(std::span<const std::uint8_t> notes);

// From the file's headers and notes alone where there is a build-id. Empty where the file is none that ElfImage would take; a
// file that has one may still be refused by ElfImage, which looks at more.
std::string identity_of_file(const std::string& path);

}  // namespace penumbra::rewrite
