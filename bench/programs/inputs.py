"""Inputs that are made, not stored: text to compress and a C file to compile. The same on every machine."""

import random


def text(path, kilobytes):
    """Text with the repetitions of a log or a manual: words of one vocabulary, common ones more often."""
    chance = random.Random(1)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    vocabulary = ["".join(chance.choices(letters, range(26, 0, -1), k=chance.randint(2, 10))) for _ in range(4000)]
    weights = [1 / (n + 3) for n in range(len(vocabulary))]
    words = chance.choices(vocabulary, weights, k=kilobytes * 150)
    lines = (" ".join(words[n:n + 11]) for n in range(0, len(words), 11))
    path.write_text("\n".join(lines)[:kilobytes * 1024])


FUNCTION = """
struct node{n} {{ struct node{n} *next, *other; int key; double weight; char name[{size}]; }};
static int rank{n}(const struct node{n}* p, int limit) {{
  int sum = {n};
  for (; p; p = p->next) {{
    switch (p->key & 15) {{
      case 0: sum += p->key; break;
      case 1: sum ^= p->key << {shift}; break;
      case 2: sum -= limit; break;
      case 3: if (p->other && p->other->key > limit) sum += p->other->key * {n}; break;
      case 4: case 5: sum += p->name[p->key % {size}]; break;
      case 7: return sum * {shift};
      case 9: sum = sum / (limit | 1); break;
      case 12: sum += (int)(p->weight * {n}.5); break;
      default: sum += limit > {n} ? p->key : -p->key;
    }}
  }}
  return sum;
}}
void merge{n}(struct node{n}** list, const double* table, int count) {{
  struct node{n} *head = 0, **tail = &head, *a = list[0], *b = list[1];
  while (a && b) {{
    struct node{n}** smaller = a->key <= b->key ? &a : &b;
    *tail = *smaller;
    tail = &(*smaller)->next;
    *smaller = *tail;
  }}
  *tail = a ? a : b;
  for (int i = 0; i < count; i++) {{
    double x = table[i];
    for (struct node{n}* p = head; p; p = p->next) p->weight = p->weight * x + table[(i + {shift}) % count];
  }}
  for (struct node{n}* p = head; p; p = p->next) {{
    for (int k = 0; k + 1 < {size}; k++) p->name[k] = (char)(p->name[k + 1] ^ (p->key >> (k & 7)));
  }}
  list[0] = head;
  list[1] = (struct node{n}*)(unsigned long)(rank{n}(head, count) & 0);
}}
"""


def c_source(path, functions):
    """Pairs of functions with loops, switches, pointers and floating point, as many as asked."""
    path.write_text("".join(FUNCTION.format(n=n, size=8 + n % 5 * 8, shift=1 + n % 7) for n in range(functions)))
