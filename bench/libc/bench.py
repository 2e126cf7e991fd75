from support import google_benchmark

BENCHES = [google_benchmark.bench("libc", "checked entry points of libc beside libc's own", "bench/libc/memcpy_bench")]
