"""LitBank beside its text and original annotation, and WinoBias beside plain counts."""

import re
from collections import Counter

import pytest

from headlens.corpus.conll2012 import read_conll2012
from support.real import data

LITBANK = [
    "1023_bleak_house_brat",
    "105_persuasion_brat",
    "11_alices_adventures_in_wonderland_brat",
    "1342_pride_and_prejudice_brat",
    "1661_the_adventures_of_sherlock_holmes_brat",
    "215_the_call_of_the_wild_brat",
    "24_o_pioneers_brat",
    "345_dracula_brat",
    "36_the_war_of_the_worlds_brat",
    "76_adventures_of_huckleberry_finn_brat",
]
WINOBIAS = [f"dev_type{kind}_{side}_stereotype.v4_auto_conll" for kind in (1, 2) for side in ("pro", "anti")]


@pytest.mark.parametrize("name", LITBANK)
def test_litbank(name):
    """Words beside the text file, and spans and kinds beside the original annotation (.ann)."""
    corpus = read_conll2012([data(f"litbank_coref/{name}.conll")])
    (document,) = corpus.documents
    text = data(f"litbank_coref/{name}.txt").read_text(encoding="utf-8")
    forms = [word.form for _, sentence in corpus.sentences for word in sentence.words]
    assert "".join(forms) == "".join(text.split())
    places, end = [], 0
    for form in forms:
        places.append((text.index(form, end), text.index(form, end) + len(form)))
        end = places[-1][1]
    lines = data(f"litbank_coref/{name}.ann").read_text(encoding="utf-8").splitlines()
    marked = [re.fullmatch(r"\S+\t(PROP|NOM|PRON)_[A-Z]{3} (\d+) (\d+)\t.*", line) for line in lines]
    gold = {(int(found[2]), int(found[3])): found[1] for found in marked if found}
    first = {0: 0}
    for index, sent in enumerate(document.sentences):
        first[index + 1] = first[index] + len(sent.words)
    right = 0
    for mention in document.mentions:
        start, stop = (first[mention.sentence] + place for place in (mention.start, mention.end - 1))
        kind = gold[places[start][0], places[stop][1]]
        right += mention.kind == {"PROP": "proper", "NOM": "nominal", "PRON": "pronoun"}[kind]
    assert len(document.mentions) == len(gold)
    assert right / len(gold) > 0.9
    entities = Counter(mention.entity for mention in document.mentions)
    column = "".join(line.rpartition("\t")[2] + "|" for line in open_lines(name))
    assert sum(entities.values()) == column.count("(")
    assert entities == Counter(re.findall(r"\((\d+)", column))


def open_lines(name):
    text = data(f"litbank_coref/{name}.conll").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("name", WINOBIAS)
def test_winobias(name):
    path = data(f"winobias/{name}")
    corpus = read_conll2012([path])
    text = path.read_text(encoding="utf-8")
    assert len(corpus.documents) == text.count("#begin document") == 396
    assert all(len(document.sentences) == 1 for document in corpus.documents)
    assert corpus.n_words == len([line for line in text.splitlines() if line.startswith("nw/")])
    mentions = [(document, mention) for document in corpus.documents for mention in document.mentions]
    assert len(mentions) == len(re.findall(r"\(\d+\)?$|\(\d+\)?\|", text, re.MULTILINE))
    for document, mention in mentions:
        words = document.sentences[0].words
        assert mention.head == mention.end - 1  # "the developer", "the construction worker"
        assert (mention.kind == "proper") == (words[mention.head].form == "CEO")  # as there is no tag
    pronouns = re.findall(r"\t(he|she|his|her|him|hers)\t.*\(\d+\)", text, re.IGNORECASE)
    assert sum(m.kind == "pronoun" for _, m in mentions) == len(pronouns)
