#!/usr/bin/env python3
"""Programs at their daily work, under the launcher with every load and store checked, do what they do alone, and nothing is
reported: workloads_test.py PENUMBRA

Each is run once alone and once checked, in folders of their own, and must give the same output, the same files and the same
status. What is not installed is skipped.
"""

import contextlib
import http.server
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

PENUMBRA = str(pathlib.Path(sys.argv[1]).resolve())
LONG = 500  # s; a first start prepares module files, for cc1 on a busy machine for a minute

C_FUNCTION = """
struct s{n} {{ int a[{size}]; struct s{n} *next; double d; }};
static int find{n}(const struct s{n} *s, int key) {{
  for (int i = 0; s && i < {size}; ++i) if (s->a[i] == key * {n}) return i; else if (s->a[i] > key) s = s->next;
  return -{n};
}}
double use{n}(struct s{n} *s, int count) {{
  double sum = 0;
  switch (count % 7) {{ case 0: sum = s->d; break; case 1: sum += find{n}(s, count); case 3: sum *= {n}; break; case 5: return s->a[{n} % {size}]; }}
  for (int i = 0; i < count; ++i) {{ s->a[i % {size}] ^= find{n}(s, i) << (i & 15); sum += s->a[(i * {n}) % {size}] * s->d; }}
  return sum;
}}
"""
CXX_FILE = """
#include <algorithm>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <variant>
#include <vector>
template <int N> struct node { std::map<std::string, std::vector<int>> m; std::variant<int, std::string, node<N - 1>*> v;
  std::string say() const { std::ostringstream o; for (auto& [k, x] : m) o << k << x.size() << N; return o.str(); } };
template <> struct node<0> { std::string say() const { return "0"; } };
template <int... N> std::string all(std::integer_sequence<int, N...>) { return (node<N>().say() + ... + std::string()); }
std::string whole() { return all(std::make_integer_sequence<int, 12>()); }
std::vector<std::string> sorted(std::vector<std::string> v) { std::sort(v.begin(), v.end(), [](auto& a, auto& b) { return a.size() < b.size(); }); return v; }
int thrower(int n) { try { if (n > 3) throw std::to_string(n); return *std::make_unique<int>(n); } catch (const std::string& s) { return s.size(); } }
"""
GDB_PROGRAM = """
#include <stdio.h>
struct pair { int first; const char *second; };
static int twice(struct pair *p) { return p->first * 2; }
int main(void) { struct pair p = {21, "word"}; printf("%d\\n", twice(&p)); return 0; }
"""
GIT_SCRIPT = """
set -e
git init -q -b main .
for i in 1 2 3 4 5 6; do seq $i $((i * 300)) > file$i; git add file$i; git commit -q -m "commit $i"; done
git checkout -q -b side HEAD~3
sed -i s/7/seven/ file1
git commit -q -a -m side
git merge -q -m merged main
git gc -q
git log --stat --format='%H %s'
git diff --word-diff HEAD~2 -- file1
git fsck --strict
git blame file1 | tail -n 3
"""
VIM_SCRIPT = [r"%s/\v(\w+)-(\d+)/\2:\1/g", "g/9$/d", "sort! n", "1,20join", "normal! gg0yyP", "set fileencoding=utf-8", "wq"]


class Server(http.server.BaseHTTPRequestHandler):
    BODY = bytes(n * n % 251 for n in range(1 << 20))

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.BODY)))
        self.end_headers()
        self.wfile.write(self.BODY)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body[::-1])

    def log_message(self, *_):
        pass


class Workloads(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="penumbra-work.")
        self.addCleanup(self.folder.cleanup)

    def need(self, *programs):
        for program in programs:
            if shutil.which(program, path="/usr/bin:/bin") is None:
                self.skipTest(f"{program} is not installed")

    def environment(self):
        return {"PATH": "/usr/bin:/bin", "HOME": self.folder.name, "XDG_CACHE_HOME": CACHE, "LC_ALL": "C", "TERM": "dumb",
                "GIT_CONFIG_NOSYSTEM": "1", "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                "GIT_COMMITTER_EMAIL": "a@b", "GIT_AUTHOR_DATE": "1700000000 +0000", "GIT_COMMITTER_DATE": "1700000000 +0000"}

    def folders(self):
        return [pathlib.Path(self.folder.name) / name for name in ("alone", "checked")]

    def run_one(self, command, checked, folder, **more):
        folder.mkdir(exist_ok=True)
        wrapped = [PENUMBRA, "rewrite=1", "--", *command] if checked else command
        return subprocess.run(wrapped, cwd=folder, env=self.environment(), stdin=subprocess.DEVNULL, capture_output=True,
                              check=False, timeout=LONG, **more)

    def run_both(self, command, inputs=(), outputs=(), normal=lambda said: said):
        results = []
        for checked, folder in zip((False, True), self.folders()):
            folder.mkdir(exist_ok=True)
            for name, content in inputs:
                (folder / name).write_bytes(content)
            done = self.run_one(command, checked, folder)
            results.append((done.returncode, normal(done.stdout), normal(done.stderr), [(folder / name).read_bytes() for name in outputs]))
        self.assertEqual(results[1], results[0])
        self.assertEqual(results[0][0], 0, results[0])

    def test_gcc_compiles_a_large_file_to_the_same_assembly(self):
        self.need("gcc")
        source = "".join(C_FUNCTION.format(n=n, size=n % 13 + 3) for n in range(1, 200)).encode()
        self.run_both(["gcc", "-O2", "-S", "large.c", "-o", "large.s"], [("large.c", source)], ["large.s"])

    def test_gxx_compiles_templates_to_the_same_assembly(self):
        self.need("g++")
        self.run_both(["g++", "-std=c++20", "-O1", "-S", "templates.cc", "-o", "templates.s"],
                      [("templates.cc", CXX_FILE.encode())], ["templates.s"])

    def test_openssl_digests_and_ciphers(self):
        self.need("openssl")
        data = [("data", Server.BODY + b"tail")]
        for digest in "md5", "sha1", "sha256", "sha512", "sha3-256", "blake2b512":
            self.run_both(["openssl", "dgst", "-" + digest, "data"], data)
        for cipher in "aes-128-cbc", "aes-256-ctr", "chacha20", "camellia-256-cbc":
            self.run_both(["openssl", "enc", "-" + cipher, "-K", "0123456789abcdef" * 4 if "128" not in cipher else "01" * 16,
                           "-iv", "00112233445566778899aabbccddeeff", "-in", "data", "-out", "sealed"], data, ["sealed"])

    def test_openssl_speed_of_its_assembly(self):
        self.need("openssl")
        for what in ["-evp", "aes-128-gcm"], ["-evp", "sha256"], ["ecdsap256"], ["rsa2048"], ["-evp", "chacha20-poly1305"]:
            done = self.run_one(["openssl", "speed", "-seconds", "1", *(["-bytes", "1024"] if what[0] == "-evp" else []), *what], True,
                                self.folders()[1])
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            self.assertNotIn(b"BUG: ", done.stderr)

    def test_git_keeps_the_same_history(self):
        self.need("git")
        self.run_both(["/bin/sh", "-c", GIT_SCRIPT])

    def test_vim_edits_alike(self):
        self.need("vim")
        text = "".join(f"word{n % 50}-{n * 37 % 1000} and more-{n}\n" for n in range(2000)).encode()
        commands = [part for command in VIM_SCRIPT for part in ("-c", command)]
        self.run_both(["vim", "-u", "NONE", "-i", "NONE", "-n", "-es", *commands, "text"], [("text", text)], ["text"])

    def test_gdb_debugs_alike(self):
        self.need("gdb", "gcc")
        for folder in self.folders():
            folder.mkdir()
            (folder / "debugged.c").write_text(GDB_PROGRAM)
            subprocess.run(["gcc", "-g", "-O0", "debugged.c", "-o", "debugged"], cwd=folder, check=True)
        commands = ["set exec-wrapper env -u LD_PRELOAD -u PENUMBRA_OPTIONS", "set disable-randomization on", "break twice",
                    "run", "backtrace", "print *p", "ptype p", "finish", "info line main", "disassemble twice"]
        self.run_both(["gdb", "-q", "-nx", "-batch", *(part for command in commands for part in ("-ex", command)), "debugged"],
                      normal=lambda said: re.sub(rb"process \d+|/\S*|0x[0-9a-f]{9,}", b"", said))

    def test_curl_gets_and_posts_on_loopback(self):
        self.need("curl")
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        self.run_both(["curl", "-sS", "-o", "got", url + "[1-3]"], outputs=["got"])
        self.run_both(["curl", "-sS", "--data-binary", "@sent", "-o", "answer", url], [("sent", Server.BODY[:100000])], ["answer"])

    def test_redis_serves_its_benchmark(self):
        self.need("redis-server", "redis-benchmark", "redis-cli")
        folder = self.folders()[1]
        folder.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        with open(folder / "said", "wb") as said:
            server = subprocess.Popen([PENUMBRA, "rewrite=1", "--", "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "",
                                       "--appendonly", "no", "--daemonize", "no"], cwd=folder, env=self.environment(),
                                      stdin=subprocess.DEVNULL, stdout=said, stderr=said)
        try:
            cli = ["redis-cli", "-p", port]
            deadline = time.monotonic() + LONG
            while subprocess.run([*cli, "ping"], capture_output=True, check=False).stdout != b"PONG\n":
                self.assertIsNone(server.poll(), (folder / "said").read_text())
                self.assertLess(time.monotonic(), deadline, "the server never answers")
                time.sleep(0.2)
            bench = subprocess.run(["redis-benchmark", "-p", port, "-n", "3000", "-c", "20", "-q", "-d", "100", "-r", "1000",
                                    "-t", "set,get,incr,lpush,lpop,sadd,hset,spop,zadd,lrange_100,mset"],
                                   capture_output=True, text=True, check=False, timeout=LONG)
            self.assertEqual(bench.returncode, 0, bench.stderr)
            self.assertIn("LRANGE_100", bench.stdout)
            self.assertNotIn("Error", bench.stdout + bench.stderr)
            script = "for i = 1, 2000 do redis.call('zadd', 'z', i * 7919 % 1009, i) end return redis.call('zcard', 'z')"
            lua = subprocess.run([*cli, "eval", script, "0"], capture_output=True, text=True, check=False, timeout=LONG)
            self.assertEqual(lua.stdout.strip(), "2000")
            subprocess.run([*cli, "bgsave"], capture_output=True, check=True, timeout=LONG)
            subprocess.run([*cli, "shutdown", "nosave"], capture_output=True, check=False, timeout=LONG)
            self.assertEqual(server.wait(timeout=LONG), 0, (folder / "said").read_text())
        finally:
            with contextlib.suppress(ProcessLookupError):
                server.kill()
            server.wait()
        self.assertNotIn("BUG: ", (folder / "said").read_text(errors="replace"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="penumbra-cache.") as CACHE:
        unittest.main(argv=sys.argv[:1], verbosity=2)
