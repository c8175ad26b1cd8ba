"""Recordings with Python stacks, on the cpu device: what a Python of the build's walks and keeps.

HEADROOM_TEST_STACKS names the module (stacks_module.cpp); without it, where the headers of Python are
missing, there is nothing to test.
"""

import os
import pickle
import subprocess
import textwrap
import unittest
from pathlib import Path

from support import Programs

MODULE = os.environ.get("HEADROOM_TEST_STACKS", "")
COMMAND = Path(os.environ["HEADROOM_TEST_BUILD"]) / "headroom"
BEFORE = "import sys\nsys.path.insert(0, {!r})\nimport headroom_stacks_test as h\n"


@unittest.skipUnless(MODULE, "the headers of Python are missing here")
class Stacks(Programs):
    def run_program(self, text, code=0):
        program = self.write("program.py", BEFORE.format(str(Path(MODULE).parent))
                             + textwrap.dedent(text))
        return self.run_python(program, code=code, HEADROOM_CPU_CAPACITY="256MiB")

    def record(self, text):
        """What the program's run.hrt says, as PyTorch's snapshots have it."""
        self.run_program(text)
        return self.read("run.hrt")

    def read(self, name):
        target = self.folder / (name + ".pickle")
        subprocess.run([COMMAND, "convert", "-f", self.folder / name, target], check=True,
                       capture_output=True, timeout=120)
        with open(target, "rb") as file:
            return pickle.load(file)

    def stacks(self, snapshot, action="alloc", size=None):
        return [[(frame["name"], Path(frame["filename"]).name, frame["line"])
                 for frame in entry.get("frames", [])]
                for entry in snapshot["device_traces"][0]
                if entry["action"] == action and size in (None, entry["size"])]

    def line_of(self, text):
        lines = (self.folder / "program.py").read_text().splitlines()
        return 1 + next(i for i, line in enumerate(lines) if text in line)

    def test_an_allocation_has_the_lines_that_made_it(self):
        snapshot = self.record("""
            def layer(take):
                return take(3000)     # here

            def model():
                return [layer(h.take),
                        layer(h.take_with_gil)]

            h.start("run.hrt", 1 << 20, True)
            for block in model(): h.give(block)
            h.stop()
        """)
        here, outer = self.line_of("# here"), self.line_of("[layer(h.take)")
        self.assertEqual(self.stacks(snapshot), [
            [("layer", "program.py", here), ("model", "program.py", outer + i),
             ("<module>", "program.py", self.line_of("for block"))] for i in range(2)])
        self.assertEqual(self.stacks(snapshot, "free_requested"), [[], []])

    def test_a_recording_without_stacks_and_one_without_an_end(self):
        snapshot = self.record("""
            h.start("run.hrt", 1 << 20, False)
            h.give(h.take(3000))
            h.stop()
            h.start("end.hrt", 1 << 20, True)
            h.give(h.take(3000))
        """)
        self.assertEqual(self.stacks(snapshot), [[]])
        self.assertEqual(len(self.stacks(self.read("end.hrt"))[0]), 1)

    def test_a_program_that_is_killed_leaves_what_it_recorded(self):
        self.run_program("""
            import os, signal, time
            h.start("run.hrt", 1 << 20, True)
            block = h.take(3000)
            time.sleep(1)
            os.kill(os.getpid(), signal.SIGKILL)
        """, code=-9)
        self.assertEqual(self.stacks(self.read("run.hrt"))[0][0][0], "<module>")

    def test_code_that_comes_and_goes_keeps_its_own_lines(self):
        # Code objects that die would be at each other's addresses.
        snapshot = self.record("""
            import gc
            h.start("run.hrt", 1 << 24, True)
            for i in range(3000):
                scope = {"h": h}
                exec(compile("\\n" * i + f"def f{i}(): h.give(h.take(3000 + {i}))", "made.py", "exec"),
                     scope)
                scope[f"f{i}"]()
                del scope
                if i % 100 == 0: gc.collect()
            h.stop()
        """)
        for i, stack in enumerate(self.stacks(snapshot)):
            self.assertEqual(stack[0], (f"f{i}", "made.py", i + 1))

    def test_deep_and_recursive_stacks(self):
        snapshot = self.record("""
            def deep(levels):
                return deep(levels - 1) if levels else h.take(3000)

            sys.setrecursionlimit(5000)
            h.start("run.hrt", 1 << 20, True)
            for levels in (0, 255, 256, 3000): h.give(deep(levels))
            h.stop()
        """)
        self.assertEqual([len(stack) for stack in self.stacks(snapshot)], [2, 256, 256, 256])

    def test_threads_of_python_and_others(self):
        snapshot = self.record("""
            import threading
            def work(n):
                for i in range(300): h.give(h.take(5000 + n))

            h.start("run.hrt", 1 << 24, True)
            threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
            for thread in threads: thread.start()
            h.take_on_other_threads(4)
            for thread in threads: thread.join()
            h.stop()
        """)
        self.assertEqual(self.stacks(snapshot, size=3000), [[]] * 400)
        for n in range(4):
            stacks = self.stacks(snapshot, size=5000 + n)
            self.assertEqual(len(stacks), 300)
            self.assertTrue(all(stack[0][0] == "work" for stack in stacks))

    def test_threads_that_allocate_while_python_ends(self):
        for _ in range(5):
            self.run_program("""
                import threading, time
                def work():
                    while True: h.give(h.take(5000))

                h.start("run.hrt", 1 << 24, True)
                for _ in range(4): threading.Thread(target=work, daemon=True).start()
                time.sleep(0.2)
            """)
            done = subprocess.run([COMMAND, "info", self.folder / "run.hrt"], check=True, text=True,
                                  capture_output=True, timeout=120)
            self.assertRegex(done.stdout, "from an empty device; with stacks")
            (self.folder / "run.hrt").unlink()

    def test_an_error_on_its_way_stays(self):
        self.run_program("""
            class Holder:
                def __del__(self): h.give(h.take(3000))

            h.start("run.hrt", 1 << 20, True)
            def fail():
                holder = Holder()
                raise KeyError("mine")
            try:
                fail()
            except KeyError as error:
                assert str(error) == "'mine'"
            h.stop()
        """)

    def test_the_child_of_a_fork_leaves_the_file_alone(self):
        snapshot = self.record("""
            import os
            h.start("run.hrt", 1 << 20, True)
            block = h.take(3000)
            child = os.fork()
            if child == 0:
                assert h.take(7000) == 0
                try: h.start("child.hrt", 1 << 20, True)
                except RuntimeError as error: assert "fork" in str(error), error
                else: os._exit(3)
                h.stop()
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            h.give(block)
            h.stop()
        """)
        self.assertEqual(len(self.stacks(snapshot)), 1)
        self.assertEqual(len(self.stacks(snapshot, "free_completed")), 1)
        self.assertFalse((self.folder / "child.hrt").exists())

    def test_the_packages_record_starts_and_stops_it(self):
        self.run_program("""
            import os, headroom.torch as ht
            from headroom.torch import _enable

            class Route:
                def record_start(self, device, path, max_bytes, stacks):
                    assert device == 0
                    h.start(path, max_bytes, stacks)
                def record_stop(self, device): h.stop()

            _enable._active = Route()
            recording = ht.record("first.hrt", max_bytes="2MiB")
            h.give(h.take(3000))
            recording.stop()
            recording.stop()
            try:
                with ht.record("run-%p.hrt", python_stacks=False) as recording:
                    assert recording.path == f"run-{os.getpid()}.hrt"
                    h.give(h.take(3000))
                    raise KeyError
            except KeyError:
                os.rename(recording.path, "second.hrt")
            for path, max_bytes, text in (("a.pickle", "1GiB", "must end in .hrt"),
                                          ("a.hrt", "1023KiB", "at least 1MiB"),
                                          ("a.hrt", "1GB", "did you mean")):
                try: ht.record(path, max_bytes=max_bytes)
                except ValueError as error: assert text in str(error), error
                else: raise AssertionError(path)
            with ht.record("third.hrt"): h.give(h.take(3000))
        """)
        lengths = [len(self.stacks(self.read(f"{name}.hrt"))[0])
                   for name in ("first", "second", "third")]
        self.assertEqual(lengths, [1, 0, 1])
        for command in ("doctor", "info", "replay"):
            done = subprocess.run([COMMAND, command, self.folder / "third.hrt"], text=True, timeout=120,
                                  capture_output=True, check=False)
            self.assertIn(done.returncode, (0, 3), done.stderr)

    def test_errors(self):
        self.run_program("""
            def says(text, *arguments):
                try: h.start(*arguments)
                except RuntimeError as error: assert text in str(error), error
                else: raise AssertionError(arguments)

            h.start("run.hrt", 1 << 20, True)
            says("is being recorded already, into run.hrt", "other.hrt", 1 << 20, True)
            h.stop()
            h.stop()
            says("run.hrt exists: remove it, or put %p", "run.hrt", 1 << 20, True)
            says("cannot create no/such/run.hrt", "no/such/run.hrt", 1 << 20, True)
            says("at least 1 MiB", "small.hrt", 1000, True)
        """)


if __name__ == "__main__":
    unittest.main()
