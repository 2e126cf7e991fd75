#include "runtime/base/module_key.h"

#include "runtime/base/file_name.h"
#include "runtime/base/module_format.h"
#include "runtime/base/raw_memory.h"

namespace penumbra {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

Word next_word(const char*& at, const char* end) {
  while (at != end && is_blank(*at)) ++at;
  Word word{at, 0};
  while (at != end && !is_blank(*at)) ++at;
  word.bytes = static_cast<std::size_t>(at - word.text);
  return word;
}

std::uint64_t add_word(std::uint64_t sum, const Word& word) {
  for (std::size_t n = 0; n < word.bytes; ++n)
    sum = module_checksum_step(sum, static_cast<std::uint8_t>(word.text[n]));
  return module_checksum_step(sum, 0x100);
}

}  // namespace

const char* check_kind_word(CheckKind kind) {
  switch (kind) {
    case CheckKind::kBoth: return "rw";
    case CheckKind::kWrites: return "w";
    case CheckKind::kReads: return "r";
  }
  return "rw";
}

bool is_word(const Word& word, const char* text) {
  return raw_length(text) == word.bytes && raw_compare(word.text, text, word.bytes) == 0;
}

bool next_line(const OptOutList& list, const char*& at, OptOutLine& line) {
  while (at != list.end) {
    const char* end = at;
    while (end != list.end && *end != '\n') ++end;
    const char* stop = at;
    while (stop != end && *stop != '#') ++stop;
    const char* from = at;
    at = end == list.end ? end : end + 1;
    line.module = next_word(from, stop);
    line.function = next_word(from, stop);
    const Word kinds = next_word(from, stop);
    if (line.function.bytes == 0 || next_word(from, stop).bytes != 0) continue;
    line.reads = kinds.bytes == 0 || is_word(kinds, "r") || is_word(kinds, "rw");
    line.writes = kinds.bytes == 0 || is_word(kinds, "w") || is_word(kinds, "rw");
    if (line.reads || line.writes) return true;
  }
  return false;
}

bool names_module(const OptOutLine& line, const char* path) {
  return is_word(line.module, "*") || is_word(line.module, base_name(path));
}

void append_module_key(TextBuffer& out, const Options& options, const OptOutList& list, const char* path) {
  if (options.check == CheckKind::kReads) out.append(".r");
  if (options.check == CheckKind::kWrites) out.append(".w");
  if (options.exact) out.append(".exact");
  if (options.shadow == ShadowKind::kPaged) out.append(".paged");
  std::uint64_t sum = 0;
  OptOutLine line;
  for (const char* at = list.begin; next_line(list, at, line);) {
    if (!names_module(line, path)) continue;
    sum = add_word(sum, line.function);
    sum = module_checksum_step(sum, line.reads | line.writes << 1);
  }
  if (sum != 0) out.append(".without-").hex_padded(sum, 16);
}

}  // namespace penumbra
