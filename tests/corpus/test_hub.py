"""Datasets of the hub's kind, read from local folders as files of the same content are."""

import gc
import json
from dataclasses import replace
from functools import partial

import pytest

from headlens.corpus import hub as hub_corpus
from headlens.corpus.conllu import read_conllu
from headlens.corpus.hub import DatasetPlace, parse, seen_from, shown
from headlens.corpus.plain import read_plain
from headlens.corpus.read import read_files
from headlens.errors import CorpusError
from support import hubsets, planted, real
from support.refusals import refused

TEXT = "Mr. Elliot went away. He came\nback!\n\nWho knows? Nobody"


def bare(corpus):
    """A corpus but for what tells where it was read."""
    documents = [
        (document.name, [(s.words, s.sent_id) for s in document.sentences], document.mentions)
        for document in corpus.documents
    ]
    return documents, corpus.has_trees, corpus.has_entities, corpus.has_documents


def same_but_for_document_names(corpus):
    documents, *rest = bare(corpus)
    return [document[1:] for document in documents], rest


refusal = partial(refused, CorpusError, read_files)


def part_of(name, sentences):
    path = real.data(name)
    return "\n\n".join(path.read_text("utf-8").split("\n\n")[:sentences]) + "\n\n"


@pytest.fixture
def treebank(tmp_path):
    """Trees, multiword tokens, documents and coreference."""
    text = part_of("ud_english_gum/en_gum-ud-dev.conllu", 60)
    path = tmp_path / "file.conllu"
    path.write_text(text, encoding="utf-8")
    return text, read_conllu([path])


def test_a_treebank_in_parquet_is_what_its_file_is(treebank, tmp_path):
    text, expected = treebank
    hubsets.write_parquet(hubsets.treebank_rows(text), tmp_path / "set" / "validation.parquet")
    corpus = read_files(f"hub:{tmp_path / 'set'}")
    assert bare(corpus) == bare(expected)
    assert expected.has_entities
    assert expected.has_documents
    sentence = corpus.documents[0].sentences[2]
    assert (sentence.path, sentence.line) == (f"hub:{tmp_path / 'set'}::validation", 3)


def test_the_form_of_the_data_does_not_matter(treebank, tmp_path):
    text, _ = treebank
    rows = hubsets.treebank_rows(text)
    hubsets.write_parquet(rows, tmp_path / "a" / "data.parquet")
    hubsets.write_parquet(rows, tmp_path / "b" / "data.parquet", labelled=False)
    hubsets.write_jsonl(rows, tmp_path / "c" / "data.jsonl")
    one, two, three = (read_files(f"hub:{tmp_path / name}") for name in "abc")
    assert bare(one) == bare(two) == bare(three)
    assert one.sha256 == two.sha256 == three.sha256
    hubsets.write_jsonl(rows[:-1], tmp_path / "c" / "data.jsonl")
    assert read_files(f"hub:{tmp_path / 'c'}").sha256 != one.sha256


def test_multiword_tokens_among_the_words(tmp_path):
    text = part_of("ud_german_gsd/de_gsd-ud-dev.conllu", 80)
    path = tmp_path / "file.conllu"
    path.write_text(text, encoding="utf-8")
    expected = read_conllu([path])
    rows = hubsets.all_tokens_rows(text)
    hubsets.write_parquet(rows, tmp_path / "set" / "test.parquet")
    corpus = read_files(f"hub:{tmp_path / 'set'}")
    n_spans = sum("-" in line.split("\t")[0] for line in text.splitlines() if "\t" in line)
    assert n_spans > 5
    assert corpus.datasets[0].left_out == {hub_corpus.HEADLESS: n_spans}
    for (_, sentence), (_, right) in zip(corpus.sentences, expected.sentences, strict=True):
        # what such a dataset does not tell: which words a multiword token has, and so where blanks are
        assert [replace(word, space_after=True) for word in sentence.words] == [
            replace(word, space_after=True) for word in right.words
        ]


def test_words_alone(tmp_path):
    hubsets.write_jsonl(
        [
            {"tokens": ["A", "dog", "."], "ner_tags": [0, 1, 0]},
            {"tokens": [], "ner_tags": []},
            {"tokens": ["Yes", " "], "ner_tags": [0, 0]},
            {"tokens": ["Yes"], "ner_tags": [0]},
        ],
        tmp_path / "train.jsonl",
    )
    corpus = read_files(f"hub:{tmp_path}")
    assert [sentence.forms for _, sentence in corpus.sentences] == [["A", "dog", "."], ["Yes"]]
    assert (corpus.has_trees, corpus.has_documents, len(corpus.documents)) == (False, False, 1)
    assert corpus.datasets[0].left_out == {hub_corpus.NO_WORDS: 2}
    assert (corpus.datasets[0].rows, corpus.datasets[0].columns) == (4, ("tokens",))


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # left by some versions of the library
@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_running_text_is_read_as_plain_text_is(ending, tmp_path):
    texts = [TEXT, "", "One more.\r\nLine"]
    path = tmp_path / "set" / f"train.{ending}"
    hubsets.write_jsonl([{"label": 1, "text": text} for text in texts], path)
    if ending == "csv":
        path.write_text('label,text\n1,"' + '"\n1,"'.join(texts) + '"\n', encoding="utf-8", newline="")
    expected = []
    for number in (0, 2):
        file = tmp_path / f"set-{number + 1}.txt"
        file.write_bytes(texts[number].encode())
        expected.append(file)
    corpus, right = read_files(f"hub:{tmp_path / 'set'}"), read_plain(expected)
    assert [document[:2] for document in bare(corpus)[0]] == [document[:2] for document in bare(right)[0]]
    assert corpus.has_documents  # rows are texts of their own
    assert corpus.datasets[0].left_out == {hub_corpus.NO_WORDS: 1}
    assert [sentence.line for _, sentence in corpus.sentences] == [1, 1, 1, 1, 3, 3]
    gc.collect()


def test_a_folder_of_texts_is_what_its_files_are(tmp_path):
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    files[0].write_text("\ufeff" + TEXT, encoding="utf-8")
    files[1].write_text("Other\nlines.\n\n\nEnd.\n", encoding="utf-8")
    corpus, right = read_files(f"hub:{tmp_path}"), read_plain(files)
    assert bare(corpus) == bare(right)
    assert [s.line for _, s in corpus.sentences] == [s.line for _, s in right.sentences]


def test_text_is_parsed_where_it_is_asked_for(tmp_path, monkeypatch):
    from headlens.corpus import plain as spacy_parser
    from headlens.corpus.plain import split_sentences

    monkeypatch.setattr(spacy_parser, "load", lambda name: split_sentences)
    hubsets.write_jsonl([{"text": TEXT}], tmp_path / "a" / "x.jsonl")
    hubsets.write_jsonl([{"tokens": ["Yes"]}], tmp_path / "b" / "x.jsonl")
    assert read_files(f"hub:{tmp_path / 'a'}", "spacy:x").parser == "spacy:x"
    assert refusal(f"hub:{tmp_path / 'b'}", "spacy:x") == (
        "The parser spacy:x is for plain text (.txt), and there is none among the files. Leave --parser out, "
        "or name a .txt file."
    )


def test_columns_that_are_chosen(tmp_path):
    rows = [{"review": "Fine.", "w": ["A", "b"], "p": ["X", "X"], "h": [0, "1"], "r": ["root", "dep:x"]}]
    rows[0]["h"] = [0, 1]
    hubsets.write_jsonl(rows, tmp_path / "x.jsonl")
    place = f"hub:{tmp_path}"
    assert [s.text for _, s in read_files(place, columns=["review"]).sentences] == ["Fine."]
    assert [s.forms for _, s in read_files(place, columns=["w"]).sentences] == [["A", "b"]]
    tree = read_files(place, columns=["w", "p", "h", "r"])
    assert [(w.form, w.upos, w.head, w.deprel) for _, s in tree.sentences for w in s.words] == [
        ("A", "X", -1, "root"),
        ("b", "X", 0, "dep"),
    ]
    assert refusal(place) == (
        f"{place}::train has no column of text or words; it has: review, w, p, h, r. Known are text, "
        "sentence, content, document, tokens, words, form; choose another with --columns NAME."
    )
    assert refusal(place, columns=["w", "nix", "h", "r"]) == (
        f"{place}::train has no column 'nix'. It has: review, w, p, h, r."
    )
    assert "expected names for text or tokens,upos,head,deprel or" in refusal(place, columns=["w", "p"])


def test_columns_are_of_datasets(tmp_path):
    (tmp_path / "a.txt").write_text("Text.")
    assert refusal(tmp_path / "a.txt", columns=["text"]) == (
        "Columns are chosen of datasets, and there is none in the corpus. Name one, as "
        "hub:DATASET[:CONFIG[:SPLIT]]."
    )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"tokens": ["a", "b"], "head": [0], "deprel": ["root", "x"]},
         "row 2: expected 2 entries, one for each word, in the column head, found '1'."),
        ({"tokens": ["a"], "head": ["x"], "deprel": ["root"]},
         "row 2: expected whole numbers in the column head, found 'x'."),
        ({"tokens": ["a"], "head": ["0_0"], "deprel": ["root"]},
         "row 2: expected whole numbers in the column head, found '0_0'."),
        ({"tokens": ["a", "b"], "head": ["0", "7"], "deprel": ["root", "x"]},
         "row 2: expected a head from 0 to 2 as the sentence has a tree, found 7."),
        ({"tokens": ["a", "b"], "head": ["2", "1"], "deprel": ["x", "x"]},
         "row 2: expected a root (head 0) in the sentence, found none."),
    ],
)  # fmt: skip
def test_rows_that_are_no_trees(row, expected, tmp_path):
    fine = {"tokens": ["a"], "head": ["0"], "deprel": ["root"]}
    hubsets.write_parquet([fine, row], tmp_path / "x.parquet", labelled=False)
    assert expected in refusal(f"hub:{tmp_path}")


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # the library's, where reading stops
def test_words_that_are_no_list(tmp_path):
    (tmp_path / "x.csv").write_text("tokens,n\n\"['a']\",1\n")
    assert "has no column of text or words; it has: tokens, n." in refusal(f"hub:{tmp_path}")
    assert "row 1: expected a text in the column n, found '1'." in refusal(f"hub:{tmp_path}", columns=["n"])
    gc.collect()


def test_the_first_sentences(tmp_path, monkeypatch):
    monkeypatch.setattr(hub_corpus, "MOST", 4)
    hubsets.write_jsonl([{"text": f"One {i}. Two {i}. Three {i}."} for i in range(10)], tmp_path / "x.jsonl")
    place = f"hub:{tmp_path}"
    assert refusal(place) == (
        f"{place}::train has more than 4 sentences, which take long and much memory. Say how many of the "
        "first to read, as in --max-sentences 4."
    )
    corpus = read_files(place, max_sentences=5)
    assert [s.text for _, s in corpus.sentences] == ["One 0.", "Two 0.", "Three 0.", "One 1.", "Two 1."]
    assert (corpus.cut, corpus.datasets[0].rows) == (1, 2)  # the rest was never read
    (tmp_path / "y.txt").write_text("One. Two. Three. Four. Five. Six.")
    both = read_files([tmp_path / "y.txt", place], max_sentences=7)
    assert (both.cut, [s.text for _, s in both.sentences][5:]) == (8, ["Six.", "One 0."])
    (tmp_path / "x.jsonl").unlink()  # texts, too
    assert "more than 4 sentences" in refusal(place)
    assert len(list(read_files(place, max_sentences=6).sentences)) == 6


def test_a_beginning_keeps_its_mentions(treebank):
    _, corpus = treebank
    part = corpus.beginning(3)
    assert (len(part.documents), len(part.documents[0].sentences)) == (1, 3)
    assert part.documents[0].mentions == tuple(m for m in corpus.documents[0].mentions if m.sentence < 3)
    assert part.cut == 57
    assert corpus.beginning(1000) == corpus


def test_datasets_and_files_together(tmp_path):
    (tmp_path / "x.conllu").write_text("1\tHi\t_\t_\t_\t_\t0\troot\t_\t_\n")
    hubsets.write_jsonl([{"tokens": ["Yes"], "head": [0], "deprel": ["root"]}], tmp_path / "set" / "x.jsonl")
    place = f"hub:{tmp_path / 'set'}"
    corpus = read_files([tmp_path / "x.conllu", place])
    assert [s.forms for _, s in corpus.sentences] == [["Hi"], ["Yes"]]
    assert corpus.has_trees
    assert corpus.paths == (str(tmp_path / "x.conllu"), f"{place}::train")
    assert corpus.sha256 != read_files([place, tmp_path / "x.conllu"]).sha256
    assert len(corpus.datasets) == 1
    assert f"{place} is named twice" in refusal([place, place])


def test_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse("hub:imdb") == DatasetPlace("imdb")
    assert parse("hub:owner/name:en:test") == DatasetPlace("owner/name", "en", "test")
    assert parse("hub:owner/name@v1::test") == DatasetPlace("owner/name", None, "test", "v1")
    for text in ("hub:imdb", "hub:a/b:c", "hub:a/b::d", "hub:a/b@v1:c:d"):
        assert str(parse(text)) == text
        assert shown(text) == text
        assert seen_from(text, tmp_path) == text
    (tmp_path / "a:b").mkdir()
    assert parse("hub:a:b:c") == DatasetPlace("a:b", "c")
    (tmp_path / "set").mkdir()
    assert seen_from("hub:set:c:d", tmp_path) == f"hub:{tmp_path / 'set'}:c:d"
    assert shown(f"hub:{tmp_path / 'set'}::d") == "hub:set::d"
    assert refusal("hub:./nix:test") == (
        "Expected a folder or the id of a dataset in 'hub:./nix:test', and there is no folder './nix'. Type "
        "hub:DATASET[:CONFIG[:SPLIT]], such as hub:./my-data or hub:owner/name::test."
    )
    assert "too many colons" in refusal("hub:set:a:b:c")
    for text in ("hub:", "hub::x", "hub:a@", "hub:a b"):
        assert "Expected a folder or the id of a dataset" in refusal(text)


@pytest.mark.slow
def test_scores_are_the_same_bytes(tmp_path):
    from click.testing import CliRunner

    from headlens.cli import main

    planted.bert({0: planted.gold_arc(), 1: planted.same_entity()}).save_pretrained(tmp_path / "model")
    planted.tokenizer().save_pretrained(tmp_path / "model")
    text = planted.corpus_text(n_documents=12)
    (tmp_path / "text.conllu").write_text(text)
    hubsets.write_parquet(hubsets.treebank_rows(text), tmp_path / "set" / "validation.parquet")
    hubsets.write_parquet(hubsets.treebank_rows(text)[:3], tmp_path / "set" / "train.parquet")
    for name, corpus in (("file", tmp_path / "text.conllu"), ("dataset", f"hub:{tmp_path / 'set'}")):
        arguments = [tmp_path / "model", "--corpus", corpus, "--out", tmp_path / name, "--quiet"]
        done = CliRunner().invoke(main, ["classify", *map(str, arguments)])
        assert done.exit_code == 0, done.output
    assert "Read 84 rows of hub:" in done.stderr
    assert "coreference" in (tmp_path / "file" / "tags.csv").read_text()
    for table in ("scores.csv", "tags.csv"):
        assert (tmp_path / "file" / table).read_bytes() == (tmp_path / "dataset" / table).read_bytes()
    corpus = json.loads((tmp_path / "dataset" / "run.json").read_text())["corpus"]
    (origin,) = corpus["datasets"]
    assert corpus["files"] == ["hub:set::validation"]
    assert (origin["split"], origin["revision"], origin["rows"]) == ("validation", None, 84)
    assert origin["columns"] == [
        "tokens",
        "upos",
        "head",
        "deprel",
        "lemmas",
        "misc",
        "mwt",
        "comments",
        "sent_id",
    ]
    assert origin["sha256"] == corpus["sha256"]
