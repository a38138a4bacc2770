from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from headlens.ablation.sweep import sweep
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.metrics import Accuracy
from headlens.benchmarks.registry import Differentiable, open_benchmark
from support import toys
from support.toytasks import CHOICE, LAST_WORD, ROLLING, WRITING, lens_of, task
from support.toytext import toy_text

lm_eval = pytest.importorskip("lm_eval")


def direct(lens, *tasks: str) -> dict:
    """What lm_eval itself finds, for the model as it is now."""
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    return lm_eval.simple_evaluate(
        model=HFLM(pretrained=lens.model, tokenizer=lens.tokenizer, batch_size=4, max_length=60),
        tasks=list(tasks),
        task_manager=TaskManager(include_defaults=False),
        bootstrap_iters=0,
        log_samples=True,
    )


@pytest.mark.parametrize("family", ["gpt2", "llama", "bloom", "t5"])
def test_numbers_are_lm_evals_own_in_any_batch(tmp_path, family):
    lens, spec = lens_of(family), task(tmp_path, shots=2)
    out = [head for head in lens.anatomy.heads if head.head in (0, 3)]
    for heads in ((), out):
        values = []
        with lens.ablate(heads):
            own = direct(lens, spec)
            for size in (None, 3, 1):
                benchmark = open_benchmark(f"harness:{spec}", lens, BenchmarkOptions(batch_size=size))
                values.append(benchmark.measure(lens))
        samples = sorted(own["samples"]["toy"], key=lambda sample: sample["doc_id"])
        for found in values:
            assert found[:, 0].tolist() == [sample["acc"] for sample in samples]
            assert found[:, 2].tolist() == [sample["acc_norm"] for sample in samples]
            assert (found[:, [1, 3]] == 1).all()
        for metric in benchmark.metrics:
            assert metric.value(found) == pytest.approx(own["results"]["toy"][f"{metric.name},none"])
    assert [metric.name for metric in benchmark.metrics] == ["acc", "acc_norm"]
    assert not isinstance(benchmark, Differentiable)
    assert benchmark.stacks == lens.anatomy.stacks
    facts = dict(benchmark.facts)
    about = facts.pop("tasks")["toy"]
    assert facts == {
        "kind": "harness",
        "examples": 14,
        "example": "document",
        "left_out": ["mcc"],
        "lm_eval": lm_eval.__version__,
    }
    assert (about["version"], about["examples"], about["num_fewshot"]) == (1.5, 14, 2)


def test_a_planted_answer_is_right(tmp_path):
    """The model says w9 whatever stands before it: with w9 as every right choice, acc is 1, else 0."""
    lens = lens_of("gpt2")
    torch.nn.init.zeros_(lens.model.transformer.ln_f.weight)
    with torch.no_grad():
        lens.model.transformer.ln_f.bias.copy_(3 * lens.model.lm_head.weight[9])
    for gold, acc in ((1, 1.0), (0, 0.0)):
        documents = [{"q": toy_text(3, i), "choices": ["w5", "w9"], "gold": gold} for i in range(10)]
        path = Path(task(tmp_path))
        (tmp_path / f"planted{gold}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents))
        path.write_text(path.read_text().replace("toy.jsonl", f"planted{gold}.jsonl"))
        benchmark = open_benchmark(f"harness:{path}", lens)
        assert benchmark.metrics[0].value(benchmark.measure(lens)) == acc


def test_several_tasks_keep_apart(tmp_path):
    lens = lens_of()
    specs = [task(tmp_path), task(tmp_path, ROLLING, "stream", 11), task(tmp_path, LAST_WORD, "last")]
    benchmark = open_benchmark(f"harness:{','.join(specs)}", lens)
    names = [metric.name for metric in benchmark.metrics]
    assert names == [
        "toy:acc", "toy:acc_norm", "stream:word_perplexity", "stream:byte_perplexity",
        "stream:bits_per_byte", "last:perplexity", "last:acc",
    ]  # fmt: skip
    assert [metric.larger_is_better for metric in benchmark.metrics] == [True] * 2 + [False] * 4 + [True]
    assert benchmark.facts["left_out"] == ["toy:mcc"]
    heads = lens.anatomy.heads[:3]
    result = sweep(lens, benchmark, heads=heads)
    assert result.baseline.shape == (14 + 11 + 14, 14)
    for head in (None, *heads):
        with lens.ablate(() if head is None else (head,)):
            own = direct(lens, *specs)["results"]
        condition = f"head {lens.anatomy.name(head)}" if head else None
        values = result.values[condition] if head else result.baseline
        for metric in benchmark.metrics:
            name, _, measure = metric.name.partition(":")
            assert metric.value(values) == pytest.approx(own[name][f"{measure},none"], rel=1e-4)
    assert result.table[["delta", "ci_low", "ci_high", "p_value", "q_value"]].notna().all(axis=None)
    continuous = result.table["metric"].str.contains("perplexity")
    assert (result.table["delta"][continuous] != 0).all()
    # each metric is that of its task alone
    alone = sweep(lens, f"harness:{specs[2]}", heads=heads).table
    part = result.table[result.table["metric"] == "last:acc"]
    assert part["value"].tolist() == alone[alone["metric"] == "acc"]["value"].tolist()
    assert part["p_value"].tolist() == alone[alone["metric"] == "acc"]["p_value"].tolist()


def test_right_or_wrong_is_tested_exactly(tmp_path):
    benchmark = open_benchmark(f"harness:{task(tmp_path)}", lens_of())
    base, other = np.zeros((14, 4)), np.zeros((14, 4))
    base[:9, 0], other[7:10, 0] = 1, 1  # 7 lost, 1 won
    assert benchmark.metrics[0].paired_p(other, base) == Accuracy(0).paired_p(other, base)
    assert benchmark.metrics[0].paired_p(other, base) == pytest.approx(2 * (1 + 8) / 2**8)


def test_writing_tasks_and_their_filters(tmp_path):
    lens = lens_of()
    spec = task(tmp_path, WRITING)
    benchmark = open_benchmark(f"harness:{spec}", lens, BenchmarkOptions(batch_size=3))
    assert [metric.name for metric in benchmark.metrics] == ["exact_match,first", "exact_match,word"]
    with lens.ablate("1.2"):
        written = direct(lens, spec)["samples"]["toy"]
    words = [one["filtered_resps"][0] for one in written if one["filter"] == "word"]
    data = tmp_path / "toy.jsonl"  # from now on every other word is right
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    for place, word in enumerate(words):
        rows[place]["choices"][0] = word if place % 2 else "w5 w5"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    benchmark = open_benchmark(f"harness:{spec}", lens)
    with lens.ablate("1.2"):
        values = benchmark.measure(lens)
    assert values[:, 2].tolist() == [float(place % 2) for place in range(14)]


def test_chance_is_the_same_every_time(tmp_path):
    lens = lens_of()
    spec = task(tmp_path, WRITING, sample="true\n  temperature: 1.0")
    sampled = open_benchmark(f"harness:{spec}", lens)
    plain, legacy = random.getstate(), np.random.get_state()[1].copy()
    torch.manual_seed(11)
    state = torch.random.get_rng_state()
    first = [request.resps for one in sampled._answered(lens, None) for request in one]
    second = [request.resps for one in sampled._answered(lens, None) for request in one]
    assert first == second
    shots = task(tmp_path, name="shots", shots=3)
    facts = [open_benchmark(f"harness:{shots}", lens).facts for _ in range(2)]
    assert facts[0] == facts[1]
    assert random.getstate() == plain
    assert (np.random.get_state()[1] == legacy).all()
    assert torch.equal(torch.random.get_rng_state(), state)


def test_some_examples_of_a_benchmark(tmp_path):
    lens = lens_of()
    specs = [task(tmp_path, shots=2), task(tmp_path, LAST_WORD, "last", 12)]
    benchmark = open_benchmark(f"harness:{','.join(specs)}", lens)
    whole = benchmark.measure(lens)
    for chosen in ([20, 3, 25, 1], [5, 4], [24]):
        some = benchmark.take(chosen)
        np.testing.assert_allclose(some.measure(lens), whole[chosen], atol=1e-4)
        assert some.facts == {**benchmark.facts, "examples": len(chosen)}
    prompts = [benchmark.documents[i].requests[0].args for i in (3, 1)]
    assert [document.requests[0].args for document in benchmark.take([3, 1]).documents] == prompts
    keys = benchmark.input_keys
    assert len(set(keys)) == len(keys) == 26
    assert list(benchmark.take([3, 1, 3]).input_keys) == [keys[3], keys[1], keys[3]]


@pytest.mark.parametrize("family", ["gpt2", "t5"])
def test_every_input_is_shown_once_without_padding(tmp_path, family):
    lens = lens_of(family)
    benchmark = open_benchmark(f"harness:{task(tmp_path)}", lens)
    seen = []

    def note(_, __, named):
        seen.append(named["input_ids"])

    body = lens.model.get_encoder() if family == "t5" else lens.model.transformer
    hook = body.register_forward_pre_hook(note, with_kwargs=True)
    if family == "gpt2":  # lm_eval calls the model with one positional argument
        hook.remove()
        lens.model.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    assert benchmark.show(lens) is None
    assert all(len(ids) == 1 and (ids != 0).all() for ids in seen)
    read = {tuple(ids[0].tolist()) for ids in seen}
    for document in benchmark.documents:
        for context, choice in (request.args for request in document.requests):
            ids = lens.tokenizer(context + ("" if family == "t5" else choice))["input_ids"]
            assert tuple(ids if family == "t5" else ids[:-1]) in read
    assert len(read) == len(seen) or family == "t5"


@torch.no_grad()
def test_smollm2_answers_questions(tmp_path):
    lens = toys.smollm2()
    facts = [
        ("The capital of France is", "Paris", "Oslo"), ("The capital of Norway is", "Oslo", "Rome"),
        ("The capital of Italy is", "Rome", "Paris"), ("Two plus two is", "four", "nine"),
        ("The opposite of hot is", "cold", "green"), ("A cat says", "meow", "woof"),
        ("The colour of grass is", "green", "red"), ("The sun rises in the", "east", "fridge"),
        ("Ice is frozen", "water", "sand"), ("A week has seven", "days", "legs"),
    ]  # fmt: skip
    rows = [{"q": q, "choices": [right, wrong], "gold": 0} for q, right, wrong in facts]
    (tmp_path / "toy.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "toy.yaml"
    path.write_text(CHOICE.format(name="toy", data=tmp_path / "toy.jsonl", shots=0))
    benchmark = open_benchmark(f"harness:{path}", lens)
    assert benchmark.metrics[0].value(benchmark.measure(lens)) >= 0.8
    with lens.ablate("*.*"):
        assert benchmark.metrics[0].value(benchmark.measure(lens)) < 0.8
