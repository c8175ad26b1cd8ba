#!/usr/bin/env python3
"""Holds the documents to the program: what they show, name and link to is there today.

    tools/check_docs.py build/headroom            # what is stale, one complaint each; exit 1
    tools/check_docs.py build/headroom --update   # writes today's output into the documents first

Every *.md of the repository is read.

- Output. A code block (indented or fenced) with `$ headroom ...` shows what that prints; a line
  `...` stands for any number of lines. `<!-- output depends on the machine -->` above the block
  says that it is not to be compared, nor run.
- Commands without output are run too and must exit with 0 or 3, but for `bench` and `demo` (which
  measure, and have tests), what needs a GPU, and what has a placeholder (FILE, N). A comment
  `<!-- not run: WHY -->` above a block is the way out for the rest. They run in a folder with the
  samples, with tests/tools/docs, and with recordings under the names that readers would use.
- Every command in a code block or in backticks exists, with its options and sample files; so do
  scripts, CMake presets and targets.
- Links and their anchors, files and folders in backticks, headers, environment variables and names
  of C++ with `::` exist. So do the files that comments of the sources name. Every variable that the
  program reads is in docs/guide/environment.md.
- Code marked `cpp` or `c` stands in a file that is compiled; code marked `python` is Python.
- Every label and heading of a report has an entry in the glossary.
"""

import argparse
import concurrent.futures
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from docs_check import commands, examples, glossary, references, snippets  # noqa: E402
from docs_check.pages import files_of, pages_of  # noqa: E402
from docs_check.program import Program  # noqa: E402


def run_page(program, known, page, number):
    """The answers to a page's examples, and complaints about what it shows without output; in the
    order of the page, since a command may read what an earlier one wrote."""
    folder = program.scratch(f"page{number}")
    work = [(one.number, one, None) for one in examples.examples_of(page)]
    work += [(line, None, command) for line, command in known.to_run(page)]
    answers, complaints = [], []
    for line, example, command in sorted(work, key=lambda item: item[0]):
        if example:
            answers.append((example, *examples.check_example(program, folder, example)))
            continue
        complaint = commands.run_complaint(program, folder, page, line, command)
        complaints += [complaint] if complaint else []
    return answers, complaints, len(work)


def renew(page, answers):
    """Writes the right output into a page, from its end, so that line numbers stay."""
    stale = [(example, right) for example, problem, right in answers if problem]
    for example, right in reversed(stale):
        example.replace(right)
    if stale:
        page.write()


def check(binary, root, update=False):
    """The complaints, and how many commands were run."""
    files = files_of(root)
    pages = pages_of(root, files)
    names = references.Names(root, files, pages)
    code = snippets.Snippets(root, files)
    complaints, count = [], 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        program = Program(binary, root, folder)
        known = commands.Commands(program, root, files)
        runs = pool.map(lambda item: run_page(program, known, item[1], item[0]), enumerate(pages))
        for page, (answers, failed, ran) in zip(pages, runs):
            count += ran
            complaints += [f"{page.place(one.number)}: $ {one.command}\n{problem}"
                           for one, problem, _ in answers if problem]
            complaints += failed
            complaints += known.complaints(page)
            complaints += references.complaints(names, page)
            complaints += snippets.complaints(code, page)
            if update:
                renew(page, answers)
    complaints += references.comment_complaints(names)
    complaints += references.variable_complaints(names)
    complaints += glossary.complaints(root, files)
    return complaints, count


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("binary", help="the headroom to ask, as build/headroom")
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent,
                        type=pathlib.Path, help="the repository")
    parser.add_argument("--update", action="store_true", help="write what is printed today")
    options = parser.parse_args()
    binary = str(pathlib.Path(options.binary).resolve())
    root = options.root.resolve()
    complaints, count = check(binary, root, options.update)
    if options.update:
        complaints, count = check(binary, root)
    for complaint in complaints:
        print(complaint)
    if complaints:
        print(f"\n{len(complaints)} stale; tools/check_docs.py {options.binary} --update renews "
              "output")
        return 1
    print(f"{count} commands run")
    return 0


if __name__ == "__main__":
    sys.exit(main())
