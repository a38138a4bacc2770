"""Reads corpora of every known kind; one dict tells the kind of a file by the ending of its name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from headlens.corpus.conll2012 import read_conll2012
from headlens.corpus.conllu import read_conllu
from headlens.corpus.corpus import SAMPLE, Corpus, unreadable
from headlens.corpus.hub import FORM, DatasetPlace, is_hub, parse, shown
from headlens.corpus.hub_corpus import read_dataset
from headlens.corpus.plain import read_plain
from headlens.errors import CorpusError
from headlens.util.files import IrregularFileError, check_regular


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file.

    Args:
        name: what people call it.
        read: reads files of this kind, given the parser and what takes their bytes.
        annotated: whether its files hold more than text.
    """

    name: str
    read: Callable[[Sequence[Path], str | None, Any], Corpus]
    annotated: bool = True


_CONLL2012 = Format("CoNLL-2012 or LitBank", lambda paths, parser, digest: read_conll2012(paths, digest))
FORMATS: dict[str, Format] = {
    ".conllu": Format("CoNLL-U", lambda paths, parser, digest: read_conllu(paths, digest)),
    ".conll": _CONLL2012,
    "_conll": _CONLL2012,
    ".txt": Format("plain text", read_plain, annotated=False),
}
"""The kinds of files by the ending of their names, in any case of letters."""


def read_files(
    paths: str | Path | Sequence[str | Path],
    parser: str | None = None,
    columns: Sequence[str] = (),
    max_sentences: int | None = None,
) -> Corpus:
    """Read files, folders and datasets into one corpus.

    Of a folder, the files of known kinds directly in it are read in the order of their names, hidden ones
    aside. Plain text that stands beside annotated files is taken for their raw text, licence or readme and
    is left out, so that no sentence is read twice; named itself, it is read.

    Args:
        paths: files, folders and ``hub:DATASET[:CONFIG[:SPLIT]]``, in order; one or several.
        parser: what parses plain text, such as "spacy:en_core_web_sm"; see `read_plain`. It never touches
            what is annotated.
        columns: of datasets, see `headlens.corpus.hub_corpus.choose`; by default they are found by name.
        max_sentences: keep only the first so many; of a dataset no more are read.

    Returns:
        The corpus; see `Corpus.merge` for several kinds.

    Raises:
        CorpusError: a file, folder or dataset is missing, of no known kind, named twice or cannot be read; or
            a parser is given where there is no plain text, or columns where there is no dataset.
    """
    given = [paths] if isinstance(paths, str | Path) else paths
    found = [one for path in given for one in ([parse(str(path))] if is_hub(path) else _files(Path(path)))]
    if not found:
        raise CorpusError(
            "Expected at least one corpus file, got none.", f"Name one that ends in {_endings()}."
        )
    _check_twice(found)
    kinds = [None if isinstance(one, DatasetPlace) else _format(one) for one in found]
    _check_options(kinds, parser, columns)
    digest = hashlib.sha256()
    corpora: list[Corpus] = []
    for kind, run in groupby(zip(kinds, found, strict=True), key=lambda pair: pair[0]):
        members = [one for _, one in run]
        places = [one for one in members if isinstance(one, DatasetPlace)]
        files = [one for one in members if isinstance(one, Path)]
        read = [read_dataset(place, parser, columns, max_sentences) for place in places]
        corpora += read if kind is None else [kind.read(files, parser, digest)]
        for corpus in read:
            digest.update(corpus.sha256.encode())
    if parser is not None and all(corpus.parser is None for corpus in corpora):
        raise _needless(parser)
    corpus = corpora[0] if len(corpora) == 1 else Corpus.merge(corpora, digest.hexdigest())
    return corpus if max_sentences is None else corpus.beginning(max_sentences)


def _check_options(kinds: Sequence[Format | None], parser: str | None, columns: Sequence[str]) -> None:
    if parser is not None and all(kind is not None and kind.annotated for kind in kinds):
        raise _needless(parser)
    if columns and None not in kinds:
        raise CorpusError(
            "Columns are chosen of datasets, and there is none in the corpus.", f"Name one, as {FORM}."
        )


def _needless(parser: str) -> CorpusError:
    return CorpusError(
        f"The parser {parser} is for plain text (.txt), and there is none among the files.",
        "Leave --parser out, or name a .txt file.",
    )


def _endings() -> str:
    *first, last = FORMATS
    return f"{', '.join(first)} or {last}"


def _find(path: Path) -> Format | None:
    return next((kind for ending, kind in FORMATS.items() if path.name.lower().endswith(ending)), None)


def _format(path: Path) -> Format:
    kind = _find(path)
    if kind is None:
        known = ", ".join(f"{ending} ({known.name})" for ending, known in FORMATS.items())
        raise CorpusError(f"{path}: its ending tells no kind of corpus.", f"Known are {known}.")
    return kind


def _files(path: Path) -> list[Path]:
    try:
        if not path.exists():
            raise CorpusError(
                f"Expected a corpus file or folder at {path}, found nothing.", "Check the path."
            )
        if not path.is_dir():
            check_regular(path)
            return [path]
        inside = sorted(
            file for file in path.iterdir() if not file.name.startswith(".") and not file.is_dir()
        )
    except IrregularFileError as error:
        raise unreadable(path, "corpus", error) from None
    except OSError as error:
        raise CorpusError(
            f"Expected to read {path}, but: {error.strerror}.", "Make the file or folder readable."
        ) from None
    found = [(file, kind) for file in inside if (kind := _find(file)) is not None]
    if not found:
        raise CorpusError(
            f"Expected corpus files in the folder {path}, found none.",
            f"Name files that end in {_endings()}.",
        )
    return [file for file, kind in found if kind.annotated] or [file for file, _ in found]


def _check_twice(found: Sequence[Path | DatasetPlace]) -> None:
    seen: set[Path | DatasetPlace] = set()
    for one in found:
        same = one if isinstance(one, DatasetPlace) else one.resolve()
        if same in seen:
            raise CorpusError(
                f"{one} is named twice, and its sentences would count twice as evidence.",
                "Name every file once.",
            )
        seen.add(same)


# ---- Corpora for commands: what a user names, or the sample that comes along, and what a record says of it


def read_corpus(
    corpus: str | Path | Sequence[str | Path] | None,
    parser: str | None = None,
    columns: Sequence[str] = (),
    max_sentences: int | None = None,
) -> Corpus:
    """Read a corpus, or the one that comes along.

    Args:
        corpus: files, folders or datasets, see `headlens.corpus.read`; the bundled English sample by default.
        parser: ``spacy:NAME`` to parse plain text.
        columns: of datasets; by default they are found by name.
        max_sentences: keep only the first so many.

    Returns:
        The corpus.

    Raises:
        CorpusError: it cannot be read.
    """
    if corpus is None:
        return read_files(SAMPLE / "english.conllu", None, columns, max_sentences)
    return read_files(corpus, parser, columns, max_sentences)


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
