"""The errors that headlens raises, each with what to do instead, and what is told of foreign ones."""

from __future__ import annotations

import errno


class HeadlensError(Exception):
    """Something that could not be done, told to a person.

    Args:
        problem: what was expected and what came instead, one sentence.
        remedy: what to type or change; appended to the message after a blank.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem} {remedy}".strip())
        self.problem = problem
        self.remedy = remedy


class SelectorError(HeadlensError):
    """A head selector that names no head of the model, or cannot be read."""


class ModelError(HeadlensError):
    """A model that cannot be loaded, or that neither way of capture can serve."""


class NotNumbersError(ModelError):
    """A model that computes NaN or infinite numbers: nothing that is made of them would mean anything."""


class InputError(HeadlensError):
    """A text, file or option value that cannot be used as it is."""


class CorpusError(InputError):
    """A corpus file that cannot be read; the message names the file and the line."""


class RunError(HeadlensError):
    """A run directory that cannot be written, or that holds another run."""


def first_line(error: BaseException) -> str:
    """Cut the message of a foreign error down to its first line, or to its kind where it has none."""
    return (str(error).strip().partition("\n")[0] or type(error).__name__).rstrip(".:") + "."


# ---- What it looks like when memory runs out; it looks alike where not even torch could be loaded


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
