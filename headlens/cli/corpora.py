"""The options of commands that read a corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headlens.cli import say
from headlens.corpus.hub import is_hub

if TYPE_CHECKING:
    from headlens.corpus.corpus import Corpus

F = TypeVar("F", bound=Callable[..., Any])


class CorpusPath(click.Path):
    """A file or folder, or a dataset, ``hub:...``, which stays as it is typed."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Make a path of what is one."""
        return value if is_hub(value) else super().convert(value, param, ctx)


def corpus_options(function: F) -> F:
    """Give a command the options that say how a corpus is read: `columns` and `max_sentences`."""
    columns = click.option(
        "--columns",
        metavar="A,B,C",
        help="Of datasets: the column of text or words; or those of words, parts of speech, heads and "
        "relations (and lemmas).  [default: found by name]",
    )
    most = click.option(
        "--max-sentences",
        type=click.IntRange(1),
        metavar="N",
        help="Read only the first N sentences.  [default: all; of datasets an error beyond 100,000]",
    )
    return columns(most(function))


def say_read(corpus: Corpus) -> None:
    """Say which part of each dataset was read, and how much was left out."""
    for origin, path in zip(corpus.datasets, filter(is_hub, corpus.paths), strict=True):
        of = f" of {origin.of_rows:,}" if origin.of_rows is not None else ""
        say(f"Read {origin.rows:,}{of} rows of {path}: {', '.join(origin.columns)}.", err=True)
        for reason, count in origin.left_out.items():
            say(f"Left out: {count:,} {reason}.", err=True)
