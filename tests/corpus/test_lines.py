"""Lines of text files: their ends, their numbers, and what is no text."""

import hashlib
import io

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headlens.corpus import corpus as lines
from headlens.corpus.corpus import InputFile
from headlens.corpus.read import read_files
from headlens.errors import CorpusError, InputError
from support import hostile
from support.inputfiles import COREFERENCE, TREE, changed_while_read

PARTS = st.lists(
    st.sampled_from(["a", "\u00e4", " ", "\t", "\r", "\n", "\r\n", "\u2028", "\x85", "\ufeff", "\x0b"])
)


@hostile.examples(100)
@given(PARTS, st.booleans())
@example(["\ufeff"], True)
@example(["\r", "\r\n"], False)
def test_lines_are_those_of_python(tmp_path_factory, parts, marked):
    """Python's text files know the same three ends of lines; it was written without headlens."""
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    text = "".join(parts)
    path.write_bytes(b"\xef\xbb\xbf" * marked + text.encode())
    if text.startswith("\ufeff") and not marked:
        text = text[1:]
    expected = [line.removesuffix("\n") for line in io.StringIO(text, newline=None)]
    file = InputFile(path)
    found = list(file.lines())
    assert [line for _, line in found] == (expected or [""] * bool(path.read_bytes()))
    assert [number for number, _ in found] == list(range(1, len(found) + 1))
    assert file.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert InputFile(path).text == "\n".join(expected)


def test_a_line_without_end_is_not_read_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "LONGEST", 2**20)
    path = tmp_path / "x.txt"
    with path.open("wb") as file:
        file.truncate(2**40)  # a file with a hole: a terabyte of NUL
    with hostile.within(10), pytest.raises(CorpusError) as refused:
        list(InputFile(path, error=CorpusError).lines())
    assert (
        str(refused.value) == f"{path}, line 1: expected text, found a NUL byte. Name a text file in UTF-8."
    )
    path.write_bytes(b"a\n" + b"a" * 2**20 + b"\n")
    with pytest.raises(InputError) as refused:
        _ = InputFile(path).text
    assert str(refused.value) == (
        f"{path}, line 2: expected text, found a line of more than 1 MiB. Break it into lines."
    )
    path.write_bytes(b"a\n" + b"a" * (2**20 - 1) + b"\n" + b"a" * 2**20)
    assert len(InputFile(path).text) == 2**21 + 2


def test_errors_are_of_the_kind_that_is_asked_for(tmp_path):
    for call, kind in (
        (lambda: InputFile(tmp_path / "x").text, InputError),
        (lambda: list(InputFile(tmp_path / "x", error=CorpusError).lines()), CorpusError),
    ):
        with pytest.raises(InputError) as refused:
            call()
        assert type(refused.value) is kind
        assert (
            str(refused.value) == f"Expected a text file at {tmp_path / 'x'}, found nothing. Check the path."
        )


def test_the_hash_is_that_of_what_was_read(tmp_path, monkeypatch):
    """However often the file is changed meanwhile, nobody looks at it a second time."""
    names = ["a.conllu", "b.conllu", "c.conll", "d.txt"]
    texts = [TREE, TREE.replace("w5", "w6"), COREFERENCE, "w5 w6. W7 w8!\n"]
    for name, text in zip(names, texts, strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    changed_while_read(monkeypatch)
    corpus = read_files([tmp_path / name for name in names])
    assert corpus.sha256 == hashlib.sha256("".join(texts).encode()).hexdigest()
    assert [document.sentences[0].words[0].form for document in corpus.documents][-1] == "w5"
    assert (tmp_path / "d.txt").read_text("utf-8") == "another"
