"""Runs family_program.c's words: nothing is said of the clean one, and each wrong thing is called by its name."""

import os
import subprocess
import sys

WRONG = {
    "vunmap-twice": "double-free",
    "vunmap-of-area": "invalid-free",
    "vfree-of-mapping": "invalid-free",
    "unmap-ram-twice": "double-free",
    "page-twice": "double-free",
    "page-order": "invalid-free",
    "percpu-twice": "double-free",
    "percpu-over": "vmalloc-out-of-bounds",
    "percpu-late": "vmalloc-use-after-free",
    "mapping-late": "vmalloc-use-after-free",
    "ram-late": "vmalloc-use-after-free",
    "mapping-over": "vmalloc-guard",
    "page-late": "use-after-free",
    "kvfree-freed": "double-free",
    "kvfree-twice": "double-free",
}


def run(program, word, environment):
    return subprocess.run([program, word], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=60)


def main():
    program = sys.argv[1]
    environment = dict(os.environ, MALLOC_PERTURB_="0", PENUMBRA_OPTIONS="symbolize=0")
    failed = 0
    clean = run(program, "clean", environment)
    if clean.returncode != 0 or clean.stderr:
        print(f"clean: status {clean.returncode}, said:\n{clean.stderr}")
        failed += 1
    for word, kind in WRONG.items():
        done = run(program, word, environment)
        title = next((line for line in done.stderr.splitlines() if line.startswith("BUG: KASAN: ")), "no report")
        reports = done.stderr.count("BUG: KASAN: ")
        if done.returncode != 99 or reports != 1 or not title.startswith(f"BUG: KASAN: {kind} in "):
            print(f"{word}: status {done.returncode}, {reports} reports, first: {title}\n{done.stderr[:2000]}")
            failed += 1
    # Without shadow the same calls work, unchecked.
    off = run(program, "page-order", dict(environment, PENUMBRA_OPTIONS="shadow=off"))
    if off.returncode not in (0, 99):
        print(f"shadow=off: status {off.returncode}\n{off.stderr}")
        failed += 1
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
