#!/usr/bin/env python3
"""What is installed works without the build tree: pkg-config's flags compile, link, find the library and its headers.

Installs into a scratch directory and moves the prefix there, as pkg-config lets a user do.

usage: installed.py BUILD_DIR
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

PROGRAM = r"""
#include <penumbra/penumbra.h>
#include <stdio.h>

int main(int argc, char** argv) {
  char stack[10] = {0};
  char* area = penumbra_vmalloc(100);
  volatile int beyond = argc + 9;
  printf("%d\n", area[0] * 0 + (argc > 1 ? stack[beyond - 1] : 0));
  penumbra_vfree(area);
  return 0;
}
"""


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["meson", "install", "--no-rebuild", "--quiet", "-C", str(build), "--destdir", scratch], check=True,
                       stdout=subprocess.DEVNULL)
        description = next(pathlib.Path(scratch).rglob("penumbra.pc"))
        prefix = next(line for line in description.read_text().splitlines() if line.startswith("prefix="))[7:]
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "PENUMBRA_", "MALLOC_"))}
        environment["PKG_CONFIG_PATH"] = str(description.parent)
        source = pathlib.Path(scratch) / "program.c"
        source.write_text(PROGRAM)
        for compiler, package in [("gcc", "penumbra"), ("clang-14", "penumbra-clang"), ("clang-19", "penumbra-clang")]:
            if shutil.which(compiler) is None:
                continue
            flags = {what: subprocess.run(["pkg-config", f"--define-variable=prefix={scratch}{prefix}", what, package],
                                          env=environment, capture_output=True, text=True, check=True).stdout.split()
                     for what in ("--cflags", "--libs")}
            program = f"{scratch}/program-{compiler}"
            subprocess.run([compiler, "-w", *flags["--cflags"], str(source), "-o", program, *flags["--libs"]], check=True)
            for arguments, status, word in [([], 0, None), (["bad"], 99, "stack-out-of-bounds")]:
                done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, timeout=60,
                                      check=False)
                if done.returncode != status or (word or "0\n") not in done.stderr + done.stdout:
                    failures += 1
                    print(f"{compiler} {arguments}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
