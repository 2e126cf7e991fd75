#include "bench/vmalloc/parameters.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace penumbra::bench::vmalloc {
namespace {

// lib/test_vmalloc.c clamps nr_threads to 1..USHRT_MAX.
constexpr unsigned kMaxThreads = std::numeric_limits<unsigned short>::max();

struct Key {
  std::string_view name;
  unsigned Parameters::*number;
  bool Parameters::*flag;
  std::string_view help;
};

constexpr std::array kKeys{
    Key{"nr_threads", &Parameters::nr_threads, nullptr, "workers, 1 to 65535"},
    Key{"sequential_test_order", nullptr, &Parameters::sequential_test_order, "1: in the order of their bits"},
    Key{"test_repeat_count", &Parameters::test_repeat_count, nullptr, "times that each test runs"},
    Key{"test_loop_count", &Parameters::test_loop_count, nullptr, "allocations in the loop of a test"},
    Key{"nr_pages", &Parameters::nr_pages, nullptr, "pages of fix_size, vm_map_ram and no_block"},
    Key{"use_huge", nullptr, &Parameters::use_huge, "1: fix_size asks for huge pages"},
    Key{"run_test_mask", &Parameters::run_test_mask, nullptr, "sum of the bits of the tests to run"},
    Key{"nr_pcpu_objects", &Parameters::nr_pcpu_objects, nullptr, "objects of pcpu_alloc"},
};

struct Mode {
  std::string_view name;
  std::string_view help;
};

constexpr std::array kModes{
    Mode{"performance", "one worker, all tests in order, 3 repeats"},
    Mode{"smoke", "10000 loops, 10 repeats"},
    Mode{"stress", "one worker per CPU, 20 repeats"},
};

constexpr std::array<std::string_view, 4> kAllocators{"off", "early", "lazy", "mmap"};

bool set_mode(std::string_view word, unsigned cpus, Parameters& parameters) {
  if (word == "performance") {
    parameters.sequential_test_order = true;
    parameters.test_repeat_count = 3;
  } else if (word == "smoke") {
    parameters.test_loop_count = 10'000;
    parameters.test_repeat_count = 10;
  } else if (word == "stress") {
    parameters.nr_threads = std::min(cpus, kMaxThreads);
    parameters.test_repeat_count = 20;
  } else if (word == "serve") {
    parameters.serve = true;
  } else if (word == "selfcheck") {
    parameters.selfcheck = true;
  } else {
    return false;
  }
  return true;
}

std::optional<std::uint64_t> number(std::string_view text) {
  int base = 10;
  if (text.starts_with("0x")) {
    base = 16;
    text.remove_prefix(2);
  }
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string known_keys() {
  std::string names = "allocator";
  for (const Key& key : kKeys) names.append(", ").append(key.name);
  return names.append(", retain");
}

std::string refuse(std::string_view word, const std::string& why) {
  return "test_vmalloc: " + std::string(word) + ": " + why;
}

std::string set_key(std::string_view word, std::string_view name, std::string_view text, Parameters& parameters) {
  if (name == "allocator") {
    const auto found = std::find(kAllocators.begin(), kAllocators.end(), text);
    if (found == kAllocators.end()) return refuse(word, "the allocator is off, early, lazy or mmap");
    parameters.allocator = static_cast<Allocator>(found - kAllocators.begin());
    return {};
  }
  const std::optional<std::uint64_t> value = number(text);
  if (name == "retain") {
    if (!value) return refuse(word, "retain is a number of bytes");
    parameters.retain = *value;
    return {};
  }
  for (const Key& key : kKeys) {
    if (key.name != name) continue;
    if (!value || *value == 0) return refuse(word, "the value must be a whole number above 0");
    if (key.flag != nullptr) {
      if (*value != 1) return refuse(word, "the value must be 1");
      parameters.*key.flag = true;
      return {};
    }
    if (*value > static_cast<std::uint64_t>(std::numeric_limits<int>::max())) {
      return refuse(word, "the value must fit an int");
    }
    parameters.*key.number = static_cast<unsigned>(*value);
    if (key.number == &Parameters::nr_threads) parameters.nr_threads = std::min(parameters.nr_threads, kMaxThreads);
    return {};
  }
  return refuse(word, "unknown parameter, known are " + known_keys());
}

}  // namespace

std::string parse_parameters(std::span<const std::string_view> words, unsigned cpus, Parameters& parameters) {
  for (const std::string_view word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      if (set_mode(word, cpus, parameters)) continue;
      return refuse(word, "neither a mode (performance, smoke, stress, serve, selfcheck) nor key=value");
    }
    std::string error = set_key(word, word.substr(0, equals), word.substr(equals + 1), parameters);
    if (!error.empty()) return error;
  }
  return {};
}

std::string usage() {
  std::string text = "usage: test_vmalloc [allocator=off|early|lazy|mmap] [MODE] [key=value]...\n\nmodes\n";
  const auto line = [&text](std::string_view name, std::string_view help) {
    text.append("  ").append(name).append(24 - std::min<std::size_t>(name.size(), 22), ' ').append(help).append("\n");
  };
  for (const Mode& mode : kModes) line(mode.name, mode.help);
  line("serve", "take runs from stdin: test, loops, workers");
  line("selfcheck", "do two wrong accesses, see that compiled checks find them");
  text.append("\nkeys\n");
  for (const Key& key : kKeys) line(key.name, key.help);
  line("retain", "bytes that purged areas may keep, 0 by default");
  text.append("\ntests\n");
  for (unsigned i = 0; i < kTestCount; ++i) line(std::to_string(1u << i), kTests[i].name);
  return text;
}

}  // namespace penumbra::bench::vmalloc
