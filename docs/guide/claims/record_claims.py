#!/usr/bin/env python3
"""Measures the claims of docs/guide/claims.md on PyTorch and a GPU.

    python3 docs/guide/claims/record_claims.py > docs/guide/claims/pytorch.json

Bytes are exact and the same each time; times are medians and depend on the card.
"""

import ctypes
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"


def fresh():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def median_ms(step, times=7):
    step()
    out = []
    for _ in range(times):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        out.append((time.perf_counter() - begin) * 1e3)
    return round(statistics.median(out), 3)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim), nn.ReLU())

    def forward(self, x):
        return self.net(x) + x


class DeepNet(nn.Module):
    def __init__(self, dim, depth, checkpointed):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.checkpointed = checkpointed

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x


def driver_calls():
    """A cudaMalloc and its cudaFree, and a cached allocation, in microseconds."""
    cudart = ctypes.CDLL("libcudart.so.13")
    out = {}
    for size in (1 << 20, 64 << 20, 1 << 30):
        times = []
        for _ in range(9):
            pointer = ctypes.c_void_p()
            begin = time.perf_counter()
            cudart.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(size))
            middle = time.perf_counter()
            cudart.cudaFree(pointer)
            times.append(((middle - begin) * 1e6, (time.perf_counter() - middle) * 1e6))
        out[str(size)] = {"malloc_us": round(statistics.median(t[0] for t in times), 1),
                          "free_us": round(statistics.median(t[1] for t in times), 1)}
    begin = time.perf_counter()
    for _ in range(20000):
        torch.empty(1 << 20, dtype=torch.uint8, device=DEVICE)
    out["cached_us"] = round((time.perf_counter() - begin) / 20000 * 1e6, 3)
    return out


def checkpointing():
    out = []
    for dim, depth, batch in ((512, 20, 128), (512, 20, 16384), (1024, 64, 8192)):
        for checkpointed in (False, True):
            base = fresh()
            model = DeepNet(dim, depth, checkpointed).to(DEVICE)
            x = torch.randn(batch, dim, device=DEVICE)
            before = torch.cuda.memory_allocated()
            y = model(x)
            kept = torch.cuda.memory_allocated() - before
            y.sum().backward()
            peak = torch.cuda.max_memory_allocated() - base
            del y

            def step():
                model.zero_grad()
                model(x).sum().backward()
            out.append({"dim": dim, "depth": depth, "batch": batch, "checkpointed": checkpointed,
                        "kept_after_forward": kept, "peak": peak, "step_ms": median_ms(step)})
            del model, x
    return out


def layers(name, model, inputs, loss, precision):
    """What forward keeps beside the weights, and the peak of a step with SGD and momentum."""
    base = fresh()
    model = model.to(DEVICE)
    inputs = [x.to(DEVICE) for x in inputs]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    result = {}

    def step():
        before = torch.cuda.memory_allocated()
        with torch.autocast(DEVICE, torch.bfloat16, enabled=precision == "bf16"):
            value = loss(model, *inputs)
        result["kept"] = torch.cuda.memory_allocated() - before
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
    step()
    torch.cuda.reset_peak_memory_stats()
    step()
    peak = torch.cuda.max_memory_allocated() - base
    return {"model": name, "precision": precision, "weights": weights,
            "kept_after_forward": result["kept"], "peak": peak, "step_ms": median_ms(step, 5)}


def models():
    out = []
    for precision in ("f32", "bf16"):
        out.append(layers("resnet50, batch 32", torchvision.models.resnet50(),
                          [torch.randn(32, 3, 224, 224), torch.randint(1000, (32,))],
                          lambda m, x, y: F.cross_entropy(m(x), y), precision))
        encoder = nn.TransformerEncoderLayer(768, 12, 3072, 0.0, F.gelu, batch_first=True,
                                             norm_first=True)
        out.append(layers("12 transformer blocks of 768, 8 x 512 tokens",
                          nn.TransformerEncoder(encoder, 12, enable_nested_tensor=False),
                          [torch.randn(8, 512, 768)],
                          lambda m, x: m(x).float().square().mean(), precision))
        out.append(layers("deepnet 512 x 20, batch 128", DeepNet(512, 20, False),
                          [torch.randn(128, 512)], lambda m, x: m(x).float().square().mean(),
                          precision))
        out.append(layers("deepnet 512 x 20, batch 16384", DeepNet(512, 20, False),
                          [torch.randn(16384, 512)], lambda m, x: m(x).float().square().mean(),
                          precision))
    return out


def accumulation():
    out = {}
    for micro_batches in (1, 4):
        base = fresh()
        model = DeepNet(512, 4, False).to(DEVICE)
        x = torch.randn(128, 512, device=DEVICE)
        for _ in range(2):
            for _ in range(micro_batches):
                (model(x).square().mean() / micro_batches).backward()
            model.zero_grad()
        out[str(micro_batches)] = torch.cuda.max_memory_allocated() - base
        del model, x
    return out


def gradients():
    """Allocated after a step, and after each way to clear the gradients."""
    base = fresh()
    model = DeepNet(512, 4, False).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(128, 512, device=DEVICE)
    out = {"before": torch.cuda.memory_allocated() - base}
    model(x).square().mean().backward()
    optimizer.step()
    out["after_step"] = torch.cuda.memory_allocated() - base
    optimizer.zero_grad(set_to_none=False)
    out["zeroed"] = torch.cuda.memory_allocated() - base
    optimizer.zero_grad(set_to_none=True)
    out["dropped"] = torch.cuda.memory_allocated() - base
    return out


def empty_cache():
    base = fresh()
    model = torchvision.models.resnet18().to(DEVICE)
    x = torch.randn(32, 3, 224, 224, device=DEVICE)
    y = torch.randint(1000, (32,), device=DEVICE)

    def step(empties):
        F.cross_entropy(model(x), y).backward()
        model.zero_grad()
        if empties:
            torch.cuda.empty_cache()
    return {"step_ms": median_ms(lambda: step(False)), "emptying_ms": median_ms(lambda: step(True)),
            "base": base}


def deletion():
    fresh()
    x = torch.empty(1 << 30, dtype=torch.uint8, device=DEVICE)
    out = {"with": [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]}
    del x
    out["deleted"] = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]
    torch.cuda.empty_cache()
    out["emptied"] = [torch.cuda.memory_allocated(), torch.cuda.memory_reserved()]
    return out


def in_place():
    out = {}
    for name, function in (("relu", F.relu), ("relu_", F.relu_)):
        base = fresh()
        x = torch.randn(1 << 20, device=DEVICE, requires_grad=True)
        y = function(x * 2)
        out[name] = torch.cuda.max_memory_allocated() - base
        del x, y
    return out


def no_grad():
    out = {}
    model = DeepNet(512, 20, False).to(DEVICE)
    x = torch.randn(4096, 512, device=DEVICE)
    for name, enabled in (("recorded", True), ("no_grad", False)):
        base = fresh()
        with torch.set_grad_enabled(enabled):
            y = model(x)
        out[name] = torch.cuda.max_memory_allocated() - base
        del y
    return out


def main():
    torch.manual_seed(0)
    # Libraries take their workspaces at the first use, in each thread: not ours to count.
    Block(512).to(DEVICE)(torch.randn(128, 512, device=DEVICE)).sum().backward()
    report = {"torch": torch.__version__, "card": torch.cuda.get_device_name(0)}
    for measure in (driver_calls, deletion, gradients, accumulation, in_place, no_grad,
                    checkpointing, models, empty_cache):
        begin = time.time()
        report[measure.__name__] = measure()
        print(f"{measure.__name__}: {time.time() - begin:.1f} s", file=sys.stderr)
    json.dump(report, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
