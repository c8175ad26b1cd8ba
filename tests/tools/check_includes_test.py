"""Plants each kind of violation in a small tree and sees it refused with its reason."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check_includes.py"

# (file, include line, part of the reason)
REFUSED = [
    ("headroom/base/a.h", '"headroom/device/device.h"', "base knows nothing of GPUs"),
    ("headroom/device/a.cpp", '"headroom/memory/types.h"', "device is below memory"),
    ("headroom/memory/a.cpp", '"headroom/trace/ring.h"', "must work without a tracer"),
    ("headroom/memory/a.cpp", "<headroom/trace/ring.h>", "must work without a tracer"),
    ("headroom/trace/a.cpp", '"headroom/memory/allocator.h"', "vocabulary only"),
    ("headroom/report/a.cpp", '"headroom/device/types.h"', "where there is no device"),
    ("headroom/solve/a.cpp", '"headroom/memory/types.h"', "solve speaks of buffers"),
    ("headroom/nn/a.cpp", '"headroom/trace/ring.h"', "memory/annotation.h"),
    ("headroom/memory/a.cpp", '"headroom/device/internal/ids.h"', "internal/ headers of device"),
    ("headroom/memory/a.cpp", '"headroom/headroom.h"', "umbrella"),
    ("headroom/memory/a.cpp", '"headroom/nowhere/a.h"', "no module 'nowhere'"),
    ("headroom/device/a.cpp", '"device.h"', "from the repository root"),
    ("headroom/strange/a.h", "<vector>", "give it a row"),
    ("headroom/memory.h", '"headroom/device/internal/ids.h"', "internal/ headers of device"),
    ("cli/devices.cpp", '"headroom/device/internal/ids.h"', "internal/ headers of device"),
    ("bindings/c/headroom.cpp", '"headroom/memory/internal/pool.h"', "internal/ headers of memory"),
    ("examples/hello.cpp", '"headroom/memory/internal/pool.h"', "internal/ headers of memory"),
    ("headroom/report/table.h", "<fmt/core.h>", "a public header includes the standard library"),
    ("headroom/trace/file.h", "<zstd.h>", "a public header includes the standard library"),
    ("headroom/device/cpu/a.h", "<sys/mman.h>", "a public header includes the standard library"),
    ("headroom/device/device.cpp", "<cuda.h>", "CUDA headers stay in"),
    ("headroom/memory/internal/a.h", "<cuda_runtime_api.h>", "CUDA headers stay in"),
    ("cli/main.cpp", "<cublasLt.h>", "CUDA headers stay in"),
    ("headroom/trace/a.cpp", "<sys/syscall.h>", "Linux-only"),
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
    ("cli/devices.cpp", '"cli/command.h"'),
    ("cli/devices.cpp", "<CLI/CLI.hpp>"),
    ("examples/hello.cpp", '"headroom/headroom.h"'),
    ("tests/device/a_test.cpp", '"headroom/device/internal/ids.h"'),
    ("tests/device/a_test.cpp", "<gtest/gtest.h>"),
]


def run(path, include, *arguments):
    with tempfile.TemporaryDirectory() as root:
        (pathlib.Path(root) / "headroom").mkdir()
        file = pathlib.Path(root) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#pragma once\n#include {include}\n")
        return subprocess.run([sys.executable, SCRIPT, "--root", root, *arguments],
                              capture_output=True, text=True, check=False)


class CheckIncludes(unittest.TestCase):
    def test_refuses_with_the_reason(self):
        for path, include, reason in REFUSED:
            with self.subTest(path=path, include=include):
                result = run(path, include)
                self.assertEqual(result.returncode, 1)
                self.assertEqual(len(result.stdout.splitlines()), 1, result.stdout)
                self.assertIn(reason, result.stdout)

    def test_allows_what_the_table_allows(self):
        for path, include in ALLOWED:
            with self.subTest(path=path, include=include):
                result = run(path, include)
                self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_prints_the_graph(self):
        arguments = ("headroom/device/a.cpp", '"headroom/base/result.h"')
        self.assertEqual(run(*arguments, "--graph").stdout.split(), ["device", "base", "(1)"])
        self.assertIn('"device" -> "base"', run(*arguments, "--graph=dot").stdout)


if __name__ == "__main__":
    unittest.main()
