"""Reads plain text: sentences and words, by simple rules or by a parser."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from headlens.errors import CorpusError
from headlens.text import spacy_parser
from headlens.text.chunks import Chunk, chunks, sentence_spans
from headlens.text.corpus import Corpus, Document, Sentence, Word
from headlens.text.lines import Digest, numbered_lines
from headlens.text.words import word_spans

_KIND = "plain-text"
LONGEST = 5_000  # characters at once: a parser's memory grows with the text that it sees together

Parse = Callable[[Iterable[Chunk], str], Iterator[Sentence]]
"""Makes sentences of chunks; the second argument is the file, as it was named."""


def read_plain(paths: Sequence[Path], parser: str | None = None) -> Corpus:
    """Read plain-text files: every file is one document, and a blank line ends a sentence.

    Without a parser a sentence ends behind `.`, `!`, `?` or an ellipsis and the closing quotes and brackets
    that follow, where a blank but no small letter comes next; not behind single capital letters and a few
    English abbreviations ("Mr."). The full-width stops of Chinese and Japanese always end one. Words are
    those of `headlens.text.words.word_spans`: in a script without blanks a whole run of letters is taken for
    a word.

    Args:
        paths: the files, in order.
        parser: "spacy:NAME" has the spaCy pipeline NAME make sentences, words, parts of speech, lemmas and
            trees. The trees are silver: as good as that parser is on such texts. Its labels stay as they are;
            English pipelines have ClearNLP's (`dobj`, `pobj`, `prep`), not UD's, and prepositions as heads.
            It sees at most 5,000 characters of a paragraph at once.

    Returns:
        The corpus, without entities.

    Raises:
        CorpusError: if a file cannot be read or holds no word, or the parser is not there.
    """
    if not paths:
        raise CorpusError(f"Expected at least one {_KIND} file, got none.", "Name one or more .txt files.")
    parse = find_parser(parser)
    digest = hashlib.sha256()
    documents = tuple(_read_file(path, digest, parse) for path in paths)
    return Corpus(
        documents=documents,
        paths=tuple(str(path) for path in paths),
        sha256=digest.hexdigest(),
        has_trees=parser is not None,
        has_entities=False,
        has_documents=False,
        parser=parser,
    )


def split_sentences(texts: Iterable[Chunk], path: str) -> Iterator[Sentence]:
    """Split chunks into sentences and words by the rules that `read_plain` states.

    Args:
        texts: the chunks.
        path: the file they come from, as it was named.

    Yields:
        The sentences, without trees.
    """
    for chunk in texts:
        for start, end in sentence_spans(chunk.text):
            part = chunk.part(start, end)
            words = tuple(
                Word(part.text[a:b], "", "", None, "", part.text[b : b + 1] == " ")
                for a, b in word_spans(part.text)
            )
            yield Sentence(words, "", path, part.line(0))


def find_parser(parser: str | None) -> Parse:
    """Find what makes sentences of text.

    Args:
        parser: "spacy:NAME"; None for the rules that `read_plain` states.

    Returns:
        The function.

    Raises:
        CorpusError: there is no such parser.
    """
    if parser is None:
        return split_sentences
    kind, _, name = parser.partition(":")
    if kind != "spacy" or not name:
        raise CorpusError(
            f"There is no parser {parser!r}.", "Name a spaCy pipeline, as in spacy:en_core_web_sm."
        )
    return spacy_parser.load(name)


def _read_file(path: Path, digest: Digest, parse: Parse) -> Document:
    sentences = tuple(parse(chunks(numbered_lines(path, digest, _KIND), LONGEST), str(path)))
    if not sentences:
        raise CorpusError(f"{path}: expected text, but the file holds no word.", "Name a file with text.")
    return Document(path.stem, sentences, ())
