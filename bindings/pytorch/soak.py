"""Serving and training by turns on headroom's full route, for minutes: does anything grow or break?

    python3 bindings/pytorch/soak.py [--seconds 300]

Four threads on three streams: two serve requests of every length with a cache that grows token by
token, one trains, one moves data between the streams and looks at every byte. Prints a line of JSON
every tenth of the time, and at the end whether reserved memory or the process grew in the second
half, whether a byte was wrong, and how far reserved was above active.
"""

import argparse
import json
import os
import random
import sys
import threading
import time

MB = 1 << 20


class Soak:
    def __init__(self, torch, seconds):
        self.torch, self.end = torch, time.monotonic() + seconds
        self.errors, self.counts = [], {"served": 0, "trained": 0, "moved": 0}
        self.streams = [torch.cuda.Stream() for _ in range(3)]

    def run(self, work, seed, stream):
        torch, rng = self.torch, random.Random(seed)
        try:
            with torch.cuda.stream(stream):
                turn = work(rng)
                while time.monotonic() < self.end and not self.errors:
                    turn()
        except Exception as error:
            self.errors.append(f"{work.__name__}: {type(error).__name__}: {error}"[:500])

    def serve(self, rng):
        torch = self.torch
        weights = torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) / 32

        @torch.inference_mode()
        def turn():
            batch, tokens = rng.choice((1, 2, 4, 8)), rng.randint(16, 3000)
            cache = torch.randn(batch, tokens, 1024, device="cuda", dtype=torch.bfloat16)
            mark = float(cache[0, 0, 0])
            for _ in range(rng.randint(4, 24)):
                new = (cache[:, -1:] @ weights).tanh()
                cache = torch.cat([cache, new], 1)
            if float(cache[0, 0, 0]) != mark:
                self.errors.append("a cache lost its first value")
            self.counts["served"] += 1

        return turn

    def train(self, rng):
        torch = self.torch
        layers = [torch.nn.Linear(1024, 1024) for _ in range(8)]
        model = torch.nn.Sequential(*layers).cuda()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

        def turn():
            x = torch.randn(rng.randint(32, 4096), 1024, device="cuda")
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            self.counts["trained"] += 1

        return turn

    def move(self, rng):
        torch, other = self.torch, self.streams[0]

        def turn():
            value = rng.randrange(1 << 30)
            block = torch.full((rng.randint(1, 4 * MB),), value, dtype=torch.int32, device="cuda")
            other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                low, high = block.min(), block.max()
            torch.cuda.current_stream().wait_stream(other)
            block.record_stream(other)
            for one in (low, high):
                one.record_stream(torch.cuda.current_stream())
            del block
            scrap = torch.full((rng.randint(1, 4 * MB),), -1, dtype=torch.int32, device="cuda")
            del scrap
            if int(low) != value or int(high) != value:
                self.errors.append("a block was overwritten while another stream read it")
            self.counts["moved"] += 1

        return turn


def resident_bytes():
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def wrongs(result, last):
    """What is not as promised; PyTorch's own allocator promises less."""
    wrong = []
    if result["reserved_grew"] > 1.05 * max(result["active_grew"], 1):
        wrong.append("reserved grew more than what was in use")
    if result["resident_grew_bytes"] > 64 * MB:
        wrong.append("the process grew")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--native", action="store_true", help="on PyTorch's own allocator")
    options = parser.parse_args()
    import torch

    if not options.native:
        import native

        native.enable()
    soak = Soak(torch, options.seconds)
    works = [(soak.serve, 0), (soak.serve, 1), (soak.train, 2), (soak.move, 2)]
    threads = [threading.Thread(target=soak.run, args=(work, seed, soak.streams[stream]))
               for seed, (work, stream) in enumerate(works)]
    for thread in threads:
        thread.start()
    tenths = []
    while any(thread.is_alive() for thread in threads):
        time.sleep(options.seconds / 10)
        stats = torch.cuda.memory_stats()
        tenths.append({"reserved": stats["reserved_bytes.all.current"],
                       "active_peak": stats["active_bytes.all.peak"],
                       "reserved_peak": stats["reserved_bytes.all.peak"],
                       "allocations": stats["allocation.all.allocated"],
                       "resident": resident_bytes(), **soak.counts})
        print(json.dumps(tenths[-1]), flush=True)
    for thread in threads:
        thread.join()
    first, last = tenths[len(tenths) // 2], tenths[-1]
    result = {"errors": soak.errors,
              "reserved_over_active": last["reserved_peak"] / last["active_peak"],
              "reserved_grew": last["reserved_peak"] / first["reserved_peak"],
              "active_grew": last["active_peak"] / first["active_peak"],
              "resident_grew_bytes": last["resident"] - first["resident"], **soak.counts}
    result["wrong"] = soak.errors + wrongs(result, last)
    print(json.dumps(result), flush=True)
    return 3 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
