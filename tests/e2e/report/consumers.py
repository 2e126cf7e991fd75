"""How the tools that read kernel reports read ours: transcriptions of syzkaller's and ClusterFuzz's expressions.

syzkaller: pkg/report/linux.go (title formats, stack formats, frame); a report with no frame within 15 lines of a stack's
beginning counts as corrupted. ClusterFuzz: stack_parsing (KASAN mode). Go's RE2 and Python agree on all that is used.
"""

import re

FUNC = r"([a-zA-Z0-9_]+)(?:\.|\+)"
PC = r"\[\<?(?:0x)?[0-9a-f]+\>?\]"
SYZKALLER_TITLE = re.compile(
    r"BUG: KASAN: ([a-z\-]+) in " + FUNC + r"(?:.*\n)+?.*(Read|Write) (?:of size|at addr) (?:[0-9a-f]+)")
SYZKALLER_FREE_TITLE = re.compile(
    r"BUG: KASAN: (double-free or invalid-free|double-free|invalid-free) in " + FUNC)
SYZKALLER_FRAME = re.compile(r"^ *(?:" + PC + r" ){0,2}" + FUNC)
SYZKALLER_STACK_STARTS = [re.compile(pattern) for pattern in
                          (r"^Call Trace:", r"^Allocated by task [0-9]+:", r"^Freed by task [0-9]+:")]

CLUSTERFUZZ_ADDRESS = re.compile(r"BUG: KASAN: (.*) (in|on).*(addr|address) ([a-f0-9]+)")
CLUSTERFUZZ_FUNCTION = re.compile(r"BUG: KASAN: (.*) (in|on).* ([\w]+)\+([\w]+)\/([\w]+)")
CLUSTERFUZZ_ACCESS = re.compile(r"(Read|Write) of size ([0-9]+) at (addr|address) ([a-f0-9]+)")
CLUSTERFUZZ_FRAME = re.compile(r"^ \[<([0-9a-f]+)>\] ([\w.]+)\+0x([0-9a-f]+)/0x([0-9a-f]+)(?: \[([^\]]+)\])?")


def syzkaller_stacks(text):
    """The function names of each stack, by the line that starts it. Raises where a stack is "corrupted"."""
    lines = text.splitlines()
    stacks = {}
    for at, line in enumerate(lines):
        start = next((s for s in SYZKALLER_STACK_STARTS if s.search(line)), None)
        if start is None:
            continue
        names = []
        for distance, behind in enumerate(lines[at + 1:], start=1):
            frame = SYZKALLER_FRAME.match(behind)
            if frame:
                names.append(frame.group(1))
            if not behind.strip() or (not names and distance > 15):
                break
        if not names:
            raise ValueError(f"corrupted: no frame behind {line!r}")
        stacks[re.sub(r"[0-9]+", "N", line)] = names
    return stacks


def clusterfuzz_frames(text):
    """(function, offset, size, module) of the frames of the first stack."""
    frames = []
    for line in text[text.index("Call Trace:"):].splitlines()[1:]:
        if not line.strip():
            break
        frame = CLUSTERFUZZ_FRAME.match(line)
        if frame:
            frames.append((frame.group(2), int(frame.group(3), 16), int(frame.group(4), 16), frame.group(5)))
    return frames
