"""PyTorch on headroom's allocator beside PyTorch on its own.

    python3 bindings/pytorch/compare.py build/libheadroom_torch.so [--rounds 3]
    python3 bindings/pytorch/compare.py --full [--rounds 3] [--programs FILE] [--steps 60]

Runs the ragged programs of workloads.py in processes of their own: a round is one native and one
plugged in, which take the same step one right after the other, so that a machine that is slow for a
while is slow for both. Then once more plugged in, under a limit of 1.02 times the peak of active
bytes. Prints a line of JSON for each: how far apart the losses are, a step's time over that of
native's same step (median of all steps, and of each round's; of the first ten by their sum), and
peak reserved over peak active. With --full it is the full route instead of the pluggable allocator,
and the limit is 8 MiB more. FILE has other programs, in a dictionary W of functions that return a
step and a number of steps.
"""

import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from workloads import WORKLOADS, make, make_other, names_of_others


# For the program, autograd's thread and a little else. Which ones a run would get by chance, near
# to the GPU or far from it, is not to count as the allocator's.
PROCESSORS = 4


# What a child is told instead of a library: no plug-in, or the full route.
NATIVE, FULL = "", "full"
SLACK_BYTES = 8 << 20


def enable(library):
    if library == FULL:
        import native

        limit = os.environ.get("HEADROOM_LIMIT")
        native.enable(limit_bytes=int(limit) if limit else None)
    elif library != NATIVE:
        import headroom_torch

        headroom_torch.install(library)


def run_child(name, library, programs):
    """The child: a step for every line it is given, its loss and its time as a line of JSON."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:PROCESSORS])
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no answer
    import torch

    def answer(**fields):
        print(json.dumps(fields), file=answers, flush=True)

    enable(library)
    step, count = make_other(name, programs) if programs else make(name)
    answer(steps=count)
    while sys.stdin.readline().strip() == "step":
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = step()
        torch.cuda.synchronize()
        answer(seconds=time.perf_counter() - start, loss=loss.item())
    if library in (NATIVE, FULL):
        stats = torch.cuda.memory_stats()
        answer(active_peak=stats["active_bytes.all.peak"],
               reserved_peak=stats["reserved_bytes.all.peak"],
               retries=stats["num_alloc_retries"])
    else:
        answer()  # it writes its own statistics, at its end


class RunFailed(Exception):
    """A child that ended before its last step, with headroom's message or else its last line."""


class Run:
    """A workload in a process of its own, a step at a time."""

    def __init__(self, name, library, limit=None, programs=None):
        self.times, self.losses, self.stats = [], [], {}
        self._writes_stats = library not in (None, NATIVE, FULL)
        self._folder = tempfile.TemporaryDirectory()
        self._stats_file = os.path.join(self._folder.name, "stats.json")
        environment = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false",
                           PYTHONHASHSEED="0", HEADROOM_STATS=self._stats_file)
        if limit:
            environment["HEADROOM_LIMIT"] = str(limit)
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, __file__, library or NATIVE, "--child", name,
             *(["--programs", programs] if programs else [])], env=environment, text=True,
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
            print("step", file=self._process.stdin, flush=True)
        except BrokenPipeError:
            pass  # it has ended; the answer says why
        answer = self._answer()
        self.times.append(answer["seconds"])
        self.losses.append(answer["loss"])

    def finish(self):
        self._process.stdin.write("end\n")
        self._process.stdin.flush()
        self.stats = self._answer()
        self._process.communicate()
        if self._writes_stats:
            with open(self._stats_file, encoding="utf-8") as file:
                self.stats.update(json.load(file)[0])


class Plan:
    """What is compared, and for how long."""

    def __init__(self, options):
        self.library = FULL if options.full else os.path.abspath(options.library)
        self.programs = options.programs and os.path.abspath(options.programs)
        self.steps, self.seconds = options.steps, options.seconds
        self.slack = SLACK_BYTES if options.full else 0

    def steps_of(self, *runs):
        own = min(run.wait_until_ready() for run in runs)  # neither loads while the other steps
        return max(own, self.steps or 0)

    def run_round(self, name, number):
        """A native run and a plugged one, which take each step by turns."""
        with Run(name, None, programs=self.programs) as native, \
                Run(name, self.library, programs=self.programs) as plugged:
            both = (native, plugged)
            steps = self.steps_of(*both)
            end = time.monotonic() + self.seconds
            for i in range(steps):
                # neither is always the first
                for run in both if (number + i) % 2 else reversed(both):
                    run.step()
                if time.monotonic() > end and i + 1 >= (self.steps or 1):
                    break
            native.finish()
            plugged.finish()
        return native, plugged

    def run_alone(self, name, library, limit, steps):
        with Run(name, library, limit, self.programs) as run:
            run.wait_until_ready()
            for _ in range(steps):
                run.step()
            run.finish()
        return run


def same_losses(a, b):
    """Kernels that add up in any order differ in the last digits, with one allocator too."""
    return max(abs(x - y) / max(abs(x), 1e-12) for x, y in zip(a, b))


def time_ratios(native, plugged):
    return [plug / own for plug, own in zip(plugged.times, native.times)]


def first_ratio(native, plugged, steps=10):
    return sum(plugged.times[:steps]) / sum(native.times[:steps])


def with_verdict(result):
    """With what of the promises does not hold."""
    wrong = []
    if result["reserved_beyond_slack"] > 1.03:
        wrong.append("reserved above 1.03 of active and 8 MiB")
    if result["under_limit"] != "completed":
        wrong.append("not completed under the limit")
    if result["step_ratio"] > 1.02:
        wrong.append("steps above 1.02")
    if result["first_ten_steps_ratio"] > 1.05:
        wrong.append("first steps above 1.05")
    if result["loss_difference"] > max(2 * result["loss_difference_native"], 1e-6):
        wrong.append("losses further apart than native's")
    return {**result, "wrong": wrong}


def tight_and_native(name, plan, limit, steps):
    """A run under the limit, and beside it a native one, of whose losses alone something is asked."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        again = pool.submit(plan.run_alone, name, None, None, steps)
        try:
            tight = plan.run_alone(name, plan.library, limit, steps)
        except RunFailed as failure:
            tight = failure
        return tight, again.result()


def warm_up(name, plan):
    """Libraries and kernels come from the disk once; no process that is timed pays for that."""
    plan.run_alone(name, None, None, 1)


def compare(name, plan, rounds):
    warm_up(name, plan)
    done = [plan.run_round(name, number) for number in range(rounds)]
    native_runs, plugged_runs = zip(*done)
    native, plugged = native_runs[-1], plugged_runs[-1]
    ratios = [time_ratios(*pair) for pair in done]
    step_ms = lambda runs: statistics.median(sum((run.times for run in runs), [])) * 1e3
    limit = int(1.02 * plugged.stats["active_peak"]) + plan.slack
    result = {
        "workload": name,
        "loss_difference": same_losses(native_runs[0].losses, plugged.losses),
        "native_step_ms": step_ms(native_runs),
        "step_ms": step_ms(plugged_runs),
        "step_ratio": statistics.median(sum(ratios, [])),
        "step_ratio_of_rounds": [statistics.median(of_round) for of_round in ratios],
        "first_ten_steps_ratio": statistics.median(first_ratio(*pair) for pair in done),
        "steps": len(native.times),
        "native_active_peak": native.stats["active_peak"],
        "native_reserved_peak": native.stats["reserved_peak"],
        "native_reserved_over_active": native.stats["reserved_peak"] / native.stats["active_peak"],
        "reserved_over_active": plugged.stats["reserved_peak"] / plugged.stats["active_peak"],
        "reserved_beyond_slack": (plugged.stats["reserved_peak"] - SLACK_BYTES)
                                 / plugged.stats["active_peak"],
        **{field: plugged.stats[field] for field in (
            "active_peak", "reserved_peak", "handles_created", "handles_mapped",
            "handles_unmapped", "retries") if field in plugged.stats},
        "limit": limit,
    }
    tight, again = tight_and_native(name, plan, limit, len(plugged.times))
    result["loss_difference_native"] = same_losses(native_runs[0].losses, again.losses)
    if isinstance(tight, RunFailed):
        return with_verdict({**result, "under_limit": str(tight)})
    return with_verdict({
        **result,
        "under_limit": "completed",
        "under_limit_step_ms": step_ms([tight]),
        "under_limit_reserved_peak": tight.stats["reserved_peak"],
        "under_limit_retries": tight.stats["retries"],
        "under_limit_loss_difference": same_losses(native_runs[0].losses, tight.losses),
    })


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("library", nargs="?")
    parser.add_argument("--full", action="store_true", help="the full route, without a library")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", metavar="FILE")
    parser.add_argument("--steps", type=int, help="at least so many of each program")
    parser.add_argument("--seconds", type=float, default=1e9,
                        help="for a round, after which no step beyond --steps is taken")
    parser.add_argument("--workload", action="append")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_child(options.child, options.library, options.programs)
        return
    if options.full == bool(options.library):
        parser.error("either --full or a library; build the target headroom_pytorch for one")
    if options.library and not os.path.isfile(options.library):
        parser.error(f"{options.library}: there is no such file; build the target headroom_pytorch")
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least 1 is needed")
    names = names_of_others(options.programs) if options.programs else sorted(WORKLOADS)
    for name in options.workload or names:
        if name not in names:
            parser.error(f"--workload {name}: there are {', '.join(names)}")
    if options.full:
        import native

        native.load()  # once, not by every child
    plan = Plan(options)
    for name in options.workload or names:
        try:
            result = compare(name, plan, options.rounds)
        except RunFailed as failure:
            result = {"workload": name, "error": str(failure)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
