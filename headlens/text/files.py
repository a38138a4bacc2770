"""Reads corpora of every known kind; one dict tells the kind of a file by the ending of its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from headlens.errors import CorpusError
from headlens.regular import IrregularFileError, check_regular, file_sha256
from headlens.text.conll2012 import read_conll2012
from headlens.text.conllu import read_conllu
from headlens.text.corpus import Corpus
from headlens.text.lines import unreadable
from headlens.text.plain import read_plain


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file.

    Args:
        name: what people call it.
        read: reads files of this kind; the second argument is the parser.
        annotated: whether its files hold more than text.
    """

    name: str
    read: Callable[[Sequence[Path], str | None], Corpus]
    annotated: bool = True


_CONLL2012 = Format("CoNLL-2012 or LitBank", lambda paths, parser: read_conll2012(paths))
FORMATS: dict[str, Format] = {
    ".conllu": Format("CoNLL-U", lambda paths, parser: read_conllu(paths)),
    ".conll": _CONLL2012,
    "_conll": _CONLL2012,
    ".txt": Format("plain text", read_plain, annotated=False),
}
"""The kinds of files by the ending of their names, in any case of letters."""


def read_corpus(paths: str | Path | Sequence[str | Path], parser: str | None = None) -> Corpus:
    """Read files and folders of any known kind into one corpus.

    Of a folder, the files of known kinds directly in it are read in the order of their names, hidden ones
    aside. Plain text that stands beside annotated files is taken for their raw text, licence or readme and
    is left out, so that no sentence is read twice; named itself, it is read.

    Args:
        paths: files and folders, in order; one or several.
        parser: what parses plain text, such as "spacy:en_core_web_sm"; see `read_plain`. It never touches
            files that are annotated.

    Returns:
        The corpus; see `Corpus.merge` for files of several kinds.

    Raises:
        CorpusError: a file or folder is missing, of no known kind, named twice or cannot be read; or a parser
            is given where there is no plain text.
    """
    given = [Path(path) for path in ([paths] if isinstance(paths, str | Path) else paths)]
    files = [file for path in given for file in _files(path)]
    if not files:
        raise CorpusError(
            "Expected at least one corpus file, got none.", f"Name one that ends in {_endings()}."
        )
    _check_twice(files)
    kinds = [_format(path) for path in files]
    if parser is not None and all(kind.annotated for kind in kinds):
        raise CorpusError(
            f"The parser {parser} is for plain text (.txt), and there is none among the files.",
            "Leave --parser out, or name a .txt file.",
        )
    runs = groupby(zip(kinds, files, strict=True), key=lambda pair: pair[0])
    corpora: list[Corpus] = [kind.read([file for _, file in run], parser) for kind, run in runs]
    if len(corpora) == 1:
        return corpora[0]
    return Corpus.merge(corpora, file_sha256(files))


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


def _check_twice(files: Sequence[Path]) -> None:
    seen: set[Path] = set()
    for file in files:
        if file.resolve() in seen:
            raise CorpusError(
                f"{file} is named twice, and its sentences would count twice as evidence.",
                "Name every file once.",
            )
        seen.add(file.resolve())
