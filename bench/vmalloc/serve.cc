#include "bench/vmalloc/serve.h"

#include <bit>
#include <istream>
#include <ostream>
#include <sstream>
#include <string>

namespace penumbra::bench::vmalloc {

void serve(std::istream& requests, std::ostream& answers, const Parameters& parameters, unsigned cpus,
           unsigned supported, const Runner& runner) {
  std::string line;
  while (std::getline(requests, line)) {
    std::istringstream words(line);
    unsigned bit = 0;
    unsigned loops = 0;
    unsigned workers = 0;
    if (!(words >> bit >> loops >> workers) || loops == 0 || workers == 0) {
      answers << "error: a request is BIT LOOPS WORKERS, each above 0" << std::endl;
      continue;
    }
    if (!std::has_single_bit(bit) || (bit & supported) == 0) {
      answers << "error: no such test here" << std::endl;
      continue;
    }
    Parameters run = parameters;
    run.run_test_mask = bit;
    run.test_loop_count = loops;
    run.nr_threads = workers;
    run.test_repeat_count = 1;
    const auto test = static_cast<unsigned>(std::countr_zero(bit));
    unsigned failed = 0;
    unsigned xfailed = 0;
    for (const WorkerScore& score : run_workers(run, cpus, supported, runner)) {
      answers << score.tests[test].ns << ' ';
      failed += score.tests[test].failed;
      xfailed += score.tests[test].xfailed;
    }
    answers << (failed != 0 ? "failed" : xfailed != 0 ? "xfailed" : "passed") << std::endl;
  }
}

}  // namespace penumbra::bench::vmalloc
