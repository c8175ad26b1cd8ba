import ctypes

import torch

_SIGNATURES = {
    "set_record_stream_fn": ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p),
    "set_begin_allocate_to_pool": None,  # takes a std::function, which ctypes cannot make
    "set_end_allocate_to_pool_fn": None,
    "set_release_pool": None,
    "set_memory_fraction_fn": ctypes.CFUNCTYPE(None, ctypes.c_double, ctypes.c_int),
    "set_reset_fn": ctypes.CFUNCTYPE(None),
    "set_base_alloc_fn": ctypes.CFUNCTYPE(
        ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)),
    "set_init_fn": ctypes.CFUNCTYPE(None, ctypes.c_int),
}


class _Native:
    """What CUDAPluggableAllocator(...).allocator() returns."""

    def __init__(self, malloc, free):
        self._malloc, self._free, self.addresses, self.is_born = malloc, free, {}, True
        for name in _SIGNATURES:
            if name not in torch._odd.get("without", []):
                setattr(self, name, lambda address, name=name: self._register(name, address))

    def _register(self, name, address):
        assert isinstance(address, int) and address != 0
        self.addresses[name] = address

    def malloc(self, size):
        return self._malloc(size, 0, None)

    def free(self, address, size):
        self._free(address, size, 0, None)

    def call(self, name, *arguments):
        return _SIGNATURES[name](self.addresses[name])(*arguments)


class CUDAPluggableAllocator:
    def __init__(self, path, malloc, free):
        library = ctypes.CDLL(path)
        malloc, free = getattr(library, malloc), getattr(library, free)
        malloc.restype = ctypes.c_void_p
        malloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        free.restype = None
        free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self._native = _Native(malloc, free)

    def allocator(self):
        return self._native


class _Own:
    """PyTorch's own allocator: memory of the process."""

    addresses = {}

    def malloc(self, size):
        self._kept = ctypes.create_string_buffer(size)
        return ctypes.addressof(self._kept)

    def free(self, address, size):
        pass


_current = _Own()


def change_current_allocator(allocator):
    global _current
    if torch.cuda._started or not isinstance(_current, _Own) or torch._odd.get("late"):
        raise RuntimeError("Can't swap an already initialized allocator")
    _current = allocator.allocator()
