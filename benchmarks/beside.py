#!/usr/bin/env python3
"""Two builds of headroom, measured by turns: is one of them slower?

    benchmarks/beside.py OLD/headroom NEW/headroom
    benchmarks/beside.py OLD/headroom NEW/headroom --turns 7 -- bench alloc --filter churn

Runs each command with one build, then with the other, and so on, so that what the machine does
meanwhile happens to both. Prints the median of each time, the ratio of the two, and the spread of
the old build's own turns: a difference below the spread is none. `slower` stands beside a ratio
that is above it; then the exit status is 3.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys

COMMANDS = [
    "bench alloc --device meta --threads 1 --rounds 1",
    "bench replay --rounds 1",
    "bench trace --rounds 1",
    "bench train --rounds 1",
]
TIME = re.compile(r"_(ns|us|ms)$|^(ns|us|ms|seconds)$")
RATE = re.compile(r"per_(cpu_)?second$")


def measured(value, path=()):
    """Yields (path, number, is_rate) for each median of a time or a rate in the output."""
    if isinstance(value, list):
        for i, item in enumerate(value):
            name = item.get("name") or item.get("policy") if isinstance(item, dict) else None
            yield from measured(item, path + (str(name or i),))
    elif isinstance(value, dict):
        if "median" in value:
            if TIME.search(path[-1]) or RATE.search(path[-1]):
                yield " ".join(path), value["median"], bool(RATE.search(path[-1]))
            return
        for key, item in value.items():
            yield from measured(item, path + (key,))


def run(binary, command):
    done = subprocess.run([binary, *command, "--json"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(f"beside: {binary} {' '.join(command)}: exit status {done.returncode}")
    return list(measured(json.loads(done.stdout)))


def compare(command, binaries, turns):
    """Prints a line for each time, and returns how many are slower."""
    times = {}
    for turn in range(turns):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            for path, number, is_rate in run(binaries[which], command):
                cost = 1 / number if is_rate and number > 0 else number
                times.setdefault(path, ([], []))[which].append(cost)
    slower = 0
    print(f"\n{' '.join(command)}\n{'':58}{'ratio':>7}{'spread':>16}")
    for path, (old, new) in times.items():
        if not old or not new:
            continue  # only one of the builds measures it
        middle = statistics.median(old)
        if middle == 0:
            continue  # not measured this time
        ratio = statistics.median(new) / middle
        low, high = min(old) / middle, max(old) / middle
        is_slower = ratio > max(high, 1.02)
        slower += is_slower
        print(f"{path[-57:]:58}{ratio:7.3f}{f'{low:.2f} to {high:.2f}':>16}"
              f"{'  slower' if is_slower else ''}")
    return slower


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("old")
    options.add_argument("new")
    options.add_argument("--turns", type=int, default=5)
    options.usage = "%(prog)s OLD NEW [--turns N] [-- COMMAND...]"
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    chosen = options.parse_args(words[:at])
    commands = [words[at + 1:]] if words[at + 1:] else [text.split() for text in COMMANDS]
    slower = sum(compare(command, (chosen.old, chosen.new), chosen.turns) for command in commands)
    sys.exit(3 if slower else 0)


if __name__ == "__main__":
    main()
