#!/usr/bin/env python3
"""compare_snapshots.py A B: whether two pickled snapshots (plain or .zst) are the same in full.

Types count too (True is not 1, a tuple is not a list), the order of keys does not. Prints the first
difference and ends with 1 if there is one.
"""

import pickle
import subprocess
import sys


class DataOnly(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"a snapshot imports nothing, and this one wants {module}.{name}")


def load(path):
    if path.endswith(".zst"):
        unpacked = subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True)
        return pickle.loads(unpacked.stdout)
    with open(path, "rb") as file:
        return DataOnly(file).load()


def difference(a, b, path="", same=None):
    """Where a and b differ, or None. `same` remembers what was compared: snapshots share much."""
    same = set() if same is None else same
    if type(a) is not type(b):
        return f"{path}: {type(a).__name__} {a!r:.80} and {type(b).__name__} {b!r:.80}"
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return f"{path}: keys {sorted(a.keys() ^ b.keys())} are in one only"
        pairs = [(f"{path}.{key}", a[key], b[key]) for key in a]
    elif isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"{path}: {len(a)} and {len(b)} items"
        pairs = [(f"{path}[{i}]", x, y) for i, (x, y) in enumerate(zip(a, b))]
    else:
        return None if a == b or a != a and b != b else f"{path}: {a!r:.80} and {b!r:.80}"
    if (id(a), id(b)) in same:
        return None
    same.add((id(a), id(b)))
    for where, x, y in pairs:
        found = difference(x, y, where, same)
        if found:
            return found
    return None


def main():
    found = difference(load(sys.argv[1]), load(sys.argv[2]))
    if found:
        print("they differ at", found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
