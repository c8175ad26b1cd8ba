"""Sizes as people write them: the grammar of every option and variable of headroom."""

from __future__ import annotations

import re
from fractions import Fraction

__all__ = ["parse_duration_ms", "parse_size"]

_UNITS = {"": 0, "b": 0, "kib": 10, "mib": 20, "gib": 30, "tib": 40, "pib": 50, "eib": 60}
_SIZE = re.compile(r"([0-9]+)(?:\.([0-9]+))? ?([A-Za-z]*)", re.ASCII)
_DURATIONS = {"ms": 1, "s": 1000, "min": 60_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]+)", re.ASCII)


def parse_size(value: int | str) -> int:
    """Bytes of a number, or of a text such as ``512``, ``20MiB`` or ``1.5GiB``. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError(f"a size is an int or a str such as '20GiB', and not {value!r}")
    if isinstance(value, int):
        if not 0 <= value < 1 << 64:
            raise ValueError(f"{value} is not a size: it must lie in 0 to 2^64 - 1")
        return value
    match = _SIZE.fullmatch(value)
    unit = match[3].lower() if match else ""
    if match is None or unit not in _UNITS:
        hint = "write for example 512, 20MiB or 1.5GiB"
        if match is not None and re.fullmatch(r"[kmgtpe]b?", unit):
            number_text = value[:match.start(3)].rstrip()
            hint = (f"decimal units are ambiguous, did you mean {number_text}{unit[0].upper()}iB? "
                    f"{hint}")
        raise ValueError(f"'{value}' is not a size: {hint}")
    number = Fraction(f"{match[1]}.{match[2] or 0}")
    size = int(number * (1 << _UNITS[unit]))
    if size >= 1 << 64:
        raise ValueError(f"'{value}' is not a size: it is past 2^64 bytes")
    return size


def parse_duration_ms(value: float | str) -> int:
    """Milliseconds of a number of seconds, or of a text such as ``500ms``, ``5s`` or ``2min``."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None or match[2] not in _DURATIONS:
            raise ValueError(f"'{value}' is not a time: write for example 500ms, 5s or 2min")
        milliseconds = float(match[1]) * _DURATIONS[match[2]]
    else:
        milliseconds = float(value) * 1000
    if not 0 <= milliseconds < 1 << 62:
        raise ValueError(f"{value!r} is not a time: it must not be negative")
    return round(milliseconds)
