#!/usr/bin/env python3
"""Whether each header of the library compiles alone: what it needs, it includes.

    tools/check_headers.py                  checks the tree, one compiler a core

Nearly all that a header costs is what it includes, and that is the same for most. So a few headers
that many others include are precompiled, and a header is compiled on top of one that it includes
anyway. Nothing goes unseen: the headers below it are checked as well, so each of them has what it
needs wherever it stands, and the code of the header on top sees what it would have seen alone.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(headroom/[^"]+)"|<([^>]+)>)')
IF = re.compile(r"^\s*#\s*if")
ENDIF = re.compile(r"^\s*#\s*endif")
NO_CODE = re.compile(r"^\s*($|//|#)")
# About what a header costs to read, as multiples of one of ours.
STANDARD_COST = 5
# What it costs to write a precompiled header, and to start on top of one, in the same unit.
WRITING_COST = 60
STARTING_COST = 10


def direct_includes(file):
    """What a header includes, whatever is defined, before its first line of code: ours by their
    paths, others in brackets."""
    found, depth = [], 0
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        if IF.match(line):
            depth += 1
        elif ENDIF.match(line):
            depth -= 1
        elif depth == 0 and (match := INCLUDE.match(line)):
            found.append(match[1] or f"<{match[2]}>")
        elif not NO_CODE.match(line):
            break
    return found


def closures(root, headers):
    """header -> all that it includes, directly or not."""
    direct = {header: direct_includes(root / header) for header in headers}
    known = {}

    def closure(header):
        if header not in known:
            known[header] = set()  # so that a circle of includes ends
            for other in direct.get(header, []):
                # One that is not checked itself may lack an include, and is not relied on.
                if other in direct or other.startswith("<"):
                    known[header] |= {other} | closure(other)
        return known[header]

    return {header: closure(header) for header in headers}


def cost(closure):
    return sum(STANDARD_COST if name.startswith("<") else 1 for name in closure)


def choose_bases(includes):
    """header -> the header to compile it on top of, or None: greedily, while one more saves time."""
    base = dict.fromkeys(includes)
    saved = dict.fromkeys(includes, 0)
    while True:
        best, best_gain = None, 0
        for candidate, closure in includes.items():
            worth = cost(closure) - STARTING_COST
            gain = sum(max(0, worth - saved[header])
                       for header, others in includes.items() if candidate in others) - WRITING_COST
            if gain > best_gain:
                best, best_gain = candidate, gain
        if best is None:
            return base
        for header, others in includes.items():
            if best in others and cost(includes[best]) - STARTING_COST > saved[header]:
                base[header], saved[header] = best, cost(includes[best]) - STARTING_COST


def check(root, compiler="c++"):
    """What the compiler says of the headers that do not compile alone."""
    headers = sorted(file.relative_to(root).as_posix() for file in (root / "headroom").rglob("*.h")
                     if "internal" not in file.relative_to(root).parts)
    includes = closures(root, headers)
    bases = choose_bases(includes)
    flags = [compiler, "-std=c++20", f"-I{root}"]

    def run(arguments, text=None):
        return subprocess.run([*flags, *arguments], input=text, capture_output=True, text=True,
                              check=False)

    with tempfile.TemporaryDirectory() as box, \
            concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        def precompile(base):
            header = f"{box}/{base.replace('/', '_')}"
            pathlib.Path(header).write_text(f'#include "{base}"\n', encoding="utf-8")
            # Where this fails, the header is read as text, and its own check says what is wrong.
            run(["-x", "c++-header", header, "-o", f"{header}.gch"])
            return base, header

        made = dict(pool.map(precompile, sorted({base for base in bases.values() if base})))

        def compile_alone(header):
            on_top = ["-include", made[bases[header]]] if bases[header] else []
            result = run([*on_top, "-fsyntax-only", "-x", "c++", "-"], f'#include "{header}"\n')
            return f"{header} does not compile alone:\n{result.stderr}" if result.returncode else None

        complaints = [complaint for complaint in pool.map(compile_alone, headers) if complaint]
    return len(headers), len(made), complaints


def main():
    parser = argparse.ArgumentParser(description="Compiles each header alone.")
    parser.add_argument("--root", type=pathlib.Path, help="the tree (default: this repository)",
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--compiler", default=os.environ.get("CXX", "c++"))
    options = parser.parse_args()
    headers, bases, complaints = check(options.root, options.compiler)
    print("\n".join(complaints), end="\n" if complaints else "")
    print(f"{headers} headers compiled alone, on top of {bases} of them; {len(complaints)} do not")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
