"""What a benchmark is, and the one dict that names the kinds."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from headlens.benchmarks.base import BenchmarkKind, BenchmarkOptions, Lot, longest_input, need_tokenizer
from headlens.benchmarks.classification import ClassificationBenchmark
from headlens.benchmarks.harness import Harness
from headlens.benchmarks.language import Language, windows
from headlens.benchmarks.metrics import Array, Metric
from headlens.benchmarks.pairs import Pairs
from headlens.benchmarks.predict import has_head
from headlens.benchmarks.probe import Probe
from headlens.benchmarks.similarity import SimilarityBenchmark
from headlens.benchmarks.translation import Translation
from headlens.corpus.conllu import read_conllu
from headlens.corpus.corpus import SAMPLE
from headlens.errors import InputError
from headlens.model.lens import Lens

IN_PACKAGE = "headlens/data/sample"  # how a record names the sample, wherever headlens is installed


class Benchmark(Protocol):
    """A task that a model is measured on, example by example."""

    @property
    def name(self) -> str:
        """How the user writes it: ``similarity:pairs.tsv``."""

    @property
    def metrics(self) -> Sequence[Metric]:
        """Its numbers, in the order of tables; the first is the primary one, which importance is about."""

    @property
    def stacks(self) -> tuple[str, ...]:
        """The stacks of attention that it runs; heads of others cannot matter to it.

        A model that has none of them is refused.
        """

    @property
    def facts(self) -> Mapping[str, Any]:
        """What `run.json` says about it: path, hash, number of examples; equal facts, equal benchmark."""

    def measure(self, lens: Lens) -> Array:
        """Run the model, whatever is ablated in it now, over all examples once.

        Args:
            lens: the model.

        Returns:
            Per-example values [example, column], examples in the same order every time; `metrics` knows the
            columns.
        """

    def take(self, examples: Sequence[int]) -> Benchmark:
        """Make the same benchmark of some of its examples.

        Args:
            examples: which, from 0, in the order wanted.

        Returns:
            A benchmark with these examples alone, its `facts["examples"]` their number.
        """


@runtime_checkable
class Differentiable(Benchmark, Protocol):
    """A benchmark with a loss that gradients can be taken of; importance by gradients needs one."""

    def losses(self, lens: Lens) -> Iterator[Lot]:
        """Run the model, whatever is changed in it now, over all examples once.

        Args:
            lens: the model.

        Yields:
            Losses of some examples after another. The mean over examples of their losses is the
            benchmark's loss; smaller is better.
        """


@runtime_checkable
class Keyed(Benchmark, Protocol):
    """A benchmark that tells which of its examples are the same to the model."""

    @property
    def input_keys(self) -> Sequence[Hashable]:
        """What the model reads of each example; equal ones are equal inputs."""


@runtime_checkable
class Showable(Benchmark, Protocol):
    """A benchmark whose inputs are single texts, which a report can show the attention on."""

    @property
    def to_show(self) -> Sequence[Sequence[int]]:
        """Token ids of what the model reads, as it reads them."""


KINDS: dict[str, type[BenchmarkKind]] = {
    kind.kind: kind
    for kind in (
        ClassificationBenchmark,
        Harness,
        Language,
        Pairs,
        Probe,
        SimilarityBenchmark,
        Translation,
    )
}
"""The kinds of benchmarks by their names."""


def forms() -> str:
    """Say how each kind is typed, and which extra it needs."""
    extras = {kind: f" (extra {kind.needs})" if kind.needs else "" for kind in KINDS.values()}
    return ", ".join(f"{kind.form}{extra}" for kind, extra in extras.items())


def default_columns() -> str:
    """Say which columns each kind reads where the user names none."""
    ways = {name: " or ".join(map(",".join, kind.columns)) for name, kind in KINDS.items()}
    return "; ".join(f"{way} of {name}" for name, way in ways.items() if way)


def open_benchmark(spec: str, lens: Lens, options: BenchmarkOptions | None = None) -> Benchmark:
    """Open a benchmark as a user names it.

    Args:
        spec: kind and target: ``similarity:pairs.tsv``, ``language:book.txt``.
        lens: the model that will be measured.
        options: how to read and run it.

    Returns:
        The benchmark, every example read and checked.

    Raises:
        InputError: there is no such kind, or its file is unfit.
        ModelError: this model cannot do it.
    """
    kind, colon, target = spec.partition(":")
    if kind not in KINDS or not target:
        found = f"There is no benchmark {kind!r}." if colon else f"Expected KIND:FILE, found {spec!r}."
        found = f"The benchmark {kind!r} lacks its file." if kind in KINDS else found
        raise InputError(found, f"The kinds are {', '.join(KINDS)}; type for example similarity:pairs.tsv.")
    opened: Benchmark = KINDS[kind].open(target, lens, options or BenchmarkOptions())
    return opened


def sample_benchmark(lens: Lens, options: BenchmarkOptions | None = None) -> Benchmark:
    """Open the bundled sample that suits a model.

    Args:
        lens: the model.
        options: how to run it; `columns` is not looked at.

    Returns:
        `language` over the sample corpus, a document an example, for a causal or masked language model;
        `similarity` over the sample pairs for any other.
    """
    options = options or BenchmarkOptions()
    if not has_head(lens):
        pairs = SimilarityBenchmark.open(str(SAMPLE / "pairs.tsv"), lens, replace(options, columns=()))
        return replace(pairs, facts={**pairs.facts, "path": f"{IN_PACKAGE}/pairs.tsv"})
    path = SAMPLE / "english.conllu"
    corpus = read_conllu([path])
    limit = longest_input(lens, options.max_length) or 10**9
    documents = [" ".join(sentence.text for sentence in document.sentences) for document in corpus.documents]
    tokenizer = need_tokenizer(lens)
    texts = [windows(document, tokenizer, limit) for document in documents]
    facts = {"path": f"{IN_PACKAGE}/{path.name}", "sha256": corpus.sha256, "example": "document"}
    return Language.of_texts(f"language:{path.name}", texts, lens, options, facts)
