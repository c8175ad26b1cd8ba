"""Commands that documents show with their output: `$ headroom ...`, and what it prints below it."""

import difflib
import re

OUTPUT_DEPENDS = "output depends on the machine"
SHOWN = re.compile(r"^\$ ((?:headroom|\./run)(?: .*)?)$")


class Example:
    """`first` and `last` enclose the lines of the output in the page."""

    def __init__(self, page, number, command, output, indent):
        self.page = page
        self.number = number
        self.command = command
        self.output = output
        self.indent = indent

    @property
    def first(self):
        return self.number + 1

    @property
    def last(self):
        return self.first + len(self.output)

    def replace(self, output):
        self.page.lines[self.first:self.last] = [(self.indent + text).rstrip() for text in output]


def examples_of(page):
    """The examples of a page that can be run here, in order."""
    for block in page.blocks:
        if block.note == OUTPUT_DEPENDS:
            continue
        starts = [at for at, line in enumerate(block.lines) if line.startswith("$ ")]
        for at, end in zip(starts, starts[1:] + [len(block.lines)]):
            match = SHOWN.match(block.lines[at])
            if not match:
                continue
            output = [line.rstrip() for line in block.lines[at + 1:end]]
            while output and not output[-1]:
                output.pop()
            source = page.lines[block.first + at]
            indent = source[:len(source) - len(source.lstrip())]
            yield Example(page, block.first + at, match.group(1), output, indent)


def matches(shown, printed):
    """Whether `...` in what is shown can be filled in from what was printed."""
    if not shown:
        return not printed
    if shown[0] == "...":
        return any(matches(shown[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and shown[0] == printed[0] and matches(shown[1:], printed[1:])


def parts_of(shown):
    """The runs of lines between the `...`; a run may be empty."""
    parts, part = [], []
    for line in shown:
        if line == "...":
            parts.append(part)
            part = []
        else:
            part.append(line)
    return [*parts, part]


def place_of(line, printed, start):
    """Where `line` stands now, from `start` on: itself, or what is most like it."""
    if line in printed[start:]:
        return printed.index(line, start)
    likeness = [difflib.SequenceMatcher(None, line, other).ratio() for other in printed[start:]]
    best = max(likeness, default=0)
    return start + likeness.index(best) if best > 0.6 else None


def renewed(shown, printed):
    """What is printed now of the parts that were shown; None where a part cannot be found."""
    if "..." not in shown:
        return printed
    parts = parts_of(shown)
    right, start = [], 0
    for i, part in enumerate(parts):
        is_first, is_last = i == 0, i == len(parts) - 1
        if part:
            begin = 0 if is_first else place_of(part[0], printed, start)
            if begin is None:
                return None
            last = place_of(part[-1], printed, begin)
            end = len(printed) if is_last else (begin + len(part) if last is None else last + 1)
            right += printed[begin:end]
            start = end
        if not is_last:
            right.append("...")
    return right


def check_example(program, folder, example):
    """What is wrong with it, as text, and the lines that would be right."""
    printed, _ = program.run(folder, example.command)
    if matches(example.output, printed):
        return "", example.output
    diff = difflib.unified_diff(example.output, printed, "shown", "printed", lineterm="", n=1)
    right = renewed(example.output, printed)
    if right is None or not matches(right, printed):
        return "\n".join(diff) + "\nit has to be renewed by hand", example.output
    return "\n".join(diff), right
