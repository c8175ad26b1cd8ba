"""Documents with examples that hold and that do not, checked against a command made for it."""

import os
import pathlib
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import check_docs  # noqa: E402  (found through the line above)

COMMAND = """#!/bin/sh
if [ "$2" = --help ]; then
  if [ "$1" = info ]; then echo "Usage: headroom info"; echo "  --top N  how many"; fi
  exit 0
fi
echo "one $1"
echo
echo "two"
"""


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "samples").mkdir()
        (self.root / "docs").mkdir()
        (self.root / "README.md").write_text("")
        self.binary = self.root / "headroom"
        self.binary.write_text(COMMAND)
        os.chmod(self.binary, 0o755)

    def complaints(self, text, update=False):
        check_docs.known_options.__defaults__[0].clear()
        (self.root / "docs" / "page.md").write_text(text)
        return check_docs.check(str(self.binary), self.root, update)[0]

    def page(self):
        return (self.root / "docs" / "page.md").read_text()

    def test_output_that_is_printed_is_fine(self):
        self.assertEqual(self.complaints("    $ headroom x\n    one x\n\n    two\n\nText.\n"), [])

    def test_a_line_that_is_not_printed_is_named(self):
        found = self.complaints("    $ headroom x\n    one y\n\n    two\n")
        self.assertEqual(len(found), 1)
        self.assertIn("docs/page.md:1: $ headroom x", found[0])
        self.assertIn("-one y\n+one x", found[0])

    def test_a_line_that_is_missing_is_named(self):
        self.assertIn("+two", self.complaints("    $ headroom x\n    one x\n")[0])

    def test_dots_stand_for_any_lines(self):
        self.assertEqual(self.complaints("    $ headroom x\n    one x\n    ...\n"), [])
        self.assertEqual(self.complaints("    $ headroom x\n    ...\n    two\n"), [])
        self.assertEqual(len(self.complaints("    $ headroom x\n    ...\n    three\n")), 1)

    def test_what_depends_on_the_machine_is_not_run(self):
        self.assertEqual(self.complaints(check_docs.MARK + "\n\n    $ headroom x\n    12 ms\n"), [])

    def test_several_examples_in_one_block_are_several(self):
        text = "    $ headroom x\n    one x\n\n    two\n\n    $ headroom y\n    one y\n\n    two\n"
        self.assertEqual(self.complaints(text), [])

    def test_update_writes_what_is_printed(self):
        text = "A.\n\n    $ headroom x\n    old\n\nB.\n\n    $ headroom y\n    old\n\nC.\n"
        self.complaints(text, update=True)
        self.assertEqual(self.page(), "A.\n\n    $ headroom x\n    one x\n\n    two\n\nB.\n\n"
                                      "    $ headroom y\n    one y\n\n    two\n\nC.\n")
        self.assertEqual(self.complaints(self.page()), [])

    def test_update_leaves_what_holds_as_it_is(self):
        text = "    $ headroom x\n    one x\n    ...\n"
        self.complaints(text, update=True)
        self.assertEqual(self.page(), text)

    def test_options_of_commands_without_output_have_to_exist(self):
        self.assertEqual(self.complaints("    headroom info run.pickle --top 3   # more\n"), [])
        self.assertIn("no option --many", self.complaints("    headroom info x --many 3\n")[0])
        self.assertIn("no command 'inform'", self.complaints("    ./run inform x\n")[0])
        self.assertEqual(self.complaints("    headroom run.pickle\n"), [])


if __name__ == "__main__":
    unittest.main()
