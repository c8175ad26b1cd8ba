"""The checks of parity.py: each tries one promise and returns facts, which are compared.

A check gets torch, headroom's native module (None on PyTorch's own allocator), and a folder to keep
files in (or None). It raises AssertionError where an effect is wrong on either allocator. Facts
whose name begins with ~ are told, not compared.
"""

import contextlib
import gc
import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading

CHECKS = {}
MB = 1 << 20


def check(name):
    def keep(function):
        CHECKS[name] = function
        return function
    return keep


def tensor(torch, megabytes=10, value=None):
    size = int(megabytes * MB)
    if value is None:
        return torch.empty(size, dtype=torch.uint8, device="cuda")
    return torch.full((size,), value, dtype=torch.uint8, device="cuda")


# --- Statistics ----------------------------------------------------------------------------------


@check("memory_stats: keys")
def stats_keys(torch, module, keep):
    tensor(torch)
    return {"keys": sorted(torch.cuda.memory_stats()),
            "nested": sorted(torch.cuda.memory_stats_as_nested_dict())}


@check("memory_stats: what changes")
def stats_changes(torch, module, keep):
    tensor(torch, 0.001)
    stats = torch.cuda.memory_stats
    before = stats()
    # Small is up to 64 KiB here and to 1 MiB there: between the two the pools differ.
    held = [tensor(torch, 3), tensor(torch, 1 / 32), tensor(torch, 30)]
    after = stats()
    del held
    freed = stats()
    facts = {}
    for key in ("allocation.all", "allocation.small_pool", "allocation.large_pool", "active.all",
                "allocated_bytes.all", "active_bytes.all", "requested_bytes.all",
                "requested_bytes.small_pool", "requested_bytes.large_pool"):
        facts[key + " up"] = after[key + ".current"] - before[key + ".current"]
        facts[key + " allocated"] = freed[key + ".allocated"] - before[key + ".allocated"]
        facts[key + " freed"] = freed[key + ".freed"] - before[key + ".freed"]
    facts["max_split_size"] = after["max_split_size"]
    assert after["reserved_bytes.all.current"] >= after["allocated_bytes.all.current"]
    assert after["num_device_alloc"] > 0
    return facts


@check("memory_allocated, reserved, peaks")
def peaks(torch, module, keep):
    cuda = torch.cuda
    tensor(torch, 1)
    base = cuda.memory_allocated()
    held = tensor(torch, 40)
    up = cuda.memory_allocated() - base
    assert cuda.memory_reserved() >= cuda.memory_allocated()
    assert cuda.max_memory_reserved() >= cuda.memory_reserved()
    del held
    peak = cuda.max_memory_allocated() - base
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == cuda.memory_allocated() == base
    cuda.reset_accumulated_memory_stats()
    stats = cuda.memory_stats()
    return {"up": up, "peak": peak, "down": cuda.memory_allocated() - base,
            "accumulated": stats["allocated_bytes.all.allocated"],
            "count": stats["allocation.all.allocated"], "ooms": stats["num_ooms"],
            "device": stats["num_device_alloc"]}


@check("memory_summary")
def summary(torch, module, keep):
    tensor(torch)
    rows = [line.split("|")[1].strip() for line in torch.cuda.memory_summary().splitlines()
            if line.startswith("|") and line.count("|") > 2]
    short = torch.cuda.memory_summary(abbreviated=True)
    return {"rows": [row for row in rows if "CUDA OOMs" not in row], "short": len(short)}


@check("torch.accelerator's memory")
def accelerator(torch, module, keep):
    a = torch.accelerator
    held = tensor(torch, 20)
    assert a.memory_allocated() == torch.cuda.memory_allocated() >= 20 * MB
    assert a.memory_reserved() == torch.cuda.memory_reserved() >= 20 * MB
    assert a.max_memory_allocated() == torch.cuda.max_memory_allocated()
    del held
    a.reset_peak_memory_stats()
    assert a.max_memory_allocated() == a.memory_allocated()
    a.reset_accumulated_memory_stats()
    before = torch.cuda.memory_reserved()
    a.empty_cache()
    assert torch.cuda.memory_reserved() < before
    facts = {"keys": sorted(a.memory_stats())}
    if hasattr(a, "get_memory_info"):
        facts["total"] = a.get_memory_info()[1]
    return facts


# --- Snapshots and history -----------------------------------------------------------------------


def shape_of(snapshot):
    segments = snapshot["segments"]
    return {"top": sorted(snapshot), "segment": sorted(segments[0]),
            "block": sorted(segments[0]["blocks"][0]),
            "settings": sorted(snapshot["allocator_settings"])}


@check("memory_snapshot")
def snapshot(torch, module, keep):
    held = [tensor(torch, 3), tensor(torch, 0.3), tensor(torch, 50)]
    segments = torch.cuda.memory_snapshot()
    addresses = {block["address"]: block for segment in segments for block in segment["blocks"]}
    for one in held:
        block = addresses[one.data_ptr()]
        assert block["state"] == "active_allocated" and block["requested_size"] == one.numel()
    stats = torch.cuda.memory_stats()
    assert sum(s["total_size"] for s in segments) == stats["reserved_bytes.all.current"]
    assert sum(s["allocated_size"] for s in segments) == stats["allocated_bytes.all.current"]
    assert sum(s["active_size"] for s in segments) == stats["active_bytes.all.current"]
    assert [s["address"] for s in segments] == sorted(s["address"] for s in segments)
    for segment in segments:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
    return shape_of(torch.cuda.memory._snapshot())


def allocate_here(torch):
    return tensor(torch, 5)


def has_frame(frames, name, file="parity_checks.py"):
    return any(f["name"] == name and f["filename"].endswith(file) for f in frames)


@check("history: python stacks")
def history(torch, module, keep):
    torch.cuda.memory._record_memory_history(stacks="python")
    held = allocate_here(torch)
    other = allocate_here(torch)
    address = other.data_ptr()
    del other
    snap = torch.cuda.memory._snapshot()
    trace = snap["device_traces"][0]
    mine = [e for e in trace if e.get("addr") == address]
    assert [e["action"] for e in mine][-3:] == ["alloc", "free_requested", "free_completed"], mine
    assert has_frame(mine[-3]["frames"], "allocate_here")
    assert has_frame(mine[-2]["frames"], "history"), "the free has a stack of its own"
    assert not has_frame(mine[-2]["frames"], "allocate_here")
    blocks = {b["address"]: b for s in snap["segments"] for b in s["blocks"]}
    assert has_frame(blocks[held.data_ptr()]["frames"], "allocate_here")
    alloc = mine[-3]
    assert alloc["size"] == 5 * MB and abs(alloc["time_us"] / 1e6 - __import__("time").time()) < 600
    torch.cuda.memory._record_memory_history(enabled=None)
    assert torch.cuda.memory._snapshot()["device_traces"][0] == []
    return {"entry": sorted(alloc), "order": [e["action"] for e in mine][-3:]}


@check("history: C++ stacks")
def history_cpp(torch, module, keep):
    torch.cuda.memory._record_memory_history(stacks="all")
    held = allocate_here(torch)
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    frames = [e for e in trace if e["action"] == "alloc"][-1]["frames"]
    assert has_frame(frames, "allocate_here")
    assert any("at::" in f["name"] or "torch" in f["name"] for f in frames), frames[:5]
    del held


@check("history: settings")
def history_settings(torch, module, keep):
    record = torch.cuda.memory._record_memory_history
    facts = {}
    for context in (None, "state", "alloc", "all"):
        record(context=context, stacks="python", max_entries=50, clear_history=True)
        held = tensor(torch, 3)
        free = tensor(torch, 4)
        del free
        snap = torch.cuda.memory._snapshot()
        trace = snap["device_traces"][0]
        blocks = {b["address"]: b for s in snap["segments"] for b in s["blocks"]}
        facts[str(context)] = [
            [e["action"], bool(e.get("frames"))] for e in trace if not e["action"].startswith("seg")
        ] + [bool(blocks[held.data_ptr()]["frames"])]
        del held
        record(enabled=None)
    record(max_entries=10, stacks="python", clear_history=True)
    for _ in range(30):
        tensor(torch, 3)
    facts["entries"] = len(torch.cuda.memory._snapshot()["device_traces"][0])
    record(enabled="state", stacks="python", clear_history=True)
    held = tensor(torch, 3)
    facts["state"] = len(torch.cuda.memory._snapshot()["device_traces"][0])
    facts["is_enabled"] = torch._C._cuda_isHistoryEnabled()
    record(enabled=None)
    facts["is_disabled"] = torch._C._cuda_isHistoryEnabled()
    try:
        record(stacks="python", skip_actions=["free_requested"])
        tensor(torch, 3)
        facts["skipped"] = sorted({e["action"] for e in
                                   torch.cuda.memory._snapshot()["device_traces"][0]
                                   if not e["action"].startswith("seg")})
    except TypeError:
        facts["skipped"] = "not in this version"
    return facts


@check("history: metadata, annotations")
def metadata(torch, module, keep):
    memory = torch.cuda.memory
    memory._record_memory_history(stacks="python", global_record_annotations=True)
    if hasattr(memory, "_set_memory_metadata"):
        memory._set_memory_metadata("step 7")
    held = tensor(torch, 3)
    facts = {}
    if hasattr(memory, "_get_memory_metadata"):
        facts["metadata"] = memory._get_memory_metadata()
        memory._set_memory_metadata("")
    with torch.profiler.record_function("my scope"):
        other = tensor(torch, 3)
    snap = memory._snapshot()
    allocs = [e for e in snap["device_traces"][0] if e["action"] == "alloc"]
    facts["user"] = [e.get("user_metadata") for e in allocs]
    facts["compile"] = [e.get("compile_context") for e in allocs]
    marks = [a for a in snap["external_annotations"] if a["name"] == "my scope"]
    facts["annotations"] = [[a["stage"], a["device"]] for a in marks]
    assert all(abs(a["time_us"] - allocs[-1]["time_us"]) < 60e6 for a in marks)
    del held, other
    return facts


@check("dump_snapshot opens in the viewer")
def dump(torch, module, keep):
    torch.cuda.memory._record_memory_history(stacks="python")
    model = torch.nn.Linear(512, 512).cuda()
    for _ in range(3):
        model(torch.randn(64, 512, device="cuda")).sum().backward()
    folder = keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "dump.pickle")
    torch.cuda.memory._dump_snapshot(path)
    with open(path, "rb") as file:
        data = pickle.load(file)
    from torch.cuda import _memory_viz

    draw = "\n".join  # its own drawing fetches a script from the network
    for text in (_memory_viz.segsum(data), _memory_viz.trace(data), _memory_viz.trace_plot(data),
                 _memory_viz.segments(data, format_flamegraph=draw),
                 _memory_viz.memory(data, format_flamegraph=draw),
                 _memory_viz.segment_plot(data)):
        assert len(text) > 100
    return shape_of(data)


@check("torch.profiler sees memory")
def profiler(torch, module, keep):
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(512, 512, device="cuda")
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        y = x @ x
        z = y + 1
        del y, z
    totals = {e.key: e.device_memory_usage for e in seen.key_averages()}
    return {"add": totals.get("aten::add")}


@check("GPU trace callbacks")
def gpu_trace(torch, module, keep):
    from torch.cuda import _gpu_trace

    taken, given = [], []
    torch._C._activate_gpu_trace()
    _gpu_trace.register_callback_for_memory_allocation(taken.append)
    _gpu_trace.register_callback_for_memory_deallocation(given.append)
    held = tensor(torch, 3)
    address = held.data_ptr()
    del held
    assert address in taken and address in given


# --- Limits and failures -------------------------------------------------------------------------


@check("empty_cache")
def empty_cache(torch, module, keep):
    block = tensor(torch, 8192)  # more than other programs on the card may take meanwhile
    torch.cuda.synchronize()
    held = torch.cuda.mem_get_info()[0]
    del block
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] >= held + 4096 * MB
    return {"reserved": torch.cuda.memory_reserved()}


@check("memory fraction")
def fraction(torch, module, keep):
    cuda = torch.cuda
    total = cuda.get_device_properties(0).total_memory
    facts = {"first": cuda.get_per_process_memory_fraction()}
    cuda.set_per_process_memory_fraction(0.01)
    facts["set"] = round(cuda.get_per_process_memory_fraction(), 6)
    try:
        torch.empty(int(total * 0.02), dtype=torch.uint8, device="cuda")
        raise AssertionError("the fraction was not kept to")
    except torch.OutOfMemoryError as error:
        assert "out of memory" in str(error)
    cuda.set_per_process_memory_fraction(1.0)
    facts["reset"] = cuda.get_per_process_memory_fraction()
    torch.empty(int(total * 0.02), dtype=torch.uint8, device="cuda")
    for wrong in (1.5, -0.5):
        try:
            cuda.set_per_process_memory_fraction(wrong)
            facts[f"{wrong}"] = "taken"
        except Exception as error:
            facts[f"{wrong}"] = type(error).__name__
    return facts


@check("OutOfMemoryError, 100 times")
def out_of_memory(torch, module, keep):
    held = tensor(torch, 10, 7)
    for _ in range(100):
        try:
            torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
            raise AssertionError("no error")
        except torch.OutOfMemoryError as error:
            text = str(error)
    assert text.startswith("CUDA out of memory. Tried to allocate 4096.00 GiB."), text[:200]
    if module:
        assert "headroom" in text or "asked" in text or "free" in text, text
    assert issubclass(torch.OutOfMemoryError, RuntimeError)
    torch.cuda.synchronize()
    assert bool((held == 7).all())
    model = torch.nn.Linear(256, 256).cuda()
    model(torch.randn(8, 256, device="cuda")).sum().backward()
    try:
        torch.empty(1 << 62, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        absurd = str(error)
    return {"ooms": torch.cuda.memory_stats()["num_ooms"] >= 100, "absurd": absurd.split("\n")[0],
            "same": torch.OutOfMemoryError is torch.cuda.OutOfMemoryError, "~text": text}


@check("out-of-memory observers")
def observers(torch, module, keep):
    seen = []
    tensor(torch, 1)
    torch._C._cuda_attach_out_of_memory_observer(
        lambda device, asked, total, free: seen.append((device, asked, total, free)))
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    assert len(seen) == 1 and seen[0][3] <= torch.cuda.mem_get_info()[1]
    return {"device": seen[0][0], "asked": seen[0][1]}


@check("history of a failure")
def oom_history(torch, module, keep):
    torch.cuda.memory._record_memory_history(stacks="python")
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
    entry = [e for e in torch.cuda.memory._snapshot()["device_traces"][0] if e["action"] == "oom"][0]
    assert has_frame(entry["frames"], "oom_history")
    return {"keys": sorted(entry), "size": entry["size"]}


@check("settings: get_allocator_backend")
def backend(torch, module, keep):
    return {"name": torch.cuda.get_allocator_backend(),
            "memory": torch.cuda.memory.get_allocator_backend()}


# --- Streams -------------------------------------------------------------------------------------


def record_stream_rounds(torch, rounds):
    """How many of the copies on a second stream read overwritten memory."""
    side = torch.cuda.Stream()
    elements = 1 << 20
    results = torch.zeros(rounds, 2, device="cuda", dtype=torch.int32)
    for i in range(rounds):
        block = torch.full((elements,), i, dtype=torch.int32, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000)
            results[i, 0] = block.min()
            results[i, 1] = block.max()
        block.record_stream(side)
        del block
        again = torch.full((elements,), -1, dtype=torch.int32, device="cuda")
        del again
    torch.cuda.synchronize()
    wanted = torch.arange(rounds, dtype=torch.int32)
    got = results.cpu()
    return int(((got[:, 0] != wanted) | (got[:, 1] != wanted)).sum())


@check("record_stream, 1000 times")
def record_stream(torch, module, keep):
    wrong = record_stream_rounds(torch, 1000)
    assert wrong == 0, f"{wrong} wrong reads"
    stats = torch.cuda.memory_stats()
    assert stats["active_bytes.all.current"] >= stats["allocated_bytes.all.current"]


@check("record_stream: state of the block")
def record_state(torch, module, keep):
    side = torch.cuda.Stream()
    block = tensor(torch, 5)
    address = block.data_ptr()
    with torch.cuda.stream(side):
        torch.cuda._sleep(2_000_000_000)
        block.add_(1)
    block.record_stream(side)
    del block
    states = [b["state"] for s in torch.cuda.memory_snapshot() for b in s["blocks"]
              if b["address"] == address]
    torch.cuda.synchronize()
    tensor(torch, 5)
    return {"states": states}


@check("external streams")
def external(torch, module, keep):
    import ctypes

    runtime = ctypes.CDLL(None)
    handle = ctypes.c_void_p()
    if not hasattr(runtime, "cudaStreamCreate"):
        import native

        runtime = ctypes.CDLL(native.cuda_runtime())
    tensor(torch, 1)
    for i in range(50):
        assert runtime.cudaStreamCreate(ctypes.byref(handle)) == 0
        stream = torch.cuda.ExternalStream(handle.value)
        with torch.cuda.stream(stream):
            x = torch.full((1 << 18,), i, dtype=torch.int32, device="cuda")
            y = x * 2
        y.record_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(stream)
        assert int(y.max()) == 2 * i
        del x, y
        stream.synchronize()
        torch.cuda.synchronize()
        assert runtime.cudaStreamDestroy(handle) == 0


@check("threads")
def threads(torch, module, keep):
    wrong = []

    def work(seed):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            held = []
            for i in range(300):
                value = (seed * 31 + i) % 251
                held.append((value, tensor(torch, 0.01 + (i % 17) * 0.3, value)))
                if len(held) > 8:
                    value, one = held.pop((i * 7) % 8)
                    if not bool((one == value).all()):
                        wrong.append((seed, i))

    all_threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    assert not wrong, wrong[:5]


# --- Pools and graphs ----------------------------------------------------------------------------


@check("MemPool")
def mem_pool(torch, module, keep):
    torch.cuda.synchronize()
    tensor(torch, 1)
    base = torch.cuda.memory_reserved()
    pool = torch.cuda.MemPool()
    counts = [pool.use_count()]
    with torch.cuda.use_mem_pool(pool):
        counts.append(pool.use_count())
        inside = tensor(torch, 5, 3)
    counts.append(pool.use_count())
    outside = tensor(torch, 5, 4)
    segments = pool.snapshot()
    segments = segments if isinstance(segments, list) else segments["segments"]
    blocks = {b["address"] for s in segments for b in s["blocks"]}
    assert inside.data_ptr() in blocks and outside.data_ptr() not in blocks
    assert all(tuple(s["segment_pool_id"]) == tuple(pool.id) for s in segments)
    del inside
    with torch.cuda.use_mem_pool(pool):
        again = tensor(torch, 5, 5)
    assert again.data_ptr() in blocks, "the pool's memory was not used again"
    del again, outside, pool, segments
    gc.collect()
    torch.cuda.empty_cache()
    return {"counts": counts, "left": torch.cuda.memory_reserved() <= base + 4 * MB}


@check("MemPool: use_on_oom, no_split")
def mem_pool_options(torch, module, keep):
    facts = {}
    pool = torch.cuda.MemPool(use_on_oom=True)
    with torch.cuda.use_mem_pool(pool):
        spare = tensor(torch, 300)
    del spare
    tensor(torch, 1)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 50 * MB) / total)
    saved = tensor(torch, 250)
    facts["served by the pool"] = True
    del saved
    torch.cuda.set_per_process_memory_fraction(1.0)
    try:
        whole = torch.cuda.MemPool(no_split=True)
    except TypeError:
        return facts
    with torch.cuda.use_mem_pool(whole):
        held = [tensor(torch, 3) for _ in range(3)]
    snapshot = whole.snapshot()
    segments = snapshot if isinstance(snapshot, list) else snapshot["segments"]
    facts["blocks of each segment"] = [len(s["blocks"]) for s in segments]
    del held
    return facts


OWN_ALLOCATOR = r"""
#include <cuda_runtime_api.h>
#include <atomic>
static std::atomic<long> taken{0}, given{0}, bytes{0};
extern "C" {
void* own_alloc(size_t size, int, cudaStream_t) {
  void* p = nullptr;
  if (cudaMalloc(&p, size) != cudaSuccess) return nullptr;
  ++taken; bytes += static_cast<long>(size);
  return p;
}
void own_free(void* p, size_t, int, cudaStream_t) { ++given; (void)cudaFree(p); }
long own_taken() { return taken; }
long own_given() { return given; }
long own_bytes() { return bytes; }
}
"""


@check("MemPool with its own allocator")
def own_allocator(torch, module, keep):
    import ctypes

    import native

    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "own.cpp"), os.path.join(folder, "own.so")
    with open(source, "w", encoding="utf-8") as file:
        file.write(OWN_ALLOCATOR)
    torch.cuda.init()
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source, "-I", native.cuda_include(),
                    native.cuda_runtime()], check=True)
    own = ctypes.CDLL(library)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(library, "own_alloc", "own_free")
    pool = torch.cuda.MemPool(allocator.allocator())
    with torch.cuda.use_mem_pool(pool):
        small, large, huge = tensor(torch, 0.5, 1), tensor(torch, 3, 2), tensor(torch, 33.5, 3)
        more = tensor(torch, 3, 4)
    facts = {"segments": own.own_taken(), "bytes": own.own_bytes()}
    torch.cuda.synchronize()
    for value, one in enumerate((small, large, huge, more), 1):
        assert bool((one == value).all())
    assert sum(s["total_size"] for s in torch.cuda.memory_snapshot()
               if tuple(s["segment_pool_id"]) == tuple(pool.id)) == own.own_bytes()
    del small, large, huge, more
    facts["cached"] = own.own_given()
    with torch.cuda.use_mem_pool(pool):
        again = tensor(torch, 3)
    facts["used again"] = own.own_taken()
    del again, pool, one
    gc.collect()
    torch.cuda.empty_cache()
    facts["given back"] = own.own_given()
    return facts


@check("CUDA graph")
def cuda_graph(torch, module, keep):
    x = torch.ones(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (x * 2).sum()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = (x * 2) + 1
        z = (y * y).sum()
    others = [torch.full((1 << 20,), float(i), device="cuda") for i in range(8)]
    for value in (1.0, 2.0, 3.0):
        x.fill_(value)
        graph.replay()
        assert float(y[0]) == 2 * value + 1
        assert float(z) == (2 * value + 1) ** 2 * (1 << 20)
        assert all(float(other[0]) == i for i, other in enumerate(others))
    reserved = torch.cuda.memory_reserved()
    del y, z, graph
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < reserved


@check("CUDA graphs that share a pool")
def graphs_share(torch, module, keep):
    handle = torch.cuda.graph_pool_handle()
    x = torch.ones(1 << 20, device="cuda")
    (x * 3).sum()
    graphs, outputs = [], []
    for i in range(4):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=handle):
            outputs.append((x * (i + 1)).cumsum(0))
        graphs.append(graph)
    for i, graph in enumerate(graphs):
        graph.replay()
        assert float(outputs[i][-1]) == (i + 1) * (1 << 20)
    del graphs[0], outputs[0]
    graphs[-1].replay()
    torch.cuda.synchronize()


@check("CUDA graph with a second stream")
def graph_streams(torch, module, keep):
    x = torch.ones(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    (x * 3).sum()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a = x * 2
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b = a + 1
            a.record_stream(side)
        del a
        c = x * 5
        torch.cuda.current_stream().wait_stream(side)
        d = b + c
    for value in (1.0, 4.0):
        x.fill_(value)
        graph.replay()
        assert float(d.min()) == float(d.max()) == 7 * value + 1
    freed_meanwhile = [tensor(torch, 3, 9) for _ in range(10)]
    del freed_meanwhile
    torch.cuda.empty_cache()
    graph.replay()
    torch.cuda.synchronize()


@check("a capture while others allocate")
def capture_and_others(torch, module, keep):
    x = torch.ones(1 << 20, device="cuda")
    (x * 3).sum()
    torch.cuda.synchronize()
    stop, wrong = threading.Event(), []

    def others():
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            while not stop.is_set():
                held = [tensor(torch, 1 + i % 5) for i in range(8)]
                del held

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(5):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                y = x
                for _ in range(20):
                    y = y + 1
            graph.replay()
            if float(y[0]) != 21.0:
                wrong.append(float(y[0]))
    finally:
        stop.set()
        thread.join()
    assert not wrong


@check("make_graphed_callables")
def graphed_callables(torch, module, keep):
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
    model = model.cuda()
    sample = torch.randn(32, 256, device="cuda")
    want = model(sample).detach().clone()
    graphed = torch.cuda.make_graphed_callables(model, (sample.clone(),))
    for _ in range(20):
        out = graphed(sample)
        out.sum().backward()
    assert torch.allclose(out, want, atol=1e-5)


def compiled_training(torch, mode, steps=200):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256))
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = torch.compile(lambda x: model(x).square().mean(), mode=mode)
    losses = []
    for i in range(steps):
        x = torch.randn(64, 256, device="cuda", generator=None)
        loss = step(x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss))
    assert losses[-1] < losses[0] / 3, (losses[0], losses[-1])
    return {"first": round(losses[0], 3), "~last": losses[-1]}


@check("torch.compile, 200 steps")
def compile_default(torch, module, keep):
    return compiled_training(torch, None)


@check("reduce-overhead, 200 steps")
def compile_graphs(torch, module, keep):
    return compiled_training(torch, "reduce-overhead")


@check("graph trees: paths and checkpoints")
def graph_trees(torch, module, keep):
    torch._inductor.config.triton.slow_path_cudagraph_asserts = True

    def part(x, k):
        return (x * k).sin() + 1, (x + k).cos()

    compiled = torch.compile(part, mode="reduce-overhead", dynamic=False)
    x = torch.randn(1 << 16, device="cuda")
    worst = 0.0
    for i in range(60):
        torch.compiler.cudagraph_mark_step_begin()
        path = (2.0, 3.0) if i % 3 else (5.0, 7.0, 2.0)
        with torch.no_grad():
            a, want = x, x
            for k in path:
                a = compiled(a, k)[0]
                want = part(want, k)[0]
        worst = max(worst, float((a - want).abs().max()))
    assert worst < 1e-3, worst


@check("reduce-overhead: sizes that change")
def graph_sizes(torch, module, keep):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128))
    model = model.cuda().eval()
    compiled = torch.compile(model, mode="reduce-overhead", dynamic=False)
    with torch.no_grad():
        for i in range(40):
            x = torch.randn((8, 16, 24, 32)[i % 4], 128, device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.allclose(compiled(x), model(x), atol=1e-3)


@check("cudnn.benchmark")
def cudnn_benchmark(torch, module, keep):
    torch.backends.cudnn.benchmark = True
    conv = torch.nn.Conv2d(16, 32, 3, padding=1).cuda()
    for size in (32, 64, 128):
        conv(torch.randn(8, 16, size, size, device="cuda")).sum().backward()
    torch.cuda.synchronize()


# --- Other processes and host memory -------------------------------------------------------------


def receive(queue, back, is_headroom):
    import torch

    if is_headroom:
        import native

        native.enable()
    for _ in range(3):
        got = queue.get()
        total = int(got.sum().item())
        got.add_(1)
        torch.cuda.synchronize()
        del got
        back.put(total)


@check("tensors between processes")
def between_processes(torch, module, keep):
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    queue, back = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(queue, back, module is not None))
    child.start()
    totals = []
    held = []
    for elements in (1000, 1 << 20, 9 << 20):
        x = torch.ones(elements, dtype=torch.int64, device="cuda")
        held.append(x)
        queue.put(x)
        totals.append(back.get(timeout=90))
        torch.cuda.synchronize()
        assert int(x.min()) == int(x.max()) == 2, "the child's write is not seen"
    child.join(30)
    return {"totals": totals, "exit": child.exitcode}


class Numbers:
    def __len__(self):
        return 64

    def __getitem__(self, i):
        import torch

        return torch.full((1000,), float(i))


def loader(torch, context):
    from torch.utils.data import DataLoader

    tensor(torch, 10)
    seen = 0.0
    for batch in DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True,
                            multiprocessing_context=context):
        seen += float(batch.cuda(non_blocking=True).mean())
    return {"seen": seen}


@check("DataLoader, fork")
def loader_fork(torch, module, keep):
    return loader(torch, "fork")


@check("DataLoader, spawn")
def loader_spawn(torch, module, keep):
    return loader(torch, "spawn")


@check("pinned memory")
def pinned(torch, module, keep):
    host = torch.arange(1 << 20, dtype=torch.float32).pin_memory()
    assert host.is_pinned()
    there = host.to("cuda", non_blocking=True)
    back = there.to("cpu")
    assert torch.equal(back, host)
    return {"keys": sorted(torch.cuda.host_memory_stats())}


@check("peer access")
def peer(torch, module, keep):
    if torch.cuda.device_count() < 2:
        return {"cards": "one: cannot be tried here"}
    x = torch.arange(1 << 20, device="cuda:0")
    y = x.to("cuda:1")
    assert torch.equal(y.cpu(), x.cpu())
    return {"peer": torch.cuda.can_device_access_peer(0, 1)}


@check("NCCL")
def nccl(torch, module, keep):
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_nccl_available():
        return {"nccl": "not in this PyTorch"}
    store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)
    dist.init_process_group("nccl", store=store, rank=0, world_size=1,
                            device_id=torch.device("cuda:0"))
    x = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(x)
    torch.cuda.synchronize()
    assert float(x.sum()) == 1 << 20
    dist.destroy_process_group()
    return {"nccl": "works"}


# --- Odds and ends that public code uses ---------------------------------------------------------


@check("caching_allocator_alloc")
def raw_alloc(torch, module, keep):
    memory = torch.cuda.memory
    before = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
    address = memory.caching_allocator_alloc(5 * MB)
    stream = torch.cuda.Stream()
    other = memory.caching_allocator_alloc(5 * MB, stream=stream)
    up = torch.cuda.memory_allocated() - before
    memory.caching_allocator_delete(address)
    memory.caching_allocator_delete(other)
    return {"up": up, "down": torch.cuda.memory_allocated() - before}


@check("caching_allocator_enable")
def uncached(torch, module, keep):
    tensor(torch, 1)
    before = torch.cuda.memory_allocated()
    torch.cuda.caching_allocator_enable(False)
    held = tensor(torch, 5, 3)
    counted = torch.cuda.memory_allocated() - before
    assert bool((held == 3).all())
    del held
    torch.cuda.caching_allocator_enable(True)
    held = tensor(torch, 5, 4)
    assert bool((held == 4).all())
    return {"counted": counted}


@check("storages that change size")
def resize(torch, module, keep):
    x = torch.ones(1 << 20, device="cuda")
    before = torch.cuda.memory_allocated()
    x.untyped_storage().resize_(0)
    down = torch.cuda.memory_allocated() - before
    x.untyped_storage().resize_(4 << 20)
    x.fill_(2)
    assert float(x.sum()) == 2 << 20
    lazy = torch._lazy_clone(x)
    lazy += 1
    assert float(x[0]) == 2 and float(lazy[0]) == 3
    return {"down": down, "up": torch.cuda.memory_allocated() - before}


@check("checkpointing, autocast, optimizers")
def training(torch, module, keep):
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(1)
    blocks = torch.nn.ModuleList([torch.nn.Linear(512, 512) for _ in range(6)]).cuda()
    scaler = torch.amp.GradScaler("cuda")
    optimizer = torch.optim.Adam(blocks.parameters(), fused=True)
    for _ in range(10):
        with torch.autocast("cuda", torch.float16):
            x = torch.randn(64, 512, device="cuda")
            for block in blocks:
                x = checkpoint(block, x, use_reentrant=False)
            loss = x.float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return {"loss": round(float(loss), 4)}


@check("mem_get_info, processes, ipc_collect")
def questions(torch, module, keep):
    tensor(torch, 1)
    torch.cuda.ipc_collect()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    text = torch.cuda.list_gpu_processes()
    return {"total": total, "processes": bool(re.search("process|GPU", text))}


@check("a program ends with tensors alive")
def ends(torch, module, keep):
    import builtins

    builtins.kept_for_the_end = [tensor(torch, 3) for _ in range(4)]
    torch.cuda.Stream()
    return {"version": sys.version_info[0]}


@check("the account and scopes of headroom")
def own_functions(torch, module, keep):
    if module is None:
        return {}
    import json

    module.scope_push("attention")
    held = tensor(torch, 20)
    peaks = module.scope_pop()
    assert peaks["path"] == "attention" and peaks["peak_allocated"] >= 20 * MB
    account = json.loads(module.account(0))
    assert account["lines"]["live_bytes"] >= held.numel()
    assert "live" in module.report(0) and module.is_enabled()
    assert module.stats(0)["allocated_bytes.all.current"] == torch.cuda.memory_allocated()
    try:
        module.enable({})
        raise AssertionError("enabled twice")
    except RuntimeError:
        pass
    return {}
