"""What both routes answer; headroom.torch asks one of them."""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

__all__ = ["EnableError", "NotOnThisRoute", "Route", "Settings"]


class EnableError(RuntimeError):
    """PyTorch could not be put on headroom; the text says why, and what to do."""


class NotOnThisRoute(RuntimeError):
    """The plain route cannot do this."""


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the user asked for."""

    limit_bytes: int | None = None
    conf: str = ""


class Route(Protocol):
    """One of the two ways in which PyTorch calls headroom."""

    name: str

    def report(self, device: int) -> str: ...
    def account(self, device: int) -> dict[str, Any]: ...
    def stats(self, device: int) -> dict[str, int]: ...
    def reset_peaks(self, device: int) -> None: ...
    def reset_accumulated(self, device: int) -> None: ...
    def memory_fraction(self, device: int) -> float: ...
    def scope_push(self, name: str, device: int) -> None: ...
    def scope_pop(self) -> dict[str, Any]: ...
    def idle_trim(self, after_ms: int, keep_bytes: int) -> None: ...
    def record_start(self, device: int, path: str, max_bytes: int, stacks: bool) -> None: ...
    def record_stop(self, device: int) -> None: ...
    def sleep(self, tag: str, keep: bool) -> int: ...
    def wake(self, tag: str) -> int: ...
