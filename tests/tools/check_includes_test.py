"""Plants each kind of violation in a small tree and sees it refused with its reason."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))
import check_includes  # noqa: E402  (found through the line above)

# (file, include line, part of the reason)
REFUSED = [
    ("headroom/base/a.h", '"headroom/device/device.h"', "base knows nothing of GPUs"),
    ("headroom/device/a.cpp", '"headroom/memory/types.h"', "device is below memory"),
    ("headroom/memory/a.cpp", '"headroom/trace/ring.h"', "must work without a tracer"),
    ("headroom/memory/a.cpp", "<headroom/trace/ring.h>", "must work without a tracer"),
    ("headroom/trace/a.cpp", '"headroom/memory/account.h"', "vocabulary only"),
    ("headroom/report/a.cpp", '"headroom/device/types.h"', "where there is no device"),
    ("headroom/solve/a.cpp", '"headroom/memory/types.h"', "solve speaks of buffers"),
    ("headroom/nn/a.cpp", '"headroom/trace/ring.h"', "memory/annotation.h"),
    ("headroom/memory/a.cpp", '"headroom/device/internal/ids.h"', "internal/ headers of device"),
    ("headroom/memory/a.cpp", '"headroom/headroom.h"', "umbrella"),
    ("headroom/memory/a.cpp", '"headroom/nowhere/a.h"', "no module 'nowhere'"),
    ("headroom/device/a.cpp", '"device.h"', "from the repository root"),
    ("headroom/strange/a.h", "<vector>", "give it a row"),
    ("headroom/memory.h", '"headroom/device/internal/ids.h"', "internal/ headers of device"),
    ("cli/devices/devices.cpp", '"headroom/device/internal/ids.h"', "internal/ headers of device"),
    ("bindings/c/headroom.cpp", '"headroom/memory/internal/pool.h"', "internal/ headers of memory"),
    ("examples/hello.cpp", '"headroom/memory/internal/pool.h"', "internal/ headers of memory"),
    ("headroom/report/table.h", "<fmt/core.h>", "a public header includes the standard library"),
    ("headroom/trace/file.h", "<zstd.h>", "a public header includes the standard library"),
    ("headroom/device/cpu/a.h", "<sys/mman.h>", "a public header includes the standard library"),
    ("headroom/device/device.cpp", "<cuda.h>", "CUDA headers stay in"),
    ("headroom/memory/internal/a.h", "<cuda_runtime_api.h>", "CUDA headers stay in"),
    ("cli/main.cpp", "<cublasLt.h>", "CUDA headers stay in"),
    ("headroom/trace/a.cpp", "<sys/syscall.h>", "Linux-only"),
    ("headroom/trace/hrt/a.cpp", '"headroom/trace/pickle/internal/a.h"', "of trace/pickle are its own"),
    ("headroom/trace/file.cpp", '"headroom/trace/hrt/internal/a.h"', "of trace/hrt are its own"),
    ("benchmarks/a.cpp", '"headroom/memory/internal/pool.h"', "internal/ headers of memory"),
    ("benchmarks/a.cpp", "<cuda.h>", "CUDA headers stay in"),
    ("cli/a/a.cpp", '"benchmarks/bench.h"', "works without its benchmarks"),
    ("cli/input/a.cpp", '"benchmarks/bench.h"', "works without its benchmarks"),
    ("cli/plan/plan.cpp", '"cli/tune/tune.h"', "cli/tune/ is that command's own"),
    ("cli/input/a.cpp", '"cli/tune/tune.h"', "cli/tune/ is that command's own"),
    ("cli/main.cpp", '"cli/tune/tune.h"', "cli/tune/ is that command's own"),
    ("benchmarks/claims/a.cpp", '"cli/demo/tour.h"', "cli/demo/ is that command's own"),
    ("bindings/c/headroom.cpp", '"cli/command.h"', "bindings call the library"),
    ("headroom/report/a.cpp", '"cli/command.h"', "know nothing of the command"),
    ("examples/hello.cpp", '"benchmarks/bench.h"', "know nothing of the command"),
]

ALLOWED = [
    ("headroom/device/a.cpp", '"headroom/base/result.h"'),
    ("headroom/device/a.cpp", '"headroom/device/internal/ids.h"'),
    ("headroom/device/cpu/a.cpp", "<linux/memfd.h>"),
    ("headroom/device/cuda/a.cpp", "<cuda.h>"),
    ("headroom/device/device.h", "<vector>"),
    ("headroom/memory.h", '"headroom/memory/allocator.h"'),
    ("headroom/report/a.cpp", "<fmt/core.h>"),
    ("headroom/report/internal/a.h", "<fmt/core.h>"),
    ("headroom/trace/a.cpp", '"headroom/memory/event.h"'),
    ("headroom/trace/hrt/a.cpp", '"headroom/trace/internal/a.h"'),
    ("headroom/trace/hrt/internal/a.cpp", '"headroom/trace/hrt/internal/a.h"'),
    ("benchmarks/a.cpp", '"cli/command.h"'),
    ("benchmarks/torch/a.cpp", "<c10/cuda/CUDACachingAllocator.h>"),
    ("cli/devices/devices.cpp", '"cli/command.h"'),
    ("cli/plan/plan.cpp", '"cli/plan/plan_page.h"'),
    ("cli/plan/plan.cpp", '"cli/input/samples.h"'),
    ("benchmarks/claims/a.cpp", '"cli/output/json_values.h"'),
    ("tests/cli/a_test.cpp", '"cli/plan/plan.h"'),
    ("cli/devices/devices.cpp", "<CLI/CLI.hpp>"),
    ("examples/hello.cpp", '"headroom/headroom.h"'),
    ("tests/device/a_test.cpp", '"headroom/device/internal/ids.h"'),
    ("tests/device/a_test.cpp", "<gtest/gtest.h>"),
]


class CheckIncludes(unittest.TestCase):
    def plant(self, path, include):
        """Makes a tree whose only file is this one, with this include line."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "headroom").mkdir()
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#pragma once\n#include {include}\n")

    def test_refuses_with_the_reason(self):
        for path, include, reason in REFUSED:
            with self.subTest(path=path, include=include):
                self.plant(path, include)
                complaints = check_includes.check(self.root)
                self.assertEqual(len(complaints), 1, complaints)
                self.assertIn(reason, complaints[0])

    def test_allows_what_the_table_allows(self):
        for path, include in ALLOWED:
            with self.subTest(path=path, include=include):
                self.plant(path, include)
                self.assertEqual(check_includes.check(self.root), [])

    def test_refuses_to_guess_which_allocator_it_is(self):
        for line in ["static_cast<CachingAllocator&>(*allocator).configure(text);",
                     "auto* paged = dynamic_cast<const memory::PagedAllocator*>(&allocator);",
                     'if (allocator.policy() == "paged") return;']:
            with self.subTest(line=line):
                self.plant("cli/a.cpp", '"headroom/memory/allocator.h"')
                with (self.root / "cli/a.cpp").open("a") as file:
                    file.write(line + "\n")
                complaints = check_includes.check(self.root)
                self.assertEqual(len(complaints), 1, complaints)
                self.assertIn("cli/a.cpp:3: ", complaints[0])

    def test_a_header_is_listed_or_internal(self):
        self.plant("headroom/base/a.h", "<vector>")
        (self.root / "headroom/CMakeLists.txt").write_text(
            "headroom_add_module(base TIER embed\n  HEADERS b.h internal/d.h)\n")
        complaints = check_includes.check(self.root)
        self.assertEqual(len(complaints), 1, complaints)
        self.assertIn("headroom/base/a.h: is not among the public headers", complaints[0])
        (self.root / "headroom/base/a.h").rename(self.root / "headroom/base/b.h")
        self.assertEqual(check_includes.check(self.root), [])
        (self.root / "headroom/base/internal").mkdir()
        (self.root / "headroom/base/internal/c.h").write_text("#pragma once\n")
        self.assertEqual(check_includes.check(self.root), [])
        (self.root / "headroom/base/internal/d.h").write_text("#pragma once\n")
        complaints = check_includes.check(self.root)
        self.assertEqual(len(complaints), 1, complaints)
        self.assertIn("cannot be both", complaints[0])

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, TOOLS / "check_includes.py", "--root", self.root,
                               *arguments], capture_output=True, text=True, check=False)

    def test_exits_with_1_and_names_the_line(self):
        self.plant("headroom/base/a.h", '"headroom/device/device.h"')
        result = self.run_script()
        self.assertEqual(result.returncode, 1)
        self.assertTrue(result.stdout.startswith("headroom/base/a.h:2: may not include"))

    def test_prints_the_graph(self):
        self.plant("headroom/device/a.cpp", '"headroom/base/result.h"')
        self.assertEqual(self.run_script("--graph").stdout.split(), ["device", "base", "(1)"])
        self.assertIn('"device" -> "base"', self.run_script("--graph=dot").stdout)
        (self.root / "benchmarks").mkdir()
        (self.root / "benchmarks/a.cpp").write_text('#include "cli/command.h"\n')
        (self.root / "bindings").mkdir()
        (self.root / "bindings/a.cpp").write_text('#include "bindings/c/a.h"\n'
                                                  '#include "benchmarks/a.h"\n')
        self.assertEqual(self.run_script("--graph").stdout.splitlines()[1:],
                         ["benchmarks cli (1)", "bindings   benchmarks (1)"])


if __name__ == "__main__":
    unittest.main()
