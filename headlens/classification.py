"""`classify`: score every head of a model on a corpus and tag it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from headlens.errors import CorpusError, InputError
from headlens.evidence import Settings, score_table
from headlens.lens import Lens, load
from headlens.limits import longest_input, takes_positions
from headlens.reading import Reader
from headlens.scorers import SCORERS
from headlens.scorers.base import Scorer
from headlens.tables import HeadScores
from headlens.tags import Rules, tag_table
from headlens.tally import Tally
from headlens.text.batches import make_batches
from headlens.text.conllu import read_conllu
from headlens.text.corpus import Corpus
from headlens.text.inputs import Inputs, sentence_inputs, window_inputs

WINDOW = 128  # tokens of consecutive sentences for coreference, as Clark et al. 2019
MAKERS = {"sentences": sentence_inputs, "windows": window_inputs}


@dataclass(frozen=True, slots=True)
class Classification:
    """What heads look at.

    Args:
        scores: one row per head and measure, columns as in `scores.csv`.
        tags: one row per head, columns as in `tags.csv`.
        facts: what `run.json` says of the corpus, the units and what was left out.
    """

    scores: HeadScores
    tags: pd.DataFrame
    facts: dict[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Reading:
    """How a corpus is run through a model.

    Args:
        batch_size: inputs at once; by default as many as hold 4,096 tokens.
        max_length: longest input in tokens; the model's own by default, 128 for windows of sentences.
        block_size: queries per block; by default as many as keep a block under 64 MiB.
        pad_left: pad on the left instead of on the right.
        quiet: show no progress bar.
    """

    batch_size: int | None = None
    max_length: int | None = None
    block_size: int | None = None
    pad_left: bool = False
    quiet: bool = True


def classify(
    lens: Lens | str,
    corpus: str | Path | Sequence[str | Path] | Corpus | None = None,
    tags: Sequence[str] | None = None,
    *,
    margins: Mapping[str, float] | None = None,
    settings: Settings | None = None,
    reading: Reading | None = None,
) -> Classification:
    """Score every head on a corpus, and tag those whose scores are evidence.

    Args:
        lens: a model under the lens, or what `headlens.load` takes.
        corpus: CoNLL-U files, or a corpus already read; the bundled English sample by default.
        tags: which tags to look for; all by default.
        margins: margins other than the defaults, by the names in `headlens.tags.DEFAULTS`.
        settings: how evidence is weighed.
        reading: batch size, lengths and so on; none of it changes a score.

    Returns:
        Scores, tags and facts about the run.

    Raises:
        CorpusError: a file cannot be read, or lacks the trees or entities that a tag needs.
        InputError: an unknown tag or margin, or a model that this cannot be done for.
    """
    lens = load(lens) if isinstance(lens, str) else lens
    reading, settings = reading or Reading(), settings or Settings()
    rules = Rules(margins or {})
    if not isinstance(corpus, Corpus):
        corpus = read_corpus(corpus)
    scorers = _scorers(corpus, tags)
    _check(lens, corpus, scorers)
    tallies, inputs = _read(lens, corpus, scorers, reading)
    scores = score_table(tallies, rules, settings)
    facts = _facts(corpus, inputs, tallies, rules, settings)
    return Classification(scores, tag_table(scores), facts)


def read_corpus(corpus: str | Path | Sequence[str | Path] | None) -> Corpus:
    """Read CoNLL-U files.

    Args:
        corpus: one file or several; the bundled English sample by default.

    Returns:
        The corpus.

    Raises:
        CorpusError: a file cannot be read.
    """
    if corpus is None:
        with resources.as_file(resources.files("headlens.data") / "sample" / "english.conllu") as path:
            return read_conllu([path])
    return read_conllu([Path(p) for p in ([corpus] if isinstance(corpus, str | Path) else corpus)])


def _scorers(corpus: Corpus, tags: Sequence[str] | None) -> list[Scorer]:
    for tag in tags or ():
        if tag not in SCORERS:
            raise InputError(f"There is no tag {tag!r}.", f"Choose from: {', '.join(SCORERS)}.")
    needs = {"syntactic": corpus.has_trees, "coreference": corpus.has_entities}
    lacks = {"syntactic": "dependency trees", "coreference": "entity marks (Entity= in the last column)"}
    for tag in tags or ():
        if not needs.get(tag, True):
            raise CorpusError(
                f"{corpus.paths[0]} has no {lacks[tag]}, which the tag {tag} needs.",
                f"Give another corpus, or leave {tag} out of --tags.",
            )
    return [
        make(corpus) for tag, make in SCORERS.items() if tag in (tags or SCORERS) and needs.get(tag, True)
    ]


def _check(lens: Lens, corpus: Corpus, scorers: Sequence[Scorer]) -> None:
    if lens.tokenizer is None:
        raise InputError(
            "This model came without a tokenizer.", "Give one: headlens.load(model, tokenizer=...)."
        )
    if lens.model.config.is_encoder_decoder:
        raise InputError(
            f"{lens.anatomy.architecture} has an encoder and a decoder, which classify cannot score yet.",
            "Look at it with headlens view, or classify an encoder or a decoder.",
        )
    if not scorers:
        raise CorpusError(f"{corpus.paths[0]} has nothing that the chosen tags need.", "Give another corpus.")


def _read(
    lens: Lens, corpus: Corpus, scorers: Sequence[Scorer], reading: Reading
) -> tuple[list[Tally], dict[str, Inputs]]:
    limit = longest_input(lens)
    wanted = reading.max_length or limit
    if limit is not None and wanted is not None and wanted > limit:
        raise InputError(
            f"The model takes at most {limit} tokens, not {wanted}.", f"Type --max-length {limit}."
        )
    lengths = {"sentences": wanted or 2**20, "windows": min(wanted or WINDOW, reading.max_length or WINDOW)}
    found: dict[Scorer, Tally] = {}
    inputs: dict[str, Inputs] = {}
    for kind in dict.fromkeys(scorer.reads for scorer in scorers):
        mine = [scorer for scorer in scorers if scorer.reads == kind]
        made = inputs[kind] = MAKERS[kind](corpus, lens.tokenizer, lengths[kind])
        if not made.items:
            raise CorpusError(f"No sentence of {corpus.paths[0]} can be used: {_because(made)}.", "")
        reader = Reader(mine, lens.anatomy.sites, made.n_units)
        batches = make_batches(
            made.items, pad_id(lens), reading.batch_size, reading.pad_left, takes_positions(lens)
        )
        with tqdm(
            total=len(made.items), desc=f"Reading {kind}", unit=kind[:-1], disable=reading.quiet
        ) as bar:
            reader.read(lens, batches, reading.block_size, bar.update)
        found.update(zip(mine, reader.tallies, strict=True))
    return [found[scorer] for scorer in scorers], inputs


def pad_id(lens: Lens) -> int:
    """Find the id that fills a batch up; the attention mask hides it, so any will do where there is none."""
    return int(lens.tokenizer.pad_token_id or 0)


def _because(inputs: Inputs) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in inputs.left_out.items()) or "it is empty"


def _facts(
    corpus: Corpus, inputs: Mapping[str, Inputs], tallies: Sequence[Tally], rules: Rules, settings: Settings
) -> dict[str, Any]:
    mentions = sum(len(document.mentions) for document in corpus.documents)
    facts: dict[str, Any] = {
        "corpus": {
            "files": [Path(path).name for path in corpus.paths],
            "sha256": corpus.sha256,
            "documents": len(corpus.documents),
            "sentences": sum(len(document.sentences) for document in corpus.documents),
            "words": corpus.n_words,
            "mentions": mentions,
        },
        "inputs": {
            kind: {
                "read": len(made.items),
                "resampled": f"{made.n_units} {made.unit}s",
                "left_out": dict(made.left_out),
            }
            for kind, made in inputs.items()
        },
        "margins": rules.all_margins(),
        "evidence": asdict(settings),
    }
    for tally in tallies:
        if tally.scorer.tag == "coreference":
            scored = int(tally.n[:, 0].sum())
            facts["inputs"]["windows"]["mentions_scored"] = scored
            facts["inputs"]["windows"]["mentions_without_antecedent"] = mentions - scored
    return facts
