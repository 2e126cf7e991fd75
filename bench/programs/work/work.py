"""Objects, dictionaries, regular expressions, JSON and numbers: work.py SCALE"""

import collections
import json
import re
import sys

scale = int(sys.argv[1])


class Node:
    def __init__(self, value):
        self.value = value
        self.left = self.right = None

    def insert(self, value):
        node = self
        while True:
            side = "left" if value < node.value else "right"
            below = getattr(node, side)
            if below is None:
                setattr(node, side, Node(value))
                return
            node = below


root = Node(500)
for n in range(400 * scale):
    root.insert(n * 7919 % 10007)
stack, total = [root], 0
while stack:
    node = stack.pop()
    total += node.value
    stack.extend(below for below in (node.left, node.right) if below)
print(total)

text = " ".join(f"word{n * 7919 % 2003} of" for n in range(700 * scale))
words = collections.Counter(re.findall(r"\w+", text))
print(words.most_common(3), len(json.dumps(sorted(words.items()))))
print(sum(json.loads(json.dumps(list(range(1000))))[-1] for _ in range(scale)))
print(sum(i * i % 7 for i in range(6000 * scale)))
print(len(sorted((str(n) for n in range(1500 * scale)), key=lambda s: s[::-1])))
