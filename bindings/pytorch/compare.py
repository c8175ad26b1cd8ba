"""PyTorch on headroom's allocator beside PyTorch on its own.

    python3 bindings/pytorch/compare.py build/libheadroom_torch.so [--rounds 3]

Runs the ragged programs of workloads.py in processes of their own: a round is one native and one
plugged in, which take the same step one right after the other, so that a machine that is slow for a
while is slow for both. Then once more plugged in, under a limit of 1.02 times the peak of active
bytes. Prints a line of JSON for each: how far apart the losses are, a step's time over that of
native's same step (median of all steps, and of each round's), and peak reserved over peak active.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import headroom_torch
from workloads import WORKLOADS, make


# For the program, autograd's thread and a little else. Which ones a run would get by chance, near
# to the GPU or far from it, is not to count as the allocator's.
PROCESSORS = 4


def run_child(name, library):
    """The child: a step for every line it is given, its loss and its time as a line of JSON."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:PROCESSORS])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    import torch

    def answer(**fields):
        print(json.dumps(fields), file=answers, flush=True)

    if library:
        headroom_torch.install(library)
    step, count = make(name)
    answer(steps=count)
    for _ in range(count):
        if not sys.stdin.readline():
            return  # nobody asks any more
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        answer(seconds=time.perf_counter() - start, loss=loss.item())
    if library:
        answer()  # it writes its own statistics, at its end
    else:
        stats = torch.cuda.memory_stats()
        answer(active_peak=stats["active_bytes.all.peak"],
               reserved_peak=stats["reserved_bytes.all.peak"])


class RunFailed(Exception):
    """A child that ended before its last step, with headroom's message or else its last line."""


class Run:
    """A workload in a process of its own, a step at a time."""

    def __init__(self, name, library, limit=None):
        self.times, self.losses, self.stats = [], [], {}
        self._is_plugged = bool(library)
        self._folder = tempfile.TemporaryDirectory()
        self._stats_file = os.path.join(self._folder.name, "stats.json")
        environment = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                           PYTHONHASHSEED="0", HEADROOM_STATS=self._stats_file)
        if limit:
            environment["HEADROOM_LIMIT"] = str(limit)
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, __file__, library or "", "--child", name], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()
        self._errors.close()
        self._folder.cleanup()

    def _answer(self):
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._errors.seek(0)
            lines = self._errors.read().strip().splitlines() or ["no message"]
            ours = [line for line in lines if line.startswith("headroom: ")]
            raise RunFailed((ours or lines[-1:])[0])
        return json.loads(line)

    def wait_until_ready(self):
        """The number of steps it has."""
        return self._answer()["steps"]

    def step(self):
        try:
            print(file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # it has ended; the answer says why
        answer = self._answer()
        self.times.append(answer["seconds"])
        self.losses.append(answer["loss"])

    def finish(self):
        self.stats = self._answer()
        self._process.communicate()
        if self._is_plugged:
            with open(self._stats_file, encoding="utf-8") as file:
                self.stats.update(json.load(file)[0])


def run_round(name, library, number):
    """A native run and a plugged one, which take each step by turns."""
    with Run(name, None) as native, Run(name, library) as plugged:
        both = (native, plugged)
        steps = min(run.wait_until_ready() for run in both)  # neither loads while the other steps
        for i in range(steps):
            for run in both if (number + i) % 2 else reversed(both):  # neither is always the first
                run.step()
        native.finish()
        plugged.finish()
    return native, plugged


def run_under(name, library, limit):
    with Run(name, library, limit) as run:
        for _ in range(run.wait_until_ready()):
            run.step()
        run.finish()
    return run


def same_losses(a, b):
    """Kernels that add up in any order differ in the last digits, with one allocator too."""
    return max(abs(x - y) / max(abs(x), 1e-12) for x, y in zip(a, b))


def time_ratios(native, plugged):
    return [plug / own for plug, own in zip(plugged.times, native.times)]


def compare(name, library, rounds):
    done = [run_round(name, library, number) for number in range(rounds)]
    native_runs, plugged_runs = zip(*done)
    native, plugged = native_runs[-1], plugged_runs[-1]
    ratios = [time_ratios(*pair) for pair in done]
    step_ms = lambda runs: statistics.median(sum((run.times for run in runs), [])) * 1e3
    limit = int(1.02 * plugged.stats["active_peak"])
    result = {
        "workload": name,
        "loss_difference": same_losses(native_runs[0].losses, plugged.losses),
        "loss_difference_native": same_losses(native_runs[0].losses, native.losses),
        "native_step_ms": step_ms(native_runs),
        "step_ms": step_ms(plugged_runs),
        "step_ratio": statistics.median(sum(ratios, [])),
        "step_ratio_of_rounds": [statistics.median(of_round) for of_round in ratios],
        "native_active_peak": native.stats["active_peak"],
        "native_reserved_peak": native.stats["reserved_peak"],
        "native_reserved_over_active": native.stats["reserved_peak"] / native.stats["active_peak"],
        "reserved_over_active": plugged.stats["reserved_peak"] / plugged.stats["active_peak"],
        **{field: plugged.stats[field] for field in (
            "active_peak", "reserved_peak", "handles_created", "handles_mapped",
            "handles_unmapped", "retries")},
        "limit": limit,
    }
    try:
        tight = run_under(name, library, limit)
    except RunFailed as failure:
        return {**result, "under_limit": str(failure)}
    return {
        **result,
        "under_limit": "completed",
        "under_limit_step_ms": step_ms([tight]),
        "under_limit_reserved_peak": tight.stats["reserved_peak"],
        "under_limit_retries": tight.stats["retries"],
        "under_limit_loss_difference": same_losses(native_runs[0].losses, tight.losses),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("library")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), action="append")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(options.child, options.library)
        return
    library = os.path.abspath(options.library)
    if not os.path.isfile(library):
        parser.error(f"{options.library}: there is no such file; build the target headroom_pytorch")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least 1 is needed")
    for name in options.workload or WORKLOADS:
        try:
            result = compare(name, library, options.rounds)
        except RunFailed as failure:
            result = {"workload": name, "error": str(failure)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
