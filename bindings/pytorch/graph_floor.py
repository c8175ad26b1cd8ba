"""Reserved memory of a program that is compiled with CUDA graphs, beside the least it could be.

    python3 bindings/pytorch/graph_floor.py [--steps 30]

A graph keeps its pool's addresses, so the least is the largest over time of what is live outside of
pools plus the peak so far of each pool that was not released. It is computed from the history that
the program's own allocator kept. Prints a line of JSON for PyTorch's own allocator and one for
headroom's: that floor, and peak reserved over it.
"""

import argparse
import bisect
import json
import subprocess
import sys

SLACK_BYTES = 8 << 20


def floor_of(trace, segments):
    """From the events of one device, and its segments at the end, which say whose pool is where."""
    starts = sorted((s["address"], s["address"] + s["total_size"], tuple(s["segment_pool_id"]))
                    for s in segments)
    keys = [start for start, _, _ in starts]

    def pool_of(address):
        at = bisect.bisect_right(keys, address) - 1
        if at >= 0 and address < starts[at][1]:
            return starts[at][2]
        return (0, 0)

    live, of_pool, peaks = {}, {}, {}
    outside = floor = 0
    for event in trace:
        if event["action"] == "alloc":
            size = -(-event["size"] // 512) * 512
            pool = pool_of(event["addr"])
            live[event["addr"]] = (pool, size)
            if pool == (0, 0):
                outside += size
            else:
                of_pool[pool] = of_pool.get(pool, 0) + size
                peaks[pool] = max(peaks.get(pool, 0), of_pool[pool])
            floor = max(floor, outside + sum(peaks.values()))
        elif event["action"] == "free_completed" and event["addr"] in live:
            pool, size = live.pop(event["addr"])
            if pool == (0, 0):
                outside -= size
            else:
                of_pool[pool] -= size
    return floor


def child(route, steps, dump):
    import torch

    if route == "headroom":
        import native

        native.enable()
    torch.manual_seed(5)
    torch.cuda.memory._record_memory_history(context=None, max_entries=5_000_000)
    layers = []
    for _ in range(6):
        layers += [torch.nn.Linear(1536, 3072), torch.nn.GELU(), torch.nn.Linear(3072, 1536),
                   torch.nn.LayerNorm(1536)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    compiled = torch.compile(lambda x: model(x).square().mean(), mode="reduce-overhead",
                             dynamic=False)
    losses = []
    for step in range(steps):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn((2048, 4096)[step // 5 % 2], 1536, device="cuda")
        loss = compiled(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    snapshot = torch.cuda.memory._snapshot()
    stats = torch.cuda.memory_stats()
    if dump:
        torch.cuda.memory._dump_snapshot(f"{dump}.{route}.pickle")
    floor = floor_of(snapshot["device_traces"][0], snapshot["segments"])
    reserved = stats["reserved_bytes.all.peak"]
    print(json.dumps({"route": route, "floor": floor, "reserved_peak": reserved,
                      "reserved_over_floor": reserved / floor,
                      "beyond_slack": (reserved - SLACK_BYTES) / floor,
                      "pools": len({tuple(s["segment_pool_id"]) for s in snapshot["segments"]}) - 1,
                      "last_loss": losses[-1]}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--dump", metavar="FILE", help="snapshots: FILE.native.pickle and the other")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.steps, options.dump)
        return 0
    import native

    native.load()
    given = ["--steps", str(options.steps), *(["--dump", options.dump] if options.dump else [])]
    running = [subprocess.Popen([sys.executable, __file__, "--child", route, *given])
               for route in ("native", "headroom")]
    return max(process.wait() for process in running)


if __name__ == "__main__":
    sys.exit(main())
