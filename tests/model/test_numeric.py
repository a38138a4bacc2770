"""Models that compute with what is no number are refused, by the name of the first head."""

from __future__ import annotations

import pytest
import torch
from click.testing import CliRunner

import headlens
from headlens.cli import main
from headlens.corpus.read import read_files
from headlens.errors import ModelError
from support import families
from support.toytext import toy_pairs, toy_tokenizer, write_pairs

REMEDY = "Try --dtype float32 (float16 overflows easily), or another checkpoint."
REFUSED = (
    "The attention of head encoder.1.1 holds NaN or an infinite number: the model's weights or activations "
    "are not numbers. " + REMEDY
)
CONLLU = "1\tdog\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tbarks\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"


def broken(where, row=5):
    model = families.build("bert").bert
    with torch.no_grad():
        model.get_submodule(where).weight[row] = float("nan")
    return headlens.load(model, toy_tokenizer())


def query(model):
    """Head 1 of layer 1 asks for NaN."""
    return broken("encoder.layer.1.attention.self.query", model)


def lens():
    model = families.build("bert").bert
    width = model.config.hidden_size // model.config.num_attention_heads
    return query(width)


def test_maps():
    with pytest.raises(ModelError) as refused:
        lens().attention("the dog")
    assert str(refused.value) == REFUSED
    with pytest.raises(ModelError, match=r"head encoder\.1\.1 holds NaN"):
        headlens.view.maps.attention_maps(lens(), "the dog", heads="1.0")


def test_values_that_are_not_numbers():
    with pytest.raises(ModelError, match=r"The values of head encoder\.1\.0 hold NaN or an infinite number"):
        broken("encoder.layer.1.attention.self.value", 0).attention("the dog")


def test_classify(tmp_path):
    (tmp_path / "a.conllu").write_text(CONLLU * 3)
    with pytest.raises(ModelError) as refused:
        headlens.classify(lens(), read_files(tmp_path / "a.conllu"), ["delimiter"])
    assert str(refused.value) == REFUSED


@pytest.mark.parametrize("sweep", ["each", "cumulative"])
def test_ablate_keeps_nothing_of_it(tmp_path, sweep):
    spec = write_pairs(tmp_path / "p.tsv", toy_pairs())
    with pytest.raises(ModelError) as refused:
        headlens.sweep(lens(), spec, sweep, heads="0.*", out=tmp_path / "run")
    assert str(refused.value) == (
        "The model's weight encoder.layer.1.attention.self.query.weight holds NaN or an infinite number. "
        + REMEDY
    )
    assert not list((tmp_path / "run").rglob("baseline*"))


def test_the_command_says_it_in_one_line(tmp_path):
    model = lens()
    model.model.save_pretrained(tmp_path / "m")
    model.tokenizer.save_pretrained(tmp_path / "m")
    for ending in ("html", "csv", "png"):
        out = tmp_path / f"a.{ending}"
        done = CliRunner().invoke(main, ["view", str(tmp_path / "m"), "the dog", "--out", str(out)])
        assert (done.exit_code, done.stderr) == (1, f"Error: {REFUSED}\n")
        assert not out.exists()
