#include "runtime/launcher/module_cache.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <sstream>
#include <thread>

#include "instrument/rewrite/module_file.h"
#include "runtime/launcher/program.h"

namespace penumbra::launcher {
namespace {

namespace fs = std::filesystem;

// Never rewritten by the loader either (instrument/load/load.cc).
constexpr std::array kLeftAlone = {"ld-linux", "libpenumbra", "libmimalloc", "libc.so",
                                   "libasan",  "libtsan",     "libubsan",    "liblsan"};

constexpr const char* kLoader = "/lib64/ld-linux-x86-64.so.2";

bool is_left_alone(const std::string& file) {
  const std::string name = fs::path(file).filename();
  return std::ranges::any_of(kLeftAlone, [&](const char* prefix) { return name.starts_with(prefix); });
}

// What runs when `program` is executed: itself, or what its `#!` line names.
std::string executable_of(const std::string& program) {
  std::ifstream in(program, std::ios::binary);
  std::string line;
  if (!std::getline(in, line) || !line.starts_with("#!")) return program;
  std::istringstream words(line.substr(2));
  std::string interpreter;
  std::string argument;
  words >> interpreter >> argument;
  if (fs::path(interpreter).filename() == "env" && !argument.empty() && argument.front() != '-') {
    return find_program(argument, std::getenv("PATH")).path;
  }
  return interpreter;
}

// The loader's own answer to which libraries the executable gets; empty where it gives none.
std::vector<std::string> libraries_of(const std::string& executable) {
  std::vector<std::string> files;
  int ends[2];
  if (pipe(ends) != 0) return files;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    // What the loader complains about is the program's to say, once it runs.
    if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(1);
    execl(kLoader, kLoader, "--list", executable.c_str(), nullptr);
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t n = 0; (n = read(ends[0], part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(n));
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (word.front() == '/') files.push_back(word);
  }
  return files;
}

bool has_module_file(const std::string& file, const std::string& folder) {
  try {
    const rewrite::ElfImage image(file);
    return image.build_id().empty() || fs::exists(fs::path(folder) / (image.build_id() + ".module"));
  } catch (const rewrite::ImageError&) {
    return true;  // nothing to be made
  }
}

}  // namespace

std::string default_cache_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::string(cache) + "/penumbra";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/penumbra";
  return "";
}

RewriteResult rewrite_file(const std::string& file, const std::string& folder,
                           const rewrite::RewriteOptions& options) {
  rewrite::Decoder decoder;
  const rewrite::ElfImage image(file);
  if (image.build_id().empty())
    throw rewrite::ImageError(fmt::format("{}: has no build-id, by which a module is known", file));
  if (image.has_text_relocations()) throw rewrite::ImageError(fmt::format("{}: has text relocations", file));
  const rewrite::Program program(image, decoder);
  const rewrite::Liveness liveness(program);
  rewrite::Relocator relocator(program, liveness, options);
  const rewrite::RewrittenModule module = relocator.run();
  std::uint64_t bits = 0;
  if (options.checks && options.access.reads) bits |= kModuleChecksReads;
  if (options.checks && options.access.writes) bits |= kModuleChecksWrites;
  const std::vector<std::uint8_t> bytes = rewrite::module_bytes(module, program, image.build_id(), bits);
  if (!folder.empty()) rewrite::write_whole_file(fs::path(folder) / (image.build_id() + ".module"), bytes);
  return {module.stats, module.ledger, bytes.size()};
}

void prepare_modules(const std::string& program, const std::string& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  // The library believes only a folder that nobody else can write.
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  if (error) {
    fmt::print(stderr, "penumbra: {}: {}; nothing is rewritten\n", folder, error.message());
    return;
  }
  const std::string executable = executable_of(program);
  std::vector<std::string> files = libraries_of(executable);
  files.push_back(executable);
  std::erase_if(files, [&](const std::string& file) { return is_left_alone(file) || has_module_file(file, folder); });
  if (files.empty()) return;
  // The largest first: the last ones to finish are then small.
  std::ranges::sort(files, std::greater(), [](const std::string& file) {
    std::error_code ignored;
    return fs::file_size(file, ignored);
  });
  std::atomic<std::size_t> next{0};
  std::mutex saying;
  std::size_t done = 0;
  const auto work = [&] {
    for (std::size_t n = next++; n < files.size(); n = next++) {
      std::string trouble;
      try {
        rewrite_file(files[n], folder, {});
      } catch (const std::exception& failure) {
        trouble = failure.what();
      }
      const std::lock_guard guard(saying);
      ++done;
      if (!trouble.empty()) fmt::print(stderr, "penumbra: {}; it runs unchecked\n", trouble);
      if (isatty(STDERR_FILENO) != 0) {
        fmt::print(stderr, "\rpenumbra: prepared {} of {} modules{}", done, files.size(),
                   done == files.size() ? "\n" : "");
      } else if (done == files.size()) {
        fmt::print(stderr, "penumbra: prepared {} modules\n", files.size());
      }
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned n = std::max(1u, std::thread::hardware_concurrency()); n > 0; --n) threads.emplace_back(work);
}

}  // namespace penumbra::launcher
