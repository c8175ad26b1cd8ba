"""For every Python that starts with HEADROOM_TORCH set: headroom.pth imports this.

Nothing of PyTorch is imported here. When the program imports ``torch``, the hook lets that happen and
then enables headroom, as ``headroom.torch.enable()`` does; a program that never imports it is as it
was. Where headroom cannot be enabled, ``HEADROOM_TORCH=1`` says why in a line on stderr and leaves
PyTorch as it is, and ``HEADROOM_TORCH=require`` fails the import.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Sequence
from types import ModuleType

__all__ = ["install"]


class _TorchFinder(importlib.abc.MetaPathFinder):
    """Finds ``torch`` where everybody finds it, and enables headroom once it was imported."""

    def __init__(self) -> None:
        self._asking = threading.local()  # this thread asks the other finders

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch" or getattr(self._asking, "is_so", False):
            return None
        self._asking.is_so = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._asking.is_so = False
        if spec is not None and spec.loader is not None:
            self._call_after(spec.loader)
        return spec

    def _call_after(self, loader: importlib.abc.Loader) -> None:
        """Has the loader enable headroom once it has run the module; it stays what it is."""
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.__dict__["exec_module"]
            run(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _enable()

        loader.__dict__["exec_module"] = exec_module


def _enable() -> None:
    from headroom.torch._enable import EnableError, enable_after_import

    try:
        enable_after_import()
    except EnableError as error:
        if os.environ.get("HEADROOM_TORCH") == "require":
            raise
        print(f"headroom: PyTorch keeps its own allocator: {error}", file=sys.stderr)


def install() -> None:
    """Waits for ``torch``, unless it was imported already."""
    if os.environ.get("HEADROOM_TORCH", "0") in ("", "0") or "torch" in sys.modules:
        return
    if not any(isinstance(finder, _TorchFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchFinder())


install()
