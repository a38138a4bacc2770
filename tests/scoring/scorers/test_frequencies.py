"""How rare words are, where the rarest stand, and files of frequencies."""

from __future__ import annotations

import pytest

from headlens.corpus.corpus import Corpus, Document, Sentence, Word
from headlens.errors import CorpusError, InputError
from headlens.scoring.base import Context
from headlens.scoring.scorers.rare_token import (
    RareToken,
    corpus_frequencies,
    rare_shares,
    rarest,
    read_frequencies,
)
from support.handmade import item


def words(text: str) -> list[tuple[str, int, str]]:
    return [(form, -1, "root") for form in text.split()]


def corpus(*texts: str) -> Corpus:
    sentences = tuple(
        Sentence(tuple(Word(form, form, "X", None, "", True) for form in text.split()), "", "x", 1)
        for text in texts
    )
    return Corpus((Document("d", sentences, ()),), ("x",), "", False, False, True)


FREQUENCY = {"the": 100.0, "of": 50.0, "cat": 3.0, "dog": 2.0, "hums": 2.0, "axolotl": 1.0}

NO_NUMBERS = [f"cat\t{text}" for text in ("three", "nan", "-1", "inf", "1_0", "\u0663", "1e999", "1,5", "")]


class TestRarest:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("the cat of the axolotl", "cat axolotl"),
            ("the of the axolotl the axolotl", "axolotl axolotl"),
            ("the dog of the axolotl hums the of", "dog axolotl hums"),  # as rare as the second rarest
            ("The CAT of the Axolotl", "CAT Axolotl"),
            ("the cat of the zyzzyva the", "cat zyzzyva"),  # unknown words are the rarest
            ("the cat axolotl of", ""),  # four words tell nothing
            ("the the the the the", ""),  # all are as rare
            ("dog hums dog hums the", ""),  # more than half are
            ("dog hums dog hums the of the the", "dog hums dog hums"),  # half are not more than half
        ],
    )
    def test_known(self, text, expected):
        made = item(words(text)).words
        flags = rarest(made, FREQUENCY)
        assert [word.form for word, flag in zip(made, flags, strict=True) if flag] == expected.split()

    def test_corpus_frequencies(self):
        assert corpus_frequencies(corpus("The cat", "the dog the")) == {"the": 3, "cat": 1, "dog": 1}

    def test_where_rare_words_stand(self):
        shares = rare_shares(corpus("the of the the of the the of cat axolotl", "of of"), FREQUENCY)
        assert shares == pytest.approx([0] * 8 + [5, 5])
        shares = rare_shares(corpus("axolotl the of the cat"), FREQUENCY)  # tenths 0, 2, 4, 6, 8
        assert shares == pytest.approx([2.5, 1, 0, 1, 0, 1, 0, 1, 2.5, 1])


class TestFiles:
    def test_spellings_are_added_up(self, tmp_path):
        path = tmp_path / "f.tsv"
        path.write_bytes("\ufeffThe\t10\r\n\r\nthe\t5\r\nCafé\t1e3\r\n".encode())
        assert read_frequencies(path) == {"the": 15, "café": 1000}

    @pytest.mark.parametrize("line", [*NO_NUMBERS, "cat", "cat 3", "cat\t1\t2", "\t3", "\t"])
    def test_broken_lines(self, tmp_path, line):
        path = tmp_path / "f.tsv"
        path.write_text(f"the\t10\n\n{line}\n", encoding="utf-8")
        with pytest.raises(InputError) as error:
            read_frequencies(path)
        assert str(error.value) == (
            f"{path}, line 3: expected a word, a tab and a number from 0, found {line!r}. "
            "Write one word with its frequency on each line."
        )

    def test_no_file_and_no_text(self, tmp_path):
        path = tmp_path / "f.tsv"
        with pytest.raises(CorpusError) as error:
            read_frequencies(path)
        assert str(error.value) == f"Expected a frequencies file at {path}, found nothing. Check the path."
        path.write_bytes(b"the\t1\ncaf\xe9\t2\n")
        with pytest.raises(CorpusError) as error:
            read_frequencies(path)
        assert str(error.value) == (
            f"{path}, line 2: expected UTF-8, found byte 0xe9 at position 4. Convert the file to UTF-8."
        )

    def test_they_take_the_place_of_those_of_the_corpus(self, tmp_path):
        path = tmp_path / "f.tsv"
        path.write_text("the\t1\n", encoding="utf-8")
        texts = corpus("the cat of the axolotl")
        assert RareToken.make(Context(None, texts)).frequency["the"] == 2
        assert RareToken.make(Context(None, texts, frequencies=path)).frequency == {"the": 1}
