from __future__ import annotations

import numpy as np
import pytest
import torch

import headlens
from headlens.ablation.gates import loss_without
from headlens.ablation.importance import estimate, integrated, per_example
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.language import Language
from headlens.benchmarks.registry import open_benchmark
from headlens.model.heads import Head
from support.carriers import (
    losses_of,
    rows,
    scaled,
)
from support.families import build
from support.toytext import toy_pairs, toy_text, toy_tokenizer, write_lines, write_pairs

ROUGH = ("llama", "bloom", "t5")  # compute some parts in float32, whatever the model's type
CAUSAL = ("gpt2", "llama", "bloom")
IDS = [[5, 9, 30], [17, 8, 22, 41, 6], [7, 12], [33, 9, 50, 12]]


def lens_of(family: str, dtype=torch.float32):
    options = {"frame": (), "mask": False} if family in CAUSAL else {}
    options["pad"] = 1 if family == "mpnet" else 0
    model = build(family).to(dtype)
    for module in model.modules():
        if isinstance(getattr(module, "act", None), torch.nn.ReLU):  # T5's: differences must meet no kink
            module.act = torch.nn.GELU()
    return headlens.load(model, toy_tokenizer(**options))


def opened(lens, path, kind="language", **options):
    if kind == "language":
        return open_benchmark(
            write_lines(path / "t.txt", 30), lens, BenchmarkOptions(max_length=14, **options)
        )
    return open_benchmark(write_pairs(path / "p.tsv", toy_pairs()), lens, BenchmarkOptions(**options))


@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("bert", "similarity"),
        ("bert", "language"),
        ("gpt2", "language"),
        ("llama", "language"),
        ("bloom", "language"),
        ("mpnet", "similarity"),
        ("t5", "similarity"),
    ],
)
def test_central_differences(tmp_path, family, kind):
    """Scaling columns of W_O by 1 +- h moves every example's loss by +- h times its gradient."""
    lens = lens_of(family, torch.float64)
    benchmark = opened(lens, tmp_path, kind)
    heads = [head for head in lens.anatomy.heads if head.stack in benchmark.stacks][1::3]
    found = per_example(lens, benchmark, heads)
    step, close = (1e-2, 1e-3) if family in ROUGH else (1e-5, 1e-5)
    for column, head in enumerate(heads):
        up, down = (losses_of(scaled(lens, head, 1 + sign * step), benchmark) for sign in (1, -1))
        expected = ((up - down) / (2 * step)).numpy()
        scale = np.abs(expected).max()
        assert scale > 1e-6
        np.testing.assert_allclose(found[:, column], expected, rtol=close, atol=close * scale)


def test_sites_that_share_a_module(tmp_path):
    """ALBERT runs one module at every layer: W_O cannot tell them apart, an edit can."""
    lens = lens_of("albert", torch.float64)
    benchmark = opened(lens, tmp_path)
    heads = lens.anatomy.heads
    found = per_example(lens, benchmark, heads)
    for column, head in enumerate(heads):
        ends = []
        for factor in (1 + 1e-5, 1 - 1e-5):

            def change(site, output, head=head, factor=factor):
                output = output.clone()
                if site.layer == head.layer:
                    output[:, :, head.head] *= factor
                return output

            with lens.edit(change):
                ends.append(losses_of(lens, benchmark))
        expected = ((ends[0] - ends[1]) / 2e-5).numpy()
        np.testing.assert_allclose(found[:, column], expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    assert len({tuple(np.round(found[:, i], 9)) for i in range(len(heads))}) == len(heads)


@pytest.mark.parametrize("family", ["bart", "t5"])
def test_all_stacks_of_an_encoder_decoder(family):
    lens = lens_of(family, torch.float64)
    benchmark = rows([0, 1, 2, 1], IDS)
    heads = lens.anatomy.select("encoder.0.1,decoder.1.2,cross.0.3")
    found = per_example(lens, benchmark, heads)
    step, close = (1e-2, 1e-3) if family in ROUGH else (1e-5, 1e-5)
    for column, head in enumerate(heads):
        up, down = (losses_of(scaled(lens, head, 1 + sign * step), benchmark) for sign in (1, -1))
        expected = ((up - down) / (2 * step)).numpy()
        np.testing.assert_allclose(
            found[:, column], expected, rtol=close, atol=close * np.abs(expected).max()
        )


@pytest.mark.parametrize("size", [1, 2, 4])
def test_opposite_gradients_do_not_cancel(size):
    """Four examples with gradients +1, -1, +1, -1, in four batches, two, and one: 1, not 0."""
    lens = lens_of("bert", torch.float64)
    head = Head("encoder", 1, 2)
    same = [IDS[1]] * 4
    unit = 1 / per_example(lens, rows([0], [IDS[1]]), [head])[0, 0]
    benchmark = rows([0, 1, 2, 3], same, factors=[unit, -unit, unit, -unit], size=size)
    np.testing.assert_allclose(per_example(lens, benchmark, [head])[:, 0], [1, -1, 1, -1], atol=1e-9)
    assert estimate(lens, benchmark, [head], "gradient").values == pytest.approx(1, abs=1e-9)
    assert estimate(lens, benchmark, [head], "taylor").values == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_rows_of_an_example_are_added_before_the_absolute_value(size):
    lens = lens_of("bert", torch.float64)
    alone = per_example(lens, rows([0, 1, 2, 3], IDS), lens.anatomy.heads)
    benchmark = rows([1, 0, 1, 1], IDS, size=size)
    expected = np.stack([alone[1], alone[0] + alone[2] + alone[3]])
    np.testing.assert_allclose(per_example(lens, benchmark, lens.anatomy.heads), expected, atol=1e-12)
    made = estimate(lens, benchmark, lens.anatomy.heads, "gradient")
    np.testing.assert_allclose(made.values, np.abs(expected).mean(axis=0), atol=1e-12)
    assert not np.allclose(made.values, np.abs(alone).sum(axis=0) / 2)


def test_windows_of_a_document_are_added_before_the_absolute_value():
    lens = lens_of("gpt2")
    texts = [[toy_text(5, 2 * i), toy_text(8, 2 * i + 1)] for i in range(10)]
    of = lambda parts: Language.of_texts("language:x", parts, lens, BenchmarkOptions(), {})  # noqa: E731
    windows = per_example(lens, of([[text] for pair in texts for text in pair]), lens.anatomy.heads)
    documents = per_example(lens, of(texts), lens.anatomy.heads)
    # the loss per token is a mean over 10 documents, or over 20 windows
    np.testing.assert_allclose(documents, windows.reshape(10, 2, -1).sum(axis=1) / 2, atol=1e-6)


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "similarity"), ("gpt2", "language"), ("mpnet", "language")]
)
def test_padding_and_batch_size_change_nothing(tmp_path, family, kind):
    lens = lens_of(family)
    expected = per_example(lens, opened(lens, tmp_path, kind, batch_size=1), lens.anatomy.heads)
    for size in (3, None):
        found = per_example(lens, opened(lens, tmp_path, kind, batch_size=size), lens.anatomy.heads)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_when_memory_runs_out_half_way(tmp_path):
    """The gates of the pass that failed are not those of the one that did not."""
    lens = lens_of("bert")
    expected = per_example(lens, opened(lens, tmp_path, "similarity"), lens.anatomy.heads)

    def limited(_, arguments):
        if len(arguments[0]) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")

    lens.model.bert.encoder.layer[1].register_forward_pre_hook(limited)
    with pytest.warns(UserWarning, match="Memory ran out"):
        found = per_example(lens, opened(lens, tmp_path, "similarity"), lens.anatomy.heads)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_half_precision_adds_up_in_full(tmp_path):
    lens, half = lens_of("bert"), lens_of("bert", torch.bfloat16)
    expected = per_example(lens, opened(lens, tmp_path), lens.anatomy.heads)
    found = per_example(half, opened(half, tmp_path), half.anatomy.heads)
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.99
    rounded = torch.from_numpy(found).bfloat16().double().numpy()
    assert np.mean(found == rounded) < 0.05  # gradients are not rounded to 8 bits


def test_standard_errors():
    lens = lens_of("bert", torch.float64)
    benchmark, heads = rows([0, 1, 2, 3], IDS), lens.anatomy.heads
    found = per_example(lens, benchmark, heads)
    made = estimate(lens, benchmark, heads, "taylor")
    np.testing.assert_allclose(made.values, -found.sum(axis=0) / 4)
    np.testing.assert_allclose(made.error, found.std(axis=0, ddof=1) / 2)
    assert np.isnan(estimate(lens, rows([0], IDS[:1]), heads, "gradient").error).all()


@pytest.mark.parametrize(
    ("family", "kind"), [("bert", "language"), ("bert", "similarity"), ("gpt2", "language")]
)
def test_integrated_gradients_add_up(tmp_path, family, kind):
    lens = lens_of(family)
    benchmark = opened(lens, tmp_path, kind)
    made = estimate(lens, benchmark, lens.anatomy.heads, "integrated")
    lost = made.facts["all_off"] - made.facts["all_on"]
    assert made.facts["sum"] == pytest.approx(made.values.sum(), abs=1e-12)
    assert made.facts["sum"] == pytest.approx(lost, rel=0.01)
    assert made.facts["steps"] == 32
    copied = lens  # both ends another way: columns of W_O are 0
    for head in lens.anatomy.heads:
        copied = scaled(copied, head, 0)
    assert losses_of(copied, benchmark).mean() == pytest.approx(made.facts["all_off"], abs=1e-6)
    assert losses_of(lens, benchmark).mean() == pytest.approx(made.facts["all_on"], abs=1e-6)


def test_integrated_gradient_of_one_head_is_what_removing_it_costs():
    lens = lens_of("bart", torch.float64)
    benchmark, head = rows([0, 1, 0, 2], IDS), Head("cross", 1, 1)
    found = integrated(lens, benchmark, [head], steps=64)[:, 0]
    lost = losses_of(scaled(lens, head, 0), benchmark) - losses_of(lens, benchmark)
    np.testing.assert_allclose(found, lost.numpy(), rtol=1e-3)
    assert loss_without(lens, benchmark, [head]) == pytest.approx(
        float(losses_of(scaled(lens, head, 0), benchmark).mean()), abs=1e-9
    )
