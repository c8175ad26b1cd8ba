"""The full route: a C++ allocator of PyTorch's own kind, compiled for the PyTorch that is there."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from headroom import _places
from headroom.torch import _build
from headroom.torch._build import CannotBuild
from headroom.torch._route import EnableError, Settings

__all__ = ["CannotBuild", "FullRoute"]


def _import_module(path: Path) -> Any:
    # It is linked to this library by name, so the one of this package is loaded first: what was
    # compiled may be shared with another environment.
    ctypes.CDLL(str(_places.plugin_library()))
    loader = importlib.machinery.ExtensionFileLoader(_build.MODULE, str(path))
    spec = importlib.util.spec_from_file_location(_build.MODULE, path, loader=loader)
    if spec is None:
        raise CannotBuild(f"{path} is not a Python module")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise CannotBuild(f"{path} cannot be loaded ({error}); remove it, and it is compiled "
                          "again") from error
    sys.modules[_build.MODULE] = module
    return module


class FullRoute:
    """PyTorch on headroom by a C++ subclass of its allocator."""

    name = "full"

    def __init__(self, torch: Any, settings: Settings, tries_again: bool = False) -> None:
        self._module = _import_module(_build.module_for(torch, tries_again))
        given: dict[str, Any] = {}
        if settings.limit_bytes is not None:
            given["limit_bytes"] = settings.limit_bytes
        if settings.conf:
            given["conf"] = settings.conf
        try:
            self._module.enable(given)
        except (RuntimeError, ValueError) as error:
            if "already initialized allocator" in str(error):
                raise
            raise EnableError(str(error)) from error

    def report(self, device: int) -> str:
        text: str = self._module.report(device)
        return text

    def account(self, device: int) -> dict[str, Any]:
        account: dict[str, Any] = json.loads(self._module.account(device))
        return account

    def stats(self, device: int) -> dict[str, int]:
        return dict(self._module.stats(device))

    def reset_peaks(self, device: int) -> None:
        import torch

        torch.cuda.reset_peak_memory_stats(device)

    def reset_accumulated(self, device: int) -> None:
        import torch

        torch.cuda.reset_accumulated_memory_stats(device)

    def memory_fraction(self, device: int) -> float:
        import torch

        fraction: float = torch.cuda.get_per_process_memory_fraction(device)
        return fraction

    def scope_push(self, name: str, device: int) -> None:
        self._module.scope_push(name, device)

    def scope_pop(self) -> dict[str, Any]:
        return dict(self._module.scope_pop())

    def idle_trim(self, after_ms: int, keep_bytes: int) -> None:
        self._module.idle_trim(after_ms, keep_bytes)

    def record_start(self, device: int, path: str, max_bytes: int, stacks: bool) -> None:
        self._module.record_start(device, path, max_bytes, stacks)

    def record_stop(self, device: int) -> None:
        self._module.record_stop(device)

    def sleep(self, tag: str, keep: bool) -> int:
        given_back: int = self._module.sleep(tag, keep)
        return given_back

    def wake(self, tag: str) -> int:
        taken: int = self._module.wake(tag)
        return taken
