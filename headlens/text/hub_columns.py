"""The columns of a dataset that are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headlens.errors import CorpusError
from headlens.text.hub import Place

TEXT = ("text", "sentence", "content", "document")
WORDS: Mapping[str, tuple[str, ...]] = {
    "words": ("tokens", "words", "form"),
    "upos": ("upos",),
    "head": ("head", "heads"),
    "deprel": ("deprel", "deprels"),
    "lemmas": ("lemmas", "lemma"),
}
"""What is known of words, and the names that such columns have."""
BESIDES = ("misc", "mwt", "comments", "sent_id")
CHOICES = (("text",), ("tokens", "upos", "head", "deprel"), ("tokens", "upos", "head", "deprel", "lemmas"))


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns are read.

    Args:
        place: the dataset, for messages.
        names: column by what it holds: "text" alone, or "words" and what else of `WORDS` and `BESIDES`.
        labels: for columns of numbered classes the names of the classes.
    """

    place: Place
    names: Mapping[str, str]
    labels: Mapping[str, Sequence[str]]

    @property
    def running_text(self) -> bool:
        """Whether rows are texts; else they are sentences in words."""
        return "text" in self.names

    def wrong(self, number: int, what: str, expected: str, found: object) -> CorpusError:
        """Say what a cell should have been."""
        return CorpusError(
            f"{self.place}, row {number}: expected {expected} in the column {self.names[what]}, found "
            f"{str(found)[:40]!r}.",
            "Correct the data, or choose other columns with --columns.",
        )

    def text(self, number: int, row: Mapping[str, Any]) -> str:
        """Read a row of running text, "" where it has none."""
        text = row[self.names["text"]]
        if not isinstance(text, str | None):
            raise self.wrong(number, "text", "a text", text)
        return text or ""

    def lists(self, number: int, row: Mapping[str, Any], what: str) -> list[Any]:
        """Read what is known of each word, None where there is no such column.

        Args:
            number: of the row, from 1.
            row: the row.
            what: one of `WORDS`, or "misc".

        Returns:
            As many entries as the row has words; numbers of classes become their names.

        Raises:
            CorpusError: it is no list, has not as many entries, or entries of the wrong kind.
        """
        n_words = len(row[self.names["words"]] or ())
        if what not in self.names:
            return [None] * n_words
        cells = row[self.names[what]]
        if not isinstance(cells, list | None):
            raise self.wrong(number, what, "a list", cells)
        if len(cells or ()) != n_words:
            raise self.wrong(number, what, f"{n_words} entries, one for each word,", len(cells or ()))
        names = self.labels.get(self.names[what])
        named = [_label(names, cell) if names is not None else cell for cell in cells or ()]
        kinds = {"words": str, "head": str | int | None}.get(what, str | None)
        for cell in named:
            if not isinstance(cell, kinds):
                raise self.wrong(number, what, "whole numbers" if what == "head" else "texts", cell)
        return named


def choose(place: Place, row: Mapping[str, Any], types: Mapping[str, Any], wanted: Sequence[str]) -> Columns:
    """Settle which columns to read.

    Args:
        place: the dataset, for messages.
        row: its first row.
        types: the types of its columns, where they are known.
        wanted: columns that the user names: one of text or of words, or those of words, parts of speech,
            heads and relations, and of lemmas.

    Returns:
        The columns: those wanted; else words, with trees where the dataset has them; else text.

    Raises:
        CorpusError: there are none, or one that is wanted does not exist.
    """
    names = _wanted(place, row, wanted) if wanted else _known(row)
    if not names:
        raise CorpusError(
            f"{place} has no column of text or words; it has: {', '.join(row)}.",
            f"Known are {', '.join((*TEXT, *WORDS['words']))}; choose another with --columns NAME.",
        )
    if "words" in names:
        names |= {name: name for name in BESIDES if name in row}
    labels = {name: made for name, kind in types.items() if (made := _classes(kind)) is not None}
    return Columns(place, names, labels)


def _wanted(place: Place, row: Mapping[str, Any], wanted: Sequence[str]) -> dict[str, str]:
    if len(wanted) not in map(len, CHOICES):
        ways = " or ".join(",".join(choice) for choice in CHOICES)
        raise CorpusError(
            f"--columns: expected names for {ways} of {place}, found {','.join(wanted)!r}.",
            "Name as many columns.",
        )
    lost = next((name for name in wanted if name not in row), None)
    if lost is not None:
        raise CorpusError(f"{place} has no column {lost!r}.", f"It has: {', '.join(row)}.")
    if len(wanted) == 1 and not isinstance(row[wanted[0]], list):
        return {"text": wanted[0]}
    return dict(zip(WORDS, wanted, strict=False))


def _known(row: Mapping[str, Any]) -> dict[str, str]:
    found = {
        what: name
        for what, known in WORDS.items()
        for name in known[::-1]  # of several the first one known stays
        if isinstance(row.get(name), list)
    }
    if not {"head", "deprel"} <= found.keys():  # half a tree is none
        found = {what: name for what, name in found.items() if what not in ("head", "deprel")}
    if "words" in found:
        return found
    text = next((name for name in TEXT if name in row and isinstance(row[name], str | None)), None)
    return {} if text is None else {"text": text}


def _classes(kind: Any) -> Sequence[str] | None:
    """The names of numbered classes, also of lists of them."""
    names = getattr(getattr(kind, "feature", kind), "names", None)
    return names if isinstance(names, list) else None


def _label(names: Sequence[str], cell: Any) -> Any:
    if not isinstance(cell, int):
        return cell
    return names[cell] if 0 <= cell < len(names) else None  # the library writes -1 for no class
