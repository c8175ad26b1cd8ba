"""record_stream under PyTorch: does a block wait for the stream that still reads it?

    python3 tests/bindings/record_stream_program.py build/libheadroom_torch.so [--rounds 1000]

A round fills a block on one stream, copies it on a second stream behind a delay, says so with
record_stream, frees it, and fills a block of the same size, which may be the same memory, with
another value. A copy that is not what the block was filled with is wrong. Sizes alternate.

Prints a line of JSON per mode, each a process of its own: `native` (PyTorch's allocator), `plugged`
(headroom_torch.install), `plugged_unregistered` (the library without its record_stream), and
`native_without_record_stream`, which shows that the program finds what it looks for. Exits 1 when
one of the first three has a wrong copy, or the last has none.
"""

import argparse
import json
import os
import subprocess
import sys
import time

MODES = ("native", "plugged", "plugged_unregistered", "native_without_record_stream")
SIZES = (4 << 10, 1 << 20, 24 << 20)
DELAY_CYCLES = 2_000_000  # about a millisecond: the second fill is long done


def plug_in(torch, library, is_registered):
    if is_registered:
        repository = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        sys.path.insert(0, os.path.join(repository, "bindings", "pytorch"))
        import headroom_torch

        headroom_torch.install(library)
        return
    torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(
        library, "headroom_torch_malloc", "headroom_torch_free"))


def run_mode(mode, library, rounds):
    import torch

    if mode.startswith("plugged"):
        plug_in(torch, library, mode == "plugged")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.zeros(1, device="cuda")  # so that the plug-in has seen the stream
    torch.cuda.synchronize()
    start = time.perf_counter()
    wrong = reused = 0
    for i in range(rounds):
        elements = SIZES[i % len(SIZES)] // 4
        block = torch.full((elements,), i, dtype=torch.int32, device="cuda")
        address = block.data_ptr()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(DELAY_CYCLES)
            copy = block.clone()
        if mode != "native_without_record_stream":
            block.record_stream(side)
        del block
        following = torch.full((elements,), -1, dtype=torch.int32, device="cuda")
        reused += following.data_ptr() == address
        torch.cuda.synchronize()
        wrong += not bool((copy == i).all())
        del copy, following
    print(json.dumps({"mode": mode, "wrong": wrong, "of": rounds, "same_address": reused,
                      "seconds": round(time.perf_counter() - start, 2)}), flush=True)
    has_failed = (wrong == 0) if mode == "native_without_record_stream" else (wrong > 0)
    sys.exit(1 if has_failed else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("library")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_mode(options.mode[0], options.library, options.rounds)
    library = os.path.abspath(options.library)
    if not os.path.isfile(library):
        parser.error(f"{options.library}: there is no such file; build the target headroom_pytorch")
    codes = [subprocess.run([sys.executable, __file__, library, "--child", "--mode", mode,
                             "--rounds", str(options.rounds)], check=False).returncode
             for mode in options.mode or MODES]
    sys.exit(1 if any(codes) else 0)


if __name__ == "__main__":
    main()
