"""What tests of rewritten programs begin with: module files that the launcher prepares in a home of the test's own, or that
are made beforehand in a folder of its own. The test's first argument is the launcher; with module files, the second is the library."""

import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import unittest

PENUMBRA, *_REST = (str(pathlib.Path(a).resolve()) for a in sys.argv[1:])
PATH = "/usr/bin:/bin"
LIMIT = 2_000_000 * 1024  # `ulimit -v 2000000`, where the direct shadow map has no room


def limit_address_space():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))


def libc_of(program):
    """The libc that a program is linked with."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.search(r"(/\S*libc\.so\.6)", listing)[1]


class _WithFolder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="penumbra-rewriting.")
        cls.addClassCleanup(cls.folder.cleanup)


class WithHome(_WithFolder):
    """Programs are run by the launcher, whose home is the folder."""

    def launch(self, *words, timeout=120, is_limited=False):
        return subprocess.run([PENUMBRA, *words], capture_output=True, text=True, check=False, timeout=timeout,
                              preexec_fn=limit_address_space if is_limited else None,
                              env={"HOME": self.folder.name, "PATH": PATH})


class WithModules(_WithFolder):
    """Programs are run with the library preloaded, and take their module files from the folder."""

    @classmethod
    def rewrite(cls, *files, wishes=None):
        options = ["--options", wishes] if wishes else []
        subprocess.run([PENUMBRA, "rewrite", "-o", cls.folder.name, *options, *files], check=True)

    def run_rewritten(self, *command, options="rewrite=1", is_limited=False, **environment):
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60,
                              preexec_fn=limit_address_space if is_limited else None,
                              env={"LD_PRELOAD": _REST[0], "PENUMBRA_OPTIONS": f"{options}:cache={self.folder.name}", "PATH": PATH,
                                   **environment})
