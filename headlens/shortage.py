"""What it looks like when memory runs out; it looks alike where not even torch could be loaded."""

from __future__ import annotations

import errno

_SIGNS = (
    "out of memory",
    "allocate memory",  # can't, cannot; of torch and of the system
    "not enough memory",
    "bad_alloc",
    "ALLOC_FAILED",  # of cuBLAS and cuDNN
    "could not create a primitive",  # oneDNN
    "could not create a memory",
    "can't start new thread",  # whose stack takes some
    "failed to map segment",  # of a library
)


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error says that memory ran out, on any device, or was raised because of one that does.

    Args:
        error: what was raised.

    Returns:
        True for Python's and numpy's errors, CUDA's and MPS's, and a failed allocation on the CPU.
    """
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, RuntimeError | ImportError) and any(sign in str(error) for sign in _SIGNS):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)
