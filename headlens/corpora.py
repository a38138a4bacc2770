"""Corpora for commands: what a user names, or the sample that comes along, and what a record says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib import resources
from pathlib import Path
from typing import Any

from headlens.text import files
from headlens.text.corpus import Corpus
from headlens.text.hub import shown


def read_corpus(
    corpus: str | Path | Sequence[str | Path] | None,
    parser: str | None = None,
    columns: Sequence[str] = (),
    max_sentences: int | None = None,
) -> Corpus:
    """Read a corpus, or the one that comes along.

    Args:
        corpus: files, folders or datasets, see `headlens.text.files`; the bundled English sample by default.
        parser: ``spacy:NAME`` to parse plain text.
        columns: of datasets; by default they are found by name.
        max_sentences: keep only the first so many.

    Returns:
        The corpus.

    Raises:
        CorpusError: it cannot be read.
    """
    if corpus is None:
        with resources.as_file(resources.files("headlens.data") / "sample" / "english.conllu") as path:
            return files.read_corpus(path, None, columns, max_sentences)
    return files.read_corpus(corpus, parser, columns, max_sentences)


def corpus_facts(corpus: Corpus) -> dict[str, Any]:
    """Say what `run.json` holds of a corpus.

    Args:
        corpus: the corpus.

    Returns:
        Plain data: files, hash, counts; where it was read from datasets, which ones and what of them.
    """
    facts: dict[str, Any] = {
        "files": [shown(path) for path in corpus.paths],
        "sha256": corpus.sha256,
        "parser": corpus.parser,
        "documents": len(corpus.documents),
        "sentences": sum(len(document.sentences) for document in corpus.documents),
        "words": corpus.n_words,
        "mentions": sum(len(document.mentions) for document in corpus.documents),
    }
    if corpus.datasets:
        facts["datasets"] = [asdict(origin) for origin in corpus.datasets]
    return facts | ({"sentences_cut": corpus.cut} if corpus.cut else {})
