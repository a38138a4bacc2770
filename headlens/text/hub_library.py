"""The `datasets` library, quiet, and with its errors told in one line."""

from __future__ import annotations

import importlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from headlens.errors import CorpusError
from headlens.text.hub import Place

T = TypeVar("T")


def library(place: Place) -> Any:
    """Import the library.

    Args:
        place: what it is wanted for.

    Returns:
        The module.

    Raises:
        CorpusError: it is not installed.
    """
    try:
        return importlib.import_module("datasets")
    except ImportError:
        raise CorpusError(
            f"Reading {place} needs the package datasets, which is not installed.",
            "Type: pip install 'headlens[hub]'",
        ) from None


def told(place: Place, rows: Iterable[T]) -> Generator[T, None, None]:
    """Read rows, or lines.

    Args:
        place: where they come from.
        rows: what is read.

    Yields:
        Each of them.

    Raises:
        CorpusError: one of them cannot be read.
    """
    try:
        yield from rows
    except Exception as error:  # of pyarrow, pandas, fsspec, the HTTP library, ...
        raise CorpusError(f"{place} cannot be read: {one_line(error)}", "Correct the data.") from error


def one_line(error: BaseException) -> str:
    """Write the message of a foreign error in one line, or its kind where it has none."""
    return (" ".join(str(error).split()) or type(error).__name__).rstrip(".:") + "."


@contextmanager
def quiet(module: Any, offline: bool) -> Iterator[None]:
    """Keep the library's own bars and notes off the screen while the block lasts.

    Args:
        module: the library.
        offline: have it look in its cache only: otherwise it tries for half a minute.

    Yields:
        Nothing.
    """
    log, bars = module.utils.logging, not module.are_progress_bars_disabled()
    level, was_offline = log.get_verbosity(), module.config.HF_HUB_OFFLINE
    log.set_verbosity_error()
    module.disable_progress_bars()
    module.config.HF_HUB_OFFLINE = offline or was_offline
    try:
        yield
    finally:
        module.config.HF_HUB_OFFLINE = was_offline
        log.set_verbosity(level)
        if bars:
            module.enable_progress_bars()
