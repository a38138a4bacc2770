"""Reading words, trees and documents from CoNLL-U, and what a broken file is told."""

import hashlib
import re

import pytest

from headlens.corpus.conllu import read_conllu
from headlens.corpus.corpus import Corpus, Word
from headlens.errors import CorpusError
from support.refusals import refused

TREE = "Correct column 7 (HEAD); a sentence without a tree has `_` there in every line."
IDS = "Number the words of a sentence 1, 2, 3 and so on, and part sentences by a blank line."


def row(number, form, head="_", deprel="_", misc="_", **other):
    cells = [number, form, other.get("lemma", "_"), other.get("upos", "_"), "_", "_", head, deprel, "_", misc]
    return "\t".join(str(cell) for cell in cells) + "\n"


DOG = row(1, "The", 2, "det") + row(2, "dog", 3, "nsubj") + row(3, "barks", 0, "root")


def write(folder, text, name="dev.conllu"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder, text) -> Corpus:
    return read_conllu([write(folder, text)])


def words(corpus):
    return [word for _, sentence in corpus.sentences for word in sentence.words]


def refusal(folder, text):
    return refused(CorpusError, read, folder, text, folder=folder)


def test_words_and_tree(tmp_path):
    corpus = read(
        tmp_path,
        "# sent_id = s1\n"
        + row(1, "His", 2, "nmod:poss", lemma="he", upos="PRON")
        + row(2, "dog", 3, "nsubj", lemma="dog", upos="NOUN")
        + row(3, "barks", 0, "root", "SpaceAfter=No", lemma="bark", upos="VERB")
        + row(4, ".", 3, "punct", upos="PUNCT"),
    )
    (document,) = corpus.documents
    (sentence,) = document.sentences
    assert sentence.words == (
        Word("His", "he", "PRON", 1, "nmod", True),
        Word("dog", "dog", "NOUN", 2, "nsubj", True),
        Word("barks", "bark", "VERB", -1, "root", False),
        Word(".", "", "PUNCT", 2, "punct", True),
    )
    assert sentence.forms == ["His", "dog", "barks", "."]
    assert sentence.text == "His dog barks."
    assert (sentence.sent_id, sentence.line, sentence.path) == ("s1", 2, str(tmp_path / "dev.conllu"))
    assert sentence.has_tree
    assert (corpus.has_trees, corpus.has_entities, corpus.has_documents) == (True, False, False)
    assert (document.name, document.mentions, corpus.n_words) == ("dev", (), 4)


def test_no_tree(tmp_path):
    corpus = read(tmp_path, row(1, "a") + row(2, "b"))
    assert words(corpus) == [Word("a", "", "", None, "", True), Word("b", "", "", None, "", True)]
    assert not corpus.has_trees
    both = read(tmp_path, DOG + "\n" + row(1, "a"))
    assert [sentence.has_tree for _, sentence in both.sentences] == [True, False]
    assert not both.has_trees


def test_ranges_and_empty_nodes_are_no_words(tmp_path):
    corpus = read(
        tmp_path,
        row("1-2", "zum", misc="SpaceAfter=No")
        + row(1, "zu", 3, "case")
        + row(2, "dem", 3, "det")
        + row(3, "Haus", 0, "root")
        + row("3.1", "leer")
        + row("4-5", "im")
        + row(4, "in", 6, "case")
        + row(5, "dem", 6, "det", "SpaceAfter=Yes")
        + row(6, "Wald", 3, "obl", "SpaceAfter=No"),
    )
    assert [word.form for word in words(corpus)] == ["zu", "dem", "Haus", "in", "dem", "Wald"]
    assert [word.head for word in words(corpus)] == [2, 2, -1, 5, 5, 2]
    assert [word.space_after for word in words(corpus)] == [False, False, True, False, True, False]
    assert next(corpus.sentences)[1].text == "zudemHaus indem Wald"


def test_several_roots_are_accepted(tmp_path):
    assert [word.head for word in words(read(tmp_path, row(1, "a", 0) + row(2, "b", 0)))] == [-1, -1]


@pytest.mark.parametrize("change", ["crlf", "bom", "no final newline", "blank lines", "comment apart"])
def test_harmless_differences(tmp_path, change):
    plain = b"# sent_id = x\n" + DOG.encode() + b"\n"
    changed = {
        "crlf": plain.replace(b"\n", b"\r\n"),
        "bom": b"\xef\xbb\xbf" + plain,
        "no final newline": plain.rstrip(b"\n"),
        "blank lines": b"\n\n" + plain + b" \n\n# the end\n",
        "comment apart": plain.replace(b"x\n", b"x\n\n"),
    }[change]
    corpus = read(tmp_path, changed)
    (sentence,) = corpus.documents[0].sentences
    assert sentence.sent_id == "x"
    assert sentence.words == tuple(words(read(tmp_path, plain)))
    assert corpus.sha256 == hashlib.sha256(changed).hexdigest()


def test_blanks_inside_a_column(tmp_path):
    assert words(read(tmp_path, row(1, "10 000", 0, misc="Gloss=a  b|SpaceAfter=No"))) == [
        Word("10 000", "", "", -1, "", False)
    ]


def test_an_ideographic_blank_is_a_word(tmp_path):
    assert [word.form for word in words(read(tmp_path, row(1, "\u3000", 0)))] == ["\u3000"]


def test_documents_and_files(tmp_path):
    text = (
        DOG + "\n# newdoc id = first\n" + DOG + "\n" + DOG + "\n# newdoc\n" + DOG + "\n# newdoc id =\n" + DOG
    )
    paths = [write(tmp_path, text), write(tmp_path, "# newdoc_style = x\n" + DOG, "other.conllu")]
    corpus = read_conllu(paths)
    names = [(document.name, len(document.sentences)) for document in corpus.documents]
    assert names == [("dev", 1), ("first", 2), ("dev-2", 1), ("dev-3", 1), ("other", 1)]
    assert [index for index, _ in corpus.sentences] == [0, 1, 1, 2, 3, 4]
    assert corpus.paths == tuple(str(path) for path in paths)
    assert corpus.sha256 == hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()
    assert corpus.has_documents
    assert not read_conllu(paths[1:]).has_documents


ROWS = [
    (
        "# c\n1\ta\tb\tc\n",
        "line 2: expected 10 tab-separated columns, found 4. "
        "Write one word a line in CoNLL-U's ten columns, `_` for an empty one.",
    ),
    (
        row(1, "", 0),
        "line 1: expected a value in column 2 (FORM), found nothing. Write `_` for an empty column.",
    ),
    (
        DOG + "\n" + row("1a", "x"),
        "line 5: expected a word id such as 3, 3-4 or 3.1 in column 1 (ID), found '1a'. Correct the column.",
    ),
    (
        row(1, "a", "two"),
        "line 1: expected a whole number or `_` in column 7 (HEAD), found 'two'. Correct the column.",
    ),
    (row(1, "a", 0) + row(3, "b", 1), f"line 2: expected the id 2 in column 1 (ID), found 3. {IDS}"),
    (DOG + DOG, f"line 4: expected the id 4 in column 1 (ID), found 1. {IDS}"),
    (row(0, "a"), f"line 1: expected the id 1 in column 1 (ID), found 0. {IDS}"),
    (row(1, "a", 0) + row("2.1", "b"), f"line 2: expected the id 1.1 in column 1 (ID), found 2.1. {IDS}"),
    (
        row(1, "a", 0) + row("_", "b"),
        f"line 2: expected the id 2, or a range that begins with 2 in column 1 (ID), found _. {IDS}",
    ),
    (
        row("1-3", "abc") + row(1, "a", 0) + row("2-3", "bc"),
        f"line 3: expected the id 2, or a range that begins with 4 in column 1 (ID), found 2-3. {IDS}",
    ),
    (
        row("1-3", "abc") + row(1, "a", 0) + row(2, "b", 1),
        "line 1: expected the words 1 to 3 of this multiword token, found 2 words in the sentence. "
        "Correct the range or add the words.",
    ),
    (row("0.1", "a"), "line 1: expected a word in the sentence, found none. Remove the sentence."),
]
TREES = [
    (["0", "3"], "line 2: expected a head from 0 to 2 as the sentence has a tree, found 3."),
    (["0", "-1"], "line 2: expected a head from 0 to 2 as the sentence has a tree, found -1."),
    (["0", "_"], "line 2: expected a head from 0 to 2 as the sentence has a tree, found `_`."),
    (["0", "2"], "line 2: expected another word as the head of word 2, found itself."),
    (["2", "1"], "line 1: expected a root (head 0) in the sentence, found none."),
    (["0", "3", "4", "2", "1"], "line 2: expected a tree, found a cycle of the words 2, 3, 4."),
    (["2", "4", "0", "2"], "line 2: expected a tree, found a cycle of the words 2, 4."),
]


@pytest.mark.parametrize(("text", "message"), ROWS)
def test_broken_rows(tmp_path, text, message):
    assert refusal(tmp_path, text) == f"dev.conllu, {message}"


@pytest.mark.parametrize(("heads", "message"), TREES)
def test_broken_trees(tmp_path, heads, message):
    text = "".join(row(index, "w", head) for index, head in enumerate(heads, start=1))
    assert refusal(tmp_path, text) == f"dev.conllu, {message} {TREE}"


BYTES = [
    (
        DOG.encode() + b"4\tb\xe4r\n",
        "dev.conllu, line 4: expected UTF-8, found byte 0xe4 at position 4. Convert the file to UTF-8.",
    ),
    (
        "1\ta".encode("utf-16"),
        "dev.conllu, line 1: expected text, found a NUL byte. Name a CoNLL-U file in UTF-8.",
    ),
    (
        "# only a comment\n",
        "dev.conllu: expected CoNLL-U sentences, but the file holds no sentence. "
        "Name a file with one word a line, ten tab-separated columns each.",
    ),
]
BYTES.append(("", BYTES[2][1]))


@pytest.mark.parametrize(("text", "message"), BYTES)
def test_files_that_are_no_conllu(tmp_path, text, message):
    assert refusal(tmp_path, text) == message


def test_paths_that_are_no_files(tmp_path):
    missing = tmp_path / "no.conllu"
    told = {
        (missing,): f"Expected a CoNLL-U file at {missing}, found nothing. Check the path.",
        (tmp_path,): f"Expected a CoNLL-U file at {tmp_path}, found a directory. Name the files in it.",
        (): "Expected at least one CoNLL-U file, got none. Name one or more .conllu files.",
    }
    for paths, message in told.items():
        with pytest.raises(CorpusError, match=f"^{re.escape(message)}$"):
            read_conllu(paths)
