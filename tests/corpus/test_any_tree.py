"""Trees with any words: what is read is what the libraries `conllu` and `udapi` read of the same file."""

import io
import random

import conllu
import pytest
from conllu.models import Token, TokenList
from hypothesis import given
from hypothesis import strategies as st
from udapi.block.read.conllu import Conllu

from headlens.corpus.conllu import _find_cycle, read_conllu
from headlens.corpus.read import read_files
from support import hostile

SPACES = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # at which Python's splitlines, and so `conllu`, ends a line
RAW = {name: lambda cells, column: cells[column] for name in ("xpos", "feats", "deps", "misc")}


CELLS = st.lists(hostile.words(SPACES).map(lambda text: " ".join(text.split())), min_size=2, max_size=5)


def heads(chance: random.Random, count: int) -> list[int]:
    """The heads of a random tree, from 1; 0 is the root."""
    order = chance.sample(range(1, count + 1), count)
    found = {word: order[chance.randrange(place)] if place else 0 for place, word in enumerate(order)}
    return [found[word] for word in range(1, count + 1)]


def row(number, form="_", lemma="_", head=None, deprel="_"):
    names = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
    values = (number, form, lemma, "X", "_", "_", head, deprel, "_", "_")
    return Token(zip(names, values, strict=True))


@st.composite
def trees(draw):
    """Words, multiword tokens and empty nodes."""
    chance, cells = random.Random(draw(st.integers(0, 2**32))), draw(CELLS)
    count, last, rows = draw(st.integers(1, 8)), 0, []
    for number, head in enumerate(heads(chance, count), 1):
        if chance.random() < 0.2 and last < number < count:
            last = number + 1
            rows.append(row((number, "-", last), chance.choice(cells)))
        rows.append(row(number, *chance.choices(cells, k=2), head, chance.choice(cells)))
        if chance.random() < 0.2:
            rows.append(row((number, ".", 1), chance.choice(cells)))
    return TokenList(rows)


@hostile.examples(60)
@given(st.lists(trees(), min_size=1, max_size=4))
def test_what_conllu_writes_is_read(tmp_path_factory, sentences):
    path = tmp_path_factory.getbasetemp() / "trees.conllu"
    text = "".join(tree.serialize() for tree in sentences)
    path.write_text(text, encoding="utf-8", newline="")
    corpus = read_conllu([path])
    told = [
        [token for token in tree if isinstance(token["id"], int)]
        for tree in conllu.parse(text, field_parsers=RAW)
    ]
    assert corpus.n_words == sum(map(len, told))
    assert (corpus.has_trees, len(corpus.documents)) == (True, 1)
    for (_, mine), theirs in zip(corpus.sentences, told, strict=True):
        assert mine.forms == [token["form"] for token in theirs]
        assert [word.head + 1 for word in mine.words] == [token["head"] for token in theirs]
        relations = [token["deprel"].removeprefix("_" if token["deprel"] == "_" else "") for token in theirs]
        assert [word.deprel for word in mine.words] == [one.partition(":")[0] for one in relations]


def test_udapi_reads_the_same_trees(tmp_path):
    chance, text = random.Random(0), ""
    for _ in range(50):
        for number, head in enumerate(heads(chance, chance.randint(1, 30)), 1):
            text += f"{number}\tw{number}\t_\tX\t_\t_\t{head}\tdep\t_\t_\n"
        text += "\n"
    (tmp_path / "x.conllu").write_text(text, encoding="utf-8")
    sentences = [sentence for _, sentence in read_conllu([tmp_path / "x.conllu"]).sentences]
    reader = Conllu(filehandle=io.StringIO(text))
    theirs = [[node.parent.ord - 1 for node in reader.read_tree().descendants] for _ in sentences]
    assert [[word.head for word in sentence.words] for sentence in sentences] == theirs


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([2, 3, 0], None),
        ([0, 3, 4, 2], "line 2: expected a tree, found a cycle of the words 2, 3, 4."),
        ([2, 3, 1], "line 1: expected a root (head 0) in the sentence, found none."),
        ([0, 2], "line 2: expected another word as the head of word 2, found itself."),
        ([0, 3], "line 2: expected a head from 0 to 2 as the sentence has a tree, found 3."),
        ([0, "9" * 5000], "line 2: expected a whole number or `_` in column 7 (HEAD), found '9999"),
    ],
)
def test_broken_trees(tmp_path, found, told):
    path = tmp_path / "x.conllu"
    lines = [f"{n}\tw\tw\tX\t_\t_\t{head}\tdep\t_\t_\n" for n, head in enumerate(found, 1)]
    path.write_text("".join(lines), encoding="utf-8")
    refusal = hostile.result_or_refusal(read_files, path)
    assert str(refusal).startswith(f"{path}, {told}") if told else refusal.n_words == len(found)


def test_long_chains_take_no_time():
    """One look at each word: a look at each pair would take an hour."""
    count = 300_000
    with hostile.within(20):
        assert _find_cycle([*range(1, count), -1]) == _find_cycle([*range(-1, count - 1)]) == []
        assert _find_cycle([*range(1, count), 5]) == list(range(5, count))


MARKED = "# global.Entity = eid\n1\tw\t_\t_\t_\t_\t0\troot\t_\tEntity="
WORD = "\nd 0 0 w NN * - - - - * -\n#end document\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("no-mark.conllu", f"{MARKED}{'a' * 500_000}\n"),
        ("never-closed.conllu", f"{MARKED}{'(e' * 20_000}\n"),
        ("comment.conllu", f"# {'a = ' * 200_000}\n1\tw\t_\t_\t_\t_\t0\troot\t_\t_\n"),
        ("dots.txt", "." * 60_000 + "x"),
        ("quotes.txt", "." * 30_000 + "'" * 30_000 + "x"),
        ("blanks.conll", f"#begin document a{' ' * 500_000}x{WORD}"),
        ("parts.conll", f"#begin document a{';part ' * 100_000}{WORD}"),
    ],
)
def test_long_lines_take_no_time(tmp_path, name, content):
    """Patterns that try each place of a long line from each place before it would take minutes."""
    (tmp_path / name).write_text(content, encoding="utf-8")
    hostile.result_or_refusal(read_files, tmp_path / name)
