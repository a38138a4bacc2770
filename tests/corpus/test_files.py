"""Files and folders of every kind, read as one corpus."""

import hashlib
import os
import random

import pytest

from headlens.corpus.conll2012 import read_conll2012
from headlens.corpus.conllu import read_conllu
from headlens.corpus.read import FORMATS, read_files
from headlens.errors import CorpusError
from support.real import data
from support.refusals import refused

KNOWN = (
    "Known are .conllu (CoNLL-U), .conll (CoNLL-2012 or LitBank), _conll (CoNLL-2012 or LitBank), "
    ".txt (plain text)."
)
ENDINGS = "Name files that end in .conllu, .conll, _conll or .txt."
TREE = "# newdoc id = t\n1\tHi\t_\t_\t_\t_\t0\troot\t_\t_\n"
COREF = "#begin document (c); part 000\nc 0 0 He PRP * - - - - * (1)\n#end document\n"


@pytest.fixture
def folder(tmp_path):
    for name, text in {
        "b.conllu": TREE,
        "a.v4_gold_conll": COREF,
        "C.CONLL": COREF,
        "LICENSE.txt": "Free.",
        ".hidden.conllu": "no",
        "notes.md": "no",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "dir.conllu").mkdir()
    return tmp_path


def refusal(paths, folder, **options):
    return refused(CorpusError, read_files, paths, folder=folder, **options).replace(str(folder), "FOLDER")


def names(corpus):
    return [os.path.basename(path) for path in corpus.paths]  # noqa: PTH119


def test_a_folder(folder):
    corpus = read_files(folder)
    assert names(corpus) == ["C.CONLL", "a.v4_gold_conll", "b.conllu"]
    assert [document.name for document in corpus.documents] == ["c", "c", "t"]
    assert (corpus.has_trees, corpus.has_entities, corpus.has_documents) == (False, True, True)
    assert corpus.sha256 == hashlib.sha256((COREF + COREF + TREE).encode()).hexdigest()
    assert (corpus.parser, corpus.n_words) == (None, 3)


def test_plain_text_is_read_where_it_is_named_or_alone(folder):
    assert names(read_files([folder, folder / "LICENSE.txt"])) == [
        *names(read_files(folder)),
        "LICENSE.txt",
    ]
    alone = folder / "dir.conllu"
    for name in ("2.txt", "1.TXT"):
        (alone / name).write_text("Hello there.", encoding="utf-8")
    assert names(read_files(alone)) == ["1.TXT", "2.txt"]


def test_one_kind_is_what_its_reader_makes(folder):
    one = folder / "b.conllu"
    assert read_files(str(one)) == read_files([one]) == read_conllu([one])
    assert read_files(one).has_trees
    pair = [folder / "a.v4_gold_conll", folder / "C.CONLL"]
    assert read_files(pair) == read_conll2012(pair)


def test_kinds_may_alternate(folder):
    (folder / "d.conllu").write_text(TREE, encoding="utf-8")
    paths = [folder / name for name in ("d.conllu", "C.CONLL", "b.conllu")]
    corpus = read_files(paths)
    assert [document.name for document in corpus.documents] == ["t", "c", "t"]
    assert corpus.sha256 == hashlib.sha256((TREE + COREF + TREE).encode()).hexdigest()


def test_what_cannot_be_read_is_told(folder):
    empty = folder / "dir.conllu"
    assert refusal(folder / "no.conllu", folder) == (
        "Expected a corpus file or folder at no.conllu, found nothing. Check the path."
    )
    assert refusal(folder / "notes.md", folder) == f"notes.md: its ending tells no kind of corpus. {KNOWN}"
    assert refusal(empty, folder) == (
        f"Expected corpus files in the folder dir.conllu, found none. {ENDINGS}"
    )
    assert refusal([], folder) == (
        "Expected at least one corpus file, got none. Name one that ends in .conllu, .conll, _conll or .txt."
    )
    assert refusal([folder / "b.conllu", folder], folder) == (
        "b.conllu is named twice, and its sentences would count twice as evidence. Name every file once."
    )
    assert refusal(folder, folder, parser="spacy:x") == (
        "The parser spacy:x is for plain text (.txt), and there is none among the files. "
        "Leave --parser out, or name a .txt file."
    )


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read(folder):
    folder.chmod(0)
    try:
        assert refusal(folder, folder) == (
            "Expected to read FOLDER, but: Permission denied. Make the file or folder readable."
        )
    finally:
        folder.chmod(0o700)


def test_real_folders():
    corpus = read_files(data("litbank_coref"))
    assert len(corpus.documents) == len(corpus.paths) == 10
    corpus = read_files([data("winobias"), data("ud_english_gum")])
    assert (len(corpus.documents), len(corpus.paths)) == (4 * 396 + 30, 5)
    assert (corpus.has_trees, corpus.has_entities) == (False, True)
    assert len(read_files(data("gutenberg_plain")).documents) == 3


@pytest.mark.parametrize("ending", FORMATS)
def test_any_bytes_are_read_or_refused(tmp_path, ending):
    for seed in range(40):
        draw = random.Random(seed)
        text = bytearray((TREE + "\n" + COREF).encode() if seed % 2 else (COREF + TREE).encode())
        for _ in range(draw.randint(0, 5)):
            text[draw.randrange(len(text))] = draw.randrange(256)
        path = tmp_path / f"{seed}{ending}"
        path.write_bytes(bytes(text))
        try:
            corpus = read_files(path)
        except CorpusError:
            continue
        assert corpus.n_words > 0
