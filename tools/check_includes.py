#!/usr/bin/env python3
"""Who may include whom; and nobody asks an allocator which core it has but through its interface.

    tools/check_includes.py                 checks the tree; each refused line comes with the reason
    tools/check_includes.py --graph         prints the modules and what each includes
    tools/check_includes.py --graph=dot     the same for Graphviz

CMake links the modules by the same table, but they share one include root, so a header can be
reached without linking its library; this script closes that gap. To change the table, change it
here and say why: the reason is what the next person reads when the edge is refused.

A header is public and installed, which the lists of CMake say, or it is in a folder internal/, and
then only the folder around that one may include it: trace/hrt/internal/ is for trace/hrt/ alone.
"""

import argparse
import collections
import pathlib
import re
import sys

# module -> (what it may include, why nothing else). `memory:types.h,event.h` means these only.
TABLE = {
    "base": ("", "base knows nothing of GPUs; everything stands on it"),
    "device": ("base", "a backend does not know who asks it for memory"),
    "memory": ("base device", "the allocator is embedded in other programs: base, device and "
                              "memory are all that they should have to take"),
    "trace": ("base memory:types.h,event.h,stats.h,annotation.h,allocator.h,"
              "allocator_choice.h,api.h,config.h",
              "trace records the allocator's words and must read files where there is no device; "
              "only history.h meets allocators, to attach recorders to them"),
    "analysis": ("base memory:types.h,event.h,annotation.h,config.h trace",
                 "analysis says what a recording holds; it runs nothing"),
    "replay": ("base device memory trace analysis", "replay runs allocators, not models"),
    "solve": ("base", "solve speaks of buffers, lifetimes and costs, whoever has them"),
    "diagnose": ("base device:types.h memory:types.h,account.h,allocator_choice.h,config.h,parse_pytorch_message.h "
                 "trace "
                 "analysis replay",
                 "diagnose judges what others measured; it makes values, and report makes the text"),
    "report": ("base memory:types.h,event.h,stats.h,account.h,config.h trace analysis replay diagnose solve",
               "report prints values that others computed, so it works without any device"),
    "tensor": ("base device memory", "tensors live on devices and ask the allocator, no more"),
    "autograd": ("base memory:annotation.h tensor solve",
                 "autograd is a graph over tensors; of memory it takes the scopes that name a "
                 "gradient's layer and phase"),
    "nn": ("base memory:annotation.h tensor autograd",
           "layers are made of tensors and their gradients; of memory they take the scopes that name "
           "a layer and mark its parameters"),
    "train": ("base device memory tensor autograd nn solve",
              "train runs models; looking at what they did is the tools' work"),
}

# Edges somebody will want, and what to do instead.
REASONS = {
    ("device", "memory"): "device is below memory; a backend returns a status and the allocator "
                          "decides what to do about it",
    ("memory", "trace"): "memory owns Event and EventSink, trace implements the sinks; the "
                         "allocator must work without a tracer",
    ("memory", "tensor"): "tensors ask the allocator for memory, not the other way round",
    ("trace", "memory"): "trace takes the allocator's vocabulary only: memory/types.h, event.h, "
                         "stats.h, annotation.h and config.h; allocators for trace/history",
    ("trace", "analysis"): "an analysis reads traces; a trace does not know what is made of it",
    ("trace", "replay"): "replay reads traces; a trace does not know that it is replayed",
    ("trace", "report"): "report reads traces; a trace does not know how it is shown",
    ("replay", "tensor"): "a replay moves blocks, it computes nothing",
    ("report", "memory"): "report takes memory's value types only, so that it cannot allocate",
    ("report", "device"): "report must run where there is no device: have the caller pass the "
                          "values in",
    ("report", "tensor"): "the tools build and run without the runtime",
    ("tensor", "trace"): "a name or phase reaches the trace through memory/annotation.h",
    ("tensor", "autograd"): "a tensor does not know that it is differentiated",
    ("autograd", "nn"): "autograd differentiates any graph; layers are built on it",
    ("nn", "train"): "layers do not know how they are trained",
    ("nn", "trace"): "a layer's name reaches the trace through memory/annotation.h",
    ("train", "trace"): "a phase reaches the trace through memory/annotation.h",
    ("train", "replay"): "a plan is the real step on the meta device, not a replay",
    ("train", "report"): "train returns values; the command prints them with report",
}

CUDA = re.compile(r"^(cuda|cublas|cudnn|cufft|cupti|curand|cusolver|cusparse|nvml|nvrtc)\w*\.h$"
                  r"|^(cooperative_groups|cub|cuda|thrust)/")
CUDA_HOMES = ("headroom/device/cuda/", "headroom/tensor/cuda/")
LINUX = re.compile(r"^(linux|asm)/|^sys/(auxv|epoll|eventfd|inotify|prctl|syscall|sysinfo)\.h$")
LINUX_HOMES = ("headroom/device/cpu/", "headroom/device/cuda/", "headroom/tensor/cuda/")
STANDARD = re.compile(r"^[a-z_0-9]+$")  # <vector>; <stdint.h> and <fmt/core.h> are not

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
# Which core an allocator has is asked through its interface (Allocator::settings).
DOWNCAST = re.compile(r"\b(?:static|dynamic|reinterpret)_cast<\s*(?:const\s+)?"
                      r"(?:headroom::)?(?:memory::)?\w*Allocator\s*(?:const\s*)?[&*]"
                      r"|\bpolicy\(\)\s*[!=]=")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
FOLDERS = ("headroom", "cli", "bindings", "examples", "benchmarks", "tests")
LEAVES = ("cli", "benchmarks", "bindings")  # stand in the graph beside the modules
SHARED = ("input", "output")  # folders of cli/ for all commands; each other one is a command's own
# Built against other people's libraries.
FREE = ("tests/", "benchmarks/torch/")
HEADER = re.compile(r"[\w./]+\.(?:h|cuh)\b")


def may_include(module, target, header):
    for entry in TABLE[module][0].split():
        name, _, only = entry.partition(":")
        if name == target:
            return not only or header in only.split(",")
    return module == target


def split(path):
    """headroom/device/internal/ids.h -> ("device", "internal/ids.h"); an umbrella has no module."""
    parts = path.split("/", 2)
    return (parts[1], parts[2]) if len(parts) == 3 else ("", parts[-1])


def refuse_ours(path, target):
    """The reason why `path` may not include our header `target`, or None."""
    folder = path.split("/")[0]
    module, _ = split(path) if folder == "headroom" else (folder, "")
    other, header = split(target)
    if path.startswith(FREE):
        return None
    if other and other not in TABLE:
        return f"there is no module '{other}' in the table of tools/check_includes.py"
    if "/internal/" in target:
        owner = target.split("/internal/")[0]
        if not path.startswith(owner + "/"):
            return (f"internal/ headers of {owner.removeprefix('headroom/')} are its own; they are "
                    "not installed and may change")
    if folder != "headroom" or module not in TABLE:  # an umbrella may include any public header
        return None
    if not other:
        return "an umbrella header is for users; inside, include what you use"
    if may_include(module, other, header):
        return None
    return REASONS.get((module, other), TABLE[module][1])


def refuse_foreign(path, target):
    """The reason why `path` may not include the foreign header `target`, or None."""
    folder = path.split("/")[0]
    if path.startswith(FREE):
        return None
    if CUDA.search(target) and not path.startswith(CUDA_HOMES):
        return "CUDA headers stay in device/cuda and tensor/cuda; all else builds without CUDA"
    if LINUX.search(target) and not path.startswith(LINUX_HOMES):
        return "Linux-only code stays in device/cpu and device/cuda: people read traces on laptops"
    is_public = folder == "headroom" and path.endswith((".h", ".cuh")) and "/internal/" not in path
    if is_public and not STANDARD.match(target):
        return "a public header includes the standard library and ours, so that users need no more"
    return None


def command_of(path):
    """cli/plan/plan.h -> "plan"; None for what all commands share, and outside of cli/."""
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "cli" and parts[1] not in SHARED else None


def refuse_leaf(path, target):
    """The reason why `path` may not include this header of cli/ or benchmarks/, or None."""
    if path.startswith("tests/"):
        return None
    if path.startswith(("headroom/", "examples/")):
        return "the library and its examples know nothing of the command and its benchmarks"
    if path.startswith("bindings/"):
        return "bindings call the library, not the command"
    if path.startswith("cli/") and target.startswith("benchmarks/"):
        return "the command works without its benchmarks; only the list of commands names them"
    command = command_of(target)
    if command is None or command == command_of(path):
        return None
    return (f"cli/{command}/ is that command's own; what others need too goes to cli/input/ or "
            "cli/output/, or into the library")


def refuse(path, quoted, angled):
    if angled and not angled.startswith("headroom/"):
        return refuse_foreign(path, angled)
    target = quoted or angled
    if target.startswith("headroom/"):
        return refuse_ours(path, target)
    if target.startswith(("cli/", "benchmarks/")):
        return refuse_leaf(path, target)
    if path.startswith("headroom/"):
        return "write the path from the repository root, so that this check can see the module"
    return None


def lines(root):
    """Yields (path, line number, line) for every line of source of the tree."""
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES or not file.is_file():
                continue
            path = file.relative_to(root).as_posix()
            text = file.read_text(encoding="utf-8", errors="replace")
            for number, line in enumerate(text.splitlines(), 1):
                yield path, number, line


def includes(root):
    """Yields (path, line number, quoted, angled) for every include line of the tree."""
    for path, number, line in lines(root):
        if found := INCLUDE.match(line):
            yield path, number, found[1], found[2]


def listed_headers(root):
    """The headers that CMake installs, or None in a tree without CMake."""
    lists = [root / "headroom/CMakeLists.txt", *(root / "headroom").glob("*/files.cmake")]
    if not lists[0].is_file():
        return None
    found = set()
    for file in lists[1:]:
        folder = file.parent.relative_to(root).as_posix()
        found |= {f"{folder}/{name}" for name in HEADER.findall(file.read_text(encoding="utf-8"))}
    for call in re.finditer(r"headroom_add_module\((\w+)([^)]*)\)", lists[0].read_text(encoding="utf-8")):
        found |= {f"headroom/{call[1]}/{name}" for name in HEADER.findall(call[2])}
    return found


def misplaced_headers(root):
    """Complaints about headers of modules that are neither public nor private."""
    listed = listed_headers(root)
    if listed is None:
        return
    for file in sorted((root / "headroom").rglob("*")):
        path = file.relative_to(root).as_posix()
        if file.suffix not in (".h", ".cuh") or path.count("/") < 2:
            continue
        if "/internal/" in path and path in listed:
            yield f"{path}: is in internal/ and among the public headers of CMake; it cannot be both"
        if "/internal/" not in path and path not in listed:
            yield (f"{path}: is not among the public headers of CMake; list it there, or move it to "
                   "internal/ of the folder that needs it")


def check(root):
    modules = {file.name for file in (root / "headroom").iterdir() if file.is_dir()}
    complaints = [f"headroom/{name}: not in the table of tools/check_includes.py; give it a row"
                  for name in sorted(modules - TABLE.keys())]
    complaints += misplaced_headers(root)
    for path, number, quoted, angled in includes(root):
        if reason := refuse(path, quoted, angled):
            complaints.append(f"{path}:{number}: may not include {quoted or angled}: {reason}")
    complaints += [f"{path}:{number}: casts or compares to learn which allocator it has; "
                   "ask Allocator::settings() instead"
                   for path, number, line in lines(root) if DOWNCAST.search(line)]
    return complaints


def graph(root):
    """module -> module -> number of include lines; `cli`, `benchmarks` and `bindings` count too."""
    edges = collections.defaultdict(collections.Counter)
    for path, _, quoted, angled in includes(root):
        folder, target = path.split("/")[0], quoted or angled
        owner = target.split("/")[0]
        if folder not in ("headroom", *LEAVES) or owner not in ("headroom", *LEAVES):
            continue
        module = split(path)[0] if folder == "headroom" else folder
        other = split(target)[0] if owner == "headroom" else owner
        edges[module or "headroom.h"][other or "headroom.h"] += 1
    for module, targets in edges.items():
        del targets[module]
    return edges


def print_graph(edges, style):
    order = [*TABLE, "headroom.h", *LEAVES]
    present = [module for module in order if module in edges]
    if style == "dot":
        lines = [f'  "{a}" -> "{b}" [label={n}];' for a in present for b, n in edges[a].items()]
        print("\n".join(["digraph headroom {", "  rankdir=BT;", *lines, "}"]))
        return
    for module in present:
        targets = sorted(edges[module].items(), key=lambda item: order.index(item[0]))
        print(f"{module:10}", ", ".join(f"{b} ({n})" for b, n in targets) or "nothing of ours")


def main():
    parser = argparse.ArgumentParser(description="Checks who includes whom.")
    parser.add_argument("--root", type=pathlib.Path, help="the tree (default: this repository)",
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--graph", nargs="?", const="text", choices=("text", "dot"),
                        help="print the modules and what each includes")
    options = parser.parse_args()
    if options.graph:
        print_graph(graph(options.root), options.graph)
        return 0
    complaints = check(options.root)
    for complaint in complaints:
        print(complaint)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
