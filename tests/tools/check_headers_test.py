"""Plants headers that lack an include, behind others that bring it, and sees them found."""

import pathlib
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import check_headers  # noqa: E402  (found through the line above)

BASE = "#include <string>\n#include <vector>\nstruct Base { std::vector<int> v; };\n"
SOUND = {
    "base.h": BASE,
    "user.h": '#include "headroom/a/base.h"\ninline Base user() { return {}; }\n',
    "all.h": '#include "headroom/a/base.h"\n#include "headroom/a/user.h"\n',
}
# Each lacks an include; what some of them include, before or after, would bring it.
LACKING = {
    "ours.h": "inline Base lost() { return {}; }\n",
    "standard.h": "#include <cstddef>\ninline std::vector<std::size_t> lost();\n",
    "on_top.h": '#include "headroom/a/base.h"\ninline std::map<int, int> lost();\n',
    "too_late.h": 'inline Base lost();\n#include "headroom/a/base.h"\n',
    "on_condition.h": '#if 0\n#include "headroom/a/base.h"\n#endif\ninline Base lost();\n',
}


class CheckHeaders(unittest.TestCase):
    def setUp(self):
        # In so small a tree nothing is worth precompiling; here it shall be.
        before = check_headers.WRITING_COST, check_headers.STARTING_COST
        check_headers.WRITING_COST, check_headers.STARTING_COST = 1, 1
        self.addCleanup(lambda: vars(check_headers).update(
            zip(("WRITING_COST", "STARTING_COST"), before)))

    def check(self, headers):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve() / "a folder"
            (root / "headroom" / "a").mkdir(parents=True)
            for name, text in headers.items():
                (root / "headroom" / "a" / name).write_text("#pragma once\n" + text)
            return check_headers.check(root)

    def test_accepts_what_compiles_alone(self):
        self.assertEqual(self.check(SOUND), (3, 1, []))

    def test_finds_each_that_lacks_an_include(self):
        count, bases, complaints = self.check({**SOUND, **LACKING})
        self.assertEqual(count, 8)
        self.assertGreaterEqual(bases, 1)
        self.assertEqual(sorted(complaint.split()[0] for complaint in complaints),
                         sorted(f"headroom/a/{name}" for name in LACKING), complaints)

    def test_says_what_is_wrong_with_one_that_cannot_be_precompiled(self):
        complaints = self.check({**SOUND, "base.h": BASE + "inline Lost lost();\n"})[2]
        self.assertEqual(len(complaints), 3)
        self.assertIn("Lost", complaints[1])


if __name__ == "__main__":
    unittest.main()
