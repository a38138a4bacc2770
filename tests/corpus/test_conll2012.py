"""Reading CoNLL-2012 and LitBank: hand-made cases, what a broken file is told, and the real files."""

import hashlib
import random

import pytest

from headlens.corpus.conll2012 import read_conll2012, universal
from headlens.corpus.corpus import Corpus, Mention, Word
from headlens.errors import CorpusError
from support.refusals import refused

NUMBERS = "Number the words of a sentence 0, 1, 2 and so on, and part sentences by a blank line."
BEGIN = "#begin document (nw/a); part 000\n"
END = "#end document\n"


def row(number, form="w", marks="-", tag="NN", lemma="-", blank=" "):
    return blank.join(["nw/a", "0", str(number), form, tag, "*", lemma, "-", "-", "S", "*", marks]) + "\n"


def sentence(*marks, start=0):
    return "".join(row(number, f"w{number}", mark) for number, mark in enumerate(marks, start)) + "\n"


def write(folder, text, name="dev.v4_gold_conll"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder, text) -> Corpus:
    return read_conll2012([write(folder, text)])


def spans(folder, *marks):
    (document,) = read(folder, BEGIN + sentence(*marks) + END).documents
    return [(m.entity, m.start, m.end) for m in document.mentions]


def refusal(folder, text):
    return refused(CorpusError, read, folder, text, folder=folder)


@pytest.mark.parametrize("blank", [" ", "    ", "\t"])
def test_words_and_mentions(tmp_path, blank):
    text = (
        BEGIN
        + row(0, "The", "(12", "DT", blank=blank)
        + row(1, "dogs", "12)", "NNS", "dog", blank)
        + row(2, "-LRB-", "-", "-LRB-", blank=blank)
        + row(3, "his", "(3)", "PRP$", blank=blank)
        + row(4, "``", "-", "``", blank=blank)
        + row(5, "Kim", "(4)", "NNP", blank=blank)
        + END
    )
    corpus = read(tmp_path, text)
    (document,) = corpus.documents
    assert document.name == "nw/a"
    assert document.sentences[0].words == (
        Word("The", "", "DET", None, "", True),
        Word("dogs", "dog", "NOUN", None, "", True),
        Word("(", "", "PUNCT", None, "", True),
        Word("his", "", "PRON", None, "", True),
        Word('"', "", "PUNCT", None, "", True),
        Word("Kim", "", "PROPN", None, "", True),
    )
    assert document.mentions == (
        Mention("12", 0, 0, 2, 1, "nominal"),
        Mention("3", 0, 3, 4, 3, "pronoun"),
        Mention("4", 0, 5, 6, 5, "proper"),
    )
    assert (document.sentences[0].line, document.sentences[0].has_tree) == (2, False)
    assert (corpus.has_trees, corpus.has_entities, corpus.has_documents) == (False, True, True)
    assert (corpus.parser, corpus.n_words) == (None, 6)
    assert corpus.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_nested_crossing_and_repeated(tmp_path):
    assert spans(tmp_path, "(1|(2", "(3)|2)", "1)") == [("2", 0, 2), ("3", 1, 2), ("1", 0, 3)]
    assert spans(tmp_path, "(1", "(2", "1)", "2)") == [("1", 0, 3), ("2", 1, 4)]
    assert spans(tmp_path, "(5|(5", "5)", "5)") == [("5", 0, 2), ("5", 0, 3)]  # the inner one is closed first
    assert spans(tmp_path, "(5)", "(5", "5)|(6)") == [("5", 0, 1), ("5", 1, 3), ("6", 2, 3)]
    assert spans(tmp_path, "(5|(5", "5)|5)") == [("5", 0, 2)]  # the same mention marked twice
    assert spans(tmp_path, "-", "_") == []


def test_documents_and_parts(tmp_path):
    text = (
        "#begin document (a (b)); part 000\n" + sentence("(1)") + sentence("-", "(1)", start=7) + END + "\n"
        "# a comment\n#begin document (a (b)); part 012\n" + sentence("-") + END
        + "#begin document (empty); part 000\n" + END
        + "#begin document bare\n" + sentence("(1)").rstrip("\n") + "\n#end document bare"
    )  # fmt: skip
    corpus = read(tmp_path, text)
    found = [
        (document.name, len(document.sentences), len(document.mentions)) for document in corpus.documents
    ]
    assert found == [("a (b)", 2, 2), ("a (b) part 12", 1, 0), ("bare", 1, 1)]
    assert [m.sentence for m in corpus.documents[0].mentions] == [0, 1]


def test_parts_of_speech():
    known = {"PRP$": "PRON", "NNPS": "PROPN", "NNS": "NOUN", "VBZ": "VERB", "JJR": "ADJ", "WDT": "DET"}
    known |= {
        "POS": "PART",
        "HYPH": "PUNCT",
        ":": "PUNCT",
        "-LRB-": "PUNCT",
        "$": "SYM",
        "XX": "X",
        "NR": "X",
    }
    known |= {"RBR": "ADV", "MD": "AUX", "-": "", "_": "", "*": ""}
    assert {tag: universal(tag) for tag in known} == known


BROKEN = [
    (
        sentence("-"),
        "line 1: expected `#begin document (NAME); part 000` before the first word of a document, "
        "found none. Add that line and `#end document`; name CoNLL-U files .conllu.",
    ),
    (
        BEGIN + sentence("-") + BEGIN,
        "line 4: expected `#end document` for the document that begins in line 1, found another beginning. "
        "Add that line before this one.",
    ),
    (
        BEGIN + sentence("-"),
        "line 1: expected `#end document` for the document that begins here, found the file's end. "
        "Add that line at its end, unless the file was cut off.",
    ),
    (
        END,
        "line 1: expected `#begin document` before `#end document`, found none. "
        "Add `#begin document (NAME); part 000`, or remove this line.",
    ),
    (
        "#begin document\n" + END,
        "line 1: expected `#begin document (NAME); part 000`, found '#begin document'. Name the document.",
    ),
    (
        BEGIN + "1 The _ DT\n" + END,
        "line 2: expected 12 columns or more, parted by tabs or blanks, found 4. "
        "Write one word a line: document, part, number, word, part of speech and so on, with the coreference "
        "marks last; name CoNLL-U files .conllu.",
    ),
    (
        BEGIN + row(0, "", blank="\t") + END,
        "line 2: expected a word in column 4, found nothing. Give the word.",
    ),
    (
        BEGIN + row("x") + END,
        "line 2: expected the number of the word in its sentence in column 3, found 'x'. "
        "Number the words of a sentence 0, 1, 2 and so on.",
    ),
    (BEGIN + row(0) + row(0) + END, f"line 3: expected the word number 1 in column 3, found 0. {NUMBERS}"),
    (
        BEGIN + row(0) + row(1, marks="- -") + END,
        "line 3: expected 12 columns as in the lines before, found 13. "
        "Give all words of a sentence the same columns.",
    ),
    (
        BEGIN + sentence("(1", "-") + END,
        "line 2: expected the mention of entity '1' to be closed in its sentence, found the sentence's end. "
        "Add `1)` to the mention's last word; a mention cannot cross into the next sentence.",
    ),
    (
        BEGIN + sentence("(1)", "(2)|1)") + END,
        "line 3: expected an open mention of entity '1' to close, found none. "
        "Add the opening mark `(1` in the same sentence, or remove `1)`.",
    ),
]
MARKS = ["12", "(12)(3)", "(12||3)", "()", "(1)|", "((1)"]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_broken_files(tmp_path, text, message):
    assert refusal(tmp_path, text) == f"dev.v4_gold_conll, {message}"


@pytest.mark.parametrize("marks", MARKS)
def test_broken_marks(tmp_path, marks):
    assert refusal(tmp_path, BEGIN + sentence(marks) + END) == (
        "dev.v4_gold_conll, line 2: expected coreference marks such as (12, 12) or (12), joined with |, in "
        f"the last column, found {marks!r}. Correct the marks, or write `-` for none."
    )


@pytest.mark.parametrize("text", ["", "\n\n", BEGIN + END])
def test_files_without_a_sentence(tmp_path, text):
    assert refusal(tmp_path, text) == (
        "dev.v4_gold_conll: expected CoNLL-2012 documents, but the file holds no sentence. "
        "Name a file with one word a line between `#begin document` and `#end document`."
    )
    with pytest.raises(CorpusError, match=r"^Expected at least one CoNLL-2012 file, got none\. Name one"):
        read_conll2012([])


@pytest.mark.parametrize("seed", range(200))
def test_damage_is_told_or_harmless(tmp_path, seed):
    draw = random.Random(seed)
    good = (
        BEGIN + sentence("(1|(2", "2)", "1)|(3)") + sentence("-", "(1)") + END + BEGIN + sentence("(1)") + END
    )
    text = bytearray(good.encode())
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(text))
        change = draw.choice(["drop", "put", "cut", "twice"])
        if change == "drop":
            del text[place : place + draw.randint(1, 20)]
        elif change == "put":
            text[place:place] = draw.choice(
                [b"\n", b"\t", b"(", b")", b"|", b"\xff", b"\0", b"#", b"\xc3\xa4"]
            )
        elif change == "cut":
            del text[max(place, 1) :]
        else:
            text[place:place] = text[place : place + 40]
    try:
        corpus = read(tmp_path, bytes(text))
    except CorpusError:
        return
    for document in corpus.documents:
        for m in document.mentions:
            assert 0 <= m.start <= m.head < m.end <= len(document.sentences[m.sentence].words)
