"""What of PyTorch works on headroom's allocator, tried on a GPU.

    python3 bindings/pytorch/features.py build/libheadroom_torch.so

Tries each feature in a process of its own, once on PyTorch's allocator and once on headroom's, and
prints a table: works, or the error. docs/guide/pytorch.md has the answers.
"""

import os
import subprocess
import sys

import headroom_torch


def train(torch):
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        model(torch.randn(64, 256, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()


def record_stream(torch):
    side = torch.cuda.Stream()
    block = torch.ones(1 << 20, device="cuda")
    with torch.cuda.stream(side):
        total = block.sum()
    block.record_stream(side)
    del block
    torch.cuda.synchronize()
    assert total.item() == 1 << 20


def compile_default(torch):
    torch.compile(lambda x: (x * 2).sin())(torch.ones(1024, device="cuda"))
    torch.cuda.synchronize()


def compile_reduce_overhead(torch):
    step = torch.compile(lambda x: (x * 2).sin(), mode="reduce-overhead")
    for _ in range(3):
        step(torch.ones(1024, device="cuda"))
    torch.cuda.synchronize()


def cuda_graph(torch):
    x = torch.ones(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (x * 2).sum()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        y = (x * 2) + 1
    others = [torch.full((1 << 20,), float(i), device="cuda") for i in range(8)]
    graph.replay()
    torch.cuda.synchronize()
    assert y[0].item() == 3, "the graph wrote somewhere else"
    assert all(others[i][0].item() == i for i in range(8)), "the graph wrote over other tensors"


def empty_cache(torch):
    block = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    held = torch.cuda.mem_get_info()[0]
    del block
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > held, "no memory went back to the device"


def memory_fraction(torch):
    torch.cuda.set_per_process_memory_fraction(0.01)
    try:
        block = torch.empty(8 << 30, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return
    assert block.data_ptr() == 0, "the fraction was not kept to"
    raise AssertionError("refused, but without an error")


def out_of_memory(torch):
    try:
        block = torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        return
    raise AssertionError(f"no error; the tensor's address is {block.data_ptr()}")


def cudnn_benchmark(torch):
    torch.backends.cudnn.benchmark = True
    torch.nn.Conv2d(3, 8, 3).cuda()(torch.randn(2, 3, 32, 32, device="cuda"))
    torch.cuda.synchronize()


def memory_pool(torch):
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        torch.ones(1024, device="cuda")


def share_between_processes(torch):
    torch.ones(1024, device="cuda").untyped_storage()._share_cuda_()


FEATURES = {
    "forward, backward, optimizer": train,
    "record_stream": record_stream,
    "torch.compile": compile_default,
    "out of memory raises OutOfMemoryError": out_of_memory,
    "empty_cache": empty_cache,
    "set_per_process_memory_fraction": memory_fraction,
    "memory_allocated": lambda torch: torch.cuda.memory_allocated(),
    "memory_stats": lambda torch: torch.cuda.memory_stats(),
    "memory_summary": lambda torch: torch.cuda.memory_summary(),
    "_record_memory_history": lambda torch: torch.cuda.memory._record_memory_history(),
    "memory_snapshot": lambda torch: torch.cuda.memory_snapshot(),
    "cudnn.benchmark": cudnn_benchmark,
    "CUDA graphs": cuda_graph,
    "torch.compile, reduce-overhead": compile_reduce_overhead,
    "MemPool": memory_pool,
    "tensors shared between processes": share_between_processes,
}


def child(name, library):
    import torch

    if library:
        headroom_torch.install(library)
    torch.ones(1, device="cuda")
    FEATURES[name](torch)


def answer(name, library):
    """`works`, or the last line of the error."""
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", name, library],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == 0:
        return "works"
    lines = [line for line in done.stderr.split("\n") if line.strip()]
    return lines[-1][:100] if lines else f"exit {done.returncode}"


def main():
    if sys.argv[1] == "--child":
        child(sys.argv[2], sys.argv[3])
        return
    for name in FEATURES:
        print(f"{name}\n    PyTorch   {answer(name, '')}\n    headroom  {answer(name, sys.argv[1])}",
              flush=True)


if __name__ == "__main__":
    main()
