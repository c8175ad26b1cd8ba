"""The plain route: PyTorch's pluggable allocator, which takes C functions and needs no compiler.

PyTorch drops a call silently where no function is registered for it. For ``record_stream`` and the
pools of CUDA graphs that means wrong data, so this route starts only where all of them can be
registered.
"""

from __future__ import annotations

import ctypes
import json
import threading
from typing import Any

from headroom import _places
from headroom.torch._route import EnableError, NotOnThisRoute, Settings

__all__ = ["HOOKS", "PlainRoute"]

# PyTorch's setter, our function, and what would happen without it.
HOOKS = (
    ("set_record_stream_fn", "headroom_torch_record_stream",
     "a tensor that another stream still reads could be overwritten"),
    ("set_begin_allocate_to_pool", "headroom_torch_begin_allocate_to_pool",
     "the memory of a CUDA graph could be handed out while the graph uses it"),
    ("set_end_allocate_to_pool_fn", "headroom_torch_end_allocate_to_pool",
     "the memory of a CUDA graph could be handed out while the graph uses it"),
    ("set_release_pool", "headroom_torch_release_pool",
     "the memory of a CUDA graph would never be given back"),
    ("set_memory_fraction_fn", "headroom_torch_memory_fraction",
     "set_per_process_memory_fraction would do nothing"),
    ("set_reset_fn", "headroom_torch_reset", "empty_cache would do nothing"),
    ("set_base_alloc_fn", "headroom_torch_base_alloc",
     "the segment of an address could not be asked for"),
    ("set_init_fn", "headroom_torch_init", "errors of the environment would be told late"),
)

_NO_LIMIT = (1 << 64) - 1


def _load(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise EnableError(f"{path} cannot be loaded: {error}") from error
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "prepare": (ctypes.c_int, []),
        "configure": (ctypes.c_int, [ctypes.c_char_p]),
        "set_limit": (ctypes.c_int, [ctypes.c_uint64]),
        "idle_trim": (ctypes.c_int, [ctypes.c_int64, ctypes.c_uint64]),
        "tick": (None, []),
        "report": (ctypes.c_char_p, [ctypes.c_int]),
        "account": (ctypes.c_char_p, [ctypes.c_int]),
        "stats": (ctypes.c_char_p, [ctypes.c_int]),
        "get_memory_fraction": (ctypes.c_double, [ctypes.c_int]),
        "reset_peaks": (ctypes.c_int, [ctypes.c_int]),
        "reset_accumulated": (ctypes.c_int, [ctypes.c_int]),
        "scope_push": (ctypes.c_int, [ctypes.c_char_p, ctypes.c_int]),
        "scope_pop": (ctypes.c_char_p, []),
        "last_error": (ctypes.c_char_p, []),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, f"headroom_torch_{name}", None)
        if function is None:
            raise EnableError(f"{path} is of another version of headroom: it has no "
                              f"headroom_torch_{name}")
        function.restype = result
        function.argtypes = arguments
    return library


class PlainRoute:
    """PyTorch on headroom by its pluggable allocator."""

    name = "plain"

    def __init__(self, torch: Any, settings: Settings) -> None:
        path = str(_places.plugin_library())
        self._library = _load(path)
        self._check(self._library.headroom_torch_prepare())
        if settings.conf:
            self._check(self._library.headroom_torch_configure(settings.conf.encode()))
        if settings.limit_bytes is not None:
            self._check(self._library.headroom_torch_set_limit(settings.limit_bytes))
        self._ticker: _Ticker | None = None
        self._pluggable = self._plug_in(torch, path)

    def _plug_in(self, torch: Any, path: str) -> Any:
        pluggable = torch.cuda.memory.CUDAPluggableAllocator(
            path, "headroom_torch_malloc", "headroom_torch_free")
        native = pluggable.allocator()
        for setter, _, without in HOOKS:
            if not hasattr(native, setter):
                raise EnableError(
                    f"PyTorch {torch.__version__} has no {setter} for a pluggable allocator: "
                    f"{without}; use a newer PyTorch, or route='full'")
        for setter, function, _ in HOOKS:
            address = ctypes.cast(getattr(self._library, function), ctypes.c_void_p).value
            getattr(native, setter)(address)
        self._library.headroom_torch_set_record_stream_is_registered(1)
        torch.cuda.memory.change_current_allocator(pluggable)
        return pluggable

    def _check(self, answer: Any) -> Any:
        if answer is None or answer == -1:
            text: bytes = self._library.headroom_torch_last_error()
            raise EnableError(text.decode(errors="replace"))
        return answer

    def _text(self, answer: bytes | None) -> str:
        if answer is None:
            text: bytes = self._library.headroom_torch_last_error()
            raise RuntimeError(text.decode(errors="replace"))
        return answer.decode(errors="replace")

    def report(self, device: int) -> str:
        return self._text(self._library.headroom_torch_report(device))

    def account(self, device: int) -> dict[str, Any]:
        account: dict[str, Any] = json.loads(
            self._text(self._library.headroom_torch_account(device)))
        return account

    def stats(self, device: int) -> dict[str, int]:
        stats: dict[str, int] = json.loads(self._text(self._library.headroom_torch_stats(device)))
        return stats

    def reset_peaks(self, device: int) -> None:
        self._library.headroom_torch_reset_peaks(device)

    def reset_accumulated(self, device: int) -> None:
        self._library.headroom_torch_reset_accumulated(device)

    def memory_fraction(self, device: int) -> float:
        fraction: float = self._library.headroom_torch_get_memory_fraction(device)
        return fraction

    def scope_push(self, name: str, device: int) -> None:
        if self._library.headroom_torch_scope_push(name.encode(), device) != 0:
            self._text(None)

    def scope_pop(self) -> dict[str, Any]:
        peaks: dict[str, Any] = json.loads(self._text(self._library.headroom_torch_scope_pop()))
        return peaks

    def idle_trim(self, after_ms: int, keep_bytes: int) -> None:
        if self._library.headroom_torch_idle_trim(after_ms, keep_bytes) != 0:
            self._text(None)
        if self._ticker is not None:
            self._ticker.stop()
            self._ticker = None
        if after_ms > 0:
            self._ticker = _Ticker(self._library.headroom_torch_tick, after_ms / 2000)

    def record_start(self, device: int, path: str, max_bytes: int, stacks: bool) -> None:
        raise NotOnThisRoute(_needs_full("record"))

    def record_stop(self, device: int) -> None:
        raise NotOnThisRoute(_needs_full("record"))

    def sleep(self, tag: str, keep: bool) -> int:
        raise NotOnThisRoute(_needs_full("sleep"))

    def wake(self, tag: str) -> int:
        raise NotOnThisRoute(_needs_full("wake"))


def _needs_full(what: str) -> str:
    return f"headroom.torch.{what} needs the full route, and this program is on the plain one"


class _Ticker:
    """Calls a function now and then from a thread of its own, which ends with the program."""

    def __init__(self, function: Any, seconds: float) -> None:
        self._function = function
        self._seconds = max(seconds, 0.01)
        self._stopped = threading.Event()
        threading.Thread(target=self._run, name="headroom-idle-trim", daemon=True).start()

    def _run(self) -> None:
        while not self._stopped.wait(self._seconds):
            self._function()

    def stop(self) -> None:
        self._stopped.set()
