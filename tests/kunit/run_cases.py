#!/usr/bin/env python3
"""Runs the kernel's KASAN cases, compiled by one compiler, inline and outline; checks that none is forgotten.

usage: run_cases.py BUILD_DIR gcc|clang-14|clang-19

Exit status 77 (skipped) when the compiler is not installed.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
SOURCES = ["main.c", "kmalloc.c", "krealloc.c", "memory_calls.c", "globals.c", "stack.c", "bitops.c", "atomics.c",
           "vmalloc.c", "modes.c"]

# Every case of the kernel's list (mm/kasan/kasan_test_c.c and what was proposed for it), whatever it needs.
KERNEL_CASES = """
kmalloc_oob_right kmalloc_oob_left kmalloc_node_oob_right kmalloc_track_caller_oob_right kmalloc_big_oob_right
kmalloc_large_oob_right kmalloc_large_uaf kmalloc_large_invalid_free page_alloc_oob_right page_alloc_uaf
krealloc_more_oob krealloc_less_oob krealloc_large_more_oob krealloc_large_less_oob krealloc_uaf
kmalloc_oob_16 kmalloc_uaf_16 kmalloc_oob_in_memset kmalloc_oob_memset_2 kmalloc_oob_memset_4 kmalloc_oob_memset_8
kmalloc_oob_memset_16 kmalloc_memmove_negative_size kmalloc_memmove_invalid_size
kmalloc_uaf kmalloc_uaf_memset kmalloc_uaf2 kmalloc_uaf3 kmalloc_double_kzfree ksize_unpoisons_memory ksize_uaf rcu_uaf
workqueue_uaf kfree_via_page kfree_via_phys
kmem_cache_oob kmem_cache_double_free kmem_cache_invalid_free kmem_cache_rcu_uaf kmem_cache_rcu_reuse
kmem_cache_double_destroy kmem_cache_accounted kmem_cache_bulk
mempool_kmalloc_oob_right mempool_kmalloc_large_oob_right mempool_slab_oob_right mempool_kmalloc_uaf
mempool_kmalloc_large_uaf mempool_slab_uaf mempool_page_alloc_uaf mempool_kmalloc_double_free
mempool_kmalloc_large_double_free mempool_page_alloc_double_free mempool_kmalloc_invalid_free
mempool_kmalloc_large_invalid_free
kasan_global_oob_right kasan_global_oob_left kasan_stack_oob kasan_alloca_oob_left kasan_alloca_oob_right
kasan_memchr kasan_memcmp kasan_strings kasan_bitops_generic kasan_bitops_tags kasan_atomics
vmalloc_oob vmalloc_helpers_tags vmap_tags vm_map_ram_tags match_all_not_assigned match_all_ptr_tag match_all_mem_tag
vrealloc_helpers_tags vrealloc_helpers_generic copy_to_kernel_nofault_oob copy_user_test_oob rust_uaf
""".split()


def pkg_config(build, *arguments):
    environment = dict(os.environ, PKG_CONFIG_PATH=str(build / "meson-uninstalled"))
    return subprocess.run(["pkg-config", *arguments], env=environment, capture_output=True, text=True,
                          check=True).stdout.split()


def modes(build, compiler):
    """(name, flags) of the inline and the outline compilation, both with stack and globals."""
    if compiler.startswith("gcc"):
        inline = pkg_config(build, "--cflags", "penumbra")
        old, new = "call-threshold=10000", "call-threshold=0"
        outline = [flag.replace(old, new) for flag in inline]
    else:
        from_pkg = pkg_config(build, "--cflags", "penumbra-clang")
        inline = pathlib.Path(from_pkg[0][1:]).read_text().split() + from_pkg[1:]
        outline = [flag.replace("call-threshold=10000", "call-threshold=0") for flag in inline]
    assert inline != outline
    return [("inline", inline + ["-DKUNIT_INLINE"]), ("outline", outline)]


def skipped_cases():
    rows = (HERE / "cases.md").read_text().split("## Skipped")[1]
    return re.findall(r"^\| (\w+) \|", rows, re.MULTILINE)[1:]


def main():
    build, compiler = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    if shutil.which(compiler) is None:
        print(f"{compiler} is not installed")
        return 77
    libs = pkg_config(build, "--libs", "penumbra")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "LD_", "PENUMBRA_"))}
    # A case hits the same place more than once, and the program's own status tells what was wrong.
    environment["PENUMBRA_OPTIONS"] = "multi_shot=1:exitcode=0:symbolize=0"
    bad, run = 0, set()
    with tempfile.TemporaryDirectory() as scratch:
        for name, flags in modes(build, compiler):
            program = f"{scratch}/kunit-{name}"
            subprocess.run([compiler, "-w", "-g", "-O1", "-fno-builtin", *flags, *[str(HERE / s) for s in SOURCES], "-o", program,
                            *libs], check=True)
            run |= set(subprocess.run([program, "--list"], env=environment, capture_output=True, text=True,
                                      check=True).stdout.split())
            done = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=120, check=False)
            print(f"# {compiler} {name}\n{done.stdout}")
            if done.returncode != 0:
                bad += 1
                print(f"# status {done.returncode}\n{done.stderr[-4000:]}")
    skipped = skipped_cases()
    for case in KERNEL_CASES:
        only_clang = case == "kasan_global_oob_left" and compiler == "gcc"
        if (case in run) + (case in skipped) != 1 and not only_clang:
            bad += 1
            print(f"# {case} is {'both run and skipped' if case in run else 'neither run nor skipped'}")
    for case in sorted(set(skipped) - set(KERNEL_CASES)):
        bad += 1
        print(f"# {case} is skipped, but no case of the kernel's")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
