// `penumbra symbolize`: names the function, file and line behind an address of an ELF file.
//
// Two uses. As the helper process of a checked program it speaks the protocol of runtime/base/symbolize_protocol.h on
// stdin and stdout. By hand, `penumbra symbolize MODULE ADDRESS...` prints the same frames for people.
//
// A Symbolizer keeps every module it was asked about open. Debug information is looked for where Debian puts it:
// in the file, by build-id and by debug link below /usr/lib/debug. It never asks the network, whatever
// DEBUGINFOD_URLS says: a report would wait for it.
//
// I1  an address is looked up in the file whose build-id the request names, or not at all.
//
// zone: hosted
#pragma once

#include <cstdint>
#include <istream>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace penumbra::launcher {

// One function of an answer, with the meaning of the protocol's fields.
struct Frame {
  std::string mangled;
  std::string demangled;
  std::uint64_t symbol_offset = 0;
  std::uint64_t symbol_size = 0;  // 0: no symbol is known
  std::string file;
  int line = 0;  // 0: not known
};

class DebugModule;

class Symbolizer {
 public:
  Symbolizer();
  ~Symbolizer();
  Symbolizer(const Symbolizer&) = delete;
  Symbolizer& operator=(const Symbolizer&) = delete;

  // Innermost frame first. `build_id` empty accepts any. Empty where nothing is known, for whatever reason.
  std::vector<Frame> lookup(const std::string& path, std::string_view build_id, std::uint64_t address);

 private:
  std::map<std::string, std::unique_ptr<DebugModule>> modules_;
};

// Answers one request line (without its newline); always ends with an empty line.
std::string answer_request(Symbolizer& symbolizer, std::string_view request);

// Answers requests from `in` until it ends.
void serve_symbolizer(std::istream& in, std::ostream& out);

// The sub-command: arguments without "penumbra symbolize". Returns the exit status.
int symbolize_main(const std::vector<std::string>& arguments);

}  // namespace penumbra::launcher
