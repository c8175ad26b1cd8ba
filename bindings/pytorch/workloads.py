"""PyTorch programs whose memory traffic is worth measuring, as `compare.py` runs them.

    python3 bindings/pytorch/workloads.py gpt2_ragged --record gpt2_ragged.pickle

runs one on PyTorch's own allocator and writes the snapshot of its whole history, with Python
stacks: that is how the recordings in `samples/` were made. Models have random weights; nothing is
downloaded. A workload is a function that returns its step and the number of steps.
"""

import argparse
import os
import pickle
import random
import site
import sys


def gpt2_varlen(torch, rng, batch=8, is_checkpointed=False, steps=24):
    """GPT-2 124M on sequences of random length, in bf16 autocast."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(use_cache=False)).to("cuda")
    if is_checkpointed:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model.train()

    def step():
        length = rng.choice(range(64, 1025))
        tokens = torch.randint(0, 50257, (batch, length), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, steps


def gpt2_ragged(torch, rng):
    """The same with gradient checkpointing, which leaves room for a batch of 16."""
    return gpt2_varlen(torch, rng, batch=16, is_checkpointed=True, steps=32)


def gnn_sampled(torch, rng):
    """GraphSAGE on random subgraphs."""
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


WORKLOADS = {work.__name__: work for work in (gpt2_varlen, gpt2_ragged, gnn_sampled)}


def make(name):
    """A workload with its seeds set: its step, and how many steps it has."""
    import torch

    torch.manual_seed(7)
    return WORKLOADS[name](torch, random.Random(7))


def without_folders(snapshot):
    """Renames the folders of this machine in the frames of a snapshot to those of a plain user."""
    here = os.path.dirname(os.path.abspath(__file__))
    folders = {here: "/home/user"}
    for folder in [*site.getsitepackages(), os.path.dirname(os.__file__)]:
        folders.setdefault(folder, "/home/user/lib")
    longest_first = sorted(folders, key=len, reverse=True)

    def renamed(path):
        for folder in longest_first:
            if path.startswith(folder + os.sep):
                return folders[folder] + path[len(folder):]
        return path

    frames = [frame for trace in snapshot["device_traces"] for event in trace
              for frame in event.get("frames", ())]
    frames += [frame for segment in snapshot["segments"] for frame in segment.get("frames", ())]
    frames += [frame for segment in snapshot["segments"] for block in segment["blocks"]
               for frame in block.get("frames", ())]
    for frame in frames:  # the same object stands at many places; a second renaming does nothing
        frame["filename"] = renamed(frame["filename"])
    return snapshot


def record(name, path):
    import torch

    torch.cuda.memory._record_memory_history(context="alloc", stacks="python",
                                             max_entries=2_000_000)
    step, count = make(name)
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    snapshot = without_folders(torch.cuda.memory._snapshot())
    with open(path, "wb") as file:
        pickle.dump(snapshot, file)
    stats = torch.cuda.memory_stats()
    print(f"{path}: {stats['allocation.all.allocated']:,} allocations, at the peak "
          f"{stats['active_bytes.all.peak'] / 1e9:.2f} GB active and "
          f"{stats['reserved_bytes.all.peak'] / 1e9:.2f} GB reserved")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("name", choices=sorted(WORKLOADS))
    parser.add_argument("--record", metavar="FILE", required=True, help="the snapshot to write")
    options = parser.parse_args()
    if os.path.exists(options.record):
        parser.error(f"{options.record} exists; remove it, or name another file")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    record(options.name, options.record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
