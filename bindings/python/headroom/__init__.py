r"""headroom: explains and lowers the GPU memory of deep learning.

    import headroom.torch
    headroom.torch.enable()          # PyTorch on headroom's allocator

    python -m headroom doctor run.pickle

``headroom.torch`` is for programs that use PyTorch. The rest is the command ``headroom``, which needs
no GPU: ``python -m headroom --help`` lists what it does. Importing this package imports nothing else.
"""

from headroom._version import __version__

__all__ = ["__version__"]
