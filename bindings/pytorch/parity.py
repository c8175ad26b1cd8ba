"""Every promise of the full route, tried on PyTorch's own allocator and on headroom's.

    python3 bindings/pytorch/parity.py [--only PART] [--json FILE] [--keep FOLDER]

Each check of parity_checks.py runs in a process of its own, once on either allocator. What it
returns is compared: keys, meanings and effects have to be the same. Prints a table: works, or how
it fails, and whether PyTorch's own allocator does the same.
"""

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
MARK = "RESULT "


def run_check(name, route, keep, limit_s):
    """(facts, error, seconds) of one check on one route."""
    environment = dict(os.environ, PYTHONPATH=HERE + os.pathsep + os.environ.get("PYTHONPATH", ""))
    command = [sys.executable, __file__, "--child", name, "--route", route]
    if keep:
        command += ["--keep", keep]
    begin = time.monotonic()
    try:
        done = subprocess.run(command, env=environment, text=True, timeout=limit_s, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except subprocess.TimeoutExpired as late:
        tail = (late.stderr or b"").decode(errors="replace").strip().splitlines()[-3:]
        return None, f"not done after {limit_s} s: " + " | ".join(tail), limit_s
    seconds = time.monotonic() - begin
    answers = [line for line in done.stdout.splitlines() if line.startswith(MARK)]
    if done.returncode == 0 and answers:
        return json.loads(answers[-1][len(MARK):]), None, seconds
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    error = "\n    ".join(lines[-60:])[-6000:] if lines else "no message"
    return None, f"exit {done.returncode}: {error}", seconds


def child(name, route, keep):
    import torch

    from parity_checks import CHECKS

    module = None
    if route == "headroom":
        import native

        module = native.enable()
    facts = CHECKS[name](torch, module, keep)
    torch.cuda.synchronize()
    print(MARK + json.dumps(facts if facts is not None else {}), flush=True)


def differences(native, ours):
    """Facts that have to be equal; those whose name begins with ~ are only told."""
    keys = [key for key in sorted(set(native) | set(ours)) if not key.startswith("~")]
    return [f"{key}: PyTorch {native.get(key)!r}, headroom {ours.get(key)!r}"[:400] for key in keys
            if native.get(key) != ours.get(key)]


def judge(name, keep, limit_s):
    native, native_error, native_s = run_check(name, "native", None, limit_s)
    ours, error, ours_s = run_check(name, "headroom", keep, limit_s)
    different = [] if native is None or ours is None else differences(native, ours)
    return {"check": name, "works": error is None and not different, "error": error,
            "differences": different, "native_error": native_error, "facts": ours,
            "native_facts": native, "seconds": [round(native_s, 1), round(ours_s, 1)]}


def main():
    from parity_checks import CHECKS

    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--only", action="append", help="checks whose names have this part")
    parser.add_argument("--json", metavar="FILE", help="all results, written there")
    parser.add_argument("--keep", metavar="FOLDER", help="the snapshots that are made go there")
    parser.add_argument("--jobs", type=int, default=6, help="checks at a time (default 6)")
    parser.add_argument("--limit", type=float, default=120, help="seconds for each (default 120)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--route", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.route, options.keep)
        return 0
    import native

    native.load()  # once, not by every child
    wanted = [name for name in CHECKS
              if not options.only or any(part in name for part in options.only)]
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(judge, name, options.keep, options.limit) for name in wanted]
        for job in jobs:
            result = job.result()
            results.append(result)
            says = "works" if result["works"] else "FAILS"
            if result["native_error"]:
                says += " (PyTorch's own fails too)"
            print(f"{result['check']:34} {says}", flush=True)
            for line in [result["error"], *result["differences"]]:
                if line:
                    print("    " + line)
    good = sum(result["works"] for result in results)
    print(f"{good} of {len(results)} work")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    return 0 if good == len(results) else 3


if __name__ == "__main__":
    sys.exit(main())
