"""Runs program.c's words: nothing is said of the right one, and each wrong use has the kernel's words and a stack."""

import os
import subprocess
import sys

WRONG = {
    "zero": "refcount_t: addition on 0; use-after-free.",
    "underflow": "refcount_t: underflow; use-after-free.",
    "saturated": "refcount_t: saturated; leaking memory.",
    "leak": "refcount_t: decrement hit 0; leaking memory.",
}


def main():
    program = sys.argv[1]
    environment = dict(os.environ, MALLOC_PERTURB_="0", PENUMBRA_OPTIONS="symbolize=0")
    run = lambda word: subprocess.run([program, word], env=environment, capture_output=True, text=True, timeout=60)
    print(f"1..{len(WRONG) + 1}")
    failed = 0

    def tell(number, good, claim, done):
        nonlocal failed
        failed += not good
        print(f"{'ok' if good else 'not ok'} {number} - {claim}")
        if not good:
            print(f"# status {done.returncode}\n# " + done.stderr.replace("\n", "\n# "))

    done = run("right")
    tell(1, done.returncode == 0 and not done.stderr, "nothing is said of right use", done)
    for number, (word, words) in enumerate(WRONG.items(), 2):
        done = run(word)
        lines = done.stderr.splitlines()
        title = next((line for line in lines if line.startswith("BUG: KASAN: ")), "")
        good = (done.returncode == 99 and title.startswith("BUG: KASAN: refcount in ") and words in lines and
                "Call Trace:" in lines)
        tell(number, good, words, done)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
