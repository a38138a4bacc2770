"""`classify`: score every head of a model on a corpus and tag it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from headlens.corpus.corpus import Corpus
from headlens.corpus.hub import is_hub
from headlens.corpus.inputs import Inputs, read_targets
from headlens.corpus.read import corpus_facts, read_corpus
from headlens.errors import CorpusError, InputError, RunError
from headlens.model.heads import STACKS, number_ranges
from headlens.model.lens import Lens
from headlens.runs.read import AGAIN, TableForm
from headlens.runs.result import Clock, Examples, Result, record
from headlens.scoring.base import Context, Scorer, Tally
from headlens.scoring.evidence import Settings, margins_in_force, score_table, tag_table
from headlens.scoring.passes import RunOptions, Written, run_pairs, run_passes
from headlens.scoring.scorers import SCORERS
from headlens.util.files import SCORES, TAGS, HeadScores

if TYPE_CHECKING:
    from typing_extensions import Self  # of Python 3.11

_HEAD = ["stack", "layer", "head"]
NEEDS: Mapping[str, tuple[Callable[[Corpus], bool], str]] = {
    "trees": (lambda corpus: corpus.has_trees, "dependency trees"),
    "entities": (lambda corpus: corpus.has_entities, "entity or coreference marks"),
    "parts of speech": (
        lambda corpus: any(word.upos for _, sentence in corpus.sentences for word in sentence.words),
        "parts of speech",
    ),
}
"""What a scorer can need of a corpus: how to tell, and what it is called."""


@dataclass(frozen=True, eq=False, repr=False)
class Classification(Result):
    """What heads look at.

    Args:
        scores: one row per head and measure, columns as in `scores.csv`.
        tags: one row per head, columns as in `tags.csv`.
        run: what `run.json` says: model, corpus, units, options, what was left out.
        examples: a few inputs that a report shows the heads on.
        path: the directory that it was opened from.
    """

    command = "classify"
    forms = (
        TableForm("scores", SCORES, ("stack", "tag", "measure"), ("tagged",), kind=HeadScores),
        TableForm("tags", TAGS, ("stack", "tags", "evidence")),
    )
    scores: HeadScores
    tags: pd.DataFrame
    run: Mapping[str, Any]
    examples: Examples | None = None
    path: Path | None = None

    @property
    def heads(self) -> list[tuple[str, int, int]]:
        """Stack, layer and head of every head, in model order."""
        return list(self.tags[_HEAD].itertuples(index=False, name=None))

    @property
    def shape(self) -> str:
        """Which layers and heads the model has, in words."""
        parts = []
        for stack in STACKS:
            mine = self.tags[self.tags["stack"] == stack]
            if len(mine):
                layers, heads = (number_ranges(sorted(set(mine[name]))) for name in ("layer", "head"))
                parts.append(f"{stack} layers {layers} with heads {heads}")
        return " and ".join(parts)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a run of ``headlens classify``, whole or not at all."""
        run = super().read(path)
        if fault := run.fault():
            raise RunError(f"{path}/{fault}.", AGAIN)
        return replace(run, path=path)

    def fault(self) -> str:
        """See `Result`; every head has one row of tags, and one row for each measure of its stack."""
        if fault := super().fault():
            return fault
        for name, key in (("scores", [*_HEAD, "tag", "measure"]), ("tags", _HEAD)):
            table = self.tables[f"{name}.csv"]
            if table.empty or table.duplicated(key).any():
                what = "holds no heads" if table.empty else "has several rows for the same head"
                return f"{name}.csv {what}"
        return "" if self._is_whole() else "scores.csv is not whole: it lacks rows of some heads"

    def _is_whole(self) -> bool:
        """Whether every tag that `tags` names has rows, and every measure one for each head of its stacks."""
        named = {tag for cell in self.tags["tags"] for tag in str(cell).split(";") if tag}
        per_stack = self.tags.groupby("stack").size()
        counts = self.scores.groupby(["stack", "tag", "measure"]).size()
        expected = per_stack.reindex(counts.index.get_level_values("stack"))
        return named <= set(self.scores["tag"]) and bool((counts.to_numpy() == expected.to_numpy()).all())


@dataclass(frozen=True, slots=True)
class Sources:
    """Files that some scorers read besides the corpus.

    Args:
        relations: related words, two to a line with a tab between, for semantic heads; by default the
            nearest neighbours in the model's own input embeddings.
        frequencies: words with their frequencies, for rare-token heads; by default those of the corpus.
        targets: for encoder-decoder models, what the decoder writes for each sentence of the corpus (its
            translation, say), a treebank or plain text by lines; without it only the encoder is scored.
    """

    relations: Path | None = None
    frequencies: Path | None = None
    targets: Path | None = None


def classify(
    lens: Lens | str,
    corpus: str | Path | Sequence[str | Path] | Corpus | None = None,
    tags: Sequence[str] | None = None,
    *,
    margins: Mapping[str, float] | None = None,
    settings: Settings | None = None,
    reading: RunOptions | None = None,
    sources: Sources | None = None,
) -> Classification:
    """Score every head on a corpus, and tag those whose scores are evidence.

    Args:
        lens: a model under the lens, or what `headlens.load` takes.
        corpus: files or folders (CoNLL-U, CoNLL-2012, LitBank, plain text), datasets
            (``hub:DATASET[:CONFIG[:SPLIT]]``), or a corpus already read; the bundled English sample by
            default.
        tags: which tags to look for; by default all that the corpus allows.
        margins: margins other than the defaults, by the names of the scorers' rules.
        settings: how evidence is weighed.
        reading: batch size, lengths and so on; none of it changes a score.
        sources: further files.

    Returns:
        Scores, tags and facts about the run.

    Raises:
        CorpusError: a file cannot be read, or lacks the trees or entities that a tag needs.
        InputError: an unknown tag or margin, or a model that this cannot be done for.
    """
    clock = Clock.start()
    given = [] if corpus is None else [corpus] if isinstance(corpus, str | Path | Corpus) else [*corpus]
    check_tags(tags)
    in_force = margins_in_force(margins or {})
    lens = Lens.load(lens) if isinstance(lens, str) else lens
    if not isinstance(corpus, Corpus):
        corpus = read_corpus(corpus)
    _check(lens)
    sources, settings = sources or Sources(), settings or Settings()
    context = Context(lens, corpus, sources.relations, sources.frequencies, settings.seed)
    scorers = [SCORERS[tag].make(context) for tag in _possible(corpus, tags)]
    reading = reading or RunOptions()
    options = {
        "corpora": [None if isinstance(one, Corpus) else str(one) for one in given],
        "tags": tags,
        "margins": margins,
        **reading.asked,
        **asdict(sources),
    }
    tallies, inputs = _run(context, scorers, reading, _written(context, scorers, sources))
    scores = score_table(tallies, in_force, settings)
    facts = {
        "lens": "norms" if reading.norms else "weights",
        "corpus": corpus_facts(corpus),
        "inputs": _input_facts(corpus, inputs, tallies),
        "margins": in_force,
        "evidence": asdict(settings),
        "engine": reading.engine.facts,
    }
    run = record("classify", lens, options, facts, clock)
    return Classification(scores, tag_table(scores), run, Examples(lens, corpus))


def check_tags(tags: Sequence[str] | None) -> None:
    """Refuse a tag that does not exist.

    Args:
        tags: tags to look for.

    Raises:
        InputError: one of them does not exist.
    """
    for tag in tags or ():
        if tag not in SCORERS:
            raise InputError(f"There is no tag {tag!r}.", f"Choose from: {', '.join(SCORERS)}.")


def _possible(corpus: Corpus, tags: Sequence[str] | None) -> list[str]:
    """The tags to look for, in order; one that was asked for and cannot be had is an error."""
    possible = []
    for tag, scorer in SCORERS.items():
        lacking = [NEEDS[need][1] for need in scorer.needs if not NEEDS[need][0](corpus)]
        if not lacking and (tags is None or tag in tags):
            possible.append(tag)
        elif tags is not None and tag in tags:
            raise CorpusError(
                f"{corpus.paths[0]} has no {' and no '.join(lacking)}, which the tag {tag} needs.",
                f"Give another corpus, or leave {tag} out of --tags." + _remedy(scorer, corpus),
            )
    return possible


def _remedy(scorer: type[Scorer], corpus: Corpus) -> str:
    plain = any(path.endswith(".txt") or is_hub(path) for path in corpus.paths)
    return (
        " Plain text is parsed with --parser spacy:NAME." if plain and "entities" not in scorer.needs else ""
    )


def _written(context: Context, scorers: Sequence[Scorer], sources: Sources) -> Written | None:
    """The targets of an encoder-decoder model, with scorers made for them."""
    if sources.targets is None:
        return None
    if not context.lens.model.config.is_encoder_decoder:
        raise InputError(
            f"{context.lens.anatomy.architecture} has no decoder that looks at an encoder, so nothing writes "
            "targets.",
            "Leave --targets out.",
        )
    corpus = read_targets(sources.targets, context.corpus)
    mine = replace(context, corpus=corpus)
    possible = [type(scorer) for scorer in scorers if all(NEEDS[need][0](corpus) for need in scorer.needs)]
    return Written(corpus, [kind.make(mine) for kind in possible])


def _run(
    context: Context, scorers: Sequence[Scorer], reading: RunOptions, written: Written | None
) -> tuple[list[Tally], dict[str, Inputs]]:
    if context.lens.model.config.is_encoder_decoder:
        return run_pairs(context, scorers, reading, written)
    return run_passes(context, scorers, reading)


def _check(lens: Lens) -> None:
    if lens.tokenizer is None:
        raise InputError(
            "This model came without a tokenizer.", "Give one: headlens.load(model, tokenizer=...)."
        )


def _input_facts(
    corpus: Corpus, inputs: Mapping[str, Inputs], tallies: Sequence[Tally]
) -> dict[str, dict[str, Any]]:
    facts: dict[str, dict[str, Any]] = {
        kind: {
            "read": len(made.items),
            "resampled": f"{made.n_units} {made.unit}s",
            "left_out": dict(made.left_out),
        }
        for kind, made in inputs.items()
    }
    for tally in tallies:
        if tally.scorer.tag == "coreference" and tally.n.any():
            read = sum(len(item.mentions) for item in inputs["windows"].items)
            scored = int(tally.n[:, 0].sum())
            facts["windows"]["mentions"] = {
                "scored": scored,
                "without an antecedent in their window": read - scored,
                "in sentences left out": sum(len(d.mentions) for d in corpus.documents) - read,
            }
    return facts


__all__ = ["Classification", "RunOptions", "Scorer", "Settings", "Sources", "classify", "read_corpus"]
