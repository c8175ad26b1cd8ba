"""The full route's compilation: what it needs, what it says, what it keeps.

The compiler is a program of the test: it notes its calls and writes what it was told to.
"""

import os
import stat
import subprocess
import sys
import textwrap
import unittest

from support import PACKAGE, REPOSITORY, Programs, environment

COMPILER = """
    #!{python}
    import os, sys, time
    folder = os.path.dirname(os.path.abspath(__file__))
    if "-E" in sys.argv:
        sys.exit(1 if os.path.exists(folder + "/old") else 0)
    with open(folder + "/calls", "a") as calls:
        calls.write("link\\n" if "-shared" in sys.argv else "compile\\n")
    time.sleep(float(os.environ.get("SLOW", "0")))
    if os.path.exists(folder + "/broken"):
        print("torch_allocator.cpp:7: error: no such override")
        sys.exit(1)
    with open(sys.argv[sys.argv.index("-o") + 1], "w") as file:
        file.write("made by " + " ".join(sys.argv[1:]))
"""
# Takes the place of the Python module that a real compiler makes.
ENABLE = """
    import types, headroom.torch
    from headroom.torch import _full
    def imported(path):
        with open(path) as file:
            assert file.read().startswith("made by ")
        print("loaded", path)
        return types.SimpleNamespace(enable=lambda given: print(sorted(given.items())))
    _full._import_module = imported
    try:
        print(headroom.torch.enable({}))
    except headroom.torch.EnableError as error:
        print("refused:", error)
"""


class Compilation(Programs):
    def setUp(self):
        super().setUp()
        self.bin = self.folder / "bin"
        compiler = self.write("bin/c++", textwrap.dedent(COMPILER.format(python=sys.executable)).lstrip())
        compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
        # A PyTorch with headers, a Python with its own, a CUDA: only their names are looked at.
        fake = self.folder / "site" / "torch"
        source = REPOSITORY / "tests" / "python" / "fake" / "torch"
        for path in source.rglob("*.py"):
            self.write(f"site/torch/{path.relative_to(source)}", path.read_text(encoding="utf-8"))
        self.torch_header = fake / "include" / "c10" / "cuda" / "CUDACachingAllocator.h"
        for name in (self.torch_header, self.folder / "cuda" / "include" / "cuda_runtime_api.h",
                     self.folder / "cuda" / "include" / "cuda.h", self.folder / "python" / "Python.h"):
            self.write(name, "")
        for i in range(3):
            self.write(f"native/bindings/pytorch/torch_{i}.cpp", f"// {i}")
        self.write("native/bindings/pytorch/bridge/bridge.h", "")
        self.write("site/sitecustomize.py", f"""
            import pathlib, sysconfig
            import headroom._places
            headroom._places.translation_root = lambda: pathlib.Path({str(self.folder / "native")!r})
            get_path = sysconfig.get_path
            sysconfig.get_path = lambda name, *rest: (
                {str(self.folder / "python")!r} if name == "include" else get_path(name, *rest))
        """)
        self.cache = self.folder / "cache"
        self.variables = {
            "PATH": f"{self.bin}:/usr/bin:/bin", "CUDA_HOME": str(self.folder / "cuda"),
            "XDG_CACHE_HOME": str(self.cache), "HEADROOM_TORCH_ROUTE": None,
            "PYTHONPATH": f"{PACKAGE}:{self.folder / 'site'}"}

    def enable(self, arguments="", **variables):
        return self.run_python("-c", textwrap.dedent(ENABLE.format(arguments)),
                               **{**self.variables, **variables})

    def calls(self):
        path = self.bin / "calls"
        return sorted(path.read_text().split()) if path.exists() else []

    def made(self):
        return sorted(self.cache.glob("headroom/torch/*/_headroom_torch_native*.so"))

    def test_it_is_compiled_once_and_kept(self):
        first = self.enable("limit='1GiB', conf='page_mb:4'")
        self.assertEqual(len(self.made()), 1)
        self.assertEqual(first.stdout.splitlines(), [
            f"loaded {self.made()[0]}",
            f"[('conf', 'page_mb:4'), ('limit_bytes', {1 << 30})]", "full"])
        self.assertRegex(first.stderr, r"^headroom: compiling for PyTorch 2.11.0\+fake, once ...\n"
                                       r"headroom: done in \d+ s\n$")
        self.assertEqual(self.calls(), ["compile"] * 3 + ["link"])
        second = self.enable()
        self.assertEqual(second.stderr, "")
        self.assertEqual(self.calls(), ["compile"] * 3 + ["link"])
        left = {path.name for path in self.made()[0].parent.iterdir()}
        self.assertEqual(left, {self.made()[0].name, "build.log", "lock"})

    def test_another_pytorch_or_other_sources_are_compiled_anew(self):
        self.enable()
        self.enable(FAKE_TORCH='{"version": "2.12.0"}')
        self.assertEqual(len(self.made()), 2)
        self.write("native/bindings/pytorch/torch_1.cpp", "// changed")
        self.enable()
        self.write("native/bindings/pytorch/bridge/bridge.h", "// changed")
        self.enable()
        self.assertEqual(len(self.made()), 4)

    def test_what_a_failed_compilation_says_and_that_it_is_not_repeated(self):
        self.write("bin/broken", "")
        first = self.enable()
        log = next(self.cache.glob("headroom/torch/*/build.log"))
        self.assertEqual(first.stdout, "plain\n")
        self.assertEqual(first.stderr.splitlines()[-1],
                         f"headroom: the full route did not compile: see {log}; "
                         "PyTorch is on the plain route, which does less")
        self.assertIn("error: no such override", log.read_text())
        self.assertIn("-std=c++20", log.read_text())
        calls = self.calls()
        second = self.enable()
        self.assertEqual(self.calls(), calls)
        self.assertIn("did not compile here before", second.stderr)
        (self.bin / "broken").unlink()
        self.assertIn("full", self.enable("route='full'").stdout.split())
        self.assertIn("full", self.enable().stdout.split())
        self.assertEqual([path.name for path in self.cache.rglob(".*")], [])

    def test_the_full_route_alone_refuses_where_it_cannot_compile(self):
        self.write("bin/broken", "")
        self.assertRegex(self.enable("route='full'").stdout, "^refused: the full route did not compile: see ")
        self.assertRegex(self.enable("route='full'").stdout, "^refused: the full route did not compile: see ")

    def test_each_part_that_is_missing_is_named_and_the_plain_route_taken(self):
        def check(pattern, **variables):
            done = self.enable(**variables)
            self.assertEqual(done.stdout, "plain\n")
            self.assertRegex(done.stderr, f"^headroom: .*{pattern}.*; PyTorch is on the plain route")
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertEqual(self.calls(), [])

        empty = self.folder / "empty"
        empty.mkdir()
        check("needs a C\\+\\+ compiler, and there is none", PATH=str(empty))
        check("CXX is 'no-such-compiler -m64'", CXX="no-such-compiler -m64")
        self.write("bin/old", "")
        check("does not know C\\+\\+20")
        (self.bin / "old").unlink()
        check("C\\+\\+ ABI", FAKE_TORCH='{"cxx11_abi": false}')
        (self.folder / "python" / "Python.h").unlink()
        check("Python.h")
        self.torch_header.unlink()
        check("PyTorch's headers are missing")
        for path in (self.folder / "native" / "bindings" / "pytorch").glob("*.cpp"):
            path.unlink()
        check("sources are missing")

    def test_a_compiler_that_is_named_is_taken(self):
        (self.bin / "c++").rename(self.bin / "mine")
        self.write("bin/calls", "")
        done = self.enable(CXX=f"{self.bin / 'mine'} -m64")
        self.assertIn("full", done.stdout.split())
        self.assertIn(" -m64 ", next(self.cache.glob("headroom/torch/*/build.log")).read_text())

    def test_eight_processes_at_once_compile_it_once(self):
        program = textwrap.dedent(ENABLE.format(""))
        all_variables = environment(**{**self.variables, "SLOW": "0.3"})
        processes = [subprocess.Popen([sys.executable, "-c", program], cwd=self.folder, text=True,
                                      env=all_variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                     for _ in range(8)]
        outputs = [process.communicate(timeout=120) for process in processes]
        self.assertEqual([process.returncode for process in processes], [0] * 8, outputs)
        for out, _ in outputs:
            self.assertIn("full", out.split())
        self.assertEqual(self.calls(), ["compile"] * 3 + ["link"])

    def test_without_locks_each_compiles_and_all_work(self):
        program = textwrap.dedent("""
            import fcntl
            def lockf(*_):
                raise OSError(37, "No locks available")
            fcntl.lockf = lockf
        """) + textwrap.dedent(ENABLE.format(""))
        processes = [subprocess.Popen([sys.executable, "-c", program], cwd=self.folder, text=True,
                                      env=environment(**{**self.variables, "SLOW": "0.2"}),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                     for _ in range(4)]
        for process in processes:
            out, err = process.communicate(timeout=120)
            self.assertIn("full", out.split(), err)
        self.assertEqual(len(self.made()), 1)

    def test_a_process_that_is_killed_leaves_nothing_in_the_way(self):
        program = textwrap.dedent(ENABLE.format(""))
        process = subprocess.Popen([sys.executable, "-c", program], cwd=self.folder,
                                   env=environment(**{**self.variables, "SLOW": "30"}),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.calls() and process.poll() is None:
            pass
        process.kill()
        process.wait()
        self.assertEqual(self.made(), [])
        self.assertIn("full", self.enable().stdout.split())

    def test_a_cache_that_cannot_be_written_is_told_or_gone_around(self):
        blocked = self.write("blocked", "a file, not a folder")
        done = self.enable(HEADROOM_TORCH_CACHE=str(blocked / "x"))
        self.assertRegex(done.stderr, "cannot be made .*HEADROOM_TORCH_CACHE names another folder")
        temporary = self.folder / "tmp"
        temporary.mkdir()
        done = self.enable(XDG_CACHE_HOME=str(blocked), TMPDIR=str(temporary))
        self.assertIn("full", done.stdout.split())
        private = temporary / f"headroom-torch-{os.getuid()}"
        self.assertEqual(private.stat().st_mode & 0o777, 0o700)
        private.chmod(0o777)
        done = self.enable(XDG_CACHE_HOME=str(blocked), TMPDIR=str(temporary))
        self.assertRegex(done.stderr, "belongs to somebody else")
        self.assertEqual(done.stdout, "plain\n")

    def test_it_is_compiled_ahead_of_time(self):
        done = self.run_python("-m", "headroom.torch", "--compile", "image", **self.variables)
        made = done.stdout.strip()
        self.assertTrue(os.path.isfile(made) and made.startswith(str(self.folder / "image")), made)
        done = self.run_python("-m", "headroom.torch", "--compile", **self.variables)
        self.assertTrue(done.stdout.strip().startswith(str(self.cache)))
        self.assertEqual(self.enable().stderr, "")
        self.write("bin/broken", "")
        self.run_python("-m", "headroom.torch", "--compile", "other", code=1, **self.variables)


if __name__ == "__main__":
    unittest.main()
