"""PyTorch on headroom's allocator beside PyTorch on its own.

    python3 bindings/pytorch/compare.py build/libheadroom_torch.so [--rounds 3]

Runs two ragged workloads (a GPT-2 with sequences of random length under bf16 autocast, a GraphSAGE
on random subgraphs) in processes of their own, native and plugged in by turns, then once more
plugged in under a limit of 1.02 times the peak of active bytes. Prints a line of JSON for each: how
far apart the losses are, the step time over native's (median of the medians of the runs, which are
listed too: where they differ much, take more rounds), and peak reserved over peak active. All runs
are on the same few processors. Models have random weights; nothing is downloaded.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time


def gpt2_varlen(torch, rng):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(use_cache=False)).to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model.train()

    def step():
        length = rng.choice(range(64, 1025))
        tokens = torch.randint(0, 50257, (8, length), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, 24


def gnn_sampled(torch, rng):
    import torch.nn.functional as functional
    from torch_geometric.nn import SAGEConv

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(
                [SAGEConv(128, 256), SAGEConv(256, 256), SAGEConv(256, 47)])

        def forward(self, x, edges):
            for layer in self.layers[:-1]:
                x = functional.dropout(layer(x, edges).relu(), 0.5)
            return self.layers[-1](x, edges)

    model = Net().to("cuda")
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        nodes = rng.randint(50_000, 400_000)
        edges = rng.randint(5, 15) * nodes
        x = torch.randn(nodes, 128, device="cuda")
        index = torch.randint(0, nodes, (2, edges), device="cuda")
        labels = torch.randint(0, 47, (nodes,), device="cuda")
        loss = functional.cross_entropy(model(x, index), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, 60


WORKLOADS = {"gpt2_varlen": gpt2_varlen, "gnn_sampled": gnn_sampled}


# For the program, autograd's thread and a little else. Which ones a run would get by chance, near to
# the GPU or far from it, is not to count as the allocator's.
PROCESSORS = 4


def run_one(name, library):
    """The child: one workload, its losses and step times as a line of JSON."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:PROCESSORS])
    import torch

    if library:
        torch.cuda.memory.change_current_allocator(torch.cuda.memory.CUDAPluggableAllocator(
            library, "headroom_torch_malloc", "headroom_torch_free"))
    rng = random.Random(7)
    torch.manual_seed(7)
    step, count = WORKLOADS[name](torch, rng)
    losses, times = [], []
    for _ in range(count):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    out = {"losses": losses, "times": times}
    if not library:
        stats = torch.cuda.memory_stats()
        out["active_peak"] = stats["active_bytes.all.peak"]
        out["reserved_peak"] = stats["reserved_bytes.all.peak"]
    print(json.dumps(out))


def child(name, library, limit=None):
    with tempfile.TemporaryDirectory() as folder:
        stats_file = os.path.join(folder, "stats.json")
        environment = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                           PYTHONHASHSEED="0", HEADROOM_STATS=stats_file)
        if limit:
            environment["HEADROOM_LIMIT"] = str(limit)
        command = [sys.executable, __file__, library or "", "--child", name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            return {"error": (done.stderr.strip().splitlines() or ["no message"])[-1]}
        out = json.loads(done.stdout.strip().splitlines()[-1])
        if library:
            with open(stats_file, encoding="utf-8") as file:
                out.update(json.load(file)[0])
        return out


def same_losses(a, b):
    """Kernels that add up in any order differ in the last digits, with one allocator too."""
    return max(abs(x - y) / max(abs(x), 1e-12) for x, y in zip(a, b))


def compare(name, library, rounds):
    native, plugged = [], []
    for i in range(2 * rounds):
        is_native = i % 4 in (0, 3)  # neither is always the first of a round
        run = child(name, None if is_native else library)
        if "error" in run:
            return {"workload": name, "error": run["error"]}
        (native if is_native else plugged).append(run)
    step_ms = lambda runs: [statistics.median(run["times"]) * 1e3 for run in runs]
    native_ms, plugged_ms = step_ms(native), step_ms(plugged)
    last = plugged[-1]
    limit = int(1.02 * last["active_peak"])
    tight = child(name, library, limit)
    return {
        "workload": name,
        "loss_difference": same_losses(native[0]["losses"], last["losses"]),
        "loss_difference_native": same_losses(native[0]["losses"], native[-1]["losses"]),
        "native_step_ms": statistics.median(native_ms),
        "step_ms": statistics.median(plugged_ms),
        "step_ratio": statistics.median(plugged_ms) / statistics.median(native_ms),
        "native_runs_ms": native_ms,
        "runs_ms": plugged_ms,
        "native_reserved_over_active": native[-1]["reserved_peak"] / native[-1]["active_peak"],
        "reserved_over_active": last["reserved_peak"] / last["active_peak"],
        "active_peak": last["active_peak"],
        "reserved_peak": last["reserved_peak"],
        "handles_created": last["handles_created"],
        "handles_mapped": last["handles_mapped"],
        "handles_unmapped": last["handles_unmapped"],
        "retries": last["retries"],
        "limit": limit,
        "under_limit": tight.get("error", "completed"),
        "under_limit_step_ms":
            None if "error" in tight else statistics.median(tight["times"]) * 1e3,
        "under_limit_reserved_peak": tight.get("reserved_peak"),
        "under_limit_retries": tight.get("retries"),
        "under_limit_loss_difference":
            None if "error" in tight else same_losses(native[0]["losses"], tight["losses"]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("library")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), action="append")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_one(options.child, options.library)
        return
    library = os.path.abspath(options.library)
    if not os.path.isfile(library):
        parser.error(f"{options.library}: there is no such file; build the target headroom_pytorch")
    for name in options.workload or WORKLOADS:
        print(json.dumps(compare(name, library, options.rounds)), flush=True)


if __name__ == "__main__":
    main()
