"""Every promise of headroom.torch, tried on a GPU.

    python3 bindings/python/try_on_gpu.py [--route plain] [--only PART] [--wheel FILE] [--json FILE]

Needs PyTorch with CUDA, a GPU and the plug-in (./run builds it, or --wheel has it). Each check runs
in a process of its own with a time limit, on both routes; a check that a route is documented not to
do says so there. Prints a table, and exits 1 where something is not as docs/guide/pytorch.md says.

With --wheel the wheel is installed by pip into a new environment that sees this Python's packages,
and everything runs from there, so that HEADROOM_TORCH=1 is tried as users have it.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.environ.get("TRY_PACKAGE", HERE)  # the folder that has the package
MB = 1 << 20
CHECKS = {}
ROUTES = ("plain", "full")
PLAIN_LACKS = {}  # check -> what it must say there


def check(name, plain_says=None):
    def keep(function):
        CHECKS[name] = function
        if plain_says:
            PLAIN_LACKS[name] = plain_says
        return function
    return keep


def enabled(**settings):
    """headroom.torch, enabled, and torch."""
    import headroom.torch
    import torch

    route = headroom.torch.enable(**settings)
    assert route == os.environ["HEADROOM_TORCH_ROUTE"], f"the route is {route}"
    return headroom.torch, torch


def expect(kind, call, *words):
    try:
        call()
    except kind as error:
        for word in words:
            assert word in str(error), f"'{word}' is not in: {str(error)[:600]}"
        return error
    raise AssertionError(f"no {kind.__name__}")


def run(arguments, **variables):
    done = subprocess.run([sys.executable, *arguments], env={**os.environ, **variables}, text=True,
                          capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stdout[-800:]} {done.stderr[-1500:]}"
    return done


def script_file(folder, text):
    path = os.path.join(folder, "script.py")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def train(torch, steps=5):
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(False)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(),
                                torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for step in range(steps):
        x = torch.randn(64 + 32 * step, 512, device="cuda")
        loss = (model(x) - x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


# --- Three ways in --------------------------------------------------------------------------------


@check("enable() in the program")
def enable_in_program(folder):
    ht, torch = enabled()
    losses = train(torch)
    assert losses[-1] < losses[0] and ht.is_enabled()
    assert ht.memory_reserved() > 0


@check("the losses are PyTorch's own")
def losses_are_equal(folder):
    ht, torch = enabled()
    ours = train(torch)
    text = (f"import sys; sys.path.insert(0, {HERE!r})\n"
            "import torch, try_on_gpu; print(try_on_gpu.train(torch))")
    own = run(["-c", text], HEADROOM_TORCH="0").stdout
    again = json.loads(own.strip().splitlines()[-1])
    assert all(abs(a - b) <= 1e-4 * abs(b) for a, b in zip(ours, again)), (ours, again)


@check("python -m headroom.torch script.py")
def launcher(folder):
    path = script_file(folder, "import sys, torch, headroom.torch\n"
                               "x = torch.ones(1 << 20, device='cuda')\n"
                               "assert headroom.torch.memory_allocated() == 4 << 20\n"
                               "print(headroom.torch.route(), sys.argv[1:])\n")
    done = run(["-m", "headroom.torch", path, "--limit", "a"])
    assert done.stdout.split("\n")[0] == f"{os.environ['HEADROOM_TORCH_ROUTE']} ['--limit', 'a']", done
    done = run(["-m", "headroom.torch", "-m", "timeit", "-n1", "-r1", "import torch;"
                "torch.ones(9, device='cuda')"])
    assert "loop" in done.stdout


@check("HEADROOM_TORCH=1, spawned and forked children")
def environment(folder):
    # Installed by pip, headroom.pth is read by Python; else this does what Python would do.
    installed = os.environ.get("TRY_INSTALLED") == "1"
    if not installed:
        with open(os.path.join(folder, "sitecustomize.py"), "w", encoding="utf-8") as file:
            file.write(f"import site; site.addsitedir({PACKAGE!r})\n")
    path = script_file(folder, """
import multiprocessing, sys

def child(n):
    import torch
    route = sys.modules["headroom.torch._enable"].active().name
    x = torch.full((1 << 20,), n, device="cuda")
    assert sys.modules["headroom.torch"].memory_allocated() == 8 << 20
    return route, int(x.sum().item()) >> 20

if __name__ == "__main__":
    import torch
    print(sys.modules["headroom.torch._enable"].active().name)
    y = torch.ones(1 << 20, device="cuda")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(child, [1, 2, 3]))
    data = torch.utils.data.TensorDataset(torch.arange(64.))
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(data, batch_size=8, num_workers=2, pin_memory=True,
                                             multiprocessing_context=context)
        print(sum(batch[0].cuda().sum().item() for batch in loader))
""")
    paths = os.environ.get("PYTHONPATH", "")
    done = run([path], HEADROOM_TORCH="1",
               PYTHONPATH=paths if installed else os.pathsep.join([folder, paths]))
    route = os.environ["HEADROOM_TORCH_ROUTE"]
    assert done.stdout.split("\n")[:4] == [
        route, str([(route, 1), (route, 2), (route, 3)]), "2016.0", "2016.0"], done.stdout


@check("without the variable nothing is imported")
def variable_is_unset(folder):
    done = run(["-c", "import sys, torch; torch.ones(1, device='cuda');"
                      "print([m for m in sys.modules if m.startswith('headroom')])"],
               HEADROOM_TORCH="0")
    assert done.stdout.strip() == "[]", done.stdout


@check("too late is an error that says so")
def too_late(folder):
    import headroom.torch
    import torch

    x = torch.ones(1024, device="cuda")
    expect(headroom.torch.EnableError, headroom.torch.enable, "CUDA has started already")
    assert x.sum().item() == 1024 and torch.cuda.memory_allocated() > 0


# --- Safety ---------------------------------------------------------------------------------------


@check("record_stream: 1,000 rounds, 0 wrong")
def record_stream(folder):
    ht, torch = enabled()
    side = torch.cuda.Stream()
    sizes = (4 << 10, 1 << 20, 24 << 20)
    wrong = 0
    for i in range(1000):
        count = sizes[i % 3] // 4
        block = torch.full((count,), i, dtype=torch.int32, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(2_000_000)
            copy = block.clone()
        block.record_stream(side)
        del block
        following = torch.full((count,), -1, dtype=torch.int32, device="cuda")
        torch.cuda.synchronize()
        wrong += not bool((copy == i).all())
        del copy, following
    assert wrong == 0, f"{wrong} of 1000 wrong"
    return {"wrong": wrong}


@check("four threads, four streams: no wrong data")
def threads_and_streams(folder):
    ht, torch = enabled()
    failures = []

    def work(seed):
        generator = __import__("random").Random(seed)
        stream, other = torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for i in range(300):
                count = generator.choice((100, 3000, 1 << 18, 5 << 20))
                block = torch.full((count,), i + seed, device="cuda", dtype=torch.int32)
                other.wait_stream(stream)
                with torch.cuda.stream(other):
                    copy = block + 1
                block.record_stream(other)
                del block
                torch.empty(count, device="cuda", dtype=torch.int32).fill_(-7)
                other.synchronize()
                if not bool((copy == i + seed + 1).all()):
                    failures.append((seed, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert not failures, failures[:5]


@check("streams of others that come and go")
def passing_streams(folder):
    import ctypes
    import re

    ht, torch = enabled()
    torch.ones(1, device="cuda")
    with open("/proc/self/maps", encoding="utf-8") as maps:
        runtime = ctypes.CDLL(re.search(r"/\S*libcudart\S*", maps.read()).group())
    for i in range(300):
        handle = ctypes.c_void_p()
        assert runtime.cudaStreamCreate(ctypes.byref(handle)) == 0
        stream = torch.cuda.ExternalStream(handle.value)
        with torch.cuda.stream(stream):
            x = torch.full((1 << 21,), i, dtype=torch.int32, device="cuda")
            y = x * 2
        torch.cuda.current_stream().wait_stream(stream)
        y.record_stream(torch.cuda.current_stream())
        assert int(y.max()) == 2 * i
        torch.cuda.synchronize()
        assert runtime.cudaStreamDestroy(handle) == 0
        del x, y  # after the stream
        torch.empty((i % 7 + 1) << 20, device="cuda").fill_(1)
    assert ht.memory_reserved() < 1 << 30, ht.memory_reserved()


@check("out of memory raises, 100 times, and the process goes on")
def out_of_memory(folder):
    ht, torch = enabled(limit="1GiB")
    kept = torch.ones(64 * MB, dtype=torch.uint8, device="cuda")
    kind = torch.OutOfMemoryError if ht.route() == "full" else RuntimeError
    for _ in range(100):
        expect(kind, lambda: torch.empty(4 << 30, dtype=torch.uint8, device="cuda"),
               "CUDA out of memory. Tried to allocate", "limit")
    expect(kind, lambda: torch.empty(1 << 45, dtype=torch.uint8, device="cuda"), "out of memory")
    train(torch)
    assert int(kept.sum().item()) == 64 * MB
    assert ht.memory_stats()["num_ooms"] >= 100


@check("limit")
def limit(folder):
    ht, torch = enabled(limit=512 * MB)
    blocks = []
    expect(RuntimeError,
           lambda: [blocks.append(torch.empty(16 * MB, dtype=torch.uint8, device="cuda"))
                    for _ in range(64)], "out of memory")
    assert 28 <= len(blocks) <= 32, len(blocks)
    assert ht.max_memory_reserved() <= 512 * MB
    assert ht.account()["limit_bytes"] == 512 * MB


@check("CUDA graphs keep their memory apart")
def graphs(folder):
    ht, torch = enabled()
    x = torch.ones(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        (x * 2).sum()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        middle = x * 2
        y = middle + 1
        del middle
    others = [torch.full((1 << 20,), float(i), device="cuda") for i in range(64)]
    for value in range(1, 200):
        x.fill_(value)
        graph.replay()
        assert y[0].item() == 2 * value + 1
    assert all(bool((others[i] == i).all()) for i in range(64)), "the graph wrote over other tensors"
    pool = torch.cuda.graph_pool_handle()
    more = []
    for value in range(3):
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, pool=pool):
            out = x + value
        more.append((captured, out))
    x.fill_(10)
    for captured, _ in more:
        captured.replay()
    assert [out[0].item() for _, out in more] == [10, 11, 12]
    before = ht.memory_reserved()
    del graph, y, more, captured, out
    torch.cuda.empty_cache()
    assert ht.memory_reserved() <= before
    train(torch)


@check("torch.compile")
def compiled(folder):
    ht, torch = enabled()
    step = torch.compile(lambda x: (x * 2).sin().sum())
    assert abs(step(torch.zeros(4096, device="cuda")).item()) < 1e-6


@check("torch.compile, reduce-overhead", plain_says="not yet support")
def reduce_overhead(folder):
    ht, torch = enabled()
    model = torch.nn.Linear(256, 256).cuda()
    step = torch.compile(model, mode="reduce-overhead")
    for i in range(5):
        x = torch.full((64, 256), float(i), device="cuda")
        assert torch.allclose(step(x), model(x), atol=1e-3)


@check("cudnn.benchmark", plain_says="not yet support")
def cudnn_benchmark(folder):
    ht, torch = enabled()
    torch.backends.cudnn.benchmark = True
    torch.nn.Conv2d(3, 8, 3).cuda()(torch.randn(2, 3, 32, 32, device="cuda"))
    torch.cuda.synchronize()


@check("MemPool", plain_says="not yet support")
def mem_pool(folder):
    ht, torch = enabled()
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        x = torch.ones(1 << 20, device="cuda")
    assert x.sum().item() == 1 << 20


@check("memory_snapshot", plain_says="not yet support")
def memory_snapshot(folder):
    ht, torch = enabled()
    kept = torch.ones(1 << 20, device="cuda")
    assert sum(s["allocated_size"] for s in torch.cuda.memory_snapshot()) >= kept.nbytes


# --- What is asked --------------------------------------------------------------------------------


@check("torch.cuda's own questions")
def questions(folder):
    ht, torch = enabled()
    x = torch.ones(8 * MB, dtype=torch.uint8, device="cuda")
    cuda = torch.cuda
    assert cuda.memory_allocated() == ht.memory_allocated() == 8 * MB
    y = torch.ones(8 * MB, dtype=torch.uint8, device="cuda")
    del y
    assert cuda.max_memory_allocated() == 16 * MB
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() == 8 * MB
    assert cuda.memory_reserved() >= 8 * MB and cuda.max_memory_reserved() >= cuda.memory_reserved()
    cuda.empty_cache()
    assert "allocated" in cuda.memory_summary().lower()
    assert cuda.memory_stats()["allocation.all.current"] == 1
    cuda.set_per_process_memory_fraction(0.25)
    assert abs(cuda.get_per_process_memory_fraction() - 0.25) < 1e-9
    expect(RuntimeError, lambda: torch.empty(
        torch.cuda.mem_get_info()[1] // 2, dtype=torch.uint8, device="cuda"), "out of memory")
    cuda.set_per_process_memory_fraction(1.0)
    assert int(x[:10].sum().item()) == 10


@check("report and account")
def report(folder):
    ht, torch = enabled()
    x = torch.ones(100 * MB, dtype=torch.uint8, device="cuda")
    text, account = ht.report(), ht.account()
    assert "100MiB" in text and all(len(line) <= 80 for line in text.split("\n")), text
    assert account["lines"]["live_bytes"] == x.nbytes
    assert sum(account["lines"].values()) == account["total_bytes"]
    free, total = torch.cuda.mem_get_info()
    assert abs(account["total_bytes"] - total) <= 1 << 30
    return {"report": text}


@check("scopes")
def scopes(folder):
    ht, torch = enabled()
    kept = torch.ones(4 * MB, dtype=torch.uint8, device="cuda")
    with ht.scope("step") as step:
        a = torch.ones(64 * MB, dtype=torch.uint8, device="cuda")
        del a
        torch.cuda.reset_peak_memory_stats()
        with ht.scope("attention") as attention:
            b = torch.ones(16 * MB, dtype=torch.uint8, device="cuda")
            del b
    assert (step.path, attention.path) == ("step", "step/attention")
    assert step.peak_allocated == 68 * MB and attention.peak_allocated == 20 * MB, (step, attention)
    assert step.peak_reserved >= attention.peak_reserved >= kept.nbytes


@check("idle_trim")
def idle_trim(folder):
    ht, torch = enabled()
    torch.ones(512 * MB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    assert ht.memory_reserved() >= 512 * MB
    ht.idle_trim(after="200ms", keep="16MiB")
    end = time.monotonic() + 20
    while ht.memory_reserved() > 16 * MB and time.monotonic() < end:
        time.sleep(0.05)
    assert ht.memory_reserved() <= 16 * MB, ht.memory_reserved()
    train(torch)


@check("record", plain_says="needs the full route")
def record(folder):
    ht, torch = enabled()
    path = os.path.join(folder, "run.hrt")
    with ht.record(path, max_bytes="16MiB"):
        train(torch, steps=20)
    assert 0 < os.path.getsize(path) <= 17 * MB
    done = run(["-m", "headroom", "info", path])
    assert "try_on_gpu.py" in done.stdout, done.stdout
    return {"bytes": os.path.getsize(path)}


@check("sleep and wake", plain_says="needs the full route")
def sleep_and_wake(folder):
    ht, torch = enabled()
    with ht.scope("weights"):
        weights = torch.ones(8192 * MB, dtype=torch.uint8, device="cuda")
    kept = torch.full((MB,), 7, dtype=torch.uint8, device="cuda")
    address = weights.data_ptr()
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    ht.sleep("weights")
    # Other programs may take memory of the card meanwhile.
    assert torch.cuda.mem_get_info()[0] - before >= 4096 * MB, "no memory went back to the device"
    assert bool((kept == 7).all())
    assert ht.memory_allocated() < 16 * MB, ht.memory_allocated()
    assert ht.account()["sleeping_bytes"] >= 512 * MB
    ht.wake("weights")
    assert weights.data_ptr() == address
    weights.fill_(3)
    assert bool((weights == 3).all()) and bool((kept == 7).all())
    # What it holds comes back, and a graph that was captured goes on with the same addresses.
    graph = torch.cuda.CUDAGraph()
    outside = torch.zeros(1, device="cuda")
    with torch.cuda.graph(graph):
        outside.copy_(weights[:1].float())
    ht.sleep("weights", keep=True)
    other = torch.zeros(256 * MB, dtype=torch.uint8, device="cuda")
    ht.wake("weights")
    assert bool((weights == 3).all()) and not bool(other.any())
    graph.replay()
    assert outside.item() == 3
    # Where there is no room, it sleeps on.
    del other
    ht.sleep("weights", keep=True)
    torch.cuda.empty_cache()
    rest = torch.empty(torch.cuda.mem_get_info()[0] - 256 * MB, dtype=torch.uint8, device="cuda")
    try:
        ht.wake("weights")
    except torch.OutOfMemoryError as error:
        assert "asleep" in str(error), error
    else:
        raise AssertionError("waking without room raised nothing")
    del rest
    ht.wake("weights")
    assert bool((weights == 3).all())


# --- Running them ---------------------------------------------------------------------------------


def child(name):
    with tempfile.TemporaryDirectory() as folder:
        facts = CHECKS[name](folder)
    print("RESULT " + json.dumps(facts or {}), flush=True)


def try_check(python, name, route, limit_s, variables):
    environment_of_child = {**os.environ, **variables, "HEADROOM_TORCH_ROUTE": route}
    begin = time.monotonic()
    try:
        done = subprocess.run([python, os.path.abspath(__file__), "--child", name],
                              env=environment_of_child, text=True, timeout=limit_s, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        code, out, err = "timeout", "", (late.stderr or b"").decode(errors="replace")
    results = [line for line in out.split("\n") if line.startswith("RESULT ")]
    answer = {"check": name, "route": route, "seconds": round(time.monotonic() - begin, 1)}
    lacks = PLAIN_LACKS.get(name) if route == "plain" else None
    if code == 0 and results:
        answer["facts"] = json.loads(results[-1][7:])
        answer["state"] = "works, and is documented not to" if lacks else "works"
        answer["is_good"] = not lacks
    elif lacks and lacks in err:
        answer.update(state="not on this route", is_good=True)
    else:
        answer.update(state="FAILS", is_good=False, code=code, error=err[-3000:])
    return answer


def unpack(wheel, folder):
    """What pip does, where there is none: the variables of a Python that finds the package."""
    place = os.path.join(folder, "unpacked")
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            os.chmod(archive.extract(entry, place), entry.external_attr >> 16 & 0o777)
    return {"TRY_PACKAGE": place, "PYTHONPATH": place}


def install(wheel, folder):
    """A Python with the wheel, and with the packages of this one; nothing where that cannot be."""
    place = os.path.join(folder, "environment")
    made = subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", place],
                          check=False, capture_output=True)
    if made.returncode != 0:
        return None
    python = os.path.join(place, "bin", "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
                    "--disable-pip-version-check", os.path.abspath(wheel)], check=True)
    # An environment of an environment does not see the first one's packages by itself.
    code = "import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))"
    packages = subprocess.run([sys.executable, "-c", code], check=True, text=True,
                              capture_output=True).stdout.strip()
    return python, packages


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--route", action="append", choices=ROUTES, help="only this one")
    parser.add_argument("--only", action="append", help="checks whose names have this part")
    parser.add_argument("--wheel", metavar="FILE", help="install this and try it from there")
    parser.add_argument("--json", metavar="FILE", help="all results, written there")
    parser.add_argument("--jobs", type=int, default=6, help="checks at a time (default 6)")
    parser.add_argument("--limit", type=float, default=150, help="seconds for each (default 150)")
    parser.add_argument("--list", action="store_true", help="print the names of the checks")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return 0
    names = [name for name in CHECKS
             if not options.only or any(part in name for part in options.only)]
    if options.list:
        print("\n".join(names))
        return 0
    results = []
    with tempfile.TemporaryDirectory() as folder:
        python, variables = sys.executable, {"PYTHONPATH": HERE}
        if options.wheel:
            installed = install(options.wheel, folder)
            if installed:
                python, packages = installed
                variables = {"TRY_INSTALLED": "1", "PYTHONPATH": packages}
            else:
                print("no environment can be made here; the wheel is unpacked by hand")
                variables = unpack(options.wheel, folder)
        paths = os.environ.get("PYTHONPATH")
        if paths:
            variables["PYTHONPATH"] += os.pathsep + paths
        routes = options.route or list(ROUTES)
        if "full" in routes:  # once, and not by every check
            done = subprocess.run([python, "-m", "headroom.torch", "--compile"], check=False,
                                  env={**os.environ, **variables})
            if done.returncode != 0:
                print("the full route cannot be compiled here")
                results.append({"check": "compile", "route": "full", "is_good": False,
                                "state": "FAILS", "seconds": 0})
                routes.remove("full")
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            jobs = [pool.submit(try_check, python, name, route, options.limit, variables)
                    for name in names for route in routes]
            for job in jobs:
                answer = job.result()
                results.append(answer)
                print(f"{answer['route']:6} {answer['check']:56} {answer['state']:18} "
                      f"{answer['seconds']:6.1f} s", flush=True)
                if "error" in answer:
                    print("    " + answer["error"].strip().replace("\n", "\n    "), flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    bad = sum(not result["is_good"] for result in results)
    print(f"{len(results) - bad} of {len(results)} as documented")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
