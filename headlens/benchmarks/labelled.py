"""Texts, or pairs of texts, with a label each: what `classification` and `probe` read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headlens.benchmarks.formats import read_table
from headlens.benchmarks.inputs import MIN_EXAMPLES, need_tokenizer
from headlens.errors import InputError
from headlens.model.lens import Lens

CHOICES = (("text", "label"), ("text_a", "text_b", "label"))
SHOWN = 12  # labels in a message


@dataclass(frozen=True, slots=True)
class Labelled:
    """One example.

    Args:
        place: file and line, for messages.
        texts: one or two.
        label: as it stands in the file.
    """

    place: str
    texts: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Coded:
    """One example as the tokenizer encodes it.

    Args:
        ids: token ids, special ones included.
        types: which text each token belongs to; empty where the tokenizer does not say.
    """

    ids: tuple[int, ...]
    types: tuple[int, ...] = ()


def read_labelled(path: Path, columns: Sequence[str] = ()) -> list[Labelled]:
    """Read a file of labelled texts.

    Args:
        path: a file named .csv, .tsv or .jsonl, with the columns text (or text_a and text_b) and label.
        columns: names that stand for those, or numbers from 0 for a file without header.

    Returns:
        The examples, in file order.

    Raises:
        InputError: the file is unfit; the message names file and line.
    """
    made = []
    for row in read_table(path, CHOICES, columns, numeric=("label",)):
        names = next(choice for choice in CHOICES if len(choice) == len(row.cells))
        cells = [cell.strip() for cell in row.cells]
        for name, cell in zip(names, cells, strict=True):
            if not cell:
                what = "label" if name == "label" else "text"
                raise InputError(f"{row.place}: expected a {what} in the column {name}, found nothing.")
        made.append(Labelled(row.place, tuple(cells[:-1]), cells[-1]))
    if len(made) < MIN_EXAMPLES:
        raise InputError(
            f"{path}: expected at least {MIN_EXAMPLES} examples, found {len(made)}.", "Give a longer file."
        )
    return made


def encode(lens: Lens, examples: Sequence[Labelled], longest: int | None) -> list[Coded]:
    """Encode examples; two texts together, as the tokenizer joins them.

    Args:
        lens: the model with its tokenizer.
        examples: all with one text, or all with two.
        longest: most tokens, special ones included; None for no limit.

    Returns:
        The examples' tokens.

    Raises:
        InputError: an example is too long, or the tokenizer makes nothing of it.
    """
    sides = [list(texts) for texts in zip(*(example.texts for example in examples), strict=True)]
    made = need_tokenizer(lens)(*sides)
    types = made.get("token_type_ids") or [()] * len(examples)
    for example, ids in zip(examples, made["input_ids"], strict=True):
        if not ids:
            raise InputError(f"{example.place}: the tokenizer makes no token of a text.", "Correct the line.")
        if longest is not None and len(ids) > longest:
            raise InputError(
                f"{example.place}: an example has {len(ids)} tokens, and inputs may have {longest}.",
                "Shorten it; headlens cuts no text off.",
            )
    return [Coded(tuple(ids), tuple(of)) for ids, of in zip(made["input_ids"], types, strict=True)]


def listed(labels: Sequence[str]) -> str:
    """Name labels in a message, not more than a reader wants to see.

    Args:
        labels: all of them.

    Returns:
        The first ones, and how many more there are.
    """
    more = len(labels) - SHOWN
    return ", ".join(labels[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def below_chance(name: str, accuracy: float, n_labels: int) -> tuple[str, ...]:
    """Notice an accuracy that is worse than guessing.

    Args:
        name: of the benchmark.
        accuracy: without ablation.
        n_labels: labels to guess from.

    Returns:
        A sentence for the user, or nothing.
    """
    if accuracy >= 1 / n_labels:
        return ()
    return (
        f"Without ablation the accuracy of {name} is {accuracy:.3f}, below the {1 / n_labels:.3f} of a guess "
        f"among {n_labels} labels: check that the model and the file mean the same by each label.",
    )
