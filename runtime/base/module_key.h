// What a module file was asked to check, as a part of its name, so that files of other wishes are other files; and the list of
// functions that are left alone (optout=FILE), of which only the lines about a module are part of its key.
//
// The list has one `MODULE FUNCTION [r|w|rw]` a line. MODULE is the file name of an executable or library without its folder,
// or *; FUNCTION a symbol, 0xADDRESS of its begin where there is none, or *. r and w leave its reads or writes unchecked;
// rw, which is the default, leaves it as it is. What follows # is a comment; a line of another form is skipped.
//
// zone: signal-safe
#pragma once

#include <cstddef>

#include "runtime/base/options.h"
#include "runtime/base/text_buffer.h"

namespace penumbra {

struct Word {
  const char* text = nullptr;
  std::size_t bytes = 0;
};

struct OptOutLine {
  Word module;
  Word function;
  bool reads = true;
  bool writes = true;
};

// The list's text, which stays where it is.
struct OptOutList {
  const char* begin = nullptr;
  const char* end = nullptr;
};

// As it stands behind `check=`.
const char* check_kind_word(CheckKind kind);

bool is_word(const Word& word, const char* text);

// The next line that says something; false at the end. `at` starts at the list's begin.
bool next_line(const OptOutList& list, const char*& at, OptOutLine& line);
// Is the line about the module in this file?
bool names_module(const OptOutLine& line, const char* path);

// Empty for the default wishes and a module that the list does not name.
void append_module_key(TextBuffer& out, const Options& options, const OptOutList& list, const char* path);

}  // namespace penumbra
