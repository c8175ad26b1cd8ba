"""Devices as PyTorch's functions take them."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["device_index"]


def device_index(device: Any = None) -> int:
    """The number of a CUDA device: of None, an int, a torch.device or a name such as ``cuda:1``.

    None is the current device; before CUDA has started that is device 0, and nothing is started.
    """
    if isinstance(device, bool):
        raise TypeError(f"a device is a number, a name or a torch.device, and not {device!r}")
    if isinstance(device, int):
        if device < 0:
            raise ValueError(f"device {device} does not exist: numbers start with 0")
        return device
    torch: Any = sys.modules.get("torch")
    if isinstance(device, str):
        kind, _, number = device.partition(":")
        if kind != "cuda" or (number and not number.isascii()) or (number and not number.isdigit()):
            raise ValueError(f"'{device}' is not a CUDA device; write cuda or, for example, cuda:1")
        if number:
            return int(number)
    elif device is not None:
        if getattr(device, "type", None) != "cuda":
            raise ValueError(f"{device!r} is not a CUDA device")
        if device.index is not None:
            return int(device.index)
    if torch is None or not torch.cuda.is_initialized():
        return 0
    return int(torch.cuda.current_device())
