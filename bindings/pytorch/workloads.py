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


def vit_ragged(torch, rng):
    """A vision transformer on images of every size, a batch of one size at a time."""
    import torch.nn.functional as functional

    class Net(torch.nn.Module):
        def __init__(self, width=768, depth=8):
            super().__init__()
            self.patches = torch.nn.Conv2d(3, width, 16, 16)
            layer = torch.nn.TransformerEncoderLayer(width, 12, 4 * width, 0.1, batch_first=True,
                                                     norm_first=True)
            self.layers = torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
            self.head = torch.nn.Linear(width, 1000)

        def forward(self, images):
            tokens = self.patches(images).flatten(2).transpose(1, 2)
            return self.head(self.layers(tokens).mean(1))

    model = Net().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        height, width = (16 * rng.randint(8, 32) for _ in range(2))
        images = torch.randn(rng.randint(8, 48), 3, height, width, device="cuda")
        labels = torch.randint(0, 1000, (images.shape[0],), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, 60


WORKLOADS = {work.__name__: work for work in (gpt2_varlen, gpt2_ragged, gnn_sampled,
                                                 vit_ragged)}


def make(name):
    """A workload with its seeds set: its step, and how many steps it has."""
    import torch

    torch.manual_seed(7)
    return WORKLOADS[name](torch, random.Random(7))


# --- Programs of another file --------------------------------------------------------------------


def source_of_others(path):
    """The part of the file that defines programs, up to the end of the dictionary W."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().split("\n")
    last = next(i for i, line in enumerate(lines) if line.startswith("W = "))
    return "\n".join(lines[:last + 1])


def names_of_others(path):
    line = source_of_others(path).split("\n")[-1]
    return sorted(part.split("=")[0].strip() for part in line[line.index("(") + 1:-1].split(","))


def make_other(name, path):
    """One of that file's programs as a workload: what it computed last stands for its loss."""
    import torch

    seen = {}

    def watch(kind, method):
        own = getattr(torch.Tensor, method)

        def watched(tensor, *args, **kwargs):
            result = own(tensor, *args, **kwargs)
            kept = tensor if method == "backward" else result
            if isinstance(kept, torch.Tensor) and kept.is_cuda and kept.numel() <= 8192:
                seen[kind] = kept.detach()
            return result

        setattr(torch.Tensor, method, watched)

    for kind, method in enumerate(("backward", "argmax", "sum")):
        watch(kind, method)
    arguments, sys.argv = sys.argv, [path, name]
    names = {"__name__": "programs"}
    exec(compile(source_of_others(path), path, "exec"), names)
    sys.argv = arguments
    step, count = names["W"][name]()
    numbers = iter(range(1 << 30))

    def run():
        seen.clear()
        step(next(numbers))
        result = seen[min(seen)] if seen else torch.zeros(())
        return result.float().mean()

    return run, count


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
