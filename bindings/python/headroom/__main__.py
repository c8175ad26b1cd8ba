"""``python -m headroom``: the command headroom, with its arguments and its exit code."""

from __future__ import annotations

import os
import sys

from headroom import _places

__all__ = ["main"]


def main() -> int:
    """Becomes the command; returns only where it cannot."""
    try:
        program = str(_places.command())
    except FileNotFoundError as error:
        print(f"headroom: {error}", file=sys.stderr)
        return 1
    samples = _places.samples()
    if samples is not None:
        os.environ.setdefault("HEADROOM_SAMPLES", str(samples))
    # Hints name the command as it was called.
    is_module = os.path.basename(sys.argv[0]) == "__main__.py"
    os.environ.setdefault("HEADROOM_CALLED_AS", "python -m headroom" if is_module else "headroom")
    sys.stdout.flush()
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        print(f"headroom: {program} cannot be run: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
