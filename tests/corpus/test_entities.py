"""Reading mentions from Entity marks, by hand-made cases, on GUM, and beside udapi."""

import pytest

from headlens.corpus.conllu import read_conllu
from headlens.corpus.corpus import Corpus, Mention
from headlens.errors import CorpusError
from support.refusals import refused

CORPUS_UD = "eid-etype-head-other"
GUM = "GRP-etype-infstat-salience-centering-minspan-link-identity"
PARTS = "Number the parts of a discontinuous mention from 1, all in one sentence, as in e1[1/2] and e1[2/2]."


def row(number, head="_", entity="", upos="NOUN", misc=""):
    marks = "|".join(item for item in (f"Entity={entity}" if entity else "", misc) if item) or "_"
    return "\t".join([str(number), "w", "_", upos, "_", "_", str(head), "_", "_", marks]) + "\n"


def sentence(*entities, fields="", heads=None, upos=None):
    """A sentence with one Entity value a word; without heads, every word hangs on the next."""
    heads = heads or [*range(2, len(entities) + 1), 0]
    upos = upos or ["NOUN"] * len(entities)
    words = zip(heads, entities, upos, strict=True)
    header = f"# global.Entity = {fields}\n" if fields else ""
    return header + "".join(row(i, *word) for i, word in enumerate(words, start=1)) + "\n"


def read(folder, text) -> Corpus:
    path = folder / "dev.conllu"
    path.write_text(text, encoding="utf-8")
    return read_conllu([path])


def spans(folder, text):
    (document,) = read(folder, text).documents
    return [(m.entity, m.sentence, m.start, m.end, m.head) for m in document.mentions]


def refusal(folder, text):
    return refused(CorpusError, read, folder, text, folder=folder)


def test_stated_head_and_kind(tmp_path):
    text = sentence(
        "(e1-person-2-a:b-c",
        "",
        "e1)(e2-x-1)",
        "(e3-x-1)",
        fields=CORPUS_UD,
        upos=["DET", "PROPN", "NOUN", "PRON"],
    )
    corpus = read(tmp_path, text)
    assert corpus.documents[0].mentions == (
        Mention("e1", 0, 0, 3, 1, "proper"),
        Mention("e2", 0, 2, 3, 2, "nominal"),
        Mention("e3", 0, 3, 4, 3, "pronoun"),
    )
    assert corpus.has_entities
    assert not read(tmp_path, sentence("", fields=CORPUS_UD)).has_entities


def test_nested_crossing_and_many_at_once(tmp_path):
    text = sentence("(7-a-2(3-a-1)", "(8-a-1", "7)", "(7-a-2(7-a-1)", "7)8)", fields=CORPUS_UD)
    assert spans(tmp_path, text) == [
        ("3", 0, 0, 1, 0),
        ("7", 0, 0, 3, 1),
        ("8", 0, 1, 5, 1),
        ("7", 0, 3, 4, 3),
        ("7", 0, 3, 5, 4),
    ]


def test_same_entity_closes_the_inner_mention_first(tmp_path):
    text = sentence("(1-a-3(1-a-2", "1)", "1)", fields=CORPUS_UD)
    assert spans(tmp_path, text) == [("1", 0, 0, 2, 1), ("1", 0, 0, 3, 2)]


def test_gum_marks_take_the_head_from_the_tree(tmp_path):
    text = sentence(
        "(61-person-giv:act-snsnn-cf3-1,2,5-coref-John_F-G%2C_2nd_%28Earl%29",
        "61)(4-abstract-new-nnnnn-cf4-2-sgl)",
        "(7-x-new-n-cf1-1-sgl(8-x-new-n-cf1-1-sgl",
        "",
        "8)7)",
        fields=GUM,
        heads=[0, 1, 5, 3, 1],
    )
    assert spans(tmp_path, text) == [
        ("61", 0, 0, 2, 0),
        ("4", 0, 1, 2, 1),
        ("7", 0, 2, 5, 4),
        ("8", 0, 2, 5, 4),
    ]


@pytest.mark.parametrize(
    ("heads", "upos", "head"),
    [
        ([2, 4, 4, 0], "NOUN NOUN NOUN NOUN", 1),  # words 1-3 hang on 4: 2 and 3 are tops, the first is taken
        ([4, 3, 4, 0], "PUNCT NOUN NOUN NOUN", 2),  # an opening quote is no head
        ([4, 4, 4, 0], "PUNCT PUNCT PUNCT NOUN", 0),  # unless there is nothing else
        ([3, 1, 0, 3], "NOUN NOUN NOUN NOUN", 2),  # the root is a top, too
    ],
)
def test_the_topmost_word(tmp_path, heads, upos, head):
    text = sentence("(1", "", "1)", "", fields="GRP", heads=heads, upos=upos.split())
    assert spans(tmp_path, text) == [("1", 0, 0, 3, head)]


def test_missing_head_value_falls_back_to_the_tree(tmp_path):
    text = sentence("(1-a--x", "", "1)(2", "2)", fields=CORPUS_UD, heads=[2, 0, 2, 3])
    assert spans(tmp_path, text) == [("1", 0, 0, 3, 1), ("2", 0, 2, 4, 2)]


def test_old_order_with_the_type_before_the_id(tmp_path):
    text = sentence("(person-1-new", "person-1)", fields="entity-GRP-infstat")
    assert spans(tmp_path, text) == [("1", 0, 0, 2, 1)]


def test_discontinuous(tmp_path):
    text = sentence("(1[1/2]-a-3", "1[1/2])", "(2-a-1)", "(1[2/2]-a-3", "1[2/2])", fields=CORPUS_UD)
    assert spans(tmp_path, text) == [("2", 0, 2, 3, 2), ("1", 0, 0, 5, 3)]
    words = ["(1[1/3])", "(1[1/2])", "(1[2/3])", "", "(1[2/2])(1[3/3])"]
    by_tree = sentence(*words, fields="GRP", heads=[3, 5, 4, 0, 4])
    assert spans(tmp_path, by_tree) == [("1", 0, 0, 5, 2), ("1", 0, 1, 5, 4)]


def test_multiword_token_line(tmp_path):
    text = (
        "# global.Entity = eid-head\n"
        + row("1-2", entity="(1-2(4-1)")
        + row(1, 2)
        + row(2, 5, "(3-2")
        + row("3-4", entity="1)(5-2")
        + row(3, 4, "(2-1")
        + row(4, 2, "2)3)", misc="SpaceAfter=No")
        + row(5, 0, "5)")
    )
    assert spans(tmp_path, text) == [
        ("4", 0, 0, 2, 0),
        ("1", 0, 0, 4, 1),
        ("3", 0, 1, 4, 2),
        ("2", 0, 2, 4, 2),
        ("5", 0, 2, 5, 3),
    ]


def test_empty_nodes_count_for_the_head_but_are_no_words(tmp_path):
    text = (
        "# global.Entity = eid-head\n"
        + row("0.1", entity="(1-3(2-1)")
        + row(1, 0)
        + row(2, 1, "1)(3-2")
        + row("2.1", entity="3)(4-1")
        + row(3, 1, "4)")
    )
    assert spans(tmp_path, text) == [("1", 0, 0, 2, 1), ("3", 0, 1, 2, 1), ("4", 0, 2, 3, 2)]


def test_ids_start_anew_in_every_document(tmp_path):
    one = sentence("(1)", fields="GRP") + sentence("(1)")
    corpus = read(tmp_path, "# newdoc id = a\n" + one + "# newdoc id = b\n" + sentence("", "(1)"))
    assert [(d.name, [(m.entity, m.sentence, m.start) for m in d.mentions]) for d in corpus.documents] == [
        ("a", [("1", 0, 0), ("1", 1, 0)]),
        ("b", [("1", 0, 1)]),
    ]


def test_other_attributes_are_no_marks(tmp_path):
    text = row(1, 0, misc="NamedEntity=(1|Bridge=2<3")
    assert not read(tmp_path, text).has_entities


BALANCE = "Balance the parentheses; write %28 and %29 for those that belong to a name."
SHAPES = "expected Entity marks such as `(e1-person-1`, `e1)` or `(e1-person-1)`"
BROKEN = [
    (
        sentence("(1", "", fields="eid"),
        "line 2: expected the mention of entity '1' to be closed in its sentence, found the sentence's end. "
        "Add `1)` to the mention's last word; a mention cannot cross into the next sentence.",
    ),
    (
        sentence("(1", "(2)", fields="eid") + sentence("1)"),
        "line 2: expected the mention of entity '1' to be closed in its sentence, found the sentence's end. "
        "Add `1)` to the mention's last word; a mention cannot cross into the next sentence.",
    ),
    (
        sentence("", "1)", fields="eid"),
        "line 3: expected an open mention of entity '1' to close, found none. "
        "Add the opening mark `(1` in the same sentence, or remove `1)`.",
    ),
    (
        sentence("(1-a)", fields="eid-etype") + sentence("(-a)"),
        "line 4: expected an entity id as field 1 of the mark '(-a)', found none. "
        "Give the id, or correct the order of the fields in `# global.Entity`.",
    ),
    (
        sentence("(a)", fields="etype-eid"),
        "line 2: expected an entity id as field 2 of the mark '(a)', found none. "
        "Give the id, or correct the order of the fields in `# global.Entity`.",
    ),
    (sentence("1", fields="eid"), f"line 2: {SHAPES}, found '1'. {BALANCE}"),
    (sentence("(1)x(2)", fields="eid"), f"line 2: {SHAPES}, found '(1)x(2)'. {BALANCE}"),
    (sentence("(1-a(b))", fields="eid-x"), f"line 2: {SHAPES}, found '(1-a(b))'. {BALANCE}"),
    (
        sentence("(1)"),
        "line 1: expected a `# global.Entity` line before any Entity mark, found none. "
        "Add one that names the fields, such as `# global.Entity = eid-etype-head-other`.",
    ),
    (
        sentence("(1)", fields="etype-head"),
        "line 1: expected a field `eid` or `GRP` in global.Entity, found 'etype-head'. "
        "Name the field that holds the entity id, as in `# global.Entity = eid-etype-head-other`.",
    ),
    (
        sentence("(1-x)", fields="eid-head"),
        "line 2: expected the head's place among the mention's words, counted from 1, in the mark '(1-x)', "
        "found 'x'. Correct the head, or the order of the fields in `# global.Entity`.",
    ),
    (
        sentence("(1-3", "1)", fields="eid-head"),
        "line 2: expected a head from 1 to 2, the length of this mention of entity '1', found 3. "
        "Count the head within the mention's own words.",
    ),
    (
        sentence("(1", "1)", fields="eid", heads=["_", "_"]),
        "line 2: expected a head field or a tree to tell the head of this mention of entity '1', "
        "found neither. State a head field in `# global.Entity` and fill it, or parse the file first.",
    ),
    (
        sentence("(1[2/2])", fields="eid"),
        f"line 2: for the mark '1[2/2]' expected part 1 of 2 before it, found none. {PARTS}",
    ),
    (
        sentence("(1[1/2])", "(1[1/2])", "(1[2/2])", fields="eid"),
        f"line 2: for the mark '1[1/2]' expected part 2 of 2 after it, found none. {PARTS}",
    ),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_broken_marks(tmp_path, text, message):
    assert refusal(tmp_path, text) == f"dev.conllu, {message}"
