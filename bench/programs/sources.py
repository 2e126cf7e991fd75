"""bzip2, lua and sqlite from their Debian sources, with and without ASan.

The packages come from the archive that apt uses already: its deb lines are read, a list of our own asks the same places
for sources, and apt keeps what it learns in our folder, so that nothing of the machine changes and no privilege is
needed. Versions are pinned, because figures are compared over time. What is built stays in the build folder.
"""

import hashlib
import pathlib
import re
import shutil
import subprocess

from support import registry

PACKAGES = {"bzip2": "1.0.8-5", "lua5.4": "5.4.4-3+deb12u1", "sqlite3": "3.40.1-2+deb12u2"}
# Flags of all builds, then what makes the two kinds.
FLAGS = ["-O2", "-g", "-w"]
KINDS = {"native": [], "asan": ["-fsanitize=address"]}
BZIP2 = ["bzip2.c", "blocksort.c", "huffman.c", "crctable.c", "randtable.c", "compress.c", "decompress.c", "bzlib.c"]


class NoSources(Exception):
    """The archive cannot be reached; the message is one line."""


def _run(command, folder=None):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise NoSources(f"{' '.join(map(str, command[:3]))} failed: {' / '.join(done.stdout.strip().splitlines()[-3:])}")


def _source_list():
    """Stanzas that ask for sources where apt asks for Debian's packages."""
    stanzas = []
    for path in sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*.sources")):
        for stanza in re.split(r"\n\s*\n", path.read_text()):
            lines = [line for line in stanza.splitlines() if line and not line.startswith("#")]
            if any(re.match(r"URIs:.*debian", line) for line in lines):
                stanzas.append("\n".join("Types: deb-src" if line.startswith("Types:") else line for line in lines))
    one_line = [pathlib.Path("/etc/apt/sources.list"), *pathlib.Path("/etc/apt/sources.list.d").glob("*.list")]
    for path in one_line:
        for line in path.read_text().splitlines() if path.exists() else []:
            found = re.match(r"deb\s+(?:\[(?:[^]]*\s)?signed-by=(\S+?)[^]]*\]\s+)?(\S*debian\S*)\s+(\S+)\s+(.*)", line)
            if found:
                key, place, suite, components = found.groups()
                key = f"\nSigned-By: {key}" if key else ""
                stanzas.append(f"Types: deb-src\nURIs: {place}\nSuites: {suite}\nComponents: {components}{key}")
    if not stanzas:
        raise NoSources("apt names no Debian archive")
    return "\n\n".join(stanzas) + "\n"


def fetch(folder):
    """Unpacks every package below `folder`/<package>; what is there already is left alone."""
    missing = [name for name in PACKAGES if not (folder / name).exists()]
    if not missing:
        return
    if shutil.which("apt-get") is None or shutil.which("dpkg-source") is None:
        raise NoSources("apt-get and dpkg-source are not installed")
    state = folder / "apt"
    (state / "lists/partial").mkdir(parents=True, exist_ok=True)
    (state / "own.sources").write_text(_source_list())
    apt = ["apt-get", "-q", "-o", f"Dir::Etc::sourcelist={state}/own.sources", "-o", "Dir::Etc::sourceparts=-",
           "-o", f"Dir::State::lists={state}/lists", "-o", f"Dir::Cache={state}/cache", "-o", "APT::Sandbox::User=root"]
    _run([*apt, "update"])
    for name in missing:
        _run([*apt, "--download-only", "source", f"{name}={PACKAGES[name]}"], state)
        description = next(state.glob(f"{name}_{PACKAGES[name]}.dsc"))
        _run(["dpkg-source", "-x", description, folder / f"{name}.part"], state)
        (folder / f"{name}.part").rename(folder / name)


def _commands(source, name, target, flags):
    """What compiles one program, as a list of commands with their folders."""
    compiler = ["gcc", *FLAGS, *flags, "-o", target]
    if name == "bzip2":
        return [([*compiler, "-D_FILE_OFFSET_BITS=64", *BZIP2], source)]
    if name == "lua5.4":
        # Debian's build makes this header.
        (source / "src/lua5.4-deb-multiarch.h").write_text('#define DEB_HOST_MULTIARCH "x86_64-linux-gnu"\n')
        units = [p.name for p in sorted((source / "src").glob("*.c")) if p.name != "luac.c"]
        return [([*compiler, "-DLUA_USE_LINUX", "-DLUA_COMPAT_5_3", *units, "-lm", "-ldl"], source / "src")]
    made = source / "made"
    steps = []
    if not (made / "sqlite3.c").exists():
        made.mkdir(exist_ok=True)
        steps = [(["../configure", "--disable-tcl", "--disable-readline"], made), (["make", "sqlite3.c", "shell.c"], made)]
    return [*steps, ([*compiler, "-I.", "-DSQLITE_THREADSAFE=1", "shell.c", "sqlite3.c", "-lm", "-ldl", "-lpthread"], made)]


def build(folder):
    """{program: {kind: path}} of everything that could be built from `folder`."""
    fetch(folder)
    built = {}
    for name in PACKAGES:
        for kind, flags in KINDS.items():
            # What it was built with is part of its name.
            stamp = hashlib.sha256(repr((PACKAGES[name], FLAGS, flags)).encode()).hexdigest()[:8]
            target = folder / f"{name}.{kind}.{stamp}"
            if not target.exists():
                for command, where in _commands(folder / name, name, str(target.with_suffix(".part")), flags):
                    _run(command, where)
                target.with_suffix(".part").rename(target)
            built.setdefault(name.removesuffix("5.4").removesuffix("3"), {})[kind] = str(target)
    return built


def build_or_say(folder):
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return build(folder.resolve())
    except NoSources as error:
        print(f"bench/run: nothing from source, so no comparison with ASan: {error}")
        return {}
    except OSError as error:
        raise registry.BenchError(f"building from source: {error}") from error
