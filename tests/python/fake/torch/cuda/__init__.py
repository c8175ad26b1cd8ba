import torch

_started = torch._odd.get("started", False)

from torch.cuda import memory  # noqa: E402, F401


def is_initialized():
    return _started


def current_device():
    return 0


def memory_stats(device=0):
    flat = {}

    def add(prefix, value):
        if isinstance(value, dict):
            for key, inner in value.items():
                add(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    add("", torch._C._cuda_memoryStats(device))
    return flat


def memory_allocated(device=0):
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def reset_peak_memory_stats(device=0):
    torch._C._cuda_resetPeakMemoryStats(device)


def get_per_process_memory_fraction(device=0):
    return torch._C._cuda_getMemoryFraction(device)


def set_per_process_memory_fraction(fraction, device=0):
    memory._current.call("set_memory_fraction_fn", fraction, device)


def empty_cache():
    memory._current.call("set_reset_fn")
