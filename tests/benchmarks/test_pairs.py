from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import headlens
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.registry import Differentiable, open_benchmark
from headlens.errors import InputError, ModelError
from support import toys
from support.families import build
from support.real import data
from support.toytext import toy_text, toy_tokenizer

FRAMES = {"none": (), "bos": ("[CLS]",), "both": ("[CLS]", "[SEP]")}


def toy_sentences(n: int = 14) -> list[tuple[str, str]]:
    """Pairs of sentences of unequal length."""
    return [(toy_text(1 + i % 7, i), toy_text(2 + i % 5, 500 + i)) for i in range(n)]


def write(path, pairs, names=("sentence_good", "sentence_bad")) -> str:
    lines = [json.dumps(dict(zip(names, pair, strict=True), UID=3)) for pair in pairs]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"pairs:{path}"


def causal(family: str, frame: str, token: str | None = None):
    tokenizer = toy_tokenizer(FRAMES[frame], mask=False)
    if token:
        setattr(tokenizer, f"{token}_token", "[SEP]")
    return headlens.load(build(family), tokenizer)


@torch.no_grad()
def log_p(lens, ids: list[int], place: int, token: int) -> float:
    """Log-probability of a token at a place, from all logits of one unbatched input."""
    logits = lens.model(torch.tensor([ids])).logits[0, place].double()
    return float(logits[token] - logits.exp().sum().log())


@pytest.mark.parametrize("token", [None, "bos", "eos"])
@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom"])
def test_log_probabilities_are_those_of_a_plain_loop(tmp_path, family, frame, token):
    lens = causal(family, frame, token)
    front = [1] if frame != "none" else [2] if token else []  # [CLS] of the tokenizer, or [SEP] given
    expected = []
    for pair in toy_sentences():
        own = [[int(word[1:]) for word in text.split()] for text in pair]
        whole = [front + ids for ids in own]
        first = 1  # without a token in front the first word is not scored
        expected.append(
            [sum(log_p(lens, ids, i - 1, ids[i]) for i in range(first, len(ids))) for ids in whole]
        )
    pairs = toy_sentences()
    if not front:  # a sentence of one word would have nothing to score
        pairs, expected = zip(
            *((p, e) for p, e in zip(pairs, expected, strict=True) if " " in p[0]), strict=True
        )
    good, bad = np.array(expected).T
    spec = write(tmp_path / "p.jsonl", pairs)
    for size in (1, 3, None):
        benchmark = open_benchmark(spec, lens, BenchmarkOptions(batch_size=size))
        with lens.ablate((), "zero"):
            values = benchmark.measure(lens)
        np.testing.assert_allclose(values[:, 2:], np.column_stack([good, bad]), atol=1e-4)
    assert values[:, 0].tolist() == (good > bad).astype(float).tolist()
    accuracy, margin = benchmark.metrics
    assert (accuracy.name, margin.name) == ("accuracy", "margin")
    assert accuracy.value(values) == np.mean(good > bad)
    assert margin.value(values) == pytest.approx(np.mean(good - bad), abs=1e-4)
    told = {"none": "[SEP]" if token else "none: first tokens are not scored"}.get(frame, "[CLS]")
    assert benchmark.facts["context_token"] == told
    assert benchmark.facts["score"] == "log-probability"


@pytest.mark.parametrize("family", ["bert", "roberta", "modernbert"])
def test_pseudo_log_likelihoods_are_those_of_a_plain_loop(tmp_path, family):
    lens = headlens.load(build(family), toy_tokenizer(pad=1 if family == "roberta" else 0))
    cls, mask = lens.tokenizer.cls_token_id, lens.tokenizer.mask_token_id
    expected = []
    for pair in toy_sentences(10):
        sums = []
        for text in pair:
            ids = [cls, *(int(word[1:]) for word in text.split()), 2]
            hidden = [(i, [*ids[:i], mask, *ids[i + 1 :]]) for i in range(1, len(ids) - 1)]
            sums.append(sum(log_p(lens, masked, i, ids[i]) for i, masked in hidden))
        expected.append(sums)
    spec = write(tmp_path / "p.jsonl", toy_sentences(10))
    for size in (1, 3, None):
        benchmark = open_benchmark(spec, lens, BenchmarkOptions(batch_size=size))
        np.testing.assert_allclose(benchmark.measure(lens)[:, 2:], expected, atol=1e-4)
    assert benchmark.facts["score"] == "pseudo-log-likelihood"
    assert "context_token" not in benchmark.facts


def test_a_model_that_knows_nothing_prefers_the_shorter_one(tmp_path):
    """Known answers: equal logits give ln of the vocabulary a word; a tie is wrong."""
    lens = causal("gpt2", "bos")
    torch.nn.init.zeros_(lens.model.transformer.ln_f.weight)
    torch.nn.init.zeros_(lens.model.transformer.ln_f.bias)
    pairs = [("w5 w6", "w7 w8 w9"), ("w5 w6 w7", "w8"), ("w5 w6", "w6 w5")] * 4
    values = open_benchmark(write(tmp_path / "p.jsonl", pairs), lens).measure(lens)
    assert values[:, 0].tolist() == [1, 0, 0] * 4
    np.testing.assert_allclose(values[:, 1], np.array([1, -2, 0] * 4) * math.log(61), atol=1e-5)


@pytest.mark.parametrize("family", ["llama", "bert"])
def test_losses_are_minus_the_margins(tmp_path, family):
    lens = causal("llama", "bos") if family == "llama" else headlens.load(build("bert"), toy_tokenizer())
    benchmark = open_benchmark(
        write(tmp_path / "p.jsonl", toy_sentences()), lens, BenchmarkOptions(batch_size=5)
    )
    assert isinstance(benchmark, Differentiable)
    sums, rows = torch.zeros(14), []
    embeddings = lens.model.get_input_embeddings()
    handle = embeddings.register_forward_hook(lambda _, __, output: rows.append(output))
    for lot in benchmark.losses(lens):
        states = next(output for output in reversed(rows) if len(output) == len(lot.owners))
        sums = sums.index_add(0, lot.examples, lot.losses)
        for example in lot.owners.unique():  # an example's loss depends on its own rows alone
            loss = lot.losses[lot.examples == example].sum()
            moved = torch.autograd.grad(loss, states, retain_graph=True)[0].abs().sum(dim=(1, 2)) > 0
            assert moved.tolist() == (lot.owners == example).tolist()
    handle.remove()
    np.testing.assert_allclose(sums.detach(), -benchmark.measure(lens)[:, 1], atol=1e-4)


def test_some_examples_can_be_taken(tmp_path):
    lens = causal("gpt2", "bos")
    benchmark = open_benchmark(write(tmp_path / "p.jsonl", toy_sentences()), lens)
    part = benchmark.take([7, 2, 11])
    np.testing.assert_allclose(part.measure(lens), benchmark.measure(lens)[[7, 2, 11]], atol=1e-5)
    assert part.facts["examples"] == 3
    words = sum(len(text.split()) for i in (7, 2, 11) for text in toy_sentences()[i])
    assert part.facts["scored_tokens"] == words
    assert part.facts["sha256"] == benchmark.facts["sha256"]


def test_a_sentence_that_begins_with_the_context_token_gets_no_second_one(tmp_path):
    lens = causal("gpt2", "none", "bos")
    pairs = [("[SEP] w5 w6", "w5 w7"), *toy_sentences()]
    benchmark = open_benchmark(write(tmp_path / "p.jsonl", pairs), lens)
    assert [benchmark.sentences[i].ids for i in (0, 1)] == [(2, 5, 6), (2, 5, 7)]
    assert [benchmark.sentences[i].scored for i in (0, 1)] == [(1, 2), (1, 2)]


FAULTS = {
    "no JSON": (
        "sentence_good",
        "expected a JSON object, found no JSON: Expecting value at character 1. Write one object a line.",
    ),
    "no field": (
        '{"sentence_good": "w5", "bad": "w6"}',
        "expected a field sentence_bad, found sentence_good, bad. Correct the line, or choose others with "
        "--columns.",
    ),
    "empty": (
        '{"sentence_good": "w5", "sentence_bad": " "}',
        "expected a sentence in the field sentence_bad, found nothing.",
    ),
    "equal": (
        '{"sentence_good": "w5", "sentence_bad": "w5"}',
        "expected two sentences that differ, found the same one twice. Correct the line.",
    ),
    "long": (
        json.dumps({"sentence_good": toy_text(60, 0), "sentence_bad": "w5"}),
        "a sentence has 61 tokens, and inputs may have 60. Shorten it; headlens cuts no text off.",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_files_are_told_with_their_line(tmp_path, fault):
    line, message = FAULTS[fault]
    path = tmp_path / "p.jsonl"
    spec = write(path, toy_sentences())
    path.write_text(path.read_text() + line)
    with pytest.raises(InputError) as caught:
        open_benchmark(spec, causal("gpt2", "bos"))
    assert str(caught.value) == f"{path}, line 15: {message}"


def test_short_files_single_words_and_other_fields(tmp_path):
    path = tmp_path / "p.jsonl"
    with pytest.raises(InputError) as caught:
        open_benchmark(write(path, toy_sentences(9)), causal("gpt2", "bos"))
    assert str(caught.value) == f"{path}: expected at least 10 pairs, found 9. Give a longer file."
    with pytest.raises(InputError) as caught:  # nothing stands before the only token
        open_benchmark(write(path, [("w5", "w6 w7")] * 10), causal("gpt2", "none"))
    assert str(caught.value) == f"{path}, line 1: no token of a sentence can be scored. Correct the line."
    spec = write(path, toy_sentences(), ("yes", "no"))
    swapped = open_benchmark(spec, causal("gpt2", "bos"), BenchmarkOptions(columns=("no", "yes")))
    plain = open_benchmark(spec, causal("gpt2", "bos"), BenchmarkOptions(columns=("yes", "no")))
    assert swapped.sentences[::2] == plain.sentences[1::2]


def test_models_without_a_language_head_are_refused(tmp_path):
    with pytest.raises(ModelError) as caught:
        open_benchmark(
            write(tmp_path / "p.jsonl", toy_sentences()), headlens.load(build("t5"), toy_tokenizer())
        )
    assert str(caught.value) == (
        "The benchmark pairs needs a causal or masked language model, but this is a "
        "T5ForConditionalGeneration. Take a checkpoint whose class ends in ForCausalLM, LMHeadModel or "
        "ForMaskedLM, or another benchmark: similarity:FILE.tsv works with every encoder."
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_smollm2_agrees_with_lm_evaluation_harness(tmp_path):
    pytest.importorskip("lm_eval")
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    lens = toys.smollm2()
    lines = data("blimp/transitive.jsonl").read_text().splitlines()[:40]
    path = tmp_path / "transitive.jsonl"
    path.write_text("\n".join(lines))
    benchmark = open_benchmark(f"pairs:{path}", lens)
    assert benchmark.facts["context_token"] == lens.tokenizer.bos_token
    values = benchmark.measure(lens)
    docs = [json.loads(line) for line in lines]
    requests = [
        Instance("loglikelihood", doc, ("", doc[name]), 0)
        for doc in docs
        for name in ("sentence_good", "sentence_bad")
    ]
    other = HFLM(pretrained=lens.model, tokenizer=lens.tokenizer, batch_size=16)
    found = np.array([one for one, _ in other.loglikelihood(requests, disable_tqdm=True)]).reshape(-1, 2)
    np.testing.assert_allclose(values[:, 2:], found, atol=1e-3)
    assert values[:, 0].tolist() == (found[:, 0] > found[:, 1]).astype(float).tolist()


def test_sentences_that_are_the_same_to_the_tokenizer_tie_exactly(tmp_path):
    """Unknown words make two sentences one: batches may round their scores apart, which says nothing."""
    pairs = toy_sentences()
    pairs[1::2] = [(f"{good} zzz", f"{good} yyy") for good, _ in pairs[1::2]]
    for lens in (causal("llama", "bos"), headlens.load(build("bert"), toy_tokenizer())):
        spec = write(tmp_path / "p.jsonl", pairs)
        for size in (1, 3, None):
            benchmark = open_benchmark(spec, lens, BenchmarkOptions(batch_size=size))
            values = benchmark.measure(lens)
            assert (values[1::2, 1] == 0).all()
            assert (values[1::2, 0] == 0).all()
            assert (values[::2, 1] != 0).all()
        assert benchmark.facts["same_to_the_tokenizer"] == 7
        assert benchmark.take([0, 1, 3]).facts["same_to_the_tokenizer"] == 2
        assert benchmark.warn(values) == (
            "7 of the 14 pairs of pairs:p.jsonl are the same to the tokenizer (an unknown word?), and count "
            "as wrong whatever is ablated.",
        )
        plain = open_benchmark(write(tmp_path / "q.jsonl", toy_sentences()), lens)
        assert plain.warn(values) == ()
