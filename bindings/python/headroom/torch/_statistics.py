"""torch.cuda's memory functions, answered by headroom.

On the plain route PyTorch has no answer of its own: ``torch.cuda.memory_stats`` raises there.
``answer_for`` puts headroom's answers below PyTorch's functions, so that programs that ask for their
memory go on.
"""

from __future__ import annotations

from typing import Any

from headroom.torch._route import Route

__all__ = ["answer_for", "nested"]


def nested(flat: dict[str, int]) -> dict[str, Any]:
    """``{"a.b": 1}`` as ``{"a": {"b": 1}}``, which is how PyTorch's own parts pass statistics on."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *folders, last = key.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return tree


def answer_for(torch: Any, route: Route) -> None:
    """Replaces those of PyTorch's C functions that a pluggable allocator cannot answer."""
    answers = {
        "_cuda_memoryStats": lambda device: nested(route.stats(device)),
        "_cuda_resetPeakMemoryStats": route.reset_peaks,
        "_cuda_resetAccumulatedMemoryStats": route.reset_accumulated,
        "_cuda_getMemoryFraction": route.memory_fraction,
    }
    for name, answer in answers.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, answer)
