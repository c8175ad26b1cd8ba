"""Compiles the full route's extension for the PyTorch that is installed, once.

PyTorch's allocator is a C++ class whose functions change from release to release, so the part that
fits it is compiled on the user's machine: a few files, by whatever C++ compiler is there, without
ninja, setuptools or nvcc. What was compiled is kept, by the versions of all that went into it:

    $XDG_CACHE_HOME/headroom/torch/KEY/_headroom_torch_native.EXT.so    (~/.cache without the variable)
    $XDG_CACHE_HOME/headroom/torch/KEY/build.log                        what the compiler said

Several processes may come at once: one compiles, the others wait for its lock. Where a file system
has no locks they all compile, each in a folder of its own, and the last rename wins; the files are
equal.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headroom import _places
from headroom._version import __version__

__all__ = ["MODULE", "CannotBuild", "cache_folder", "compile_into", "module_for"]

MODULE = "_headroom_torch_native"
_FILE = MODULE + str(sysconfig.get_config_var("EXT_SUFFIX"))
_COMPILE_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-w",
                  f"-DTORCH_EXTENSION_NAME={MODULE}", "-D_GLIBCXX_USE_CXX11_ABI=1")
_TORCH_LIBRARIES = ("-lc10", "-lc10_cuda", "-ltorch_cpu", "-ltorch_cuda", "-ltorch", "-ltorch_python")
_MOST_SECONDS = 1200


class CannotBuild(RuntimeError):
    """The full route is not to be had here; the text is one line that says why."""


def module_for(torch: Any, tries_again: bool = False) -> Path:
    """The extension for this PyTorch, compiled now if it was not before. Raises CannotBuild.

    What did not compile before is tried again only where that is asked for: it takes a minute.
    """
    key = _key(torch)
    for folder in _prebuilt_folders():
        if (folder / key / _FILE).is_file():
            return folder / key / _FILE
    place = cache_folder() / key
    made = place / _FILE
    if made.is_file():
        return made
    if not tries_again:
        _check_failed(place)
    with _lock(place) as has_waited:
        if has_waited and not made.is_file():
            _check_failed(place)
        if not made.is_file():  # another process may have made it meanwhile
            _compile(torch, place)
    return made


def _check_failed(place: Path) -> None:
    if (place / "failed").is_file():
        raise CannotBuild(f"the full route did not compile here before: see {place / 'build.log'} "
                          "(route='full' tries again)")


def compile_into(torch: Any, folder: Path) -> Path:
    """Compiles ahead of time, for an image or an installation, and returns the file."""
    place = folder / _key(torch)
    if not (place / _FILE).is_file():
        place.mkdir(parents=True, exist_ok=True)
        _compile(torch, place)
    return place / _FILE


def cache_folder() -> Path:
    """Where compiled extensions are kept: HEADROOM_TORCH_CACHE, or a folder of the user's cache."""
    named = os.environ.get("HEADROOM_TORCH_CACHE")
    if named:
        return Path(named).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or ""
    root = Path(base) if os.path.isabs(base) else Path(os.path.expanduser("~/.cache"))
    folder = root / "headroom" / "torch"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass
    return _private_temporary_folder()


def _private_temporary_folder() -> Path:
    """For users without a home. What is loaded from it is code, so nobody else may write there."""
    folder = Path(tempfile.gettempdir()) / f"headroom-torch-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or folder.is_symlink():
        raise CannotBuild(f"there is no place for the compiled extension: {folder} belongs to "
                          "somebody else; HEADROOM_TORCH_CACHE names another folder")
    return folder


def _prebuilt_folders() -> list[Path]:
    """Of installations that compiled ahead of time, beside the library that they belong to."""
    with contextlib.suppress(FileNotFoundError):
        return [_places.plugin_library().parent / "torch"]
    return []


# --- What goes in ---------------------------------------------------------------------------------


def _sources() -> list[Path]:
    folder = _places.translation_root() / "bindings" / "pytorch"
    sources = sorted(folder.glob("torch_*.cpp"))
    if not sources:
        raise CannotBuild(f"the full route's sources are missing in {folder}")
    return sources


def _key(torch: Any) -> str:
    """A folder's name that two builds share only when they are the same."""
    digest = hashlib.sha256()
    root = _places.translation_root() / "bindings" / "pytorch"
    headers = [*sorted(root.glob("torch_*.h")), *sorted((root / "bridge").glob("*.h"))]
    for path in [*_sources(), *headers]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    git = getattr(torch.version, "git_version", "")
    for part in (*_COMPILE_FLAGS, torch.__version__, str(git), str(torch.version.cuda), _FILE):
        digest.update(part.encode() + b"\0")
    return f"{__version__}-torch-{torch.__version__}-{digest.hexdigest()[:16]}"


def _compiler() -> list[str]:
    named = os.environ.get("CXX")
    if named:
        words = shlex.split(named)
        if words and shutil.which(words[0]):
            return words
        raise CannotBuild(f"CXX is '{named}', and there is no such compiler")
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise CannotBuild("the full route needs a C++ compiler, and there is none (install g++, or say "
                      "where one is in CXX)")


def _check_compiler(compiler: list[str]) -> None:
    done = _run([*compiler, "-std=c++20", "-x", "c++", "-E", os.devnull, "-o", os.devnull])
    if done.returncode != 0:
        said = done.stdout.strip().split("\n")[0]
        raise CannotBuild(f"{compiler[0]} does not know C++20 ({said}); g++ 10 and newer do")


def _torch_folder(torch: Any) -> Path:
    folder = Path(torch.__file__).resolve().parent
    if not (folder / "include" / "c10" / "cuda" / "CUDACachingAllocator.h").is_file():
        raise CannotBuild(f"PyTorch's headers are missing: {folder / 'include'} has no "
                          "c10/cuda/CUDACachingAllocator.h")
    if not getattr(torch._C, "_GLIBCXX_USE_CXX11_ABI", True):
        raise CannotBuild(f"PyTorch {torch.__version__} is built with the C++ ABI of before 2015 "
                          "(_GLIBCXX_USE_CXX11_ABI=0)")
    return folder


def _python_headers() -> str:
    folder = sysconfig.get_path("include")
    if not os.path.isfile(os.path.join(folder, "Python.h")):
        raise CannotBuild(f"Python's headers are missing: {folder} has no Python.h (install "
                          f"python{sys.version_info[0]}.{sys.version_info[1]}-dev)")
    return folder


def _nvidia_folders(torch_folder: Path, pattern: str) -> list[str]:
    """Of the packages nvidia-* that pip puts beside PyTorch."""
    packages = {str(torch_folder.parent), *sys.path}
    found = [glob.glob(os.path.join(folder, "nvidia", pattern)) for folder in sorted(packages)]
    return sorted(path for paths in found for path in paths)


def _cuda_headers(torch_folder: Path) -> list[str]:
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    places = [os.path.join(home, "include") for home in homes if home]
    places += _nvidia_folders(torch_folder, "cu[0-9]*/include")
    places += _nvidia_folders(torch_folder, "cuda_runtime/include")
    places += sorted(glob.glob("/usr/local/cuda-*/include"), reverse=True) + ["/usr/include"]
    for place in places:
        headers = ("cuda_runtime_api.h", "cuda.h")
        if all(os.path.isfile(os.path.join(place, header)) for header in headers):
            return [place]
    raise CannotBuild("CUDA's headers are missing: cuda_runtime_api.h is in none of "
                      f"{', '.join(dict.fromkeys(places))} (CUDA_HOME says where CUDA is; or install "
                      "the package nvidia-cuda-runtime of PyTorch's CUDA)")


def _cuda_runtime(torch: Any, torch_folder: Path) -> list[str]:
    """The libcudart that PyTorch has loaded, by its path; none where it is a part of PyTorch."""
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith("libcudart") and os.path.isfile(path):
                return [path]
    major = str(torch.version.cuda).split(".", maxsplit=1)[0]
    found = _nvidia_folders(torch_folder, f"*/lib/libcudart.so.{major}*")
    found += glob.glob(f"/usr/local/cuda*/lib64/libcudart.so.{major}*")
    return found[:1]


# --- Compiling ------------------------------------------------------------------------------------


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace",
                              env=environment, timeout=_MOST_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, stdout=f"{error}\n")


def _compile(torch: Any, place: Path) -> None:
    """Makes place/_FILE, at once or not at all."""
    compiler = _compiler()
    _check_compiler(compiler)
    torch_folder = _torch_folder(torch)
    library = _places.plugin_library()
    includes = [str(_places.translation_root()), str(torch_folder / "include"),
                str(torch_folder / "include" / "torch" / "csrc" / "api" / "include"),
                _python_headers(), *_cuda_headers(torch_folder)]
    flags = [*_COMPILE_FLAGS, *(word for folder in includes for word in ("-isystem", folder))]
    sources = _sources()
    _make_folder(place)
    _remove_abandoned(place)
    work = Path(tempfile.mkdtemp(prefix=".work-", dir=place))
    log = place / "build.log"
    try:
        with _Progress(f"compiling for PyTorch {torch.__version__}, once") as progress:
            objects = [str(work / f"{source.stem}.o") for source in sources]
            commands = [[*compiler, *flags, "-c", str(source), "-o", made]
                        for source, made in zip(sources, objects)]
            link = [*compiler, "-shared", "-Wl,--no-as-needed", *objects,
                    f"-L{library.parent}", f"-Wl,-rpath,{library.parent}", f"-l:{library.name}",
                    f"-L{torch_folder / 'lib'}", *_TORCH_LIBRARIES,
                    *_cuda_runtime(torch, torch_folder), "-o", str(work / _FILE)]
            _run_all(commands, link, log, progress)
        os.replace(work / _FILE, place / _FILE)
        with contextlib.suppress(OSError):
            (place / "failed").unlink()
    except _CompilerFailed as error:
        with contextlib.suppress(OSError):
            (place / "failed").touch()
        raise CannotBuild(f"the full route did not compile: see {log}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


class _CompilerFailed(Exception):
    pass


def _remove_abandoned(place: Path) -> None:
    """Folders of processes that were killed; nobody compiles for that long."""
    for old in place.glob(".work-*"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > _MOST_SECONDS:
                shutil.rmtree(old, ignore_errors=True)


def _make_folder(place: Path) -> None:
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotBuild(f"{place} cannot be made ({error.strerror}); HEADROOM_TORCH_CACHE names "
                          "another folder") from error


def _run_all(
    commands: list[list[str]], link: list[str], log: Path, progress: _Progress
) -> None:
    """The commands, as many at once as there are cores, then the last one."""
    started = time.monotonic()
    at_once = max(1, min(len(commands), os.cpu_count() or 1))
    outputs = [log.with_name(f".{log.name}.{os.getpid()}.{i}") for i in range(len(commands))]
    running: list[tuple[subprocess.Popen[bytes], Path]] = []
    waiting = list(zip(commands, outputs))
    codes: list[int] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                command, output = waiting.pop(0)
                with open(output, "wb") as file:
                    running.append((subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                        env={**os.environ, "LC_ALL": "C"}), output))
            progress.tick()
            time.sleep(0.05)
            codes += [code for process, _ in running if (code := process.poll()) is not None]
            running = [(process, output) for process, output in running if process.returncode is None]
            if time.monotonic() - started > _MOST_SECONDS:
                raise _CompilerFailed
        last = _run(link) if not any(codes) else None
        _write_log(log, commands, outputs, link, last)
        if last is None or last.returncode != 0:
            raise _CompilerFailed
    finally:
        for process, _ in running:
            process.kill()
            process.wait()
        for output in outputs:
            with contextlib.suppress(OSError):
                output.unlink()


def _write_log(
    log: Path,
    commands: list[list[str]],
    outputs: list[Path],
    link: list[str],
    last: subprocess.CompletedProcess[str] | None,
) -> None:
    with open(log, "w", encoding="utf-8", errors="replace") as file:
        for command, output in zip(commands, outputs):
            file.write(shlex.join(command) + "\n" + output.read_text(errors="replace"))
        if last is not None:
            file.write(shlex.join(link) + "\n" + last.stdout)


# --- Waiting --------------------------------------------------------------------------------------


class _Progress:
    """A line on stderr: what is being done, the seconds where it is a terminal, and the end."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = time.monotonic()
        self._shown = -1
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> _Progress:
        self._write(f"headroom: {self._what} ...", end="" if self._is_terminal else "\n")
        return self

    def tick(self) -> None:
        seconds = int(time.monotonic() - self._start)
        if self._is_terminal and seconds != self._shown:
            self._shown = seconds
            self._write(f"\rheadroom: {self._what} ... {seconds} s", end="")

    def __exit__(self, kind: object, *_: object) -> None:
        seconds = time.monotonic() - self._start
        word = "done" if kind is None else "failed"
        if self._is_terminal:
            self._write(f"\rheadroom: {self._what} ... {word} in {seconds:.0f} s")
        else:
            self._write(f"headroom: {word} in {seconds:.0f} s")

    @staticmethod
    def _write(text: str, end: str = "\n") -> None:
        if sys.stderr is not None:
            print(text, end=end, file=sys.stderr, flush=True)


@contextlib.contextmanager
def _lock(place: Path) -> Iterator[bool]:
    """Held while one process compiles; the system lets go of it when that dies.

    Gives whether another process had it.
    """
    import fcntl

    _make_folder(place)
    has_waited = False
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(open(place / "lock", "w", encoding="utf-8"))
        except OSError as error:
            raise CannotBuild(f"{place} cannot be written ({error.strerror}); HEADROOM_TORCH_CACHE "
                              "names another folder") from error
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            has_waited = True
            print("headroom: another process compiles; waiting for it", file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):
                fcntl.lockf(file, fcntl.LOCK_EX)
        except OSError:
            pass  # no locks here: see above
        yield has_waited
