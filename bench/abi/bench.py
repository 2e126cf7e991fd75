from support import google_benchmark

BENCHES = [google_benchmark.bench("checks", "one outline check of compiled code", "bench/abi/checks_bench")]
