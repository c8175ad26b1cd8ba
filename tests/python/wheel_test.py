"""The wheel: made by its target's script, checked file by file, and installed into empty places.

By pip into an environment of its own where this Python has venv and pip, as pip does by hand
otherwise: Debian's python3 has neither.
"""

import base64
import csv
import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

from support import LIBRARY, REPOSITORY, TESTS, environment

BUILD = os.environ["HEADROOM_TEST_BUILD"]
VERSION = os.environ["HEADROOM_TEST_VERSION"]


def run(*command, code=0, **variables):
    done = subprocess.run([str(word) for word in command], cwd="/", stdin=subprocess.DEVNULL,
                          env=environment(**variables), capture_output=True, text=True,
                          timeout=300, check=False)
    if done.returncode != code:
        raise AssertionError(f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def unpack(wheel, folder):
    """What an installer does: the files, and which of them are programs."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            path = Path(archive.extract(entry, folder))
            path.chmod(entry.external_attr >> 16 & 0o777)


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.box.cleanup)
        cls.folder = Path(cls.box.name) / "a folder"
        run(os.environ["HEADROOM_TEST_CMAKE"], f"-DBUILD_DIR={BUILD}", f"-DOUTPUT={cls.folder}",
            f"-DPYTHON={sys.executable}", f"-DVERSION={VERSION}",
            "-P", REPOSITORY / "bindings" / "python" / "make_wheel.cmake")
        cls.wheel, = cls.folder.glob("*.whl")
        cls.unpacked = cls.folder / "site-packages"
        unpack(cls.wheel, cls.unpacked)

    def test_its_name_says_what_it_is_for(self):
        self.assertRegex(self.wheel.name, rf"^headroom-{VERSION}-py3-none-linux_\w+\.whl$")
        self.assertEqual([path.name for path in self.folder.glob("*.whl")], [self.wheel.name])
        self.assertFalse((self.folder / "staging").exists())

    def test_every_file_is_in_its_record(self):
        with zipfile.ZipFile(self.wheel) as archive:
            self.assertIsNone(archive.testzip())
            names = archive.namelist()
            information = f"headroom-{VERSION}.dist-info"
            record = csv.reader(io.StringIO(archive.read(f"{information}/RECORD").decode()))
            rows = {name: (digest, size) for name, digest, size in record}
            self.assertEqual(sorted(rows), sorted(names))
            self.assertEqual(len(set(names)), len(names))
            for name, (digest, size) in rows.items():
                if name == f"{information}/RECORD":
                    self.assertEqual((digest, size), ("", ""))
                    continue
                data = archive.read(name)
                self.assertEqual(size, str(len(data)))
                hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
                self.assertEqual(digest, f"sha256={hashed}", name)
            self.assertIn(f"Version: {VERSION}\n", archive.read(f"{information}/METADATA").decode())

    def test_it_has_all_that_the_package_looks_for(self):
        for name in ("headroom.pth", "headroom/py.typed", "headroom/bin/headroom",
                     "headroom/lib/libheadroom_torch.so", "headroom/torch/__main__.py",
                     f"headroom-{VERSION}.dist-info/licenses/LICENSE"):
            self.assertTrue((self.unpacked / name).is_file(), name)
        translation = REPOSITORY / "bindings" / "pytorch"
        for path in [*translation.glob("torch_*"), *translation.glob("bridge/*.h")]:
            name = path.relative_to(REPOSITORY)
            self.assertTrue((self.unpacked / "headroom" / "native" / name).is_file(), name)
        text = "\n".join(str(path) for path in self.unpacked.rglob("*"))
        self.assertNotIn("__pycache__", text)

    def check_command(self, python, **variables):
        done = run(python, "-m", "headroom", "--version", **variables)
        self.assertEqual(done.stdout, f"headroom {VERSION}\n")
        samples = self.unpacked / "headroom" / "share" / "headroom" / "samples"
        done = run(python, "-m", "headroom", "doctor", samples / "leak_loss.pickle.zst", code=3,
                   **variables)
        self.assertIn("leak", done.stdout)

    def test_the_command_runs_from_it(self):
        self.check_command(sys.executable, PYTHONPATH=str(self.unpacked))

    def test_the_command_uses_the_libraries_that_came_with_it(self):
        done = run("ldd", self.unpacked / "headroom" / "bin" / "headroom",
                   self.unpacked / "headroom" / "lib" / "libheadroom_torch.so")
        self.assertNotIn("not found", done.stdout)
        ours = {path.name for path in (self.unpacked / "headroom" / "lib").iterdir()}
        for line in done.stdout.splitlines():
            name, _, place = line.strip().partition(" => ")
            if name in ours:
                self.assertIn(str(self.unpacked), place)

    def check_torch(self, python, **variables):
        """With the fake torch: the library of the wheel is loaded and registered."""
        code = ("import headroom.torch, torch; print(headroom.torch.enable(), headroom.torch.route(), "
                "len(torch.cuda.memory._current.addresses))")
        done = run(python, "-c", code, HEADROOM_TORCH_LIBRARY=None, **variables)
        self.assertEqual(done.stdout, "plain plain 8\n")

    def test_pytorch_is_plugged_into_its_library(self):
        self.check_torch(sys.executable, PYTHONPATH=f"{self.unpacked}:{TESTS / 'fake'}")

    def test_its_startup_file_works_where_packages_are_installed(self):
        code = (f"import site; site.addsitedir({str(self.unpacked)!r})\n"
                "import torch, headroom.torch; torch.empty(512); print(headroom.torch.route())")
        done = run(sys.executable, "-c", code, HEADROOM_TORCH="1", HEADROOM_TORCH_LIBRARY=LIBRARY,
                   PYTHONPATH=str(TESTS / "fake"))
        self.assertEqual(done.stdout, "plain\n")

    def test_pip_installs_it_into_an_empty_environment_and_removes_it(self):
        if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
            self.skipTest("this Python has no venv or no pip; the wheel was unpacked by hand above")
        venv = self.folder / "an environment"
        run(sys.executable, "-m", "venv", venv)
        python = venv / "bin" / "python"
        packages, = venv.glob("lib/python*/site-packages")
        before = sorted(path.name for path in packages.iterdir())
        alone = {"PYTHONPATH": None}
        run(python, "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check",
            self.wheel, **alone)
        self.check_command(python, **alone)
        self.assertEqual(run(venv / "bin" / "headroom", "--version", **alone).stdout,
                         f"headroom {VERSION}\n")
        self.check_torch(python, PYTHONPATH=str(TESTS / "fake"))
        child = "import multiprocessing as m, os\n" \
                "def route(_):\n" \
                "    import torch, headroom.torch\n" \
                "    return headroom.torch.route()\n" \
                "if __name__ == '__main__':\n" \
                "    with m.get_context('spawn').Pool(2) as pool:\n" \
                "        print(set(pool.map(route, range(8))))\n"
        script = self.folder / "script.py"
        script.write_text(child, encoding="utf-8")
        for command in ([python, "-m", "headroom.torch", script], [python, script]):
            done = run(*command, HEADROOM_TORCH="1", PYTHONPATH=str(TESTS / "fake"))
            self.assertEqual(done.stdout, "{'plain'}\n")
        run(python, "-m", "pip", "uninstall", "-y", "--disable-pip-version-check", "headroom", **alone)
        self.assertEqual(sorted(path.name for path in packages.iterdir()), before)

    def test_the_same_files_make_the_same_wheel(self):
        staging = self.folder / "small"
        for name in ("bin/headroom", "lib/headroom/libheadroom_torch.so", "bundled/libz.so.1",
                     "share/headroom/samples/a.pickle", "third-party/zlib1g"):
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).write_text(name, encoding="utf-8")
        made = []
        for i in range(2):
            run(sys.executable, "-B", REPOSITORY / "bindings" / "python" / "make_wheel.py",
                "--staging", staging, "--version", VERSION, "--output", self.folder / f"out{i}")
            wheel, = (self.folder / f"out{i}").glob("*.whl")
            made.append(wheel.read_bytes())
        self.assertEqual(*made)


if __name__ == "__main__":
    unittest.main()
