"""headroom_torch.py with the real library and a torch that only remembers what it was told.

    python3 tests/bindings/headroom_torch_test.py build/libheadroom_torch.so
"""

import ctypes
import os
import sys
import types
import unittest
import warnings

LIBRARY = os.path.abspath(sys.argv.pop())
REPOSITORY = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(REPOSITORY, "bindings", "pytorch"))

import headroom_torch  # noqa: E402


class Native:
    """What CUDAPluggableAllocator(...).allocator() returns."""

    def __init__(self, pointers):
        if pointers is not None:
            self.set_record_stream_fn = pointers.append


class FakeTorch(types.ModuleType):
    def __init__(self, has_setter):
        super().__init__("torch")
        self.__version__ = "1.13"
        self.pointers = []
        self.current = []
        native = Native(self.pointers if has_setter else None)

        class CUDAPluggableAllocator:
            def __init__(self, path, malloc, free):
                library = ctypes.CDLL(path)
                self.functions = [getattr(library, malloc), getattr(library, free)]

            def allocator(self):
                return native

        memory = types.SimpleNamespace(CUDAPluggableAllocator=CUDAPluggableAllocator,
                                       change_current_allocator=self.current.append)
        self.cuda = types.SimpleNamespace(memory=memory)


class HeadroomTorch(unittest.TestCase):
    def use(self, has_setter):
        sys.modules["torch"] = FakeTorch(has_setter)
        self.addCleanup(sys.modules.pop, "torch")
        return sys.modules["torch"]

    def test_install_registers_the_librarys_record_stream(self):
        torch = self.use(has_setter=True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            pluggable = headroom_torch.install(LIBRARY)
        self.assertEqual(torch.current, [pluggable])
        function = ctypes.CDLL(LIBRARY).headroom_torch_record_stream
        self.assertEqual(torch.pointers, [ctypes.cast(function, ctypes.c_void_p).value])
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(torch.pointers[0])(None, None)

    def test_a_pytorch_without_the_setter_is_warned_of_and_works(self):
        torch = self.use(has_setter=False)
        with self.assertWarnsRegex(UserWarning, "1.13 does not tell .* every stream"):
            headroom_torch.install(LIBRARY)
        self.assertEqual(len(torch.current), 1)

    def test_a_library_that_is_not_there_is_told(self):
        self.use(has_setter=True)
        with self.assertRaises(OSError):
            headroom_torch.install("no/such/library.so")

    def test_the_library_is_found_beside_the_module(self):
        beside = os.path.join(os.path.dirname(LIBRARY), "headroom_torch.py")
        module = types.ModuleType("beside")
        module.__file__ = beside
        with open(beside, encoding="utf-8") as file:
            exec(compile(file.read(), beside, "exec"), module.__dict__)
        self.assertEqual(module.find_library(), LIBRARY)


if __name__ == "__main__":
    unittest.main()
