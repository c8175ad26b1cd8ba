"""The old name of headroom.torch, on the plain route.

    import headroom_torch
    headroom_torch.install()      # before the first tensor on a GPU

New programs use `import headroom.torch`. The package is looked for as any other, then beside this
file and in the repository.
"""

import importlib.util
import os
import sys

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


def find_package():
    """Makes `import headroom` work: beside this file when installed, in bindings/python in a clone."""
    found = importlib.util.find_spec("headroom")
    # The repository's own folder headroom/ is no package, and looks like a part of one.
    if found is not None and found.origin is not None:
        return
    here = os.path.dirname(os.path.abspath(__file__))
    for place in (".", "../python", "../bindings/python"):
        place = os.path.join(here, place)
        if os.path.isfile(os.path.join(place, "headroom", "torch", "__init__.py")):
            sys.path.append(os.path.normpath(place))
            return
    raise ModuleNotFoundError("headroom_torch needs the package headroom, which is not beside it")


def install(path=None):
    """Makes headroom PyTorch's allocator for the rest of the process."""
    path = os.path.abspath(path) if path else find_library()
    find_package()
    from headroom.torch import enable

    if not os.path.isfile(path):
        raise FileNotFoundError(f"{path}: there is no such library")
    os.environ["HEADROOM_TORCH_LIBRARY"] = path
    enable(route="plain")
