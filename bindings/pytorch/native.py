"""Compiles the full route against the PyTorch that is installed, and loads it.

    import native
    module = native.load()          # compiles on first use; None says nothing of it
    module.enable({})

For the scripts of this folder, which need no installed package. README.md has the reasons for the
flags. The result lies in build/torch/, by the versions that it fits.
"""

import glob
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "..", ".."))
SOURCES = ("torch_allocator.cpp", "torch_snapshot.cpp", "torch_stacks.cpp", "torch_module.cpp")
MODULE = "_headroom_torch_native"


def cuda_include():
    import torch

    site = os.path.dirname(os.path.dirname(os.path.abspath(torch.__file__)))
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [os.path.join(home, "include") for home in homes if home]
    places += glob.glob(os.path.join(site, "nvidia", "*", "include"))
    for place in places:
        if os.path.isfile(os.path.join(place, "cuda_runtime_api.h")):
            return place
    raise FileNotFoundError("cuda_runtime_api.h is in none of " + ", ".join(places))


def cuda_runtime():
    """The CUDA runtime that PyTorch has loaded into this process."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.split(" ", maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith("libcudart"):
                return path
    raise FileNotFoundError("this PyTorch has not loaded a CUDA runtime (libcudart)")


def include_paths():
    import torch

    folder = os.path.dirname(torch.__file__)
    return [os.path.join(folder, "include"),
            os.path.join(folder, "include", "torch", "csrc", "api", "include"),
            sysconfig.get_path("include"), cuda_include()]


def library():
    path = os.path.join(ROOT, "build", "libheadroom_torch.so")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: there is no such file; build the target headroom_pytorch")
    return path


def module_path():
    import torch

    parts = [torch.__version__, sysconfig.get_config_var("EXT_SUFFIX"), library()]
    for name in sorted(glob.glob(os.path.join(HERE, "*.h")) + glob.glob(os.path.join(HERE, "*.cpp"))
                       + glob.glob(os.path.join(HERE, "bridge", "*.h"))):
        with open(name, encoding="utf-8") as file:
            parts.append(file.read())
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return os.path.join(ROOT, "build", "torch", f"{torch.__version__}-{key}",
                        MODULE + sysconfig.get_config_var("EXT_SUFFIX"))


def compile_module(path, verbose=True):
    import torch

    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "c++"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    flags = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", f"-I{ROOT}",
             f"-DTORCH_EXTENSION_NAME={MODULE}", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
    flags += [flag for place in include_paths() for flag in ("-isystem", place)]
    begin = time.monotonic()
    jobs = []
    for source in SOURCES:
        target = path + "." + source + ".o"
        command = [compiler, *flags, "-c", os.path.join(HERE, source), "-o", target]
        jobs.append((command, target, subprocess.Popen(command, text=True,
                                                       stdout=subprocess.PIPE,
                                                       stderr=subprocess.STDOUT)))
    for command, _, job in jobs:
        output = job.communicate()[0]
        if job.returncode != 0:
            raise RuntimeError(" ".join(command) + "\n" + output[-6000:])
    folder = os.path.join(os.path.dirname(torch.__file__), "lib")
    lib_folder, lib_name = os.path.split(library())
    link = [compiler, "-shared", "-Wl,--no-as-needed", "-o", path + ".new",
            *(target for _, target, _ in jobs), f"-L{lib_folder}", f"-l:{lib_name}",
            f"-Wl,-rpath,{lib_folder}", f"-L{folder}", "-lc10", "-lc10_cuda", "-ltorch_cpu",
            "-ltorch_cuda", "-ltorch", "-ltorch_python", cuda_runtime()]
    done = subprocess.run(link, text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise RuntimeError(" ".join(link) + "\n" + done.stdout[-6000:])
    os.replace(path + ".new", path)
    if verbose:
        print(f"headroom: compiled {path} in {time.monotonic() - begin:.0f} s", file=sys.stderr)


def load():
    import torch  # noqa: F401  its libraries first

    path = module_path()
    if not os.path.isfile(path):
        compile_module(path)
    spec = importlib.util.spec_from_file_location(MODULE, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def enable(**settings):
    """The module, with headroom as PyTorch's allocator."""
    module = load()
    module.enable(settings)
    return module


if __name__ == "__main__":
    load()
    print(module_path())
