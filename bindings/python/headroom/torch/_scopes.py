"""Parts of a program by name, with the peaks of memory inside each."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from headroom.torch._device import device_index
from headroom.torch._enable import require

__all__ = ["Peaks", "scope"]


@dataclasses.dataclass
class Peaks:
    r"""What a :func:`scope` took, in bytes; zero until it has ended.

    Attributes:
        path (str): the names of the scopes around it and its own, as ``"step/attention"``.
        peak_allocated (int): the most that tensors took meanwhile.
        peak_reserved (int): the most that was reserved meanwhile.
        peak_live (int): the most that was asked for meanwhile, rounded up to 512 bytes each.
    """

    path: str = ""
    peak_allocated: int = 0
    peak_reserved: int = 0
    peak_live: int = 0


@contextlib.contextmanager
def scope(name: str, *, device: Any = None) -> Iterator[Peaks]:
    r"""Names what this thread allocates inside it, and watches the peaks of a device meanwhile.

    Scopes nest: each has peaks of its own, whatever is reset in between. Reports and recordings show
    the names. It is a context manager, and a decorator too.

    Example::

        >>> with headroom.torch.scope("attention") as attention:
        ...     y = model.attention(x)
        >>> attention.peak_allocated
        1073741824
    """
    route = require("scope")
    route.scope_push(name, device_index(device))
    peaks = Peaks()
    try:
        yield peaks
    finally:
        numbers = route.scope_pop()
        for field in dataclasses.fields(Peaks):
            if field.name in numbers:
                setattr(peaks, field.name, numbers[field.name])
