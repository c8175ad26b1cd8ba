"""Puts PyTorch on headroom, once for the process."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from typing import Any

from headroom.torch import _full, _plain, _statistics
from headroom.torch._route import EnableError, Route, Settings
from headroom.torch._sizes import parse_size

__all__ = ["EnableError", "active", "enable", "enable_after_import", "is_enabled", "require"]

_ROUTES = ("auto", "full", "plain")
_lock = threading.Lock()
_importing = threading.local()  # this thread imports torch in order to enable headroom
_active: Route | None = None
_active_settings = Settings()


def enable(
    limit: int | str | None = None,
    *,
    conf: str | None = None,
    route: str | None = None,
    patch: bool = True,
) -> str:
    r"""Makes headroom PyTorch's CUDA allocator for the rest of the process.

    Call it before CUDA starts in this process, which is with the first tensor on a GPU; importing
    ``torch`` before or after does not matter.

    Args:
        limit (int or str, optional): a bound on what each device may reserve, in bytes or as
            ``"20GiB"``. Default: ``HEADROOM_LIMIT``, or none.
        conf (str, optional): settings of the allocator, as in ``HEADROOM_ALLOC_CONF``.
        route (str, optional): ``"full"`` compiles a small extension for the PyTorch that is
            installed, once, and does all that PyTorch's own allocator does. ``"plain"`` needs no
            compiler and does less. ``"auto"`` is the full route, or where it cannot be compiled the
            plain one, which is said on stderr. Default: ``HEADROOM_TORCH_ROUTE``, or ``"auto"``.
        patch (bool, optional): on the plain route, let ``torch.cuda.memory_stats`` and what is built
            on it ask headroom instead of raising. Default: ``True``.

    Returns:
        str: the route that was taken, ``"full"`` or ``"plain"``.

    Raises:
        EnableError: when PyTorch is missing or built without CUDA, when CUDA has started, when the
            route cannot be taken, or when a setting is wrong. PyTorch is then as it was.

    Example::

        >>> import headroom.torch
        >>> headroom.torch.enable(limit="20GiB")
        'full'
    """
    global _active, _active_settings
    route = route or os.environ.get("HEADROOM_TORCH_ROUTE") or "auto"
    if route not in _ROUTES:
        raise EnableError(f"route '{route}' is not one of {', '.join(_ROUTES)}")
    settings = _read_settings(limit, conf)
    with _lock:
        if _active is not None:
            _compare_with_active(settings, limit is not None or conf is not None, route)
            return _active.name
        torch = _import_torch()
        _check(torch)
        made = _make(torch, route, settings)
        if patch and made.name == "plain":
            _statistics.answer_for(torch, made)
        _active, _active_settings = made, settings
        return made.name


def is_enabled() -> bool:
    r"""Returns whether PyTorch is on headroom in this process."""
    return _active is not None


def active() -> Route | None:
    """The route, where there is one."""
    return _active


def require(what: str) -> Route:
    """The route. Raises RuntimeError where headroom is not enabled."""
    if _active is None:
        raise RuntimeError(
            f"headroom.torch.{what}: PyTorch is not on headroom; call headroom.torch.enable() first")
    return _active


def _read_settings(limit: int | str | None, conf: str | None) -> Settings:
    named = "limit" if limit is not None else "HEADROOM_LIMIT"
    if limit is None:
        limit = os.environ.get("HEADROOM_LIMIT") or None
    try:
        limit_bytes = None if limit is None else parse_size(limit)
    except ValueError as error:
        raise EnableError(f"{named}: {error}") from None
    return Settings(limit_bytes=limit_bytes, conf=conf or "")


def _compare_with_active(settings: Settings, is_explicit: bool, route: str) -> None:
    assert _active is not None
    if is_explicit and settings != _active_settings:
        warnings.warn(
            "headroom.torch.enable: headroom is enabled already, with other settings, which stay",
            stacklevel=3)
    if route not in ("auto", _active.name):
        warnings.warn(
            f"headroom.torch.enable: headroom is enabled already, on the {_active.name} route",
            stacklevel=3)


def _import_torch() -> Any:
    _importing.is_done_here = True
    try:
        import torch
    except ImportError as error:
        raise EnableError(
            f"PyTorch is missing: {error}; install it in this Python ({sys.executable})") from error
    finally:
        _importing.is_done_here = False
    return torch


def enable_after_import() -> None:
    """For the hook of HEADROOM_TORCH=1; does nothing where enable() itself imported torch."""
    if not getattr(_importing, "is_done_here", False):
        enable()


def _check(torch: Any) -> None:
    version = torch.__version__
    if getattr(torch.version, "hip", None):
        raise EnableError(f"PyTorch {version} is built for ROCm, and headroom needs CUDA")
    if getattr(torch.version, "cuda", None) is None:
        raise EnableError(f"PyTorch {version} is built without CUDA, so it has no GPU memory to manage")
    if not hasattr(torch.cuda.memory, "change_current_allocator"):
        raise EnableError(f"PyTorch {version} cannot change its allocator; PyTorch 2.0 and newer can")
    if torch.cuda.is_initialized():
        raise EnableError(_too_late())


def _too_late() -> str:
    return ("CUDA has started already in this process, and memory that PyTorch's allocator gave out "
            "cannot be moved to another: call headroom.torch.enable() before the first tensor on a "
            "GPU, or start the program with 'python -m headroom.torch script.py'")


def _make(torch: Any, route: str, settings: Settings) -> Route:
    try:
        if route != "plain":
            try:
                return _full.FullRoute(torch, settings, tries_again=route == "full")
            except _full.CannotBuild as error:
                if route == "full":
                    raise EnableError(str(error)) from error
                print(f"headroom: {error}; PyTorch is on the plain route, which does less",
                      file=sys.stderr)
        return _plain.PlainRoute(torch, settings)
    except FileNotFoundError as error:
        raise EnableError(str(error)) from error
    except RuntimeError as error:
        if "already initialized allocator" in str(error):
            raise EnableError(_too_late()) from error
        raise
