"""Forks of a Python program whose threads allocate through the C interface.

    python3 tests/bindings/fork_test.py build/libheadroom.so

HEADROOM_FORKS says how many children there are. Each may exit, and none gets an address.
"""

import ctypes
import os
import random
import signal
import sys
import threading

LIBRARY = os.path.abspath(sys.argv.pop())
FORKS = int(os.environ.get("HEADROOM_FORKS", "100"))
THREADS = 8


def load():
    library = ctypes.CDLL(LIBRARY)
    library.headroom_allocate.restype = ctypes.c_void_p
    library.headroom_allocate.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    library.headroom_free.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    library.headroom_last_error.restype = ctypes.c_char_p
    library.headroom_empty_cache.argtypes = [ctypes.c_void_p]
    handle = ctypes.c_void_p()
    assert library.headroom_open(b"cpu:0", ctypes.byref(handle)) == 0
    return library, handle


def churn(library, handle, is_done):
    blocks = [None] * 64
    while not is_done.is_set():
        at = random.randrange(len(blocks))
        library.headroom_free(handle, blocks[at])
        blocks[at] = library.headroom_allocate(handle, random.choice([512, 4096, 100_000, 1 << 20]),
                                               None)
    for block in blocks:
        library.headroom_free(handle, block)


def in_child(library, handle, number, block):
    signal.alarm(30)
    if number % 3 == 0:
        return  # most children never ask
    for size in (512, 70_000, 8 << 20):
        assert library.headroom_allocate(handle, size, None) is None
        assert b"fork" in library.headroom_last_error()
    assert library.headroom_free(handle, block) != 0
    assert b"fork" in library.headroom_last_error()
    assert library.headroom_empty_cache(handle) == 0


def main():
    library, handle = load()
    block = library.headroom_allocate(handle, 512, None)
    is_done = threading.Event()
    threads = [threading.Thread(target=churn, args=(library, handle, is_done))
               for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    failures = 0
    for number in range(FORKS):
        child = os.fork()
        if child == 0:
            try:
                in_child(library, handle, number, block)
            except BaseException as error:  # a child must not go on as the parent
                print(f"child {number}: {error!r}", file=sys.stderr)
                os._exit(1)
            sys.stderr.flush()
            ctypes.CDLL(None).exit(0)  # with all that C does then, and nothing of Python's
        _, status = os.waitpid(child, 0)
        failures += status != 0
    is_done.set()
    for thread in threads:
        thread.join()
    print(f"{FORKS} children, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
