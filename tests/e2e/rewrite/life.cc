// What a program's life is made of, one line of output each: exceptions through many frames, landing pads, threads,
// setjmp, signals that interrupt loops, a fault that is caught, vfork, fork, spawn, a dense switch, sorting, virtual calls.
// The lines are the same on every run.

#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace {

struct Shape {
  virtual ~Shape() = default;
  virtual int area(int scale) = 0;
};

struct Square : Shape {
  std::vector<int> sides;

  int area(int scale) override {
    sides.push_back(scale);
    if (scale % 7 == 0) throw std::runtime_error("seven times " + std::to_string(scale / 7));
    return sides.back() * sides.back();
  }
};

struct Circle : Shape {
  std::map<std::string, int> seen;

  int area(int scale) override {
    seen["radius " + std::to_string(scale % 10)] += scale;
    if (scale % 11 == 0) throw scale;
    return static_cast<int>(seen.size());
  }
};

__attribute__((noinline)) int descend(Shape& shape, int depth, const std::string& text) {
  const std::unique_ptr<int[]> guard(new int[static_cast<std::size_t>(depth) + 1]);
  guard[static_cast<std::size_t>(depth)] = depth;
  const int below = depth == 0 ? shape.area(static_cast<int>(text.size())) : descend(shape, depth - 1, text + "x");
  return below + guard[static_cast<std::size_t>(depth)];
}

void exceptions() {
  Square square;
  Circle circle;
  int normal = 0;
  int runtime_errors = 0;
  int numbers = 0;
  for (int i = 0; i < 200; ++i) {
    try {
      descend(square, i % 20, std::string(static_cast<std::size_t>(i), 'y'));
      ++normal;
    } catch (const std::exception& error) {
      runtime_errors += std::string(error.what()).size() > 5;
    }
    try {
      descend(circle, i % 13, std::string(static_cast<std::size_t>(i), 'z'));
      ++normal;
    } catch (int number) {
      numbers += number;
    }
  }
  std::printf("exceptions %d %d %d\n", normal, runtime_errors, numbers);
}

jmp_buf g_jump;
sigjmp_buf g_fault_jump;
volatile sig_atomic_t g_signals;

__attribute__((noinline)) void find_and_jump(const int* values, int count, int wanted) {
  for (int i = 0; i < count; ++i) {
    if (values[i] == wanted) longjmp(g_jump, i + 1);
  }
}

void jumps() {
  std::vector<int> values(100);
  std::iota(values.begin(), values.end(), 0);
  const int at = setjmp(g_jump);
  if (at == 0) find_and_jump(values.data(), 100, 77);
  std::printf("longjmp %d\n", at);
}

void threads() {
  std::mutex mutex;
  std::vector<std::thread> all;
  long total = 0;
  for (int t = 0; t < 4; ++t) {
    all.emplace_back([&] {
      std::map<int, std::string> map;
      for (int i = 0; i < 5000; ++i) {
        map[i % 997] += static_cast<char>('a' + i % 26);
        if (i % 1000 != 0) continue;
        try {
          throw std::string("thrown");
        } catch (const std::string& text) {
          map[1] += text;
        }
      }
      const std::lock_guard<std::mutex> guard(mutex);
      for (const auto& [key, text] : map) total += static_cast<long>(text.size());
    });
  }
  for (std::thread& thread : all) thread.join();
  std::printf("threads %ld\n", total);
}

void count_signal(int) { g_signals = g_signals + 1; }

void leave_fault(int) { siglongjmp(g_fault_jump, 5); }

void signals() {
  signal(SIGALRM, count_signal);
  const std::vector<int> values(100, 3);
  const itimerval every_millisecond{{0, 1000}, {0, 1000}};
  setitimer(ITIMER_REAL, &every_millisecond, nullptr);
  volatile long sum = 0;
  while (g_signals < 50) {
    for (const int value : values) sum = sum + value;
  }
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  std::printf("signals %d\n", g_signals >= 50);
  void* const closed = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  signal(SIGSEGV, leave_fault);
  const int caught = sigsetjmp(g_fault_jump, 1);
  if (caught == 0) *static_cast<volatile int*>(closed) = 1;
  signal(SIGSEGV, SIG_DFL);
  std::printf("fault %d\n", caught);
}

void processes() {
  const std::vector<int> values(100, 43);
  int status = 0;
  pid_t child = vfork();
  if (child == 0) _exit(values[42]);
  waitpid(child, &status, 0);
  std::printf("vfork %d\n", WEXITSTATUS(status));
  child = fork();
  if (child == 0) _exit(values[43] + 1);
  waitpid(child, &status, 0);
  std::printf("fork %d\n", WEXITSTATUS(status));
  char name[] = "/bin/true";
  char* arguments[] = {name, nullptr};
  posix_spawn(&child, name, nullptr, nullptr, arguments, environ);
  waitpid(child, &status, 0);
  std::printf("spawn %d\n", status);
}

__attribute__((noinline)) int choose(int* p, int which) {
  switch (which) {
    case 0: return p[0];
    case 1: return p[1] * 3;
    case 2: return ++p[2];
    case 3: return p[3] - p[1];
    case 4: return p[4] ^ p[0];
    case 5: return p[5] << 2;
    case 6: return p[6] / 3;
    case 7: return -p[7];
    case 8: return ~p[8];
    case 9: return p[9] & 12;
    default: return 9;
  }
}

void choices() {
  std::vector<int> values(16);
  std::iota(values.begin(), values.end(), 100);
  long sum = 0;
  for (int i = 0; i < 1000; ++i) sum += choose(values.data(), i % 12);
  std::printf("switch %ld\n", sum);
}

void strings() {
  std::vector<std::string> words;
  for (int i = 0; i < 5000; ++i) words.push_back(std::to_string((i * 7919) % 10007));
  std::sort(words.begin(), words.end());
  const std::string all = std::accumulate(words.begin(), words.end(), std::string());
  std::printf("sort %zu %s\n", all.size(), words[17].c_str());
  const std::function<long(int)> fibonacci = [&](int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); };
  std::printf("calls %ld\n", fibonacci(15));
}

}  // namespace

int main() {
  exceptions();
  jumps();
  threads();
  signals();
  processes();
  choices();
  strings();
}
