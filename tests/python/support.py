"""What the tests of the Python package share.

Programs run in a Python of their own, with the package, the fake torch and the library that has the
cpu device for a GPU. HEADROOM_TEST_LIBRARY and HEADROOM_TEST_COMMAND say where the build put things.
"""

import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent
REPOSITORY = TESTS.parents[1]
PACKAGE = REPOSITORY / "bindings" / "python"
LIBRARY = os.environ.get("HEADROOM_TEST_LIBRARY", "")
# What a developer has set must not decide a test.
_DROPPED = ("HEADROOM_", "PYTORCH_", "FAKE_TORCH", "PYTHON", "XDG_", "CXX", "CUDA_")


def environment(**variables):
    """Without the developer's settings; a variable that is None is absent."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED)}
    clean.update(
        PYTHONPATH=os.pathsep.join([str(PACKAGE), str(TESTS / "fake")]),
        PYTHONDONTWRITEBYTECODE="1",
        HEADROOM_TORCH_LIBRARY=LIBRARY,
        HEADROOM_TORCH_ROUTE="plain")
    clean.update(variables)
    return {name: value for name, value in clean.items() if value is not None}


class Programs(unittest.TestCase):
    """Runs programs in a folder of their own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    def run_python(self, *arguments, code=0, **variables):
        done = subprocess.run(
            [sys.executable, *map(str, arguments)], cwd=self.folder, env=environment(**variables),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, code, f"{done.stdout}\n{done.stderr}")
        return done

    def run_code(self, text, code=0, **variables):
        """The lines that a program prints."""
        done = self.run_python("-c", textwrap.dedent(text), code=code, **variables)
        return done.stdout.splitlines() if code == 0 else done.stderr
