#!/usr/bin/env python3
"""Runs the commands that the documents show, and compares what they print.

    tools/check_docs.py build/headroom            # what is stale, with a diff; exit 1
    tools/check_docs.py build/headroom --update   # the documents with today's output

An example is an indented block that starts with `$ headroom`, with its output below it:

    $ headroom info samples/leak_loss.pickle.zst
    leak_loss.pickle.zst  PyTorch snapshot, 12.68KiB packed
    ...

A line `...` stands for any number of lines. It runs in a folder with the samples and with what
tests/tools/docs holds. Above an example whose output depends on the machine (times, a GPU) stands
`<!-- output depends on the machine -->`; it is not run. Commands that are shown without output, as
`headroom` or `./run`, are not run either, but have to be commands, with options that exist.
"""

import argparse
import concurrent.futures
import difflib
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

MARK = "<!-- output depends on the machine -->"
INDENT = "    "
SHOWN = re.compile(r"^ {4}\$ headroom (.*)$")
NAMED = re.compile(r"^ {4}(?:headroom|\./run) (\S.*)$")


class Example:
    """A command with the lines of its output; `first` and `last` enclose those in the document."""

    def __init__(self, path, line, command, first, last, output, depends_on_machine):
        self.path = path
        self.line = line
        self.command = command
        self.first = first
        self.last = last
        self.output = output
        self.depends_on_machine = depends_on_machine


def unindented(line):
    return line[len(INDENT):] if line.startswith(INDENT) else line.strip()


def examples_of(path, lines):
    """The examples of a document. A block ends where text begins again, or the next command."""
    found = []
    for at, line in enumerate(lines):
        match = SHOWN.match(line)
        if not match:
            continue
        end = at + 1
        while end < len(lines) and (lines[end].startswith(INDENT) or not lines[end].strip()):
            if SHOWN.match(lines[end]):
                break
            end += 1
        while end > at + 1 and not lines[end - 1].strip():
            end -= 1
        before = next((text for text in reversed(lines[:at]) if text.strip()), "")
        found.append(Example(path, at + 1, match.group(1), at + 1, end,
                             [unindented(text) for text in lines[at + 1:end]],
                             before.strip() == MARK))
    return found


def matches(shown, printed):
    """Whether `...` in what is shown can be filled in from what was printed."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(matches(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and matches(shown[1:], printed[1:])


def run(binary, folder, command):
    environment = {"PATH": os.environ.get("PATH", ""), "COLUMNS": "80", "LC_ALL": "C.UTF-8",
                   "HEADROOM_CALLED_AS": "headroom"}
    done = subprocess.run([binary, *shlex.split(command, comments=True)], cwd=folder, text=True,
                          env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300, check=False)
    return [line.rstrip() for line in done.stdout.rstrip("\n").split("\n")]


def renewed(shown, printed):
    """The printed lines; where only the beginning was shown, as much of it again."""
    if "..." not in shown:
        return printed
    if shown[-1] == "..." and shown.count("...") == 1:
        # Up to the line that was the last one, if it is still there, else as many lines.
        kept = shown[:-1]
        ends = [i for i, line in enumerate(printed) if kept and line == kept[-1]]
        return printed[:(ends[-1] + 1 if ends else len(kept))] + ["..."]
    return shown


def check_example(binary, folder, example):
    """What is wrong with it, as text, and the lines that would be right."""
    printed = run(binary, folder, example.command)
    if matches(example.output, printed):
        return "", example.output
    diff = difflib.unified_diff(example.output, printed, "shown", "printed", lineterm="", n=1)
    return "\n".join(diff), renewed(example.output, printed)


def known_options(binary, folder, command, cache={}):
    if command not in cache:
        text = "\n".join(run(binary, folder, shlex.join([command, "--help"])))
        cache[command] = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text)), "Usage:" in text
    return cache[command]


def check_named(binary, folder, command):
    """A command that is only named: it exists, and so do its options."""
    words = shlex.split(command, comments=True)
    if not words or not re.fullmatch(r"[a-z]+", words[0]):
        return ""  # a file, or no command at all
    options, is_command = known_options(binary, folder, words[0])
    if not is_command:
        return f"there is no command '{words[0]}'"
    for word in words[1:]:
        option = word.split("=")[0]
        if option.startswith("--") and option not in options:
            return f"'{words[0]}' has no option {option}"
    return ""


def prepare(folder, root):
    os.symlink(root / "samples", folder / "samples")
    files = root / "tests" / "tools" / "docs"
    for file in sorted(files.iterdir()) if files.is_dir() else []:
        os.symlink(file, folder / file.name)


def documents(root):
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def named_complaints(binary, folder, root, path, lines):
    for at, line in enumerate(lines):
        match = NAMED.match(line)
        problem = check_named(binary, folder, match.group(1)) if match else ""
        if problem:
            yield f"{path.relative_to(root)}:{at + 1}: {problem}"


def check(binary, root, update):
    """What is stale, and how many examples were run."""
    texts = {path: path.read_text(encoding="utf-8").split("\n") for path in documents(root)}
    examples = [one for path, lines in texts.items() for one in examples_of(path, lines)
                if not one.depends_on_machine]
    complaints = []
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(2) as pool:
        folder = pathlib.Path(name)
        prepare(folder, root)
        answers = list(pool.map(lambda one: check_example(binary, folder, one), examples))
        for path, lines in texts.items():
            complaints += named_complaints(binary, folder, root, path, lines)
    for one, (problem, right) in reversed(list(zip(examples, answers))):
        if not problem:
            continue
        complaints.insert(0, f"{one.path.relative_to(root)}:{one.line}: $ headroom {one.command}\n"
                             f"{problem}")
        texts[one.path][one.first:one.last] = [(INDENT + text).rstrip() for text in right]
        if update:
            one.path.write_text("\n".join(texts[one.path]), encoding="utf-8")
    return complaints, len(examples)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("binary", help="the headroom to ask, as build/headroom")
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent,
                        type=pathlib.Path, help="the repository")
    parser.add_argument("--update", action="store_true", help="write what is printed today")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    complaints, count = check(binary, options.root.resolve(), options.update)
    for complaint in complaints:
        print(complaint)
    if complaints and not options.update:
        print(f"\n{len(complaints)} stale; tools/check_docs.py {options.binary} --update renews what "
              "is printed")
        return 1
    print(f"{count} examples run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
