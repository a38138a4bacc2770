"""The errors that headlens raises: each says what was expected, what came, and what to do instead."""

from __future__ import annotations


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
