"""Sentences, words and silver trees from a spaCy pipeline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from itertools import tee
from typing import Any

from headlens.errors import CorpusError
from headlens.text.chunks import Chunk
from headlens.text.corpus import Sentence, Word

_AT_ONCE = 16  # chunks that spaCy works on together


def load(name: str) -> Callable[[Iterable[Chunk], str], Iterator[Sentence]]:
    """Load a spaCy pipeline.

    Args:
        name: an installed pipeline, or the directory of one.

    Returns:
        A function that makes sentences of chunks of text, given the file they come from. It raises
        CorpusError where the pipeline sets no dependencies.

    Raises:
        CorpusError: spaCy or the pipeline is not installed, or cannot be loaded.
    """
    try:
        spacy = import_module("spacy")
    except ImportError:
        raise CorpusError(
            f"The parser spacy:{name} needs spaCy, which is not installed.",
            "Type: pip install 'headlens[spacy]'",
        ) from None
    try:
        pipeline = spacy.load(name)
    except Exception as error:  # a pipeline is a package or directory of its own, and raises what it likes
        raise CorpusError(
            f"The spaCy pipeline {name!r} cannot be loaded: {_first_sentence(error)}.",
            "Install it (as in python -m spacy download en_core_web_sm), or name the directory of one.",
        ) from None
    return partial(_parse, pipeline, name)


def _parse(pipeline: Any, name: str, chunks: Iterable[Chunk], path: str) -> Iterator[Sentence]:
    own, read = tee(chunks)
    docs = pipeline.pipe((chunk.text for chunk in read), batch_size=_AT_ONCE)
    for chunk, doc in zip(own, docs, strict=True):
        if not (doc.has_annotation("DEP") and doc.has_annotation("SENT_START")):
            raise CorpusError(
                f"The spaCy pipeline {name!r} has no parser: it sets no dependencies.",
                f"Name one that has; this one has: {', '.join(pipeline.pipe_names) or 'nothing'}.",
            )
        for span in doc.sents:
            tokens = [token for token in span if not token.is_space]
            if tokens:
                yield Sentence(_words(tokens), "", path, chunk.line(tokens[0].idx))


def _words(tokens: list[Any]) -> tuple[Word, ...]:
    place = {token.i: index for index, token in enumerate(tokens)}
    return tuple(
        Word(
            form=token.text,
            lemma=token.lemma_,
            upos=token.pos_,
            head=-1 if token.head.i == token.i else place.get(token.head.i, -1),
            deprel=token.dep_.partition(":")[0],
            space_after=bool(token.whitespace_),
        )
        for token in tokens
    )


def _first_sentence(error: Exception) -> str:
    return (str(error) or type(error).__name__).split(". ")[0].split("\n")[0].rstrip(".")
