"""Plain text without a parser: sentences, words, lines, chunks, and what a broken file is told."""

import hashlib
import random
import time
import tracemalloc

import pytest

from headlens.corpus.plain import chunks, read_plain
from headlens.errors import CorpusError
from support.real import data
from support.refusals import refused

SPLITS = {
    "One. Two! Three? Four… five.": ["One.", "Two!", "Three?", "Four… five."],
    "“Well!” thought Alice. “Oh dear!” She ran.": ["“Well!” thought Alice.", "“Oh dear!”", "She ran."],
    '"Go." "Why?" (Yes.) 3 came.': ['"Go."', '"Why?"', "(Yes.)", "3 came."],
    "Mr. Fox met J. R. Hart, e.g. Dr. Who at 3.5 p.m. sharp.": 1,
    "Version 1.2 of a.b is out. Äpfel? ärger.": ["Version 1.2 of a.b is out.", "Äpfel? ärger."],
    "吾輩は猫である。名前は無い。": ["吾輩は猫である。", "名前は無い。"],
    "no end": ["no end"],
}


def write(folder, text, name="story.txt"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read(folder, text):
    return read_plain([write(folder, text)])


def refusal(folder, text, parser=None):
    return refused(CorpusError, read_plain, [write(folder, text)], parser, folder=folder)


@pytest.mark.parametrize("text", SPLITS)
def test_sentences(tmp_path, text):
    expected = [text] if SPLITS[text] == 1 else SPLITS[text]
    assert [sentence.text for _, sentence in read(tmp_path, text).sentences] == expected


def test_words_paragraphs_and_lines(tmp_path):
    text = "\n CHAPTER I\r\n\r\nShe  didn't\ngo.\tHe\nwent (home). Oh!\n \t\nEnd"
    corpus = read(tmp_path, text)
    (document,) = corpus.documents
    assert [(s.line, s.text) for s in document.sentences] == [
        (2, "CHAPTER I"),
        (4, "She didn't go."),
        (5, "He went (home)."),
        (6, "Oh!"),
        (8, "End"),
    ]
    assert document.sentences[2].forms == ["He", "went", "(", "home", ")", "."]
    assert [word.space_after for word in document.sentences[2].words] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert all((w.head, w.upos, w.lemma, w.deprel) == (None, "", "", "") for w in document.sentences[2].words)
    assert (document.name, document.mentions) == ("story", ())
    assert (corpus.has_trees, corpus.has_entities, corpus.has_documents) == (False, False, False)
    assert corpus.parser is None
    assert corpus.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_every_file_is_a_document(tmp_path):
    corpus = read_plain([write(tmp_path, "Oh. No."), write(tmp_path, "C.", "b.txt")])
    assert [(d.name, len(d.sentences)) for d in corpus.documents] == [("story", 2), ("b", 1)]


def test_broken_files(tmp_path):
    empty = "story.txt: expected text, but the file holds no word. Name a file with text."
    assert refusal(tmp_path, "") == refusal(tmp_path, "\ufeff \n\u3000\n") == empty
    assert refusal(tmp_path, b"ab\n\xe4") == (
        "story.txt, line 2: expected UTF-8, found byte 0xe4 at position 1. Convert the file to UTF-8."
    )
    assert refusal(tmp_path, b"a\0") == (
        "story.txt, line 1: expected text, found a NUL byte. Name a plain-text file in UTF-8."
    )
    for parser in ("stanza:en", "spacy", "spacy:", ""):
        assert refusal(tmp_path, "A.", parser) == (
            f"There is no parser {parser!r}. Name a spaCy pipeline, as in spacy:en_core_web_sm."
        )
    with pytest.raises(CorpusError, match=r"^Expected at least one plain-text file, got none\. Name one"):
        read_plain([])


def test_chunks_hold_the_whole_text_in_small_parts():
    draw = random.Random(0)
    for longest in (2, 7, 40, 300):
        words = [
            "".join(draw.choices("ab. ", k=draw.randint(1, 60))).replace(" ", "") or "x" for _ in range(400)
        ]
        lines = [(n, " ".join(words[n : n + draw.randint(1, 9)])) for n in range(0, 400, 10)]
        lines = [(n, "" if draw.random() < 0.1 else line) for n, line in lines]
        made = list(chunks(lines, longest))
        assert all(0 < len(chunk.text) <= longest for chunk in made)
        assert all(chunk.text == chunk.text.strip() for chunk in made)
        whole = "".join("".join(line.split()) for _, line in lines)
        assert "".join("".join(chunk.text.split()) for chunk in made) == whole
        place = 0
        owner = [n for n, line in lines for _ in "".join(line.split())]
        for chunk in made:
            for index, char in enumerate(chunk.text):
                if char != " ":
                    assert chunk.line(index) == owner[place]
                    place += 1


def test_long_paragraphs_are_cut_between_sentences():
    sentence = "Some five words are here. "
    sizes = [len(chunk.text) for chunk in chunks([(1, sentence * 100)], 60)]
    assert sizes == [51] * 50


def test_a_text_of_100000_words_needs_little(tmp_path):
    path = write(tmp_path, "The old dog did not bark. " * 15_000)
    started = time.perf_counter()
    tracemalloc.start()
    corpus = read_plain([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert corpus.n_words == 105_000
    assert peak < 60e6
    assert time.perf_counter() - started < 20


def test_real_books():
    for name in (
        "11_alices_adventures_in_wonderland",
        "215_the_call_of_the_wild",
        "36_the_war_of_the_worlds",
    ):
        path = data(f"gutenberg_plain/{name}.txt")
        corpus = read_plain([path])
        text = path.read_text(encoding="utf-8-sig")
        assert "".join(f for _, s in corpus.sentences for f in s.forms) == "".join(text.split())
        lines = text.split("\n")
        for _, sentence in corpus.sentences:
            assert sentence.words[0].form in lines[sentence.line - 1]
        lengths = [len(sentence.words) for _, sentence in corpus.sentences]
        assert 15 < sum(lengths) / len(lengths) < 35


@pytest.mark.parametrize("seed", range(60))
def test_any_bytes_are_read_or_refused(tmp_path, seed):
    draw = random.Random(seed)
    pieces = [
        "a",
        " ",
        "\n",
        "\n\n",
        ".",
        "! ",
        "Mr. ",
        "\u200d",
        "é",
        "猫",
        "。",
        "\u2028",
        "\x1c",
        "'",
        "\x85",
    ]
    raw = "".join(draw.choices(pieces, k=80)).encode()
    raw = raw + bytes([draw.randrange(256)]) if seed % 3 == 0 else raw
    try:
        corpus = read(tmp_path, raw)
    except CorpusError:
        return
    assert "".join(f for _, s in corpus.sentences for f in s.forms) == "".join(raw.decode().split())
    assert all(form and not form.isspace() for _, s in corpus.sentences for form in s.forms)
