r"""Runs a program with PyTorch on headroom: ``python -m headroom.torch script.py [ARGUMENT]...``.

The program is run as Python runs it, with its own ``sys.argv`` and ``sys.path``. Processes that it
starts are on headroom too, where this package is installed by pip.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

from headroom._version import __version__
from headroom.torch import _build
from headroom.torch._enable import EnableError, enable
from headroom.torch._sizes import parse_size

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m headroom.torch",
        description="Runs a program with PyTorch on headroom's allocator.",
        epilog="Variables of the environment that say the same are HEADROOM_TORCH=1, HEADROOM_LIMIT, "
               "HEADROOM_ALLOC_CONF and HEADROOM_TORCH_ROUTE.")
    parser.add_argument("--limit", metavar="SIZE", help="a bound on what each device may reserve, as 20GiB")
    parser.add_argument("--conf", metavar="SETTINGS", help="settings, as in HEADROOM_ALLOC_CONF")
    parser.add_argument("--route", choices=("auto", "full", "plain"),
                        help="full needs a C++ compiler once; plain does less (default: auto)")
    parser.add_argument("--record", metavar="FILE.hrt",
                        help="record what happens to memory; %%p is the process's number")
    parser.add_argument("--compile", metavar="FOLDER", nargs="?", const="",
                        help="compile the full route ahead of time, into a folder, and stop")
    parser.add_argument("--version", action="version", version=f"headroom {__version__}")
    parser.add_argument("-m", dest="module", metavar="MODULE", help="run a module, as python -m does")
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="script.py [ARGUMENT]...",
                        help="the program and its arguments")
    return parser


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is for this program, and the rest from MODULE or the script on."""
    with_value = {"--limit", "--conf", "--route", "--record"}
    i = 0
    while i < len(arguments):
        word = arguments[i]
        if word == "-m":
            return arguments[:i + 2], arguments[i + 2:]
        if word.startswith("-m") and not word.startswith("--"):
            return [*arguments[:i], "-m", word[2:]], arguments[i + 1:]
        if not word.startswith("-") or word == "-":
            return arguments[:i], arguments[i:]
        if word == "--compile":
            return arguments, []
        i += 2 if word in with_value else 1
    return arguments, []


def _set_environment(options: argparse.Namespace) -> None:
    """For the processes that the program starts, and for ourselves."""
    os.environ.setdefault("HEADROOM_TORCH", "1")
    for name, value in (("HEADROOM_LIMIT", options.limit), ("HEADROOM_ALLOC_CONF", options.conf),
                        ("HEADROOM_TORCH_ROUTE", options.route)):
        if value is not None:
            os.environ[name] = value


def _fresh_main() -> types.ModuleType:
    """A ``__main__`` without our names in it. It stays when the program has ended, for its threads."""
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    return module


def _run_script(path: str, arguments: list[str]) -> None:
    sys.argv = [path, *arguments]
    if os.path.isdir(path) or _is_zip(path):
        _set_first_path(path)
        runpy.run_path(path, run_name="__main__")
        return
    _set_first_path(str(Path(path).resolve().parent))
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    module = _fresh_main()
    module.__file__ = path
    module.__dict__["__cached__"] = None
    exec(code, module.__dict__)


def _is_zip(path: str) -> bool:
    import zipfile

    return zipfile.is_zipfile(path)


def _set_first_path(folder: str) -> None:
    """Python has put its own idea of the first folder there, unless it was told not to (-P)."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def _run_module(name: str, arguments: list[str]) -> None:
    _fresh_main()
    sys.argv = [name, *arguments]
    # What `python -m` itself calls, so that the module finds everything as it does there.
    run_as_main: Any = getattr(runpy, "_run_module_as_main")
    run_as_main(name, alter_argv=True)


def _compile(folder: str) -> int:
    try:
        import torch
    except ImportError as error:
        print(f"headroom: PyTorch is missing: {error}", file=sys.stderr)
        return 1
    try:
        into = Path(folder).absolute() if folder else _build.cache_folder()
        print(_build.compile_into(torch, into))
    except (_build.CannotBuild, FileNotFoundError) as error:
        print(f"headroom: {error}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    """Reads the arguments, enables headroom and becomes the program."""
    ours, rest = _split(sys.argv[1:])
    parser = _parser()
    options = parser.parse_args(ours)
    if options.compile is not None:
        return _compile(options.compile)
    if options.module is None and not rest:
        parser.error("which program? Name a script, or a module with -m")
    if options.module is None and not os.path.exists(rest[0]):
        parser.error(f"there is no '{rest[0]}'")
    if options.limit is not None:
        try:
            parse_size(options.limit)
        except ValueError as error:
            parser.error(f"--limit: {error}")
    _set_environment(options)
    try:
        enable()
        if options.record is not None:
            _record(options.record)
    except (EnableError, RuntimeError, ValueError) as error:
        print(f"headroom: {error}", file=sys.stderr)
        return 1
    if options.module is not None:
        _run_module(options.module, rest)
    else:
        _run_script(rest[0], rest[1:])
    return 0


def _record(path: str) -> None:
    import headroom.torch

    headroom.torch.record(path)


if __name__ == "__main__":
    sys.exit(main())
