#!/usr/bin/env python3
"""Programs under full rewriting behave as they do alone: identical_test.py PENUMBRA LIBRARY LIFE_PROGRAM...

Each program's executable and libraries are rewritten into a folder of this test, then the program runs once alone and
once with rewrite=1. Output, errors and exit status must be the same, and the module files must have been used.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PENUMBRA, LIBRARY, *LIFE = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])

PERL = "my %h; $h{$_ % 97} .= chr(65 + $_ % 26) for 1..20000; print join(',', map { \"$_=\" . length $h{$_} } sort keys %h)"
LUA = ("local t = {} for i = 1, 20000 do t[#t + 1] = (i * 7919) % 10007 end table.sort(t) "
       "print(#t, t[1], t[#t], table.concat(t, ','):sub(1, 80))")
PYTHON = ("import re, json, collections\n"
          "c = collections.Counter(re.findall('[a-z]+', 'the quick brown fox ' * 500))\n"
          "print(json.dumps(sorted(c.items())), sum(i * i for i in range(10000)))")
SQL = ("create table t(a integer, b text); with recursive n(i) as (select 1 union all select i + 1 from n where i < 2000) "
       "insert into t select i, hex(i) from n; select count(*), sum(a), max(b) from t; select a % 7, count(*) from t group by 1;")

PROGRAMS = [
    ["/bin/ls", "-l", "/usr"],
    ["/usr/bin/sort", "-k1,1", "/etc/services"],
    ["/usr/bin/bzip2", "-c", "/etc/services"],
    ["/usr/bin/xz", "-1", "-c", "/etc/services"],
    ["/usr/bin/gzip", "-n", "-c", "/etc/services"],
    ["/usr/bin/perl", "-e", PERL],
    ["/usr/bin/lua5.4", "-e", LUA],
    ["/usr/bin/sqlite3", ":memory:", SQL],
    ["/usr/bin/python3.11", "-S", "-c", PYTHON],
    ["/usr/bin/awk", "{ n[$1] += NR } END { for (k in n) s += n[k]; print s }", "/etc/services"],
    ["/usr/bin/git", "--version"],
    ["/bin/bash", "-c", "for i in 1 2 3; do echo $i; done | sort -r | while read x; do (echo \"<$x>\") & wait; done; cat <<< $(seq 5 | tr \"\\n\" +)"],
    ["/usr/bin/date", "-u", "-d", "@86400"],
    ["/usr/bin/find", "/usr/share/doc", "-name", "c*"],
]


def libraries(program):
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return [word for line in listing.splitlines() for word in line.split() if word.startswith("/") and "ld-linux" not in word]


class Identical(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="penumbra-modules.")
        files = set()
        for program in [command[0] for command in PROGRAMS] + LIFE:
            if os.access(program, os.X_OK):
                files.update(os.path.realpath(f) for f in [program, *libraries(program)])
        done = subprocess.run([PENUMBRA, "rewrite", "-o", cls.folder.name, *sorted(files)], capture_output=True, text=True,
                              check=False)
        assert "Traceback" not in done.stderr, done.stderr

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def run_both(self, command):
        if not os.access(command[0], os.X_OK):
            self.skipTest(f"{command[0]} is not installed")
        alone = dict(os.environ, LC_ALL="C", MALLOC_PERTURB_="0")
        checked = dict(alone, LD_PRELOAD=LIBRARY, PENUMBRA_OPTIONS=f"rewrite=1:verbose=1:cache={self.folder.name}")
        plain = subprocess.run(command, env=alone, capture_output=True, check=False, timeout=120)
        ours = subprocess.run(command, env=checked, capture_output=True, check=False, timeout=120)
        self.assertEqual(ours.returncode, plain.returncode, ours.stderr[-2000:])
        self.assertEqual(ours.stdout, plain.stdout)
        said = [line for line in ours.stderr.splitlines() if not line.startswith(b"penumbra: ")]
        self.assertEqual(said, plain.stderr.splitlines())
        counts = [line for line in ours.stderr.splitlines() if line.startswith(b"penumbra: rewritten ")]
        self.assertTrue(counts, "the library says how many modules it rewrote")
        self.assertGreater(int(counts[0].split()[2]), 0)
        self.assertTrue(counts[0].endswith(b", refused 0"), counts[0])


def add(name, command):
    setattr(Identical, "test_" + name, lambda self: self.run_both(command))


for command in PROGRAMS:
    add(pathlib.Path(command[0]).name.replace(".", "_"), command)
for program in LIFE:
    add(pathlib.Path(program).name.replace(".", "_"), [program])

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
