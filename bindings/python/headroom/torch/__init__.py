r"""PyTorch on headroom's allocator.

    import headroom.torch
    headroom.torch.enable()          # before the first tensor on a GPU

Nothing else in the program changes. Programs that cannot be changed are started with
``python -m headroom.torch script.py``, or with ``HEADROOM_TORCH=1`` in their environment where this
package is installed. docs/guide/pytorch.md says what works on which route, and what to do when
something does not.

Functions about memory take a device as those of ``torch.cuda`` do: a number, a ``torch.device``, a
name, or ``None`` for the current one.
"""

from __future__ import annotations

import os
import types
from typing import Any

from headroom.torch._device import device_index
from headroom.torch._enable import enable, is_enabled, require
from headroom.torch._enable import active as _active_route
from headroom.torch._route import EnableError, NotOnThisRoute
from headroom.torch._scopes import Peaks, scope
from headroom.torch._sizes import parse_duration_ms, parse_size
from headroom.torch._statistics import nested

__all__ = [
    "EnableError",
    "NotOnThisRoute",
    "Peaks",
    "Recording",
    "account",
    "enable",
    "get_per_process_memory_fraction",
    "idle_trim",
    "is_enabled",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "record",
    "report",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "route",
    "scope",
    "sleep",
    "wake",
]


def route() -> str | None:
    r"""Returns ``"full"`` or ``"plain"``, or ``None`` where headroom is not enabled."""
    active = _active_route()
    return None if active is None else active.name


# --- Reports --------------------------------------------------------------------------------------


def report(device: Any = None) -> str:
    r"""Returns where every byte of the device is, as text of at most 80 columns.

    Args:
        device (torch.device or int, optional): Default: the current device.
    """
    return require("report").report(device_index(device))


def account(device: Any = None) -> dict[str, Any]:
    r"""Returns what :func:`report` says, as a dictionary.

    ``"lines"`` has one entry for each place where bytes can be; they add up to ``"total_bytes"``.
    """
    return require("account").account(device_index(device))


# --- Statistics, also where PyTorch cannot answer -------------------------------------------------


def memory_stats(device: Any = None) -> dict[str, int]:
    r"""Returns the statistics of a device by the keys of :func:`torch.cuda.memory_stats`."""
    return require("memory_stats").stats(device_index(device))


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    r"""Returns :func:`memory_stats` as dictionaries in dictionaries."""
    return nested(memory_stats(device))


def memory_allocated(device: Any = None) -> int:
    r"""Returns the bytes of the tensors that there are."""
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: Any = None) -> int:
    r"""Returns the most that :func:`memory_allocated` has been since the peaks were last reset."""
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: Any = None) -> int:
    r"""Returns the bytes that were taken from the device: those of tensors, and what is cached."""
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: Any = None) -> int:
    r"""Returns the most that :func:`memory_reserved` has been since the peaks were last reset."""
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: Any = None) -> None:
    r"""Lets peaks begin anew, at what is allocated and reserved now."""
    require("reset_peak_memory_stats").reset_peaks(device_index(device))


def reset_accumulated_memory_stats(device: Any = None) -> None:
    r"""Sets what counts upwards (allocations, bytes ever allocated, retries) to zero."""
    require("reset_accumulated_memory_stats").reset_accumulated(device_index(device))


def get_per_process_memory_fraction(device: Any = None) -> float:
    r"""Returns the share of the device that this process may reserve; 1 where nobody set one."""
    return require("get_per_process_memory_fraction").memory_fraction(device_index(device))


# --- Recording ------------------------------------------------------------------------------------


_LEAST_RECORDING = 1 << 20


class Recording:
    r"""A recording that runs; :func:`record` makes it. It ends with :meth:`stop` or its ``with``."""

    def __init__(self, path: str, device: int) -> None:
        self.path = path
        self.device = device
        self._is_running = True

    def stop(self) -> None:
        r"""Ends the recording and finishes its file. A second call does nothing."""
        if self._is_running:
            self._is_running = False
            require("Recording.stop").record_stop(self.device)

    def __enter__(self) -> Recording:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        self.stop()


def record(
    path: str | os.PathLike[str],
    *,
    device: Any = None,
    max_bytes: int | str = "1GiB",
    python_stacks: bool = True,
) -> Recording:
    r"""Records what happens to memory, until it is stopped or the program ends.

    Meant to be always on: the file never grows beyond ``max_bytes``, because the oldest events make
    room for new ones; what was held then stays in it. ``headroom doctor FILE`` reads it, and so do
    the other commands, also while the program runs. A process that is killed leaves a file that can
    be read. When the file cannot be written any more, because the disk is full, say, a line on
    stderr says so and the program goes on. The child of a fork leaves its parent's file alone.

    Args:
        path (str): the file, which ends in ``.hrt`` and does not exist yet. ``%p`` in it is the
            process's number.
        device (torch.device or int, optional): Default: the current device.
        max_bytes (int or str, optional): how large the file may become, the one that it is made
            anew from included; at least 1 MiB. Default: ``"1GiB"``.
        python_stacks (bool, optional): keep the Python lines that allocated. Default: ``True``.

    Returns:
        Recording: with a method :meth:`~Recording.stop`; also a context manager.

    Raises:
        ValueError: when the name or the size cannot be that of a recording.
        RuntimeError: when the file cannot be made or exists, or the device is recorded already.

    Example::

        >>> with headroom.torch.record("step.hrt"):
        ...     train_step()
    """
    name = os.fspath(path).replace("%p", str(os.getpid()))
    if not name.endswith(".hrt"):
        raise ValueError(f"record: '{name}' must end in .hrt, the format that is written")
    size = parse_size(max_bytes)
    if size < _LEAST_RECORDING:
        raise ValueError(f"record: max_bytes is {max_bytes}, and a recording needs at least 1MiB")
    index = device_index(device)
    require("record").record_start(index, name, size, python_stacks)
    return Recording(name, index)


# --- Memory that is not needed now ----------------------------------------------------------------


def idle_trim(after: float | str = "5s", keep: int | str = "2GiB") -> None:
    r"""Gives cached memory back to the device when the program does not grow.

    ``after`` the last time that a device's memory grew, all but ``keep`` of what is cached there is
    given back, so that other programs can have it.

    Args:
        after (float or str, optional): seconds, or a text such as ``"500ms"``; 0 turns this off.
        keep (int or str, optional): bytes, or a text such as ``"2GiB"``.
    """
    require("idle_trim").idle_trim(parse_duration_ms(after), parse_size(keep))


def sleep(tag: str = "", *, keep: bool = False) -> int:
    r"""Gives the memory of tagged tensors back to their devices; their addresses stay theirs.

    Returns the bytes that came back. Waits for everything that is queued. Until :func:`wake`, nothing
    may read or write the tensors; they may be freed. Tensors of up to 64 KiB stay as they are
    where a page of 2 MiB holds others too.

    Args:
        tag (str, optional): which; the name of the :func:`scope` in which they were made, or
            ``"outer/inner"``. Default: all.
        keep (bool, optional): keep what they hold in host memory; otherwise it is lost. Default:
            ``False``.

    Raises:
        RuntimeError: one of them is in a private pool (of a captured graph, or a ``MemPool``), or a
            graph is being captured. Nothing sleeps then.
    """
    return require("sleep").sleep(tag, keep)


def wake(tag: str = "") -> int:
    r"""Gives tensors that sleep their memory again, at the same addresses.

    Returns the bytes that were taken. They hold what they held where :func:`sleep` kept it, and
    undefined contents otherwise.

    Args:
        tag (str, optional): as :func:`sleep` takes it. Default: all.

    Raises:
        torch.OutOfMemoryError: there is not enough memory. All of them sleep on, and a later call may
            succeed.
    """
    return require("wake").wake(tag)
