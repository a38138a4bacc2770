"""Silver trees from spaCy, by a tiny pipeline that has learned three sentences by heart."""

import sys

import pytest

from headlens.corpus.plain import read_plain
from headlens.corpus.read import read_files
from headlens.errors import CorpusError

LESSONS = [
    (["The", "dog", "barks", "."], [1, 2, 2, 2], ["det", "nsubj", "ROOT", "punct"], "DET NOUN VERB PUNCT"),
    (["She", "saw", "him", "."], [1, 1, 1, 1], ["nsubj", "ROOT", "dobj", "punct"], "PRON VERB PRON PUNCT"),
    (
        ["Dogs", "like", "old", "cats", "!"],
        [1, 1, 3, 1, 1],
        ["nsubj", "ROOT", "amod:x", "dobj", "punct"],
        "NOUN VERB ADJ NOUN PUNCT",
    ),
]


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    spacy = pytest.importorskip("spacy")
    from spacy.tokens import Doc
    from spacy.training import Example

    spacy.util.fix_random_seed(0)
    nlp = spacy.blank("en")
    nlp.add_pipe("morphologizer")
    nlp.add_pipe("parser", config={"min_action_freq": 1})
    examples = []
    for first, second in [(a, b) for a in LESSONS for b in LESSONS]:
        words = first[0] + second[0]
        doc = Doc(
            nlp.vocab,
            words,
            heads=first[1] + [len(first[0]) + head for head in second[1]],
            deps=first[2] + second[2],
            pos=[*first[3].split(), *second[3].split()],
        )
        examples.append(Example(nlp.make_doc(doc.text), doc))
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(25):
        nlp.update(examples, sgd=optimizer)
    path = tmp_path_factory.mktemp("spacy") / "tiny"
    nlp.to_disk(path)
    return path


def write(folder, text):
    path = folder / "story.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_sentences_trees_and_lines(tmp_path, pipeline):
    path = write(tmp_path, "The dog\nbarks. She saw him.\n\nDogs like  old cats!\n")
    corpus = read_plain([path], f"spacy:{pipeline}")
    (document,) = corpus.documents
    assert [(s.line, s.text) for s in document.sentences] == [
        (1, "The dog barks."),
        (2, "She saw him."),
        (4, "Dogs like old cats!"),
    ]
    for sentence, (forms, heads, relations, tags) in zip(document.sentences, LESSONS, strict=True):
        assert sentence.forms == forms
        roots = [-1 if head == index else head for index, head in enumerate(heads)]
        assert [word.head for word in sentence.words] == roots
        assert [word.deprel for word in sentence.words] == [name.partition(":")[0] for name in relations]
        assert [word.upos for word in sentence.words] == tags.split()
        assert sentence.has_tree
    assert (corpus.has_trees, corpus.parser, corpus.has_entities) == (True, f"spacy:{pipeline}", False)


def test_a_long_text_is_parsed_in_chunks(tmp_path, pipeline, monkeypatch):
    import spacy

    nlp, longest = spacy.load(pipeline), 0

    def pipe(texts, batch_size):
        def watched():
            nonlocal longest
            for text in texts:
                longest = max(longest, len(text))
                yield text

        return type(nlp).pipe(nlp, watched(), batch_size=batch_size)

    monkeypatch.setattr(nlp, "pipe", pipe)
    monkeypatch.setattr(spacy, "load", lambda name: nlp)
    corpus = read_plain([write(tmp_path, "The dog barks. She saw him. " * 1250)], "spacy:tiny")
    assert corpus.n_words == 10_000
    assert longest <= 5_000


def test_silver_beside_gold(tmp_path, pipeline):
    gold = tmp_path / "gold.conllu"
    gold.write_text("1\tHi\t_\t_\t_\t_\t0\troot\t_\t_\n", encoding="utf-8")
    corpus = read_files([gold, write(tmp_path, "The dog barks.")], f"spacy:{pipeline}")
    assert (corpus.has_trees, corpus.parser) == (True, f"spacy:{pipeline}")


def test_pipelines_that_cannot_parse(tmp_path):
    spacy = pytest.importorskip("spacy")
    path, blank = write(tmp_path, "The dog barks."), tmp_path / "blank"
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.to_disk(blank)
    with pytest.raises(CorpusError) as caught:
        read_plain([path], f"spacy:{blank}")
    assert str(caught.value) == (
        f"The spaCy pipeline {str(blank)!r} has no parser: it sets no dependencies. "
        "Name one that has; this one has: sentencizer."
    )
    with pytest.raises(CorpusError) as caught:
        read_plain([path], "spacy:no_such_pipeline")
    assert str(caught.value) == (
        "The spaCy pipeline 'no_such_pipeline' cannot be loaded: [E050] Can't find model 'no_such_pipeline'. "
        "Install it (as in python -m spacy download en_core_web_sm), or name the directory of one."
    )
    with pytest.raises(CorpusError, match=r"^The spaCy pipeline 'numpy' cannot be loaded: "):
        read_plain([path], "spacy:numpy")


def test_without_spacy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(CorpusError) as caught:
        read_plain([write(tmp_path, "The dog barks.")], "spacy:en_core_web_sm")
    assert str(caught.value) == (
        "The parser spacy:en_core_web_sm needs spaCy, which is not installed. "
        "Type: pip install 'headlens[spacy]'"
    )
