"""Whole documents as inputs: for tags that need no sentences, at any length that the model takes."""

from __future__ import annotations

import pandas as pd
import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import headlens
from headlens.cli import main
from headlens.corpus.inputs import window_inputs
from headlens.corpus.read import read_files
from headlens.errors import InputError
from headlens.scoring.classify import Sources
from headlens.scoring.passes import RunOptions
from support.families import build
from support.toytext import toy_text, toy_tokenizer

WHOLE = ["positional", "delimiter", "broad"]


def lens_of(family="llama"):
    return headlens.load(build(family), toy_tokenizer(()))


@pytest.fixture
def three(tmp_path):
    """A document of three sentences in paragraphs, and the same words as one sentence."""
    texts = [toy_text(n, n) for n in (7, 12, 9)]
    apart, joined = tmp_path / "apart.txt", tmp_path / "joined.txt"
    apart.write_text("\n\n".join(texts), encoding="utf-8")
    joined.write_text(" ".join(texts), encoding="utf-8")
    return apart, joined


def test_a_document_is_scored_as_one_long_sentence(three):
    apart, joined = three
    lens = lens_of()
    whole = headlens.classify(lens, apart, WHOLE, reading=RunOptions(documents=True))
    assert whole.run["inputs"] == {"documents": {"read": 1, "resampled": "1 windows", "left_out": {}}}
    pd.testing.assert_frame_equal(whole.scores, headlens.classify(lens, joined, WHOLE).scores)
    by_sentence = headlens.classify(lens, apart, WHOLE)
    assert by_sentence.run["inputs"]["sentences"]["read"] == 3
    counts = (found.scores.set_index("measure")["n"]["argmax@-5"].iloc[0] for found in (whole, by_sentence))
    assert tuple(counts) == (28 - 5, 2 + 7 + 4)


def test_a_longer_document_is_cut_between_sentences(three):
    found = headlens.classify(
        lens_of(), three[0], ["broad"], reading=RunOptions(max_length=20, documents=True)
    )
    assert found.run["inputs"]["documents"]["read"] == 2  # 7 and 12 words, then 9
    assert set(found.scores["n"]) == {18 + 8}  # a first token sees one key, and does not count


def test_other_tags_read_what_they_always_read(three):
    lens, reading = lens_of(), RunOptions(documents=True)
    tags = ["positional", "rare-token", "induction"]
    found = headlens.classify(lens, three[0], tags, reading=reading)
    assert {kind: facts["read"] for kind, facts in found.run["inputs"].items()} == {
        "documents": 1,
        "sentences": 3,
        "repeats": 32,
    }
    usual = headlens.classify(lens, three[0], tags).scores
    for tag in tags[1:]:
        mine, own = (x[x["tag"] == tag].reset_index(drop=True) for x in (found.scores, usual))
        pd.testing.assert_frame_equal(mine, own)


def test_an_encoder_reads_documents_but_targets_go_by_sentence(three):
    lens, reading = lens_of("bart"), RunOptions(documents=True)
    found = headlens.classify(lens, three[0], ["positional"], reading=reading)
    assert found.run["inputs"]["documents"]["read"] == 1
    targets = Sources(targets=three[0])
    with pytest.raises(InputError) as error:
        headlens.classify(lens, three[0], ["positional"], reading=reading, sources=targets)
    assert str(error.value) == (
        "Targets belong to sentences, so whole documents cannot be read beside them. Leave --targets or "
        "--inputs documents out."
    )


def test_sentences_that_have_more_pieces_side_by_side_are_parted(tmp_path):
    """Behind a blank "ab" is two pieces, else one: "ab ab" is three, but two such sentences are seven."""
    path = tmp_path / "five.txt"
    path.write_text("\n\n".join(["ab ab"] * 5), encoding="utf-8")
    inner = Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2, "\u0120": 3}, [("a", "b")]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    made = window_inputs(read_files(path), PreTrainedTokenizerFast(tokenizer_object=inner), 6)
    assert [len(item.encoded) for item in made.items] == [3] * 5
    assert not made.left_out
    assert made.n_units == 5


def test_the_command(three, tmp_path):
    lens = lens_of()
    lens.model.save_pretrained(tmp_path / "model")
    lens.tokenizer.save_pretrained(tmp_path / "model")
    out = tmp_path / "run"
    arguments = ["classify", str(tmp_path / "model"), "--corpus", str(three[0]), "--inputs", "documents"]
    done = CliRunner().invoke(main, [*arguments, "--tags", ",".join(WHOLE), "--out", str(out), "--quiet"])
    assert done.exit_code == 0, done.output
    assert "Scored on whole documents (1 input): positional, delimiter, broad." in done.output
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Positional, delimiter and broad heads were scored on whole documents (1 input)." in page
