"""Likeness of what heads write, against definitions written out."""

import numpy as np
import pytest
import torch

import headlens
from headlens.corpus.batches import make_batches
from headlens.scoring.passes import RunOptions
from headlens.similarity import measure as cka
from headlens.similarity.measure import Sample, by_head, compare_heads, linear_cka, written
from support import families, toys
from support.handmade import item


def naive(one, other):
    """Kornblith et al. 2019, by the Gram matrices of centred features [token, feature]."""
    one, other = (side - side.mean(0) for side in (one, other))
    k, m = one @ one.T, other @ other.T
    return (k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum())


def centred(*sides):
    return torch.stack([torch.as_tensor(side - side.mean(0)) for side in sides])


def test_equal_rotated_and_unrelated_outputs():
    rng = np.random.default_rng(0)
    one = rng.normal(size=(50, 4))
    turn, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    apart = np.zeros((50, 4))
    apart[:, 0] = rng.normal(size=50)
    basis, _ = np.linalg.qr(one - one.mean(0))
    apart -= apart.mean(0)
    apart -= basis @ (basis.T @ apart)  # uncorrelated with every feature
    silent = np.full((50, 4), np.nan)
    found = linear_cka([centred(one, one, 3 * one @ turn, apart, silent)]).numpy()
    assert found[0, 1] == pytest.approx(1, abs=1e-14)
    assert found[0, 2] == pytest.approx(1, abs=1e-14)
    assert found[0, 3] == pytest.approx(0, abs=1e-14)
    assert np.isnan(found[4]).all()
    assert not np.isnan(found[:4, :4]).any()


@pytest.mark.parametrize("columns", [1, 7, 2048])
def test_pieces_change_nothing(monkeypatch, columns):
    monkeypatch.setattr(cka, "COLUMNS", columns)
    rng = np.random.default_rng(1)
    parts = [rng.normal(size=(3, 20, 5)), rng.normal(size=(2, 20, 4))]
    found = linear_cka([centred(*part) for part in parts]).numpy()
    flat = [side for part in parts for side in part]
    expected = [[naive(a, b) for b in flat] for a in flat]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_few_tokens_mislead_as_the_docstring_says():
    rng = np.random.default_rng(2)
    found = linear_cka([centred(rng.normal(size=(40, 40)), rng.normal(size=(40, 40)))])
    assert found[0, 1] == pytest.approx(40 / 80, abs=0.05)


def items(lengths=(9, 4, 6)):
    made = [item([("x", -1, "root")] * (length - 2), unit=n) for n, length in enumerate(lengths)]
    for number, one in enumerate(made):
        one.encoded.inputs["input_ids"] = [3 + (7 * number + 5 * n) % 50 for n in range(len(one.encoded))]
    return made


FAMILIES = ["bert", "gpt2", "llama", "albert", "gemma3", "gpt_oss", "bloom", "gpt_neo", "deberta_v2", "t5"]


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_against_outputs_written_out(name, left):
    """With every head's c = z W_O, for plain, grouped and hooked families."""
    lens = headlens.load(families.build(name), toys.word_tokenizer())
    sites = [site for site in lens.anatomy.sites if site.stack != "cross"]
    sites = [site for site in sites if site.stack == sites[0].stack]
    heads = {site: list(range(site.n_heads)) for site in sites}
    made = items()
    found = compare_heads(lens, heads, made, 0.0, RunOptions(batch_size=2, pad_left=left))
    assert found.n_tokens == 19
    outputs = {site: [] for site in sites}

    def note(site, output):
        if site in outputs:
            outputs[site].append(output[0])
        return output

    with torch.no_grad(), lens.edit(note):
        for one in made:
            inputs = {"input_ids": torch.tensor([one.encoded.inputs["input_ids"]])}
            if name == "t5":
                inputs["decoder_input_ids"] = torch.zeros(1, 1, dtype=torch.long)
            lens.run(inputs)
    flat = []
    for part in lens.anatomy.parts:
        if part.site in outputs:
            weight = lens.model.get_submodule(part.projections.output).weight.detach()
            weight = weight if name == "gpt2" else weight.T  # [in, out]
            z = torch.cat(outputs[part.site]).double()  # [token, head, width]
            for head, rows in enumerate(weight.double().split(part.site.head_width)):
                flat.append((z[:, head] @ rows).numpy())
    expected = [[naive(a, b) for b in flat] for a in flat]
    np.testing.assert_allclose(found.cka, expected, atol=2e-5)
    assert np.allclose(np.diag(found.cka), 1)


def test_the_sample_is_evenly_spread_and_small(monkeypatch):
    lens = toys.family("bert")
    heads = by_head(lens.anatomy.sites, lens.anatomy.heads)
    made = items((30, 30, 30))
    monkeypatch.setattr("headlens.similarity.measure.MOST_TOKENS", 9)
    sample = Sample(made, heads)
    assert sample.n_tokens == 9
    assert [[p for _, p in sample._wanted[id(one)]] for one in made] == [[5, 15, 25]] * 3
    monkeypatch.setattr("headlens.similarity.measure.BYTES", 4 * 64 * 5)  # 8 heads of width 8
    assert Sample(made, heads).n_tokens == 5


def test_a_head_that_writes_nothing_and_a_layer_that_is_not_plain():
    lens = toys.family("bert")
    value = lens.model.base_model.encoder.layer[0].attention.self.value
    with torch.no_grad():
        value.weight[8:16] = 0  # head 1: its bias alone, the same at every token

    class Wrapped(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x).round(decimals=1)

    lens.model.base_model.encoder.layer[1].attention.output.dense.__class__ = Wrapped
    heads = by_head(lens.anatomy.sites, lens.anatomy.heads)
    found = compare_heads(lens, heads, items(), 0.0, RunOptions())
    known = ~np.isnan(found.cka)
    assert known.sum() == 9
    assert known[np.ix_([0, 2, 3], [0, 2, 3])].all()
    assert [str(site) for site in found.unknown] == ["encoder.1"]
    assert not np.isnan(found.js).any()


def test_batches_do_not_change_the_sample():
    lens = toys.family("bert")
    heads = by_head(lens.anatomy.sites, lens.anatomy.heads)
    made, taken = items(), []
    for size in (1, 3):
        sample = Sample(made, heads)
        for batch in make_batches(made, 0, size):
            sample.begin(batch)
            with torch.inference_mode(), lens.edit(sample.note):
                lens.run(batch.inputs)
        taken.append(torch.cat(written(lens, sample)[0]))
    torch.testing.assert_close(*taken, atol=1e-5, rtol=0)
