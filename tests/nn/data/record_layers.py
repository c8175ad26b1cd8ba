#!/usr/bin/env python3
"""Records what PyTorch computes for each layer, for tests/nn/pytorch_test.cpp.

    python3 tests/nn/data/record_layers.py tests/nn/data

writes one safetensors file a case, named after it. Each holds, once in f64 and once in f32:

    f64.input.0            what goes in (indices are i64)
    f64.param.NAME         parameters, by PyTorch's names
    f64.buffer.NAME        buffers before the call
    f64.grad_output        the gradient that backward starts from
    f64.output             what comes out
    f64.grad.input.0       gradients of what goes in, where it has one
    f64.grad.param.NAME    gradients of the parameters
    f64.after.NAME         buffers after the call

The f32 numbers are PyTorch's own in f32, not the f64 ones rounded. Inputs are multiples of 2^-10, so
that both precisions start from the same values.
"""

import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn


def rounded(shape, generator, scale=1.0):
    """Normal numbers that f32 holds exactly."""
    values = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
    return torch.round(values * 1024) / 1024


class Attention(nn.Module):
    """Multi-head attention with one projection for queries, keys and values, as GPT-2 has it."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(x).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """A transformer block with the norms in front, GELU by erf."""

    def __init__(self, width, heads, causal):
        super().__init__()
        self.ln1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads, causal)
        self.ln2 = nn.LayerNorm(width)
        self.fc = nn.Linear(width, 4 * width)
        self.proj = nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.proj(F.gelu(self.fc(self.ln2(x))))


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def cases():
    """Name, module, inputs (shapes, or tensors of indices), and whether it trains."""
    index = torch.tensor([[1, 5, 0], [9, 5, 5]])
    classes = torch.tensor([3, 0, 9, -100, 4])
    mask = torch.tensor([[True, False, True, True, False],
                         [True, True, True, True, True],
                         [False, False, True, False, False]])
    yield "linear", nn.Linear(7, 5), [(4, 7)], True
    yield "linear_no_bias", nn.Linear(7, 5, bias=False), [(2, 3, 7)], True
    yield "conv2d", nn.Conv2d(3, 6, 3, padding=1), [(2, 3, 9, 8)], True
    yield "conv2d_stem", nn.Conv2d(3, 4, 7, stride=2, padding=3, bias=False), [(2, 3, 15, 17)], True
    yield "conv2d_point", nn.Conv2d(8, 5, 1), [(2, 8, 6, 5)], True
    yield ("conv2d_groups_dilated",
           nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1), groups=2),
           [(2, 4, 10, 9)], True)
    yield "conv2d_depthwise", nn.Conv2d(5, 5, 3, padding=1, groups=5), [(2, 5, 7, 7)], True
    yield "batch_norm2d_train", nn.BatchNorm2d(5), [(4, 5, 6, 3)], True
    yield "batch_norm2d_eval", nn.BatchNorm2d(5), [(4, 5, 6, 3)], False
    yield "layer_norm", nn.LayerNorm(12), [(3, 4, 12)], True
    yield "layer_norm_2d", nn.LayerNorm((4, 6)), [(3, 4, 6)], True
    yield "embedding", nn.Embedding(10, 6), [index], True
    yield "max_pool2d", nn.MaxPool2d(3, stride=2, padding=1), [(2, 3, 9, 10)], True
    yield "avg_pool2d", nn.AvgPool2d((2, 3), stride=(2, 1), padding=(1, 1)), [(2, 3, 8, 9)], True
    yield "adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((3, 2)), [(2, 3, 7, 5)], True
    yield "relu", nn.ReLU(), [(5, 11)], True
    yield "gelu", nn.GELU(), [(5, 11)], True
    yield "gelu_tanh", nn.GELU(approximate="tanh"), [(5, 11)], True
    yield "silu", nn.SiLU(), [(5, 11)], True
    yield "tanh", nn.Tanh(), [(5, 11)], True
    yield "sigmoid", nn.Sigmoid(), [(5, 11)], True
    yield "leaky_relu", nn.LeakyReLU(0.01), [(5, 11)], True
    yield "elu", nn.ELU(), [(5, 11)], True
    yield "softplus", nn.Softplus(), [(5, 11)], True
    yield "hardswish", nn.Hardswish(), [(5, 11)], True
    yield "mish", nn.Mish(), [(5, 11)], True
    yield "softmax", nn.Softmax(dim=-1), [(5, 11)], True
    yield "log_softmax", nn.LogSoftmax(dim=1), [(3, 7, 2)], True
    yield "dropout_eval", nn.Dropout(0.5), [(5, 11)], False
    yield "attention", Function(F.scaled_dot_product_attention), [(2, 3, 6, 8)] * 3, True
    yield ("attention_causal",
           Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)),
           [(2, 3, 9, 8)] * 3, True)
    yield ("attention_masked",
           Function(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=mask)),
           [(2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4)], True)
    yield "multi_head_attention", Attention(12, 3, False), [(2, 5, 12)], True
    yield "multi_head_attention_causal", Attention(12, 3, True), [(2, 5, 12)], True
    yield "transformer_block", Block(16, 4, True), [(2, 7, 16)], True
    yield ("cross_entropy", Function(lambda x: F.cross_entropy(x, classes)), [(5, 10)], True)
    yield ("cross_entropy_sum", Function(lambda x: F.cross_entropy(x, classes, reduction="sum")),
           [(5, 10)], True)
    yield "mse_loss", Function(F.mse_loss), [(4, 6), (4, 6)], True
    yield "l1_loss", Function(F.l1_loss), [(4, 6), (4, 6)], True
    yield ("bce_with_logits",
           Function(lambda x, t: F.binary_cross_entropy_with_logits(x, torch.sigmoid(t).detach())),
           [(4, 6), (4, 6)], True)
    yield ("conv_block",
           nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 4 * 4, 5)),
           [(3, 3, 8, 8)], True)


def run(module, inputs, grad_output, prefix, out):
    dtype = torch.float64 if prefix == "f64" else torch.float32
    module = module.to(dtype)
    module.zero_grad(set_to_none=True)
    # Copies: both precisions start from leaves of their own, and share no gradient.
    inputs = [x.detach().clone().to(dtype).requires_grad_() if x.is_floating_point() else x
              for x in inputs]
    for name, value in module.named_parameters():
        out[f"{prefix}.param.{name}"] = value.detach().clone()
    for name, value in module.named_buffers():
        out[f"{prefix}.buffer.{name}"] = value.detach().clone()
    y = module(*inputs)
    if grad_output is None:
        grad_output = rounded(y.shape, torch.Generator().manual_seed(99))
    y.backward(grad_output.to(dtype))
    out[f"{prefix}.output"] = y.detach()
    out[f"{prefix}.grad_output"] = grad_output.to(dtype)
    for i, x in enumerate(inputs):
        out[f"{prefix}.input.{i}"] = x.detach()
        if x.grad is not None:
            out[f"{prefix}.grad.input.{i}"] = x.grad.clone()
    for name, value in module.named_parameters():
        out[f"{prefix}.grad.param.{name}"] = value.grad.clone()
    for name, value in module.named_buffers():
        out[f"{prefix}.after.{name}"] = value.detach().clone()


def record(name, module, inputs, training, folder):
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    module = module.double().train(training)
    with torch.no_grad():
        for key, value in module.named_parameters():
            value.copy_(rounded(value.shape, generator, 0.5) + (1.0 if value.dim() == 1 and
                                                                key.endswith("weight") else 0.0))
        for key, value in module.named_buffers():
            if value.is_floating_point():
                value.copy_(rounded(value.shape, generator).abs() + 0.5)
    before = {key: value.clone() for key, value in module.state_dict().items()}
    inputs = [x if isinstance(x, torch.Tensor) else rounded(x, generator) for x in inputs]
    out = {}
    for prefix in ("f64", "f32"):
        module.load_state_dict({k: v.clone() for k, v in before.items()})
        run(module, inputs, None, prefix, out)
    out = {key: value.contiguous().clone() for key, value in out.items()}
    save_file(out, folder / f"{name}.safetensors", metadata={"torch": torch.__version__})


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: record_layers.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for case in cases():
        record(*case, folder)


if __name__ == "__main__":
    main()
