"""All that has to be tried on a GPU for the full route, in one command with a time for each part.

    python3 bindings/pytorch/device_checks.py OUT [--scale 1] [--only PART] [--programs FILE]

Writes what each part printed to OUT/PART.txt, and one line about it here. A part that fails or
takes too long does not stop the others. --scale multiplies the times; --programs has more programs
to compare (compare.py).
"""

import argparse
import os
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))


def parts(out, scale, programs):
    """Name, seconds, command."""
    python = sys.executable
    script = lambda name: os.path.join(HERE, name)
    seconds = lambda count: str(int(count * scale))
    compare = [python, script("compare.py"), "--full", "--rounds", "1", "--steps", "60"]
    all_parts = [
        ("compile", 240, [python, script("native.py")]),
        ("parity", 300, [python, script("parity.py"), "--json", os.path.join(out, "parity.json"),
                         "--keep", os.path.join(out, "snapshots")]),
        ("graph_floor", 150, [python, script("graph_floor.py")]),
        ("recording_cost", 90, [python, script("recording_cost.py"), "--rounds", "3"]),
        ("soak", 60, [python, script("soak.py"), "--seconds", seconds(40)]),
        ("programs", 400, [*compare, "--seconds", seconds(45)]),
    ]
    if programs:
        all_parts.append(("other_programs", 600, [*compare, "--seconds", seconds(35),
                                                  "--programs", programs]))
    return [(name, limit * scale, command) for name, limit, command in all_parts]


def run(out, name, limit, command):
    path = os.path.join(out, name + ".txt")
    begin = time.monotonic()
    with open(path, "w", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            says = f"exit {process.wait(limit)}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # its own group: the children that it has started
            process.wait()
            says = f"not done after {limit:.0f} s"
    with open(path, encoding="utf-8", errors="replace") as file:
        lines = [line for line in file.read().splitlines() if line.strip()]
    print(f"{name:16} {time.monotonic() - begin:5.0f} s  {says}  "
          f"{lines[-1][:160] if lines else ''}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--only", action="append")
    parser.add_argument("--programs")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    for name, limit, command in parts(options.out, options.scale, options.programs):
        if not options.only or name in options.only or name == "compile":
            run(options.out, name, limit, command)


if __name__ == "__main__":
    main()
