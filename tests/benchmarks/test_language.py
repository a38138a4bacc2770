from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import transformers

import headlens
from headlens.ablation.sweep import sweep
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.language import windows
from headlens.benchmarks.registry import open_benchmark, sample_benchmark
from headlens.errors import InputError, ModelError
from support import toys
from support.families import build
from support.toytext import toy_text, toy_tokenizer, write_lines

CAUSAL = ["gpt2", "llama", "gpt_neox", "bloom", "mistral"]
MASKED = ["bert", "roberta", "modernbert", "deberta_v2"]
FRAMES = {"none": (), "bos": ("[CLS]",), "both": ("[CLS]", "[SEP]")}


@torch.no_grad()
def loss_by_hand(lens, ids: list[int], places: list[int], gold: list[int]) -> float:
    """Summed loss of one unbatched window, in double precision."""
    logits = lens.model(torch.tensor([ids])).logits[0].double()
    log_p = logits - logits.exp().sum(dim=-1, keepdim=True).log()
    return -sum(float(log_p[place, token]) for place, token in zip(places, gold, strict=True))


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("family", CAUSAL)
def test_causal_loss_is_that_of_a_plain_loop(tmp_path, family, frame):
    lens = headlens.load(build(family), toy_tokenizer(FRAMES[frame], mask=False))
    spec = write_lines(tmp_path / "t.txt")
    texts = windows((tmp_path / "t.txt").read_text(), lens.tokenizer, 9)
    expected = []
    for text in texts:
        ids = lens.tokenizer(text)["input_ids"]
        first = 1 if frame == "none" else len(FRAMES["bos"])  # without BOS the first has no context
        last = len(ids) - (frame == "both")  # an end that the tokenizer adds is not in the text
        places = list(range(first, last))
        expected.append(
            (loss_by_hand(lens, ids, [p - 1 for p in places], [ids[p] for p in places]), len(places))
        )
    expected = np.array([row for row in expected if row[1]])
    for size in (1, 3, 8, None):
        benchmark = open_benchmark(spec, lens, BenchmarkOptions(batch_size=size, max_length=9))
        values = benchmark.measure(lens)
        np.testing.assert_allclose(values, expected, atol=1e-4)
    loss, perplexity = (metric.value(values) for metric in benchmark.metrics)
    assert loss == pytest.approx(expected[:, 0].sum() / expected[:, 1].sum(), abs=1e-5)
    assert perplexity == pytest.approx(math.exp(loss), rel=1e-12)
    assert benchmark.facts["scored_tokens"] == expected[:, 1].sum()
    assert benchmark.facts["predicts"] == "next token"


@pytest.mark.parametrize("family", MASKED)
def test_masked_loss_is_that_of_a_plain_loop(tmp_path, family):
    lens = headlens.load(build(family), toy_tokenizer(pad=1 if family == "roberta" else 0))
    spec = write_lines(tmp_path / "t.txt", 60)
    benchmark = open_benchmark(spec, lens, BenchmarkOptions(max_length=20, seed=3))
    texts = windows((tmp_path / "t.txt").read_text(), lens.tokenizer, 20)
    expected = []
    for window, text in zip(benchmark.windows, texts, strict=True):
        whole = lens.tokenizer(text)["input_ids"]
        assert [i for i, (a, b) in enumerate(zip(whole, window.ids, strict=True)) if a != b] == list(
            window.places
        )
        assert {window.ids[place] for place in window.places} == {lens.tokenizer.mask_token_id}
        assert [whole[place] for place in window.places] == list(window.gold)
        assert len(window.places) == max(1, round(0.15 * (len(whole) - 2)))
        expected.append(loss_by_hand(lens, list(window.ids), list(window.places), list(window.gold)))
    for size in (1, 3, None):
        again = open_benchmark(spec, lens, BenchmarkOptions(batch_size=size, max_length=20, seed=3))
        assert again.windows == benchmark.windows
        values = again.measure(lens)
        np.testing.assert_allclose(values[:, 0], expected, atol=1e-4)
    assert values[:, 1].tolist() == [len(window.places) for window in benchmark.windows]
    assert benchmark.metrics[1].value(values) == values[:, 2].sum() / values[:, 1].sum()
    other = open_benchmark(spec, lens, BenchmarkOptions(max_length=20, seed=4))
    assert [w.places for w in other.windows] != [w.places for w in benchmark.windows]


def test_a_model_that_is_always_right_has_no_loss(tmp_path):
    """Known answers: logits that name the next token give loss 0, equal logits give ln of the vocabulary."""
    lens = headlens.load(build("gpt2"), toy_tokenizer((), mask=False))
    spec = write_lines(tmp_path / "t.txt")
    torch.nn.init.zeros_(lens.model.transformer.ln_f.weight)
    torch.nn.init.zeros_(lens.model.transformer.ln_f.bias)
    benchmark = open_benchmark(spec, lens, BenchmarkOptions(max_length=9))
    loss, perplexity = (metric.value(benchmark.measure(lens)) for metric in benchmark.metrics)
    assert loss == pytest.approx(math.log(61), abs=1e-5)
    assert perplexity == pytest.approx(61, abs=1e-3)


def test_windows_lose_nothing():
    tokenizer = toy_tokenizer()
    lines = [toy_text(1 + (5 * i) % 23, i) for i in range(40)]
    text = "\n\n\n" + "\n".join(line + "\n" * (i % 3 == 0) for i, line in enumerate(lines)) + "\n\n"
    made = windows(text, tokenizer, 12)
    assert " ".join(made).split() == text.split()
    lengths = [len(tokenizer(window)["input_ids"]) for window in made]
    assert max(lengths) <= 12
    assert all(window == window.strip("\n") for window in made)
    whole = set(lines)
    assert all(line in whole for window in made if "\n" in window for line in window.split("\n") if line)
    assert windows("w5" * 3, toy_tokenizer(), 12) == ["w5w5w5"]
    assert windows("\n \n", tokenizer, 12) == []


def test_models_without_a_language_head_are_refused(tmp_path):
    spec = write_lines(tmp_path / "t.txt")
    for lens, kind in (
        (headlens.load(build("bert").bert, toy_tokenizer()), "BertModel"),
        (headlens.load(build("t5"), toy_tokenizer()), "T5ForConditionalGeneration"),
    ):
        with pytest.raises(ModelError) as caught:
            open_benchmark(spec, lens)
        assert str(caught.value) == (
            f"The benchmark language needs a causal or masked language model, but this is a {kind}. Take a "
            "checkpoint whose class ends in ForCausalLM, LMHeadModel or ForMaskedLM, or another benchmark: "
            "similarity:FILE.tsv works with every encoder."
        )
    with pytest.raises(ModelError) as caught:
        open_benchmark(spec, headlens.load(build("bert"), toy_tokenizer(mask=False)))
    assert str(caught.value) == (
        "BertForMaskedLM predicts masked tokens, but its tokenizer has no mask token. Take its own tokenizer."
    )
    with pytest.raises(InputError) as caught:
        open_benchmark(spec, headlens.load(build("bert"), toy_tokenizer()), BenchmarkOptions(max_length=50))
    assert str(caught.value) == (
        "language:t.txt: expected text for at least 10 examples, found 2. Give a longer text, or a smaller "
        "--max-length."
    )


def test_a_head_that_was_never_trained_is_refused(tmp_path):
    spec = write_lines(tmp_path / "t.txt", 40)
    config = build("bert").config
    body = transformers.BertModel(config, add_pooling_layer=False)
    body.save_pretrained(tmp_path / "m")
    toy_tokenizer().save_pretrained(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(path.read_text().replace('"BertModel"', '"BertForMaskedLM"'))
    lens = headlens.load(str(tmp_path / "m"))
    assert lens.missing
    with pytest.raises(ModelError) as caught:
        open_benchmark(spec, lens, BenchmarkOptions(max_length=16))
    assert str(caught.value) == (
        "The checkpoint lacks weights of the language-model head of BertForMaskedLM: cls.predictions.bias, "
        "cls.predictions.decoder.bias, "
        "cls.predictions.transform.LayerNorm.bias, cls.predictions.transform.LayerNorm.weight, "
        "cls.predictions.transform.dense.bias, cls.predictions.transform.dense.weight. Use a complete "
        "checkpoint, or --allow-random-weights to measure it all the same."
    )
    open_benchmark(spec, lens, BenchmarkOptions(max_length=16, allow_random_weights=True))
    complete = build("bert")  # tied output weights are not in the file, and not missing
    complete.save_pretrained(tmp_path / "whole")
    toy_tokenizer().save_pretrained(tmp_path / "whole")
    open_benchmark(spec, headlens.load(str(tmp_path / "whole")), BenchmarkOptions(max_length=16))


def test_the_sample_suits_the_model():
    language = sample_benchmark(headlens.load(build("gpt2"), toy_tokenizer(())))
    assert (language.name, language.facts["example"], language.facts["examples"]) == (
        "language:english.conllu",
        "document",
        28,
    )
    assert len(language.windows) > 28  # documents longer than the model takes are read in parts
    assert language.measure(headlens.load(build("gpt2"), toy_tokenizer(()))).shape == (28, 2)
    lens = headlens.load(build("bert").bert, toy_tokenizer())
    assert sample_benchmark(lens, BenchmarkOptions(columns=("a", "b", "c"))).name == "similarity:pairs.tsv"


@torch.no_grad()
@pytest.mark.slow
def test_smollm2_predicts_a_text(tmp_path):
    lens = toys.smollm2()
    lines = [f"{i} comes after {i - 1}, and the dog chased its tail all day long.\n" for i in range(2, 14)]
    (tmp_path / "t.txt").write_text("".join(lines))
    spec = f"language:{tmp_path / 't.txt'}"
    result = sweep(lens, spec, heads="0.0-1", max_length=24)
    windows = open_benchmark(spec, lens, BenchmarkOptions(max_length=24)).windows
    ids = torch.tensor([windows[0].ids])
    own = float(lens.model(ids, labels=ids).loss)
    assert result.baseline[0, 0] / result.baseline[0, 1] == pytest.approx(own, abs=1e-4)
    assert result.table["condition"].tolist() == ["head 0.0", "head 0.0", "head 0.1", "head 0.1"]
    assert (result.table["delta"] != 0).all()
