"""PyTorch on headroom's allocator.

    import headroom_torch
    headroom_torch.install()      # before the first tensor on a GPU

The library libheadroom_torch.so is looked for beside this file, then in the repository's build/.
"""

import ctypes
import os
import warnings

LIBRARY = "libheadroom_torch.so"


def find_library():
    here = os.path.dirname(os.path.abspath(__file__))
    places = [here, os.path.normpath(os.path.join(here, "..", "..", "build"))]
    for place in places:
        path = os.path.join(place, LIBRARY)
        if os.path.isfile(path):
            return path
    raise FileNotFoundError(f"{LIBRARY} is not in {' or '.join(places)}; build the target "
                            "headroom_pytorch, or say where it is: install(path)")


def register_record_stream(pluggable, path):
    """Has PyTorch say which streams use a block; without it, a freed block waits for all of them.

    Returns whether this PyTorch can.
    """
    register = getattr(pluggable.allocator(), "set_record_stream_fn", None)
    if register is None:
        import torch

        warnings.warn(
            f"PyTorch {torch.__version__} does not tell a plugged-in allocator of record_stream: "
            "headroom keeps a freed block until every stream that has allocated is done with it",
            stacklevel=3)
        return False
    library = ctypes.CDLL(path)
    register(ctypes.cast(library.headroom_torch_record_stream, ctypes.c_void_p).value)
    library.headroom_torch_set_record_stream_is_registered(1)
    return True


def install(path=None):
    """Makes headroom PyTorch's allocator for the rest of the process."""
    import torch

    path = os.path.abspath(path) if path else find_library()
    pluggable = torch.cuda.memory.CUDAPluggableAllocator(
        path, "headroom_torch_malloc", "headroom_torch_free")
    register_record_stream(pluggable, path)
    torch.cuda.memory.change_current_allocator(pluggable)
    return pluggable
