"""Code in documents: C++ and C stand in a file that is compiled, Python is at least Python."""

import ast
import re
import textwrap

LANGUAGES = {"cpp": (".cpp", ".h"), "c": (".c",)}
COMPILED = ("examples/", "tests/")
ALONE = re.compile(r"^\s*(#include\b|using namespace\b)")


def squeezed(text):
    """Without comments and white space, so that neither has to be the same."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"\s+", "", text)


def chunks_of(lines):
    """Parts that stand together in the source: between empty lines, `...` and lines that open a
    file."""
    chunk = []
    for line in [*lines, ""]:
        is_alone = bool(ALONE.match(line))
        if is_alone or not line.strip() or line.strip() in ("...", "// ..."):
            if chunk:
                yield "\n".join(chunk)
            chunk = []
            if is_alone:
                yield line
        else:
            chunk.append(line)


class Snippets:
    def __init__(self, root, files):
        self.sources = {}
        for name in files:
            if name.startswith(COMPILED) and name.endswith((".cpp", ".h", ".c")):
                text = (root / name).read_text(encoding="utf-8", errors="replace")
                self.sources[name] = squeezed(text)

    def problem(self, block):
        if block.language in LANGUAGES:
            return self.problem_of_compiled(block)
        if block.language == "python":
            return problem_of_python(block)
        return ""

    def problem_of_compiled(self, block):
        wanted = [squeezed(chunk) for chunk in chunks_of(block.lines)]
        wanted = [chunk for chunk in wanted if chunk]
        best, missing = -1, ""
        for name, text in self.sources.items():
            if not name.endswith(LANGUAGES[block.language]):
                continue
            absent = [chunk for chunk in wanted if chunk not in text]
            if not absent:
                return ""
            if len(wanted) - len(absent) > best:
                best = len(wanted) - len(absent)
                missing = f"; {name} comes nearest and lacks {absent[0][:60]}"
        return "no file of examples/ or tests/ has this code, so nothing compiles it" + missing


def problem_of_python(block):
    try:
        ast.parse(textwrap.dedent("\n".join(block.lines)))
    except SyntaxError as error:
        return f"is no Python: {error.msg} in its line {error.lineno}"
    return ""


def complaints(snippets, page):
    for block in page.blocks:
        problem = snippets.problem(block)
        if problem:
            yield f"{page.place(block.first)}: {problem}"
