"""What headroom uses of PyTorch, without PyTorch: memory comes from whatever allocator is plugged in.

FAKE_TORCH in the environment is a JSON object that makes this one odd:
  "without": setters of a pluggable allocator that it lacks; "cuda": null for a build without CUDA;
  "hip": a version of ROCm; "version"; "started": CUDA has started; "fails": the import fails.
"""

import json
import os
import types

_odd = json.loads(os.environ.get("FAKE_TORCH", "{}"))
if _odd.get("fails"):
    raise ImportError("libcudart.so.99: cannot open shared object file")

__version__ = _odd.get("version", "2.11.0+fake")
version = types.SimpleNamespace(cuda=_odd.get("cuda", "13.0"), hip=_odd.get("hip"), git_version="0")


def _no_answer(*_):
    raise RuntimeError("CUDAPluggableAllocator does not yet support this")


_C = types.SimpleNamespace(
    _GLIBCXX_USE_CXX11_ABI=_odd.get("cxx11_abi", True),
    _cuda_memoryStats=_no_answer,
    _cuda_resetPeakMemoryStats=_no_answer,
    _cuda_resetAccumulatedMemoryStats=_no_answer,
    _cuda_getMemoryFraction=_no_answer)


class device:
    def __init__(self, type, index=None):
        self.type, self.index = type, index


from torch import cuda  # noqa: E402, F401


class Tensor:
    """Bytes of device 0."""

    def __init__(self, size):
        cuda._started = True
        self.size = size
        self.address = cuda.memory._current.malloc(size)

    def data_ptr(self):
        return self.address

    def record_stream(self, stream):
        cuda.memory._current.call("set_record_stream_fn", self.address, stream)

    def __del__(self):
        if getattr(self, "address", None):
            cuda.memory._current.free(self.address, self.size)


def empty(size):
    return Tensor(size)
