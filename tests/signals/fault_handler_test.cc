// A processor fault inside a report: the report is abandoned, what there was of it is printed, the program goes on.
#include "runtime/signals/fault_handler.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "runtime/report/exit_status.h"
#include "runtime/report/report.h"
#include "runtime/signals/signals.h"

namespace penumbra::signals {
namespace {

Options g_options;

volatile std::uintptr_t g_nowhere = 0x10;

// What a source would do that met a corrupt structure.
std::size_t faulting_unwind(const CodeContext&, std::uintptr_t*, std::size_t) {
  return *reinterpret_cast<volatile std::size_t*>(g_nowhere);
}

std::string output_of_child(void (*body)(), int& status) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    body();
    ::_exit(report::final_status(7));
  }
  close(ends[1]);
  std::string text;
  char piece[4096];
  for (ssize_t got; (got = read(ends[0], piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(got));
  close(ends[0]);
  waitpid(child, &status, 0);
  return text;
}

TEST(FaultHandler, AFaultInsideAReportAbandonsItAndTheProgramGoesOn) {
  int status = 0;
  const std::string text = output_of_child(
      [] {
        report::Sources sources;
        sources.unwind = faulting_unwind;
        report::init_reports(g_options, sources, nullptr);
        init(nullptr);
        Fault fault;
        fault.kind = FaultKind::kInvalidFree;
        fault.context.pc = 0x1000;
        raise_fault(fault);
        // The lock is free again, and the next one is reported (and abandoned) as well.
        fault.context.pc = 0x2000;
        raise_fault(fault);
      },
      status);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << text;
  EXPECT_EQ(WEXITSTATUS(status), 99);
  for (const char* pc : {"0x1000", "0x2000"}) {
    EXPECT_NE(text.find(std::string("penumbra: a fault inside the report of invalid-free (pc ") + pc +
                        ", addr 0x0); the rest of it is left out\n"),
              std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace penumbra::signals
