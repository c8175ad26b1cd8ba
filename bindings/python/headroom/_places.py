"""Where the parts lie that are not Python: in an installed package, or in a clone of the repository."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["command", "plugin_library", "samples", "translation_root"]

_PACKAGE = Path(__file__).resolve().parent


def _first(places: list[Path], what: str, how: str) -> Path:
    for place in places:
        if place.exists():
            return place
    looked = " or ".join(str(place) for place in places)
    raise FileNotFoundError(f"{what} was not found: {looked} is missing; {how}")


def _repository() -> Path:
    """The repository, if this package is a part of one; bindings/python/headroom lies in it."""
    return _PACKAGE.parents[2]


def plugin_library() -> Path:
    """libheadroom_torch.so, or what HEADROOM_TORCH_LIBRARY names."""
    named = os.environ.get("HEADROOM_TORCH_LIBRARY")
    if named:
        return _first([Path(named).absolute()], "the library", "HEADROOM_TORCH_LIBRARY names it")
    return _first(
        [
            _PACKAGE / "lib" / "libheadroom_torch.so",
            _PACKAGE.parent / "libheadroom_torch.so",
            _repository() / "build" / "libheadroom_torch.so",
        ],
        "the library",
        "in a clone, ./run builds it",
    )


def command() -> Path:
    """The program ``headroom``."""
    return _first(
        [
            _PACKAGE / "bin" / "headroom",
            _PACKAGE.parents[2] / "bin" / "headroom",  # PREFIX/lib/headroom/headroom
            _repository() / "build" / "headroom",
        ],
        "the command",
        "in a clone, ./run builds it",
    )


def samples() -> Path | None:
    """The folder of sample recordings that came with the package; the command finds others."""
    folder = _PACKAGE / "share" / "headroom" / "samples"
    return folder if folder.is_dir() else None


def translation_root() -> Path:
    """The folder with bindings/pytorch in it: the sources that are compiled for one PyTorch."""
    return _first(
        [_PACKAGE / "native", _PACKAGE.parent / "native", _repository()],
        "the full route's sources",
        "install headroom again",
    )
