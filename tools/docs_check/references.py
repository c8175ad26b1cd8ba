"""What documents refer to: links and anchors, files, variables of the environment, names of C++."""

import os
import re

VARIABLE = re.compile(r"\b(?:HEADROOM|PYTORCH)_[A-Z0-9_]*[A-Z0-9]\b")
PATH = re.compile(r"^[\w.+-]+(?:/[\w.+-]+)*/?$")
PATH_IN_CODE = re.compile(r"(?<![\w./~$-])((?:\.ci|[A-Za-z]\w*)(?:/[\w.+-]*[\w+-])+)")
SOURCE = re.compile(r"\.(h|cpp|cu|cuh|sh|cmake|md|ts)$")
CODE = re.compile(r"\.(h|cpp|cu|cuh|c|py|sh|cmake|ts|json)$|CMakeLists\.txt$|^(run|test)$")
COMMENT_PATH = re.compile(r"(?<![\w./<\"-])((?:[\w-]+/)+[\w-]+\.(?:h|cpp|cu|cuh|md|sh|cmake))\b")
CPP_NAME = re.compile(r"^~?[A-Za-z_]\w*(?:::~?[A-Za-z_]\w*)+(?:\(.*\))?$")
WORD = re.compile(r"[A-Za-z_]\w*")

ENVIRONMENT = "docs/guide/environment.md"

# What a build makes, and what an installed copy has, by the file that makes it.
BUILT = re.compile(r"^build/(?:headroom|lib\w+\.so|headroom_torch\.py|compile_commands\.json|packages|wheel/headroom-\S+\.whl)$")
EXAMPLE = re.compile(r"^build/examples/example_(\w+)$")
TEST_PROGRAM = re.compile(r"^build/tests/(\w+)/\w+_tests$")
INSTALLED = {"headroom/c/headroom.h": "bindings/c/headroom.h"}
ELSEWHERE = {"cuda.h"}  # of other projects


class Names:
    """What there is to refer to."""

    def __init__(self, root, files, pages):
        self.root = root
        self.files = set(files)
        self.folders = {name[:at] for name in files for at, c in enumerate(name) if c == "/"}
        self.top = {name.split("/")[0] for name in files}
        # Every end of a path from one of its slashes on: `ops/creation.h`, `creation.h`.
        self.ends = {name[at + 1:] for name in [*files, *self.folders]
                     for at, c in enumerate(name) if c == "/"}
        self.anchors = {page.name: page.anchors() for page in pages}
        self.words, self.variables = set(), set()
        for name in files:
            if CODE.search(name):
                text = (root / name).read_text(encoding="utf-8", errors="replace")
                self.words.update(WORD.findall(text))
                self.variables.update(VARIABLE.findall(text))

    def has(self, path):
        path = path.rstrip("/")
        return path in self.files or path in self.folders

    def has_path(self, path, page_folder):
        """A file or folder as people write it: from the root, from the page's folder, from a
        module, installed or built."""
        path = path.removeprefix("./").rstrip("/")
        if self.has(path) or path in self.ends or path in INSTALLED or path in ELSEWHERE:
            return True
        if page_folder and self.has(os.path.normpath(f"{page_folder}/{path}")):
            return True
        if BUILT.match(path):
            return True
        example, test = EXAMPLE.match(path), TEST_PROGRAM.match(path)
        return bool(example and self.has(f"examples/{example.group(1)}.cpp")
                    or test and self.has(f"tests/{test.group(1)}"))


def link_problem(names, page, target):
    if re.match(r"^[a-z]+:", target):
        return ""
    path, _, anchor = target.partition("#")
    folder = os.path.dirname(page.name)
    name = os.path.normpath(f"{folder}/{path}" if folder else path) if path else page.name
    if path and name != "." and not names.has(name):
        return f"the link leads nowhere: {target}"
    if anchor and anchor not in names.anchors.get(name, ()):
        return f"there is no heading for #{anchor} in {name}"
    return ""


def looks_like_path(names, text):
    if not PATH.match(text):
        return False
    first = text.removeprefix("./").split("/")[0]
    return bool("/" in text and first in names.top | {"build"}) or bool(SOURCE.search(text))


def span_problems(names, page, span):
    path = re.sub(r":\d+$", "", span)
    if looks_like_path(names, path):
        if not names.has_path(path, os.path.dirname(page.name)):
            yield f"there is no file or folder `{span}`"
    elif CPP_NAME.match(span) and not span.startswith("std::"):
        for word in WORD.findall(span.split("(")[0]):
            if word not in names.words:
                yield f"`{span}`: no source has the name {word}"


def code_problems(names, page, line):
    """Of a line of code, or of a command in backticks."""
    for match in PATH_IN_CODE.finditer(line):
        first = match.group(1).split("/")[0]
        known = names.top | {"build"}
        if first in known and not names.has_path(match.group(1), os.path.dirname(page.name)):
            yield f"there is no file or folder {match.group(1)}"


def complaints(names, page):
    for number, target in page.links():
        problem = link_problem(names, page, target)
        if problem:
            yield f"{page.place(number)}: {problem}"
    for number, span in page.spans():
        look = code_problems if " " in span else span_problems
        for problem in look(names, page, span):
            yield f"{page.place(number)}: {problem}"
    for block in page.blocks:
        for at, line in enumerate(block.lines):
            for problem in code_problems(names, page, line):
                yield f"{page.place(block.first + at)}: {problem}"
    for number, line in enumerate(page.lines):
        for match in VARIABLE.finditer(line):
            if match.group(0) not in names.variables:
                yield f"{page.place(number)}: nothing reads {match.group(0)}"


def comment_complaints(names):
    """Comments of sources that name a file which is gone."""
    for name in sorted(names.files):
        if not re.search(r"\.(h|cpp|cu|cuh)$", name):
            continue
        text = (names.root / name).read_text(encoding="utf-8", errors="replace")
        for number, line in enumerate(text.split("\n")):
            comment = line.partition("//")[2]
            for match in COMMENT_PATH.finditer(comment):
                path = match.group(1)
                if "NAME" not in path and not names.has_path(path, os.path.dirname(name)):
                    yield f"{name}:{number + 1}: a comment names {path}, which is not there"


def variable_complaints(names):
    """Variables that the program reads, and the page about them does not have."""
    if ENVIRONMENT not in names.files:
        return
    known = set(VARIABLE.findall((names.root / ENVIRONMENT).read_text(encoding="utf-8")))
    for name in sorted(names.files):
        if re.match(r"(headroom|cli|benchmarks|bindings)/.*\.(cpp|h|py)$", name):
            text = (names.root / name).read_text(encoding="utf-8", errors="replace")
            for variable in sorted(set(re.findall(r'"(HEADROOM_[A-Z_]+)"', text)) - known):
                yield f"{name}: {variable} is not in {ENVIRONMENT}"
