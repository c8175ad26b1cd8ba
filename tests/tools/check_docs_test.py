"""Documents that hold and that do not, checked against a command made for it."""

import os
import pathlib
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import check_docs  # noqa: E402  (found through the line above)
from docs_check import examples, glossary, snippets  # noqa: E402
from docs_check.pages import anchor_of, files_of  # noqa: E402

COMMAND = """#!/bin/sh
case "$*" in
  --help) echo "Usage: headroom COMMAND"; echo "  info   looks"; echo "  bench  measures"; exit ;;
  "info --help") echo "Usage: headroom info"; echo "  -o FILE"; echo "  --top N  how many"; exit ;;
  "bench --help") echo "Usage: headroom bench [TEXT:{alloc,ops}]"; exit ;;
  *--help) exit ;;
  *fails*) echo "it failed"; exit 1 ;;
  *"bad news"*) exit 3 ;;
esac
echo "one $1"
echo
echo "two"
"""

FILES = {
    "README.md": "",
    "samples/run.pickle.zst": "",
    "headroom/memory/account.h": "struct Account {};  // as account.cpp has it\n",
    "headroom/memory/account.cpp": "std::getenv(\"HEADROOM_LIMIT\");\n",
    "examples/guide.cpp": "#include <headroom/memory/account.h>\n"
                          "int main() {\n  f( 1,  2);\n\n  g();\n}\n",
    "docs/other.md": "# Another page\n\n## What it holds, and why\n",
    "test": "usage: --lint --asan\n",
    "CMakeLists.txt": "add_executable(app main.cpp)\n",
    "CMakePresets.json": '{"configurePresets": [{"name": "release"}]}\n',
}


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name, text in FILES.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)
        self.binary = self.root / "build" / "headroom"
        self.binary.parent.mkdir()
        self.binary.write_text(COMMAND)
        os.chmod(self.binary, 0o755)

    def complaints(self, text, update=False):
        (self.root / "docs" / "page.md").write_text(text)
        return check_docs.check(str(self.binary), self.root, update)[0]

    def page(self):
        return (self.root / "docs" / "page.md").read_text()

    def expect_fine(self, text):
        self.assertEqual(self.complaints(text), [])

    def expect_one(self, text, part):
        found = self.complaints(text)
        self.assertEqual(len(found), 1, found)
        self.assertIn(part, found[0])


class Output(Documents):
    def test_what_is_printed_is_fine(self):
        self.expect_fine("    $ headroom info\n    one info\n\n    two\n\nText.\n")
        self.expect_fine("```console\n$ headroom info\none info\n\ntwo\n```\n")
        self.expect_fine("    $ ./run info\n    one info\n\n    two\n")

    def test_a_line_that_is_not_printed_is_named(self):
        text = "    $ headroom info\n    one y\n\n    two\n"
        self.expect_one(text, "docs/page.md:1: $ headroom info")
        self.expect_one(text, "-one y\n+one info")

    def test_a_line_that_is_missing_is_named(self):
        self.expect_one("    $ headroom info\n    one info\n", "+two")

    def test_dots_stand_for_any_lines(self):
        self.expect_fine("    $ headroom info\n    one info\n    ...\n")
        self.expect_fine("    $ headroom info\n    ...\n    two\n")
        self.expect_one("    $ headroom info\n    ...\n    three\n", "three")

    def test_what_depends_on_the_machine_is_not_run(self):
        self.expect_fine("<!-- output depends on the machine -->\n\n"
                         "    $ headroom info\n    12 ms\n")

    def test_several_examples_in_one_block_are_several(self):
        self.expect_fine("    $ headroom info\n    one info\n\n    two\n\n"
                         "    $ headroom info --top 3\n    one info\n\n    two\n")

    def test_update_writes_what_is_printed(self):
        text = "A.\n\n    $ headroom info\n    old\n\nB.\n\n```\n$ headroom bench\nold\n```\n\nC.\n"
        self.complaints(text, update=True)
        self.assertEqual(self.page(), "A.\n\n    $ headroom info\n    one info\n\n    two\n\nB.\n\n"
                                      "```\n$ headroom bench\none bench\n\ntwo\n```\n\nC.\n")
        self.expect_fine(self.page())

    def test_update_leaves_what_holds_as_it_is(self):
        text = "    $ headroom info\n    one info\n    ...\n"
        self.complaints(text, update=True)
        self.assertEqual(self.page(), text)

    def test_update_renews_the_parts_between_dots(self):
        printed = ["head 2", "a", "table of peaks", "x 1", "y 2", "b", "c"]
        shown = ["head 1", "...", "table of peak", "x 0", "y 2", "..."]
        self.assertEqual(examples.renewed(shown, printed),
                         ["head 2", "...", "table of peaks", "x 1", "y 2", "..."])
        self.assertEqual(examples.renewed(["...", "b", "d"], printed), ["...", "b", "c"])
        self.assertIsNone(examples.renewed(["...", "nothing like it", "..."], printed))


class Commands(Documents):
    def test_without_output_are_run(self):
        self.expect_fine("    headroom info run.pickle --top 3   # more\n")
        self.expect_one("    headroom info fails\n", "exits with 1:\nit failed")
        self.expect_fine("    headroom info 'bad news'\n")
        self.expect_fine("<!-- not run: it takes an hour -->\n\n    headroom info fails\n")
        self.expect_fine("    headroom info FILE fails\n    headroom bench ops fails\n")

    def test_their_options_exist(self):
        self.expect_one("    headroom info x --many 3\n", "no option --many")
        self.expect_one("    ./run info -x 3\n", "no option -x")
        self.expect_one("    LIMIT=3 headroom inform FILE\n", "no command 'inform'")
        self.expect_one("    headroom bench opps\n", "bench measures no 'opps'")
        self.expect_one("    headroom info samples/gone.pickle FILE\n",
                        "no file or folder samples/gone.pickle")

    def test_in_backticks_exist_too(self):
        self.expect_fine("Type `headroom info FILE --top N`, or `info -o x`, or `--top`.\n")
        self.expect_one("Type `headroom\nlook`.\n",
                        "docs/page.md:1: `headroom look`: there is no command")
        self.expect_one("Type `info --many`.\n", "no option --many")
        self.expect_one("Type `--many 3`.\n", "no command has the option --many")

    def test_of_scripts_and_of_cmake_exist(self):
        self.expect_fine("    ./test --lint -- -R Ledger\n"
                         "    cmake --preset release && ninja -C build app\n")
        self.expect_one("    ./test --fast\n", "./test has no option --fast")
        self.expect_one("    tools/gone.py\n", "tools/gone.py")
        self.expect_one("    cmake --preset debug\n", "no preset debug")
        self.expect_one("    ninja -C build gone\n", "no target gone")


class References(Documents):
    def test_links_and_anchors_exist(self):
        self.expect_fine("[a](other.md), [b](../README.md), [c](other.md#what-it-holds-and-why), "
                         "[d](https://example.org/x), [e](#f)\n\n# F\n")
        self.expect_one("[a](gone.md)\n", "docs/page.md:1: the link leads nowhere: gone.md")
        self.expect_one("[a](other.md#why)\n", "no heading for #why in docs/other.md")
        self.expect_one("Text.\n\n<img src=\"gone.svg\">\n",
                        "docs/page.md:3: the link leads nowhere")

    def test_anchors_are_those_of_github(self):
        self.assertEqual(anchor_of("`tune`: which, and why?"), "tune-which-and-why")

    def test_files_and_folders_exist(self):
        self.expect_fine("`headroom/memory/account.h`, `memory/account.h`, `account.h`, `other.md`,\n"
                         "`headroom/memory/`, `run.pickle`, `a/b`, `build/headroom`\n")
        self.expect_one("`headroom/memory/gone.h`\n", "no file or folder `headroom/memory/gone.h`")
        self.expect_one("`gone.h`\n", "no file or folder `gone.h`")
        self.expect_one("    cat samples/gone.zst\n", "no file or folder samples/gone.zst")
        self.expect_one("    #include <headroom/gone.h>\n", "headroom/gone.h")

    def test_variables_are_read_somewhere(self):
        self.expect_fine("HEADROOM_LIMIT\n")
        self.expect_one("Set `HEADROOM_LIMITS=3`.\n", "nothing reads HEADROOM_LIMITS")

    def test_variables_that_are_read_are_documented(self):
        (self.root / "docs" / "guide").mkdir()
        (self.root / "docs" / "guide" / "environment.md").write_text("`HEADROOM_LIMIT`\n")
        self.expect_fine("")
        (self.root / "docs" / "guide" / "environment.md").write_text("")
        self.expect_one("", "HEADROOM_LIMIT is not in docs/guide/environment.md")

    def test_names_of_cpp_exist(self):
        self.expect_fine("`Account::Account()`, `std::gone`\n")
        self.expect_one("`Account::gone`\n", "no source has the name gone")

    def test_comments_of_sources_name_files_that_exist(self):
        (self.root / "headroom/memory/account.h").write_text("// as memory/gone.h has it\n")
        self.expect_one("", "headroom/memory/account.h:1: a comment names memory/gone.h")


class Snippets(Documents):
    def test_stand_in_a_file_that_is_compiled(self):
        self.expect_fine("```cpp\n#include <headroom/memory/account.h>\n"
                         "f(1, 2);  // as before\n```\n")
        self.expect_fine("```cpp\nf(1,\n  2);\n...\ng();\n```\n")
        self.expect_one("```cpp\nf(1, 3);\n```\n", "nothing compiles it")
        self.expect_one("```c\nf(1, 2);\n```\n", "nothing compiles it")

    def test_of_python_are_python(self):
        self.expect_fine("```python\nimport x; x.y()\n```\n")
        self.expect_one("```python\nimport\n```\n", "is no Python")

    def test_are_cut_at_empty_lines(self):
        self.assertEqual(list(snippets.chunks_of(["#include <a>", "b;", "c;", "", "d;"])),
                         ["#include <a>", "b;\nc;", "d;"])


class Glossary(Documents):
    def setUp(self):
        super().setUp()
        for name, text in {
                "headroom/memory/account.cpp": 'line("cached: hard, beside live blocks", 1);\n',
                "headroom/memory/types.cpp": "string_view to_string(Category c) {\n"
                                             '  return "optimizer_state";\n}\n',
                "docs/format/doctor.schema.json": '{"x": [{"verdict": {"enum": ["leak"]}}]}\n',
                "cli/view.cpp": 'Table table({{"over live", Align::kRight}, {"retries"}});\n'
                                'print("the trim of {}");\n'}.items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text(text)

    def expect_words(self, text, words):
        (self.root / "docs" / "guide").mkdir(exist_ok=True)
        (self.root / "docs" / "guide" / "glossary.md").write_text(text)
        self.assertEqual([line.rpartition(": ")[2] for line in self.complaints("")], words)

    def test_has_an_entry_for_every_label(self):
        whole = ("**Cached**, **hard**, **live** **block** **Optimizer state** **leak** **retry** "
                 "**trim** **reserved** (over live)\n")
        self.expect_words(whole, [])
        self.expect_words(whole.replace("**hard**", "hard"), ["hard"])
        self.expect_words(whole.replace("**leak**", ""), ["leak"])
        self.expect_words(whole.replace(" (over live)", ""), ["over"])
        self.expect_words(whole.replace("**retry**", ""), ["retry"])
        self.expect_words(whole.replace("**trim**", ""), ["trim"])
        self.expect_words(whole.replace("**Optimizer state**", "**state**"), ["optimizer"])

    def test_finds_the_labels_of_the_program(self):
        root = TOOLS.parent
        found = {label for _, label in glossary.labels_of(root, set(files_of(root)))}
        self.assertGreater(len(found), 60)
        self.assertTrue({"leak", "optimizer state", "policy"} <= found)


if __name__ == "__main__":
    unittest.main()
