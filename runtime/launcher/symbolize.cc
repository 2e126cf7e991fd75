#include "runtime/launcher/symbolize.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>

#include "runtime/base/symbolize_protocol.h"
#include "runtime/launcher/debug_module.h"

namespace penumbra::launcher {
namespace {

// Names, and the file's path: together with the numbers and tabs, three of them stay below kSymbolizeLineBytes.
constexpr std::size_t kFieldBytes = 1300;
static_assert(3 * kFieldBytes + 64 < kSymbolizeLineBytes);

bool parse_hex(std::string_view text, std::uint64_t& value) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return error == std::errc{} && end == text.data() + text.size();
}

std::string field(std::string_view text) {
  std::string result(text.substr(0, kFieldBytes));
  for (char& c : result) {
    if (c == '\t' || c == '\n' || c == '\r') c = ' ';
  }
  return result;
}

std::string line_of(const Frame& frame) {
  std::string line = field(frame.mangled) + '\t' + field(frame.demangled) + '\t';
  if (frame.symbol_size != 0) line += fmt::format("{:x}\t{:x}", frame.symbol_offset, frame.symbol_size);
  if (frame.symbol_size == 0) line += '\t';
  line += '\t' + field(frame.file) + '\t';
  if (frame.line != 0) line += fmt::format("{}", frame.line);
  return line + '\n';
}

// The text before the last tab of `rest`, which keeps what is in front of it.
bool take_last(std::string_view& rest, std::string_view& last) {
  const std::size_t tab = rest.rfind('\t');
  if (tab == std::string_view::npos) return false;
  last = rest.substr(tab + 1);
  rest = rest.substr(0, tab);
  return true;
}

int print_for_people(const std::string& module, const std::string& build_id,
                     const std::vector<std::string>& addresses) {
  Symbolizer symbolizer;
  bool all_known = true;
  for (const std::string& text : addresses) {
    std::uint64_t address = 0;
    if (!parse_hex(text, address)) {
      fmt::print(stderr, "penumbra symbolize: '{}' is no hexadecimal address\n", text);
      return 125;
    }
    const std::vector<Frame> frames = symbolizer.lookup(module, build_id, address);
    all_known = all_known && !frames.empty();
    fmt::print("{:#x}", address);
    if (frames.empty()) fmt::print(" ??\n");
    for (const Frame& frame : frames) {
      const bool is_outermost = &frame == &frames.back();
      fmt::print(" {}", !frame.demangled.empty() ? frame.demangled : !frame.mangled.empty() ? frame.mangled : "??");
      if (is_outermost && frame.symbol_size != 0) fmt::print("+{:#x}/{:#x}", frame.symbol_offset, frame.symbol_size);
      if (!frame.file.empty()) fmt::print(" {}:{}", frame.file, frame.line);
      fmt::print("{}\n", is_outermost ? "" : " (inlined)");
    }
  }
  return all_known ? 0 : 1;
}

}  // namespace

// A report must not wait for the network, nor a batch job be surprised by it.
Symbolizer::Symbolizer() {
  unsetenv("DEBUGINFOD_URLS");
}

Symbolizer::~Symbolizer() = default;

std::vector<Frame> Symbolizer::lookup(const std::string& path, std::string_view build_id, std::uint64_t address) {
  std::unique_ptr<DebugModule>& module = modules_[path];
  if (module == nullptr) module = std::make_unique<DebugModule>(path);
  if (!build_id.empty() && module->build_id() != build_id) return {};
  std::vector<Frame> frames = module->lookup(address);
  if (frames.size() > kSymbolizeFrames) {
    frames[kSymbolizeFrames - 1] = frames.back();
    frames.resize(kSymbolizeFrames);
  }
  return frames;
}

std::string answer_request(Symbolizer& symbolizer, std::string_view request) {
  std::string_view path = request;
  std::string_view build_id;
  std::string_view address_text;
  std::uint64_t address = 0;
  std::string answer;
  if (take_last(path, address_text) && take_last(path, build_id) && !path.empty() &&
      parse_hex(address_text, address)) {
    for (const Frame& frame : symbolizer.lookup(std::string(path), build_id, address)) answer += line_of(frame);
  }
  return answer + '\n';
}

void serve_symbolizer(std::istream& in, std::ostream& out) {
  Symbolizer symbolizer;
  for (std::string request; std::getline(in, request) && out;) {
    out << answer_request(symbolizer, request) << std::flush;
  }
}

int symbolize_main(const std::vector<std::string>& arguments) {
  CLI::App app{
      "Names the function, file and line behind addresses of an ELF file. Without arguments it serves a "
      "checked process: requests on stdin, answers on stdout.",
      "penumbra symbolize"};
  std::string module;
  std::string build_id;
  std::vector<std::string> addresses;
  app.add_option("MODULE", module, "an ELF file");
  app.add_option("ADDRESS", addresses, "hexadecimal, as in the file's program headers (pc minus load bias)");
  app.add_option("--build-id", build_id, "answer only if the file has this one, in hex");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 wants them backwards
  } catch (const CLI::ParseError& error) {
    const int status = app.exit(error, std::cout, std::cerr);
    return status == 0 ? 0 : 125;
  }
  if (module.empty()) {
    std::ios::sync_with_stdio(false);
    serve_symbolizer(std::cin, std::cout);
    return 0;
  }
  if (addresses.empty()) {
    fmt::print(stderr, "penumbra symbolize: which address of {}? `penumbra symbolize --help` tells more\n", module);
    return 125;
  }
  return print_for_people(module, build_id, addresses);
}

}  // namespace penumbra::launcher
