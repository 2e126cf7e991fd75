// The run-time options and their parser, used by the preload (no malloc) and by the launcher alike.
//
// Text is `key=value`, separated by `:`, `,` or white space; the last value of a key wins. A bad key or value
// leaves the option as it was and is told to the caller, who words it: a warning in the preload, an error in
// the launcher. The list itself is flags.inc.
//
// zone: signal-safe
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/text_buffer.h"

namespace penumbra {

inline constexpr std::size_t kOptionTextBytes = 512;

enum class FaultReaction : std::uint8_t { kReport, kPanic, kPanicOnWrite };
enum class GuardKind : std::uint8_t { kAuto, kMarker, kMprotect, kPinned };
enum class ShadowKind : std::uint8_t { kDirect, kPaged, kOff };
enum class CheckKind : std::uint8_t { kBoth, kWrites, kReads };
enum class RewriteKind : std::uint8_t { kOff, kOn, kAuto };

struct Options {
#define PENUMBRA_FLAG_BOOL(name, fallback, help) bool name = fallback;
#define PENUMBRA_FLAG_INT(name, fallback, help) std::int64_t name = fallback;
#define PENUMBRA_FLAG_BYTES(name, fallback, help) std::uint64_t name = fallback;
#define PENUMBRA_FLAG_ENUM(type, name, fallback, words, help) type name = type::fallback;
#define PENUMBRA_FLAG_TEXT(name, help) char name[kOptionTextBytes] = {};
#include "runtime/base/flags.inc"

  FaultReaction reaction() const {
    return halt_on_error ? FaultReaction::kPanic : fault;
  }
};

enum class OptionError : std::uint8_t { kNone, kUnknownKey, kNoValue, kBadValue };

// Sets one option from [text, text+length) which is `key=value`.
OptionError set_option(Options& options, const char* text, std::size_t length);

// Called for every piece that was refused, with the piece as it stands in the text.
using OptionErrorHook = void (*)(OptionError error, const char* piece, std::size_t length, void* cookie);
void parse_options(Options& options, const char* text, OptionErrorHook on_error, void* cookie);

// "unknown option 'x'; ..." for one refused piece, in one line without a newline.
void describe_option_error(TextBuffer& out, OptionError error, const char* piece, std::size_t length);

// All options, each with its help on the line below, for --help.
void append_option_help(TextBuffer& out);

// The options of this process. Written once at start, before the program's first thread.
Options& process_options();

}  // namespace penumbra
