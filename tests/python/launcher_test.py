"""python -m headroom, python -m headroom.torch, and HEADROOM_TORCH=1 through headroom.pth."""

import json
import os
import unittest

from support import PACKAGE, REPOSITORY, TESTS, Programs

ASK = """
    import sys, torch, headroom.torch
    print(headroom.torch.route(), __name__, sys.argv[1:])
"""
SPAWN = """
    import multiprocessing, sys

    def child(queue):
        import torch
        sys_modules = [name for name in sys.modules if name == "headroom.torch._enable"]
        routes = [sys.modules[name].active() for name in sys_modules]
        queue.put([route and route.name for route in routes])

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=child, args=(queue,))
        process.start()
        print(queue.get(timeout=60))
        process.join()
        sys.exit(process.exitcode)
"""
# What Python does for a folder of installed packages.
AS_INSTALLED = f"import site; site.addsitedir({str(PACKAGE)!r})"


class Command(Programs):
    def test_the_command_runs_with_its_arguments_and_its_exit_code(self):
        done = self.run_python("-m", "headroom", "--version")
        self.assertEqual(done.stdout.split(), ["headroom", os.environ["HEADROOM_TEST_VERSION"]])
        sample = REPOSITORY / "samples" / "leak_loss.pickle.zst"
        done = self.run_python("-m", "headroom", "doctor", sample, code=3)
        self.assertIn("leak", done.stdout)
        self.assertEqual(self.run_python("-m", "headroom", "nosuch", code=2).stdout, "")

    def test_hints_name_it_as_it_was_called(self):
        sample = REPOSITORY / "samples" / "leak_loss.pickle.zst"
        done = self.run_python("-m", "headroom", "info", sample)
        self.assertIn("python -m headroom ", done.stdout + done.stderr)

    def test_the_version_is_the_librarys(self):
        self.assertEqual(self.run_code("import headroom; print(headroom.__version__)"),
                         [os.environ["HEADROOM_TEST_VERSION"]])


class Launcher(Programs):
    def launch(self, *arguments, code=0, **variables):
        return self.run_python("-m", "headroom.torch", *arguments, code=code, **variables)

    def test_a_script_is_run_as_python_runs_it(self):
        self.write("beside.py", "x = 1")
        script = self.write("script.py", """
            import beside, json, os, sys
            names = sorted(name for name in globals() if not name.startswith("__"))
            print(json.dumps([__name__, __file__, sys.argv, sys.path[0], names,
                              sys.modules["__main__"].__dict__ is globals()]))
        """)
        theirs = json.loads(self.run_python(script, "-x", "--limit", "y").stdout)
        ours = json.loads(self.launch(script, "-x", "--limit", "y").stdout)
        self.assertEqual(ours, theirs)

    def test_a_module_is_run_as_python_runs_it(self):
        self.write("package/__init__.py", "")
        self.write("package/tool.py", """
            import json, sys
            names = sorted(name for name in globals() if not name.startswith("__"))
            print(json.dumps([__name__, __file__, __package__, __spec__.name, sys.argv, names]))
        """)
        theirs = json.loads(self.run_python("-m", "package.tool", "-m", "a").stdout)
        for spelling in (["-m", "package.tool"], ["-mpackage.tool"]):
            self.assertEqual(json.loads(self.launch(*spelling, "-m", "a").stdout), theirs)

    def test_a_folder_with_a_main_is_run(self):
        self.write("program/__main__.py", ASK)
        self.assertEqual(self.launch("program", "a").stdout, "plain __main__ ['a']\n")

    def test_pytorch_is_on_headroom_in_the_script(self):
        script = self.write("script.py", ASK)
        self.assertEqual(self.launch(script, "a", "-m").stdout, "plain __main__ ['a', '-m']\n")

    def test_options_become_settings(self):
        script = self.write("script.py", """
            import os, torch, headroom.torch
            block = torch.empty(512)
            print(headroom.torch.account()["limit_bytes"], headroom.torch.route(),
                  os.environ["HEADROOM_TORCH"], os.environ["HEADROOM_LIMIT"])
        """)
        done = self.launch("--limit", "64MiB", "--route=plain", "--conf", "page_mb:4", script,
                           HEADROOM_TORCH_ROUTE=None)
        self.assertEqual(done.stdout, f"{64 << 20} plain 1 64MiB\n")

    def test_the_exit_code_is_the_scripts(self):
        for text, code in (("import sys; sys.exit(7)", 7), ("raise SystemExit", 0),
                           ("raise KeyError('x')", 1)):
            self.launch(self.write("script.py", text), code=code)

    def test_a_traceback_shows_the_script(self):
        script = self.write("script.py", "def f():\n    raise KeyError('gone')\nf()\n")
        self.assertRegex(self.launch(script, code=1).stderr, r'script.py", line 2, in f')

    def test_threads_and_exit_handlers_of_the_script_find_their_names(self):
        script = self.write("script.py", """
            import atexit, threading, time
            word = "found"
            atexit.register(lambda: print(word))
            threading.Thread(target=lambda: (time.sleep(0.2), print(word))).start()
        """)
        self.assertEqual(self.launch(script).stdout, "found\nfound\n")

    def test_what_is_wrong_is_said_in_a_line(self):
        script = self.write("script.py", "print('ran')")
        for arguments, code, pattern, variables in (
                ([], 2, "which program", {}),
                (["no_such.py"], 2, "there is no 'no_such.py'", {}),
                (["--limit", "20GB", script], 2, "did you mean 20GiB", {}),
                (["--route", "fast", script], 2, "invalid choice", {}),
                ([script], 1, "^headroom: CUDA has started", {"FAKE_TORCH": '{"started": true}'}),
                ([script], 1, "^headroom: PyTorch is missing", {"PYTHONPATH": str(PACKAGE)}),
                (["--record", "a.txt", script], 1, r"^headroom: record: 'a.txt' must end", {})):
            with self.subTest(pattern):
                done = self.launch(*arguments, code=code, **variables)
                self.assertEqual(done.stdout, "")
                self.assertRegex(done.stderr, pattern)


class Startup(Programs):
    def test_without_the_variable_it_costs_an_import_of_nothing(self):
        for value in (None, "", "0"):
            lines = self.run_code(AS_INSTALLED + """
import sys
print(sorted(n for n in sys.modules if n.startswith(("headroom", "torch", "importlib.util"))))
print([type(f).__name__ for f in sys.meta_path if "Torch" in type(f).__name__])
""", HEADROOM_TORCH=value, PYTHONPATH=str(TESTS / "fake"))
            self.assertNotIn("headroom", lines[0])
            self.assertNotIn("torch", lines[0])
            self.assertEqual(lines[1], "[]")

    def test_the_file_is_one_line_that_python_executes(self):
        text = (PACKAGE / "headroom.pth").read_text(encoding="utf-8")
        self.assertEqual(text.count("\n"), 1)
        self.assertTrue(text.startswith("import os;"))

    def test_pytorch_is_imported_when_the_program_does_and_not_before(self):
        lines = self.run_code(AS_INSTALLED + """
import sys
print("torch" in sys.modules)
import json, torch
import headroom.torch
print(headroom.torch.route(), torch.__name__, type(torch.__loader__).__name__)
print([type(f).__name__ for f in sys.meta_path if "Torch" in type(f).__name__])
import torch.cuda.memory
""", HEADROOM_TORCH="1", PYTHONPATH=str(TESTS / "fake"))
        self.assertEqual(lines, ["False", "plain torch SourceFileLoader", "[]"])

    def test_a_program_without_pytorch_is_as_it_was(self):
        done = self.run_python("-c", AS_INSTALLED + """
try:
    import torch
except ModuleNotFoundError as error:
    print(error)
import importlib.util
print(importlib.util.find_spec("torch"))
""", HEADROOM_TORCH="1", PYTHONPATH=str(PACKAGE))
        self.assertEqual(done.stdout, "No module named 'torch'\nNone\n")
        self.assertEqual(done.stderr, "")

    def test_asking_where_pytorch_is_imports_nothing(self):
        lines = self.run_code(AS_INSTALLED + """
import importlib.util, sys
spec = importlib.util.find_spec("torch")
print(spec.name, "torch" in sys.modules)
import torch, headroom.torch
print(headroom.torch.route())
""", HEADROOM_TORCH="1", PYTHONPATH=str(TESTS / "fake"))
        self.assertEqual(lines, ["torch False", "plain"])

    def test_where_it_cannot_be_enabled_pytorch_keeps_its_own(self):
        done = self.run_python("-c", AS_INSTALLED + "\nimport torch; print(torch.__version__)",
                               HEADROOM_TORCH="1", FAKE_TORCH='{"cuda": null}')
        self.assertEqual(done.stdout, "2.11.0+fake\n")
        self.assertRegex(done.stderr, "^headroom: PyTorch keeps its own allocator: .*without CUDA")
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_where_it_is_required_the_import_fails(self):
        done = self.run_python("-c", AS_INSTALLED + "\nimport torch", code=1,
                               HEADROOM_TORCH="require", FAKE_TORCH='{"cuda": null}')
        self.assertIn("EnableError", done.stderr)

    def test_an_import_that_fails_is_tried_again(self):
        lines = self.run_code(AS_INSTALLED + """
import os
try:
    import torch
except ImportError:
    os.environ["FAKE_TORCH"] = "{}"
import torch, headroom.torch
print(headroom.torch.route())
""", HEADROOM_TORCH="1", FAKE_TORCH='{"fails": true}')
        self.assertEqual(lines, ["plain"])

    def test_a_program_that_enables_it_itself_may(self):
        done = self.run_python("-c", AS_INSTALLED + """
import headroom.torch
print(headroom.torch.enable(limit="64MiB"))
import torch
torch.empty(512)
print(headroom.torch.account()["limit_bytes"] >> 20)
""", HEADROOM_TORCH="1")
        self.assertEqual(done.stdout, "plain\n64\n")
        self.assertEqual(done.stderr, "")

    def test_spawned_children_are_on_headroom_too(self):
        """By a folder that Python takes for one of installed packages, as the child does too."""
        folder = self.folder / "user" / "lib"
        script = self.write("spawn.py", SPAWN)
        self.write("user/sitecustomize.py", AS_INSTALLED)
        path = os.pathsep.join([str(folder.parent), str(TESTS / "fake")])
        done = self.run_python(script, HEADROOM_TORCH="1", PYTHONPATH=path)
        self.assertEqual(done.stdout, "['plain']\n")
        done = self.run_python(script, PYTHONPATH=path)
        self.assertEqual(done.stdout, "[]\n")
        done = self.run_python("-m", "headroom.torch", script, PYTHONPATH=path)
        self.assertEqual(done.stdout, "['plain']\n")


if __name__ == "__main__":
    unittest.main()
