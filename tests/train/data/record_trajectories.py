#!/usr/bin/env python3
"""Records how PyTorch trains three small models, for tests/nn/trajectory_test.cpp.

    python3 tests/train/data/record_trajectories.py tests/train/data

writes one safetensors file a model:

    param.NAME, buffer.NAME    where training starts, in f64; f32 holds the values exactly
    input, target              a batch a step: the first size is the number of steps
    f64.sgd, f64.adam, ...     the loss of each step, for each precision and optimiser

Precisions: f64, f32, and f32 with the forward under bf16 autocast. Optimisers: SGD with momentum 0.9
and lr 0.05, Adam and AdamW with lr 0.003, all else PyTorch's defaults.
"""

import copy
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

STEPS = 20


def rounded(shape, generator, scale=1.0):
    """Normal numbers that f32 holds exactly."""
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    return torch.round(values * 4096) / 4096


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.proj = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.proj(F.gelu(self.fc(self.ln2(x))))


class Gpt(nn.Module):
    """Two blocks; the output layer is the embedding's own table."""

    def __init__(self, vocabulary=48, width=32, heads=4, tokens=12):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList([Block(width, heads), Block(width, heads)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, index):
        x = self.wte(index) + self.wpe(torch.arange(index.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


def mlp():
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(),
                         nn.Linear(32, 7))


def convnet():
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Conv2d(8, 12, 3, stride=2, padding=1),
                         nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(12, 5))


def models(generator):
    yield ("mlp", mlp(), rounded((STEPS, 16, 20), generator),
           torch.randint(7, (STEPS, 16), generator=generator))
    yield ("convnet", convnet(), rounded((STEPS, 8, 3, 12, 12), generator),
           torch.randint(5, (STEPS, 8), generator=generator))
    tokens = torch.randint(48, (STEPS, 4, 13), generator=generator)
    yield "gpt", Gpt(), tokens[:, :, :-1].contiguous(), tokens[:, :, 1:].contiguous()


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
    "adam": lambda params: torch.optim.Adam(params, lr=0.003),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.003),
}


def losses(module, inputs, targets, optimizer, precision):
    dtype = torch.float64 if precision == "f64" else torch.float32
    module = copy.deepcopy(module).to(dtype)
    optimizer = OPTIMIZERS[optimizer](module.parameters())
    out = []
    for x, target in zip(inputs, targets):
        x = x.to(dtype) if x.is_floating_point() else x
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = module(x)
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1))
        loss.backward()
        optimizer.step()
        out.append(loss.detach().double())
    return torch.stack(out)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: record_trajectories.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.manual_seed(7)
    generator = torch.Generator().manual_seed(11)
    for name, module, inputs, targets in models(generator):
        module = module.double()
        with torch.no_grad():
            for value in module.parameters():
                value.copy_(torch.round(value * 4096) / 4096)
        out = {f"param.{key}": value.detach().clone() for key, value in module.named_parameters()}
        out |= {f"buffer.{key}": value.clone() for key, value in module.named_buffers()}
        out |= {"input": inputs, "target": targets}
        for precision in ("f64", "f32", "bf16"):
            for optimizer in OPTIMIZERS:
                out[f"{precision}.{optimizer}"] = losses(module, inputs, targets, optimizer,
                                                         precision)
        save_file(out, folder / f"{name}.safetensors", metadata={"torch": torch.__version__})


if __name__ == "__main__":
    main()
