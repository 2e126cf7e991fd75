"""Builds benchmark programs as users run the code: release, validate=off."""

import os
import shutil
import subprocess


class BuildError(Exception):
    """The build failed; the message is one line, the compiler's own words are on stderr already."""


def build(root, targets):
    """Configures build-bench once, builds `targets`, and returns the folder."""
    build_dir = root / "build-bench"
    for tool in ("meson", "ninja"):
        if shutil.which(tool) is None:
            raise BuildError(f"{tool} is not installed; run ./penumbra once, it installs what is missing")
    if not (build_dir / "build.ninja").exists():
        _run(["meson", "setup", str(build_dir), str(root), "--buildtype=release", "-Dvalidate=off", "-Dtests=false"])
    _run(["ninja", "-C", str(build_dir), *dict.fromkeys(targets)])
    return build_dir


def _run(command):
    # The tools' chatter is progress, not result: it goes to stderr, and in full only when it fails.
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ)
    if done.returncode != 0:
        os.write(2, done.stdout.encode())
        raise BuildError(f"{' '.join(command[:2])} failed")
