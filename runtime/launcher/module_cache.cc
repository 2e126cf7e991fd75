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
#include <functional>
#include <mutex>
#include <sstream>
#include <thread>

#include "instrument/rewrite/identity.h"
#include "instrument/rewrite/listing.h"
#include "instrument/rewrite/module_file.h"
#include "instrument/rewriter_revision.h"
#include "runtime/base/never_rewritten.h"
#include "runtime/launcher/cache_prune.h"
#include "runtime/launcher/program.h"

namespace penumbra::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLoader = "/lib64/ld-linux-x86-64.so.2";

bool is_left_alone(const std::string& file) {
  return is_never_rewritten(file.c_str());
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

fs::path module_path(const std::string& identity, const std::string& folder, const std::string& key) {
  return fs::path(folder) / (identity + key + PENUMBRA_MODULE_SUFFIX);
}

// Built with -fsanitize=kernel-address or a sanitizer (process ruling 6): a second check of every access would report each
// fault twice, and those of its own checks would be taken for accesses.
bool carries_own_checks(const rewrite::ElfImage& image) {
  return image.imports("__asan_");
}

// Only what the file itself forbids: a full disk may be less full next time.
void mark_as_impossible(const std::string& file, const std::string& folder, const std::string& key) {
  try {
    const rewrite::ElfImage image(file);
    if (image.has_text_relocations() || carries_own_checks(image))
      std::ofstream(module_path(image.identity(), folder, key));
  } catch (const rewrite::ImageError&) {
    // Has no identity, so there is no name to say it under.
  }
}

// True also where there is nothing to be made, and nothing to be said about it. A file whose module file is there already, an
// empty one included, is not read but for its headers where it has a build-id: that is every file of nearly every start.
bool has_module_file(const std::string& file, const std::string& folder, const std::string& key) {
  const std::string identity = rewrite::identity_of_file(file);
  const fs::path module = module_path(identity, folder, key);
  if (identity.empty() || note_use(module)) return true;
  try {
    if (!carries_own_checks(rewrite::ElfImage(file))) return false;
    std::ofstream{module};  // as mark_as_impossible() does
  } catch (const rewrite::ImageError&) {
  }
  return true;  // nothing can be made
}

}  // namespace

std::string cache_folder(const Options& options) {
  if (options.cache[0] != '\0') return options.cache;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::string(cache) + "/penumbra";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/penumbra";
  return "";
}

RewriteResult rewrite_file(const std::string& file, const std::string& folder, const rewrite::RewriteOptions& options,
                           const std::string& key) {
  const rewrite::ElfImage image(file);
  if (image.has_text_relocations()) throw rewrite::ImageError(fmt::format("{}: has text relocations", file));
  if (carries_own_checks(image))
    throw rewrite::ImageError(fmt::format("{}: carries its own checks (it uses __asan_ entry points)", file));
  // Writing needs nothing of what was found out about the program.
  const rewrite::RewrittenModule module = [&] {
    rewrite::Decoder decoder;
    const rewrite::Program program(image, decoder);
    const rewrite::Liveness liveness(program);
    return rewrite::Relocator(program, liveness, options).run();
  }();
  std::uint64_t bits = 0;
  if (options.checks && options.access.reads) bits |= kModuleChecksReads;
  if (options.checks && options.access.writes) bits |= kModuleChecksWrites;
  if (options.checks && options.access.system_calls) bits |= kModuleChecksSystemCalls;
  if (!folder.empty()) {
    rewrite::write_module_file(module_path(image.identity(), folder, key), module, image, {image.identity(), bits});
  }
  return {module.stats, module.ledger, rewrite::module_file_bytes(module, image)};
}

namespace {

// False when there is no folder that the library will believe: only one that nobody else can write.
bool make_folder(const std::string& folder, std::error_code& error) {
  fs::create_directories(folder, error);
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  return !error;
}

// Called after each file, by one thread at a time; `trouble` is empty where the file was made.
using Progress = std::function<void(std::size_t done, std::size_t all, const std::string& trouble)>;

void make_module_files(std::vector<std::string> files, const std::string& folder, const Wishes& wishes,
                       const Progress& progress) {
  {
    const CacheUse use(folder);
    std::erase_if(files, [&](const std::string& file) {
      return is_left_alone(file) || has_module_file(file, folder, wishes.key(file));
    });
  }
  if (files.empty()) return;
  // The largest first: the last ones to finish are then small.
  std::ranges::sort(files, std::greater(), [](const std::string& file) {
    std::error_code ignored;
    return fs::file_size(file, ignored);
  });
  std::atomic<std::size_t> next{0};
  std::mutex reporting;
  std::size_t done = 0;
  const auto work = [&] {
    for (std::size_t n = next++; n < files.size(); n = next++) {
      std::string trouble;
      try {
        rewrite_file(files[n], folder, wishes.for_module(files[n]), wishes.key(files[n]));
      } catch (const std::exception& failure) {
        trouble = failure.what();
        mark_as_impossible(files[n], folder, wishes.key(files[n]));
      }
      const std::lock_guard guard(reporting);
      progress(++done, files.size(), trouble);
    }
  };
  std::vector<std::jthread> threads;
  const std::size_t most = std::max(1u, std::thread::hardware_concurrency());
  for (std::size_t n = std::min(most, files.size()); n > 0; --n) threads.emplace_back(work);
  for (std::jthread& thread : threads) thread.join();
  prune_cache(folder, wishes.cache_limit());  // only here the cache grows
}

}  // namespace

Wishes::Wishes(const Options& options) : options_(options) {
  if (options.optout[0] == '\0') return;
  std::ifstream in(options.optout, std::ios::binary);
  text_.assign((std::istreambuf_iterator<char>(in)), {});
  if (!in) throw std::runtime_error(fmt::format("optout={} cannot be read", options.optout));
}

rewrite::RewriteOptions Wishes::for_module(const std::string& file) const {
  rewrite::RewriteOptions wanted;
  wanted.access.reads = options_.check != CheckKind::kWrites;
  wanted.access.writes = options_.check != CheckKind::kReads;
  wanted.exact = options_.exact;
  wanted.calls_out = options_.shadow == ShadowKind::kPaged;
  const OptOutList lines = list();
  OptOutLine line;
  for (const char* at = lines.begin; next_line(lines, at, line);) {
    if (!names_module(line, file.c_str())) continue;
    wanted.optout.push_back({std::string(line.function.text, line.function.bytes), line.reads, line.writes});
  }
  return wanted;
}

std::string Wishes::key(const std::string& file) const {
  FixedTextBuffer<128> text;
  append_module_key(text, options_, list(), file.c_str());
  return std::string(text.data(), text.size());
}

std::vector<std::string> modules_of(const std::string& program) {
  // As the library names it: what the process runs, with links followed.
  std::error_code error;
  const std::string named = executable_of(program);
  const fs::path real = fs::canonical(named, error);
  std::vector<std::string> files = libraries_of(named);
  files.push_back(error ? named : real.string());
  std::erase_if(files, is_left_alone);
  return files;
}

std::vector<std::string> functions_of(const std::string& file) {
  rewrite::Decoder decoder;
  const rewrite::ElfImage image(file);
  const rewrite::Program program(image, decoder);
  std::vector<std::string> names;
  for (const rewrite::Function& function : program.functions()) {
    const auto symbol =
        std::ranges::lower_bound(image.symbols(), function.range.begin, {}, &rewrite::Symbol::address);
    const bool has_name =
        symbol != image.symbols().end() && symbol->address == function.range.begin && !symbol->name.empty();
    names.push_back(has_name ? std::string(symbol->name) : fmt::format("{:#x}", function.range.begin));
  }
  return names;
}

std::string disassemble_function(const std::string& file, const std::string& name,
                                 const rewrite::RewriteOptions& options) {
  rewrite::Decoder decoder;
  const rewrite::ElfImage image(file);
  const rewrite::Program program(image, decoder);
  const rewrite::Liveness liveness(program);
  rewrite::Relocator relocator(program, liveness, options);
  const rewrite::RewrittenModule module = relocator.run();
  const std::uint32_t function = rewrite::find_function(program, name);
  if (function == rewrite::kNone) throw rewrite::ImageError(fmt::format("{}: has no function '{}'", file, name));
  return rewrite::list_function(program, module, function);
}

void prepare_modules(const std::string& program, const std::string& folder, const Wishes& wishes, bool verbose) {
  std::error_code error;
  if (!make_folder(folder, error)) {
    fmt::print(stderr, "penumbra: {}: {}; nothing is rewritten\n", folder, error.message());
    return;
  }
  const std::vector<std::string> files = modules_of(program);
  const bool is_terminal = isatty(STDERR_FILENO) != 0;
  make_module_files(files, folder, wishes, [&](std::size_t done, std::size_t all, const std::string& trouble) {
    if (!trouble.empty()) fmt::print(stderr, "penumbra: {}; it runs unchecked\n", trouble);
    if (is_terminal) {
      fmt::print(stderr, "\rpenumbra: prepared {} of {} modules{}", done, all, done == all ? "\n" : "");
    } else if (verbose && done == all) {
      fmt::print(stderr, "penumbra: prepared {} modules\n", all);
    }
  });
}

void prepare_files(std::vector<std::string> files, const std::string& folder, const Wishes& wishes) {
  std::error_code error;
  if (!make_folder(folder, error)) return;
  make_module_files(std::move(files), folder, wishes, [](std::size_t, std::size_t, const std::string&) {});
}

}  // namespace penumbra::launcher
