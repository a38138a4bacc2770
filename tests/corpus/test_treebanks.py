"""Reading real treebanks: their counts, their texts, and the mentions of GUM beside udapi's."""

import os
import time
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from headlens.corpus.conllu import read_conllu

DATA = Path(os.environ.get("HEADLENS_DATA", Path(__file__).resolve().parents[2].parent / "shared" / "data"))
TREEBANKS = {
    "ud_english_gum/en_gum-ud-dev.conllu": (30, 1575, 28119),
    "ud_english_pud/en_pud-ud-test.conllu": (397, 1000, 21180),
    "ud_german_gsd/de_gsd-ud-dev.conllu": (1, 799, 12480),
    "ud_japanese_gsd/ja_gsd-ud-dev.conllu": (507, 507, 12287),
}


@pytest.mark.parametrize("name", TREEBANKS)
def test_real_treebanks(name):
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not in {DATA}")
    started = time.perf_counter()
    corpus = read_conllu([path])
    assert time.perf_counter() - started < 10
    sentences = [sentence for _, sentence in corpus.sentences]
    assert (len(corpus.documents), len(sentences), corpus.n_words) == TREEBANKS[name]
    assert corpus.has_trees
    assert corpus.has_entities == ("gum" in name)
    assert corpus.has_documents == ("german" not in name)
    lines = path.read_text(encoding="utf-8").split("\n")
    texts = [line.removeprefix("# text = ").strip() for line in lines if line.startswith("# text = ")]
    same = sum(sentence.text == text for sentence, text in zip(sentences, texts, strict=True))
    # German alone has multiword tokens that are written otherwise than their words, in 142 sentences.
    assert same == len(sentences) - (142 if "german" in name else 0)
    assert all(lines[sentence.line - 1].startswith("1") for sentence in sentences)


def gum(part):
    path = DATA / "ud_english_gum" / f"en_gum-ud-{part}.conllu"
    if not path.exists():
        pytest.skip(f"{path.name} is not in {path.parent}")
    return path


def entities(corpus):
    """The mentions of each entity of each document."""
    found = defaultdict(list)
    for index, document in enumerate(corpus.documents):
        for mention in document.mentions:
            found[index, mention.entity].append(mention)
    return found


def test_counts_on_gum():
    corpus = read_conllu([gum("dev")])
    found = entities(corpus)
    assert sum(len(mentions) for mentions in found.values()) == 7897
    assert len(found) == 3940
    assert sum(len(mentions) == 1 for mentions in found.values()) == 2838
    for document in corpus.documents:
        order = [(m.sentence, m.head, m.start, m.end, m.entity) for m in document.mentions]
        assert order == sorted(order)


def test_antecedents_within_128_words_on_gum():
    """How many mentions have an earlier mention of their entity so near that 128 words hold both ends.

    "Earlier" is by the position of the last word, and so is the distance: at most 127. That gives 3,509.
    By head words it is 3,508 (distance at most 127) or 3,511 (at most 128).
    """
    corpus = read_conllu([gum("dev")])
    near = Counter()
    for (index, _), mentions in entities(corpus).items():
        lengths = [len(sentence.words) for sentence in corpus.documents[index].sentences]
        starts = [sum(lengths[:number]) for number in range(len(lengths))]
        for name, places in (
            ("last", sorted(starts[m.sentence] + m.end - 1 for m in mentions)),
            ("head", sorted(starts[m.sentence] + m.head for m in mentions)),
        ):
            distances = [later - earlier for earlier, later in pairwise(places)]
            near[name, 127] += sum(distance <= 127 for distance in distances)
            near[name, 128] += sum(distance <= 128 for distance in distances)
    assert near["last", 127] == 3509
    assert (near["head", 127], near["head", 128]) == (3508, 3511)


def udapi_mentions(path):
    """Every mention by udapi: its key as ours, its words, its head after MoveHead, and GUM's minspan."""
    document_type = pytest.importorskip("udapi.core.document").Document
    move_head = pytest.importorskip("udapi.block.corefud.movehead").MoveHead()
    document = document_type()
    document.from_conllu_string(path.read_text(encoding="utf-8"))
    place, index, number = {}, -1, 0
    for tree in (tree for bundle in document for tree in bundle):
        if tree.newdoc:
            index, number = index + 1, 0
        place.update({node: (index, number, word) for word, node in enumerate(tree.descendants)})
        number += 1
    rows = []
    for mention in document.coref_mentions:
        move_head.process_coref_mention(mention)
        words = [place[node] for node in mention.words if node in place]
        entity = mention.entity.eid.split(".", 1)[1]
        minspan = mention.other["minspan"].replace("%2C", ",")
        key = (words[0][0], entity, words[0][1], tuple(word[2] for word in words))
        rows.append((key, place.get(mention.head, (0, 0, None))[2], minspan))
    return rows


@pytest.mark.parametrize("part", ["dev", "test"])
def test_same_mentions_and_heads_as_udapi(part):
    path = gum(part)
    rows = udapi_mentions(path)
    ours = {
        (index, entity, m.sentence, tuple(range(m.start, m.end))): m
        for (index, entity), mentions in entities(read_conllu([path])).items()
        for m in mentions
    }
    assert Counter(key for key, _, _ in rows) == Counter(list(ours))
    long = [(ours[key].head == head, key) for key, head, _ in rows if len(key[3]) > 1]
    single = [
        (ours[key].head == key[3][0] + int(minspan) - 1, key) for key, _, minspan in rows if minspan.isdigit()
    ]
    assert sum(same for same, _ in long) / len(long) >= 0.99
    # GUM sets minspan by rule: where a mention is no subtree it names the last top, not the first.
    assert sum(same for same, _ in single) / len(single) >= 0.99
    if part == "dev":
        assert (sum(same for same, _ in long), len(long)) == (4262, 4271)
        assert (sum(same for same, _ in single), len(single)) == (7115, 7163)
