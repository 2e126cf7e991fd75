#include "runtime/base/options.h"

namespace penumbra {
namespace {

struct Piece {
  const char* text;
  std::size_t length;

  bool is(const char* word) const {
    for (std::size_t i = 0; i < length; ++i) {
      if (word[i] != text[i]) return false;
    }
    return word[length] == '\0';
  }
};

bool parse_whole(Piece value, bool allow_suffix, std::uint64_t& result) {
  if (value.length == 0) return false;
  std::uint64_t number = 0;
  std::size_t i = 0;
  for (; i < value.length && value.text[i] >= '0' && value.text[i] <= '9'; ++i) {
    if (__builtin_mul_overflow(number, std::uint64_t{10}, &number) ||
        __builtin_add_overflow(number, static_cast<std::uint64_t>(value.text[i] - '0'), &number)) {
      return false;
    }
  }
  if (i == 0) return false;
  if (i < value.length) {
    if (!allow_suffix || i + 1 != value.length) return false;
    unsigned shift = 0;
    switch (value.text[i] | 0x20) {
      case 'k': shift = 10; break;
      case 'm': shift = 20; break;
      case 'g': shift = 30; break;
      case 't': shift = 40; break;
      default: return false;
    }
    if (number > (~std::uint64_t{0} >> shift)) return false;
    number <<= shift;
  }
  result = number;
  return true;
}

OptionError parse(bool& option, Piece value) {
  if (!value.is("0") && !value.is("1")) return OptionError::kBadValue;
  option = value.text[0] == '1';
  return OptionError::kNone;
}

OptionError parse(std::int64_t& option, Piece value) {
  std::uint64_t number = 0;
  if (!parse_whole(value, false, number) || number > INT32_MAX) return OptionError::kBadValue;
  option = static_cast<std::int64_t>(number);
  return OptionError::kNone;
}

OptionError parse(std::uint64_t& option, Piece value) {
  return parse_whole(value, true, option) ? OptionError::kNone : OptionError::kBadValue;
}

OptionError parse(char (&option)[kOptionTextBytes], Piece value) {
  if (value.length >= kOptionTextBytes) return OptionError::kBadValue;
  for (std::size_t i = 0; i < value.length; ++i) option[i] = value.text[i];
  option[value.length] = '\0';
  return OptionError::kNone;
}

// `words` is "a|b|c" in the order of the enum.
template <class Enum>
OptionError parse_word(Enum& option, Piece value, const char* words) {
  unsigned index = 0;
  const char* word = words;
  for (const char* p = words;; ++p) {
    if (*p != '|' && *p != '\0') continue;
    if (static_cast<std::size_t>(p - word) == value.length) {
      std::size_t i = 0;
      while (i < value.length && word[i] == value.text[i]) ++i;
      if (i == value.length) {
        option = static_cast<Enum>(index);
        return OptionError::kNone;
      }
    }
    if (*p == '\0') return OptionError::kBadValue;
    word = p + 1;
    ++index;
  }
}

// What a refused value should have been.
const char* expected_value(Piece key) {
#define PENUMBRA_FLAG_BOOL(name, fallback, help) \
  if (key.is(#name)) return "0 or 1";
#define PENUMBRA_FLAG_INT(name, fallback, help) \
  if (key.is(#name)) return "a whole number";
#define PENUMBRA_FLAG_BYTES(name, fallback, help) \
  if (key.is(#name)) return "a number of bytes, with k, m, g or t behind it if you like";
#define PENUMBRA_FLAG_ENUM(type, name, fallback, words, help) \
  if (key.is(#name)) return words;
#define PENUMBRA_FLAG_TEXT(name, help) \
  if (key.is(#name)) return "a text of fewer than 512 bytes";
#include "runtime/base/flags.inc"
  return "";
}

bool is_separator(char c) {
  return c == ':' || c == ',' || c == ' ' || c == '\t' || c == '\n';
}

Piece key_of(Piece piece) {
  std::size_t n = 0;
  while (n < piece.length && piece.text[n] != '=') ++n;
  return {piece.text, n};
}

}  // namespace

OptionError set_option(Options& options, const char* text, std::size_t length) {
  const Piece key = key_of({text, length});
  const bool has_value = key.length < length;
  const Piece value = has_value ? Piece{text + key.length + 1, length - key.length - 1} : Piece{text, 0};
#define PENUMBRA_FLAG_ANY(name)                   \
  if (key.is(#name)) {                            \
    if (!has_value) return OptionError::kNoValue; \
    return parse(options.name, value);            \
  }
#define PENUMBRA_FLAG_BOOL(name, fallback, help) PENUMBRA_FLAG_ANY(name)
#define PENUMBRA_FLAG_INT(name, fallback, help) PENUMBRA_FLAG_ANY(name)
#define PENUMBRA_FLAG_BYTES(name, fallback, help) PENUMBRA_FLAG_ANY(name)
#define PENUMBRA_FLAG_TEXT(name, help) PENUMBRA_FLAG_ANY(name)
#define PENUMBRA_FLAG_ENUM(type, name, fallback, words, help) \
  if (key.is(#name)) {                                        \
    if (!has_value) return OptionError::kNoValue;             \
    return parse_word(options.name, value, words);            \
  }
#include "runtime/base/flags.inc"
#undef PENUMBRA_FLAG_ANY
  return OptionError::kUnknownKey;
}

void parse_options(Options& options, const char* text, OptionErrorHook on_error, void* cookie) {
  if (text == nullptr) return;
  while (*text != '\0') {
    if (is_separator(*text)) {
      ++text;
      continue;
    }
    std::size_t length = 0;
    while (text[length] != '\0' && !is_separator(text[length])) ++length;
    const OptionError error = set_option(options, text, length);
    if (error != OptionError::kNone && on_error != nullptr) on_error(error, text, length, cookie);
    text += length;
  }
}

void describe_option_error(TextBuffer& out, OptionError error, const char* piece, std::size_t length) {
  const Piece key = key_of({piece, length});
  switch (error) {
    case OptionError::kNone: return;
    case OptionError::kUnknownKey:
      out.append("unknown option '").append(key.text, key.length).append("'; `penumbra --help` lists them");
      return;
    case OptionError::kNoValue:
      out.append("option '").append(key.text, key.length).append("' needs a value: ").append(expected_value(key));
      return;
    case OptionError::kBadValue:
      out.append("bad value in '").append(piece, length).append("': expected ").append(expected_value(key));
      return;
  }
}

void append_option_help(TextBuffer& out) {
#define PENUMBRA_FLAG_LINE(left, help) out.append("  ").append(left).append("\n      ").append(help).append("\n");
#define PENUMBRA_FLAG_BOOL(name, fallback, help) PENUMBRA_FLAG_LINE(fallback ? #name "=1" : #name "=0", help)
#define PENUMBRA_FLAG_INT(name, fallback, help) PENUMBRA_FLAG_LINE(#name "=" #fallback, help)
#define PENUMBRA_FLAG_BYTES(name, fallback, help) PENUMBRA_FLAG_LINE(#name "=BYTES", help)
#define PENUMBRA_FLAG_ENUM(type, name, fallback, words, help) PENUMBRA_FLAG_LINE(#name "=" words, help)
#define PENUMBRA_FLAG_TEXT(name, help) PENUMBRA_FLAG_LINE(#name "=TEXT", help)
#include "runtime/base/flags.inc"
#undef PENUMBRA_FLAG_LINE
}

Options& process_options() {
  static constinit Options options;
  return options;
}

}  // namespace penumbra
