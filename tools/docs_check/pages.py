"""A Markdown page as its parts: code blocks, spans in backticks, links, headings."""

import os
import re

INDENT = "    "
COMMENT = re.compile(r"^<!--\s*(.*?)\s*-->$")
FENCE = re.compile(r"^(\s*)```\s*([\w+-]*)\s*$")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LINK = re.compile(r"\]\(([^()\s]+)\)")
HTML_LINK = re.compile(r"\b(?:src|srcset|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")

# What is built, and what git keeps.
SKIPPED_FOLDERS = re.compile(r"^(build.*|\.git|node_modules|__pycache__|\.venv)$")


class Block:
    """Code that is fenced or indented. `first` is the number of its first line of content, from 0;
    `note` is the comment right above it."""

    def __init__(self, first, lines, language, note):
        self.first = first
        self.lines = lines
        self.language = language
        self.note = note

    @property
    def last(self):
        return self.first + len(self.lines)


class Page:
    """`name` is its path from the root. Numbers of lines start at 0 here, at 1 for people."""

    def __init__(self, root, path):
        self.path = path
        self.name = path.relative_to(root).as_posix()
        self.lines = path.read_text(encoding="utf-8").split("\n")
        self.blocks = []
        self.text = []  # (number, line) of all that is no code
        self._read()

    def _read(self):
        at = 0
        note = ""
        while at < len(self.lines):
            line = self.lines[at]
            fence = FENCE.match(line)
            is_after_blank = at == 0 or not self.lines[at - 1].strip()
            if fence:
                at = self._read_fence(at, fence, note)
            elif line.startswith(INDENT) and line.strip() and is_after_blank:
                at = self._read_indented(at, note)
            else:
                self.text.append((at, line))
                at += 1
                comment = COMMENT.match(line.strip())
                if line.strip():
                    note = comment.group(1) if comment else ""
                continue
            note = ""

    def _read_fence(self, at, fence, note):
        end = at + 1
        while end < len(self.lines) and self.lines[end].strip() != "```":
            end += 1
        width = len(fence.group(1))
        self.blocks.append(Block(at + 1, [line[width:] for line in self.lines[at + 1:end]],
                                 fence.group(2), note))
        return end + 1

    def _read_indented(self, at, note):
        end = at
        while end < len(self.lines) and (self.lines[end].startswith(INDENT)
                                         or not self.lines[end].strip()):
            end += 1
        while not self.lines[end - 1].strip():
            end -= 1
        self.blocks.append(Block(at, [line[len(INDENT):] for line in self.lines[at:end]], "", note))
        return end

    def write(self):
        self.path.write_text("\n".join(self.lines), encoding="utf-8")

    def place(self, number):
        return f"{self.name}:{number + 1}"

    def spans(self):
        """(number, text) of what stands in backticks outside of code blocks, over line ends too."""
        for first, paragraph in self._paragraphs():
            for match in SPAN.finditer(paragraph):
                number = first + paragraph.count("\n", 0, match.start())
                yield number, " ".join(match.group(1).split())

    def _paragraphs(self):
        first, lines, last = 0, [], None
        for number, line in self.text:
            if lines and (not line.strip() or number != last + 1):
                yield first, "\n".join(lines)
                lines = []
            if line.strip():
                if not lines:
                    first = number
                lines.append(line)
            last = number
        if lines:
            yield first, "\n".join(lines)

    def links(self):
        for number, line in self.text:
            without_code = SPAN.sub("", line)
            for pattern in (LINK, HTML_LINK):
                for match in pattern.finditer(without_code):
                    yield number, match.group(1)

    def anchors(self):
        """The names that GitHub gives the headings."""
        found, counts = set(), {}
        for _, line in self.text:
            match = HEADING.match(line)
            if not match:
                continue
            name = anchor_of(match.group(1))
            count = counts.get(name, 0)
            counts[name] = count + 1
            found.add(f"{name}-{count}" if count else name)
        return found


def anchor_of(heading):
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = re.sub(r"[^\w\- ]", "", text.lower())
    return text.replace(" ", "-")


def files_of(root):
    """The files of the repository, as paths from the root."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not SKIPPED_FOLDERS.match(name))
        where = os.path.relpath(folder, root)
        found += [name if where == "." else f"{where}/{name}" for name in sorted(names)]
    return found


def pages_of(root, files):
    return [Page(root, root / name) for name in files
            if name.endswith(".md") and not name.startswith("tests/golden/compare/")]
