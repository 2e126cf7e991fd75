#include "runtime/launcher/bisect_command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <thread>

#include "runtime/launcher/environment.h"
#include "runtime/launcher/module_cache.h"
#include "runtime/launcher/program.h"

namespace penumbra::launcher {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kNotFound = 1;
// A run that takes this much longer than the good one, or this many seconds, hangs.
constexpr int kSlowest = 20;
constexpr std::chrono::seconds kAtLeast{30};

// What a run did, as far as it must be the same on every run.
struct Run {
  int status = 0;  // as waitpid has it; -1 for one that hung
  std::string output;
  Clock::duration took{};

  bool operator==(const Run& other) const { return status == other.status && output == other.output; }
};

// A folder of its own, removed with all that lies in it.
class Workshop {
 public:
  Workshop() {
    std::string pattern = fs::temp_directory_path() / "penumbra-bisect.XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder for the runs");
    path_ = pattern;
  }
  ~Workshop() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Workshop(const Workshop&) = delete;
  Workshop& operator=(const Workshop&) = delete;

  fs::path operator/(const char* name) const { return path_ / name; }

 private:
  fs::path path_;
};

class Bisection {
 public:
  Bisection(const std::string& options, const std::vector<std::string>& arguments)
      : options_(options), arguments_(arguments) {
    // Every run reads the same input.
    std::ofstream input(workshop_ / "input", std::ios::binary);
    if (isatty(STDIN_FILENO) != 0) return;
    std::array<char, 65536> part;
    for (ssize_t n = 0; (n = read(STDIN_FILENO, part.data(), part.size())) > 0;) input.write(part.data(), n);
  }

  // The lines that make the program behave; none when it does without or does not with everything left out.
  std::vector<std::string> find() {
    limit_ = std::chrono::hours(24);
    good_ = run("* *\n");
    limit_ = std::max<Clock::duration>(kAtLeast, kSlowest * good_.took);
    if (behaves("")) {
      fmt::print(stderr, "penumbra: bisect: the program does the same with every function rewritten\n");
      return {};
    }
    if (!behaves("* *\n")) {
      fmt::print(stderr, "penumbra: bisect: the program does not do the same twice with everything left out\n");
      return {};
    }
    std::vector<std::string> lines;
    std::string left_out;
    while (!behaves(left_out)) {
      lines.push_back(find_one(left_out));
      left_out += lines.back() + "\n";
    }
    return lines;
  }

 private:
  // The last of those functions, in the order of modules, that has to be left out.
  std::string find_one(const std::string& left_out) {
    std::vector<std::string> files = modules_of(find_program(arguments_.front(), getenv("PATH")).path);
    // The executable first: it is the likeliest.
    std::rotate(files.rbegin(), files.rbegin() + 1, files.rend());
    const auto module_name = [&](std::size_t n) { return fs::path(files[n]).filename().string(); };
    const std::size_t module = first_that(files.size(), [&](std::size_t count) {
      std::string list = left_out;
      for (std::size_t n = 0; n < count; ++n) list += module_name(n) + " *\n";
      return behaves(list);
    });
    if (module == files.size()) {
      throw std::runtime_error("the function lies in a module that the program loads later");
    }
    std::string before = left_out;
    for (std::size_t n = 0; n < module; ++n) before += module_name(n) + " *\n";
    const std::vector<std::string> functions = functions_of(files[module]);
    fmt::print(stderr, "penumbra: bisect: {}, {} functions\n", files[module], functions.size());
    const std::size_t function = first_that(functions.size(), [&](std::size_t count) {
      std::string list = before;
      for (std::size_t n = 0; n < count; ++n) list += module_name(module) + " " + functions[n] + "\n";
      return behaves(list);
    });
    if (function == functions.size()) throw std::runtime_error("the program does not do the same on every run");
    return module_name(module) + " " + functions[function];
  }

  // The number of the element with which leaving out begins to help: the least n so that helps(n + 1).
  static std::size_t first_that(std::size_t count, const std::function<bool(std::size_t)>& helps) {
    std::size_t low = 0;           // does not help
    std::size_t high = count + 1;  // helps, or is unknown
    while (high - low > 1) {
      const std::size_t middle = low + (high - low) / 2;
      if (helps(middle)) {
        high = middle;
      } else {
        low = middle;
      }
    }
    return low;
  }

  bool behaves(const std::string& left_out) {
    const bool same = run(left_out) == good_;
    fmt::print(stderr, "penumbra: bisect: run {}: {}\n", ++runs_, same ? "good" : "bad");
    return same;
  }

  Run run(const std::string& left_out) {
    std::ofstream(workshop_ / "optout", std::ios::binary) << left_out;
    const std::string output = workshop_ / "output";
    std::vector<std::string> words = {own_folder() + "/penumbra", "rewrite=1"};
    for (std::size_t begin = 0; begin < options_.size();) {
      const std::size_t end = std::min(options_.find(':', begin), options_.size());
      words.push_back(options_.substr(begin, end - begin));
      begin = end + 1;
    }
    words.push_back(fmt::format("cache={}", (workshop_ / "cache").string()));
    words.push_back(fmt::format("optout={}", (workshop_ / "optout").string()));
    words.emplace_back("--");
    words.insert(words.end(), arguments_.begin(), arguments_.end());
    const auto begin = Clock::now();
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("cannot start a run");
    if (child == 0) start(words, output);
    Run result;
    result.status = wait_for(child, begin + limit_);
    result.took = Clock::now() - begin;
    std::ifstream in(output, std::ios::binary);
    result.output.assign((std::istreambuf_iterator<char>(in)), {});
    return result;
  }

  [[noreturn]] void start(const std::vector<std::string>& words, const std::string& output) {
    setpgid(0, 0);
    const int in = open((workshop_ / "input").c_str(), O_RDONLY);
    const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int nothing = open("/dev/null", O_WRONLY);
    if (in < 0 || out < 0 || nothing < 0) _exit(127);
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(argv.front(), argv.data());
    _exit(127);
  }

  // -1 when it did not end in time; then it and its children, a process group of their own, are ended.
  static int wait_for(pid_t child, Clock::time_point end) {
    for (;;) {
      int status = 0;
      if (waitpid(child, &status, WNOHANG) == child) return status;
      if (Clock::now() >= end) {
        kill(-child, SIGKILL);
        waitpid(child, &status, 0);
        return -1;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  Workshop workshop_;
  std::string options_;
  std::vector<std::string> arguments_;
  Run good_;
  Clock::duration limit_{};
  unsigned runs_ = 0;
};

}  // namespace

int bisect_main(const std::string& options, const std::vector<std::string>& arguments) {
  const std::vector<std::string> lines = Bisection(options, arguments).find();
  for (const std::string& line : lines) fmt::print("{}\n", line);
  if (lines.size() > 1) fmt::print(stderr, "penumbra: bisect: no single function is enough\n");
  return lines.empty() ? kNotFound : 0;
}

}  // namespace penumbra::launcher
