#!/usr/bin/env python3
"""Draws what PyTorch and headroom reserve over one recorded program: the picture of the README.

    tools/draw_reserved.py build/headroom                # writes docs/images/reserved-*.svg
    tools/draw_reserved.py build/headroom --check        # exit 1 where they would change

Both curves are replays of samples/gpt2_ragged.pickle.zst: PyTorch's as it was recorded, address by
address, and the same requests on the paged allocator. The area below them is the sum of the sizes
that were asked for. The same recording gives the same bytes.
"""

import argparse
import csv
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RECORDING = ROOT / "samples" / "gpt2_ragged.pickle.zst"
FOLDER = ROOT / "docs" / "images"
GIB = 1 << 30

WIDTH, HEIGHT = 880, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 216, 58, 46  # around the plot; the labels stand at its right
COLUMNS = 300

THEMES = {
    "light": {"paper": "#ffffff", "ink": "#1c2330", "faint": "#596275", "rule": "#e3e7ee",
              "pytorch": "#c4401c", "headroom": "#1567b8", "live": "#8fbde6"},
    "dark": {"paper": "#0d1117", "ink": "#e6eaf0", "faint": "#9aa4b5", "rule": "#262d38",
             "pytorch": "#ff8f6b", "headroom": "#6db3f8", "live": "#2f5d8a"},
}


def run(binary, *arguments):
    return subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout


def reserved_curves(binary):
    """Of each allocator: (event, reserved bytes) through the replay, and the peak."""
    answer = json.loads(run(binary, "replay", str(RECORDING), "--policy", "pytorch",
                            "--policy", "paged", "--json"))
    curves = {}
    for result in answer["results"]:
        points = [(sample["event"], sample["reserved"]) for sample in result["timeline"]]
        curves[result["policy"]] = points, result["peak_reserved"]
    return curves["pytorch"], curves["paged"], answer["results"][0]["peak_live"]


def live_curve(binary):
    """The most that was live in each of COLUMNS stretches of the recording, and its events."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "events.csv")
        run(binary, "convert", str(RECORDING), path)
        with open(path, encoding="utf-8", newline="") as file:
            events = [row for row in csv.DictReader(file) if not row["state"]]
    live, sizes, peaks = 0, {}, [0] * COLUMNS
    for at, row in enumerate(events):
        if row["action"] == "alloc":
            sizes[row["addr"]] = -(-int(row["size"]) // 512) * 512
            live += sizes[row["addr"]]
        elif row["action"] == "free_completed":
            live -= sizes.pop(row["addr"])
        column = at * COLUMNS // len(events)
        peaks[column] = max(peaks[column], live)
    return peaks, len(events)


def number(value):
    """At most one decimal, and the same text on every machine."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


class Plot:
    """Points of the plot, from events and bytes."""

    def __init__(self, events, highest):
        self.events, self.highest = events, highest
        self.left, self.right = LEFT, WIDTH - RIGHT
        self.top, self.bottom = TOP, HEIGHT - BOTTOM

    def x(self, event):
        return self.left + (self.right - self.left) * event / self.events

    def y(self, size):
        return self.bottom - (self.bottom - self.top) * size / self.highest

    def line(self, points):
        """A path that keeps its height until the next point: memory is reserved in steps."""
        path, height = [f"M{number(self.left)} {number(self.bottom)}"], None
        for event, size in points:
            x, y = number(self.x(event)), number(self.y(size))
            if y != height:
                path.append(f"H{x}V{y}")
                height = y
        return "".join(path) + f"H{number(self.right)}"


def axis(plot, theme):
    out = []
    for gib in range(0, int(plot.highest / GIB) + 1, 8):
        y = number(plot.y(gib * GIB))
        out.append(f'<path d="M{plot.left} {y}H{plot.right}" stroke="{theme["rule"]}"/>')
        out.append(f'<text x="{plot.left - 8}" y="{number(plot.y(gib * GIB) + 4.5)}" '
                   f'text-anchor="end">{gib} GiB</text>')
    for event in range(0, plot.events + 1, 30_000):
        out.append(f'<text x="{number(plot.x(event))}" y="{plot.bottom + 20}" '
                   f'text-anchor="middle">{event:,}</text>')
    out.append(f'<text x="{plot.right}" y="{plot.bottom + 38}" text-anchor="end">'
               "allocations and frees of the recording, in order</text>")
    return out


def label(plot, size, name, text, colour):
    y = plot.y(size)
    return [f'<text x="{plot.right + 12}" y="{number(y - 2)}" fill="{colour}" font-size="17" '
            f'font-weight="600">{name}</text>',
            f'<text x="{plot.right + 12}" y="{number(y + 16)}">{text}</text>']


def picture(theme, curves, live):
    (pytorch, pytorch_peak), (paged, paged_peak), live_peak = curves
    peaks, events = live
    plot = Plot(events, 36 * GIB)
    area = [(column * events / COLUMNS, size) for column, size in enumerate(peaks)]
    say = "{:.1f} GiB".format
    about = (f"PyTorch reserves {say(pytorch_peak / GIB)} for tensors of {say(live_peak / GIB)}; "
             f"headroom reserves {say(paged_peak / GIB)} for the same requests.")
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="{theme["faint"]}">',
        f"<title>{about}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{theme["paper"]}"/>',
        f'<text x="16" y="28" font-size="17" font-weight="600" fill="{theme["ink"]}">'
        "GPU memory reserved: GPT-2, sequences of random length, checkpointed</text>",
        *axis(plot, theme),
        f'<path d="{plot.line(area)}V{plot.bottom}Z" fill="{theme["live"]}"/>',
        f'<path d="{plot.line(pytorch)}" fill="none" stroke="{theme["pytorch"]}" '
        'stroke-width="2.5"/>',
        f'<path d="{plot.line(paged)}" fill="none" stroke="{theme["headroom"]}" '
        'stroke-width="2.5"/>',
        *label(plot, pytorch_peak, f"PyTorch: {say(pytorch_peak / GIB)}", "as recorded",
               theme["pytorch"]),
        *label(plot, paged_peak, f"headroom: {say(paged_peak / GIB)}", "the same requests",
               theme["headroom"]),
        *label(plot, 4.6 * GIB, f"tensors: {say(live_peak / GIB)}", "at their peak", theme["ink"]),
        "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("binary", help="the headroom command")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args()
    curves, live = reserved_curves(options.binary), live_curve(options.binary)
    stale = []
    for name, theme in THEMES.items():
        path = FOLDER / f"reserved-{name}.svg"
        drawn = picture(theme, curves, live)
        if not options.check:
            FOLDER.mkdir(parents=True, exist_ok=True)
            path.write_text(drawn, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != drawn:
            stale.append(str(path.relative_to(ROOT)))
    if stale:
        print(f"{' and '.join(stale)}: not what this recording gives; run "
              f"tools/draw_reserved.py {options.binary}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
