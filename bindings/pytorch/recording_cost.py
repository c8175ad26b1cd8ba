"""What a history with Python stacks costs per allocation, on PyTorch's own allocator and headroom's.

    python3 bindings/pytorch/recording_cost.py [--rounds 5]

Runs both in processes of their own that take turns: blocks of several sizes are taken and given
back, without a history and with one. Prints one line of JSON: nanoseconds of an allocation and its
free, the median of the rounds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

SIZES = (4_000, 60_000, 700_000, 5_000_000, 40_000_000)


def take_and_give(torch, count):
    for i in range(count):
        torch.empty(SIZES[i % len(SIZES)], dtype=torch.uint8, device="cuda")


def deep(levels, torch, count):
    """From the depth at which programs allocate."""
    if levels:
        return deep(levels - 1, torch, count)
    begin = time.perf_counter()
    take_and_give(torch, count)
    return (time.perf_counter() - begin) / count * 1e9


def child(route, count):
    import torch

    module = None
    if route == "headroom":
        import native

        module = native.enable()
    deep(20, torch, 2000)
    record = torch.cuda.memory._record_memory_history
    kinds = {"plain": None, "alloc": "alloc", "all": "all"}
    for line in sys.stdin:
        kind = line.strip()
        if kinds.get(kind):
            record(context=kinds[kind], stacks="python", max_entries=100_000, clear_history=True)
        elif kind == "own":
            if not hasattr(module, "record_start"):
                print(json.dumps(None), flush=True)
                continue
            module.record_start(0, f"/tmp/headroom-cost-{time.time_ns()}.hrt", 1 << 28, True)
        deep(20, torch, 500)
        print(json.dumps(deep(20, torch, count)), flush=True)
        if kind == "own":
            module.record_stop(0)
        elif kind != "plain":
            record(enabled=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.count)
        return
    routes = ("native", "headroom")
    processes = {route: subprocess.Popen(
        [sys.executable, __file__, "--child", route, "--count", str(options.count)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE) for route in routes}
    results = {}
    for _ in range(options.rounds):
        for kind in ("plain", "alloc", "all", "own"):
            for route in routes:
                if kind == "own" and route == "native":
                    continue
                process = processes[route]
                print(kind, file=process.stdin, flush=True)
                value = json.loads(process.stdout.readline())
                if value is not None:
                    results.setdefault(f"{route} {kind}", []).append(value)
    for process in processes.values():
        process.stdin.close()
        process.wait()
    print(json.dumps({name: round(statistics.median(values)) for name, values in results.items()}))


if __name__ == "__main__":
    main()
