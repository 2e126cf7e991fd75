#!/usr/bin/env python3
"""Programs that were not compiled for us: our names are first in them, and must change nothing.

A C program with C++ plugins (the C++ runtime lies in a scope of its own, or inside the plugin), and programs of another
sanitizer, which keep their own runtime's reports. And compiled programs where there is no address space for the
direct shadow: inline checks end with one line, outline checks find what they find elsewhere.

usage: run_preloaded.py BUILD_DIR
"""
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent / "programs"


def compile_with(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


def run(command, preload=None, address_space=None, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "LD_", "PENUMBRA_"))}
    environment.update(variables)
    if preload:
        environment["LD_PRELOAD"] = str(preload)

    def limit():
        if address_space:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))

    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False,
                          preexec_fn=limit)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    library = build / "runtime" / "libpenumbra.so"
    failures = []

    def expect(name, condition, done):
        print(("ok      " if condition else "FAILED  ") + name)
        if not condition:
            failures.append(name)
            print(f"status {done.returncode}\n{done.stdout}{done.stderr[:3000]}")

    with tempfile.TemporaryDirectory() as scratch:
        host, plugin, static = f"{scratch}/host", f"{scratch}/plugin.so", f"{scratch}/static.so"
        compile_with("gcc", str(HERE / "host.c"), "-o", host)
        compile_with("g++", "-O1", "-fPIC", "-shared", str(HERE / "plugin.cc"), "-o", plugin)
        compile_with("g++", "-O1", "-fPIC", "-shared", "-static-libstdc++", "-static-libgcc", str(HERE / "plugin.cc"),
                     "-o", static)
        library_inside = f"{scratch}/library_inside.so"
        compile_with("g++", "-O1", "-fPIC", "-shared", "-static-libstdc++", str(HERE / "plugin.cc"), "-o", library_inside)
        for name, plugins in [("a plugin with a C++ runtime of its own scope", [plugin]),
                              ("a plugin with libstdc++ inside", [library_inside]),
                              ("a plugin with the unwinder inside as well", [static]), ("both", [plugin, static]),
                              ("both, the other way round", [static, plugin])]:
            done = run([host, *plugins], preload=library)
            expect(name, done.returncode == 0 and done.stdout == "ok\n" and "BUG" not in done.stderr, done)

        for flags, name in [(["-fsanitize=address"], "shared libasan"),
                            (["-fsanitize=address", "-static-libasan"], "static libasan")]:
            program = f"{scratch}/asan"
            compile_with("g++", "-w", "-g", *flags, str(HERE / "asan_bugs.cc"), "-o", program)
            for what, wanted in [("", None), ("global", "global-buffer-overflow"), ("stack", "stack-buffer-overflow"),
                                 ("heap", "heap-buffer-overflow"), ("freed", "heap-use-after-free")]:
                done = run([program, what], preload=library,
                           ASAN_OPTIONS="verify_asan_link_order=0:detect_leaks=0:symbolize=0")
                seen = re.search(r"ERROR: AddressSanitizer: (\S+)", done.stderr)
                expect(f"{name} {what}", (seen.group(1) if seen else None) == wanted and "KASAN" not in done.stderr,
                       done)

        environment = dict(os.environ, PKG_CONFIG_PATH=str(build / "meson-uninstalled"))
        flags = {variable: subprocess.run(["pkg-config", variable, "penumbra"], env=environment, capture_output=True,
                                          text=True, check=True).stdout.split()
                 for variable in ("--cflags", "--libs", "--variable=outline_cflags")}
        program = f"{scratch}/static"
        compile_with("g++", "-w", *flags["--cflags"], str(HERE / "asan_bugs.cc"), "-o", program, "-static-libstdc++",
                     "-static-libgcc", *flags["--libs"])
        done = run([program])
        expect("a compiled program with its own C++ runtime throws with that", done.returncode == 0 and
               done.stdout == "ok\n" and done.stderr == "", done)
        for name, variable in [("inline", "--cflags"), ("outline", "--variable=outline_cflags")]:
            program = f"{scratch}/{name}"
            compile_with("gcc", "-w", *flags[variable], str(HERE / "host.c"), "-o", program, *flags["--libs"])
            done = run([program], address_space=1 << 30)
            lines = done.stderr.splitlines()
            if name == "inline":
                expect("without the direct shadow, inline checks end with the fix in one line",
                       done.returncode == 1 and done.stdout == "" and "outline_cflags" in lines[-1], done)
            else:
                expect("without the direct shadow, a program with outline checks runs",
                       done.returncode == 0 and done.stdout == "ok\n" and not lines, done)
                bugs = f"{scratch}/outline_bugs"
                compile_with("g++", "-w", "-g", *flags[variable], str(HERE / "asan_bugs.cc"), "-o", bugs, *flags["--libs"])
                for what, kind in [("heap", "slab-out-of-bounds"), ("freed", "slab-use-after-free")]:
                    done = run([bugs, what], address_space=1 << 30)
                    expect(f"without the direct shadow, outline checks find: {what}", f"BUG: KASAN: {kind}" in done.stderr, done)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
