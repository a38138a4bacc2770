from __future__ import annotations

import warnings

import pytest
import torch

import headlens
from headlens.ablation.importance import per_example
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.predict import run_batches, until_it_fits
from headlens.benchmarks.registry import open_benchmark
from headlens.errors import ModelError
from support.families import build
from support.toytext import toy_pairs, toy_tokenizer, write_pairs


def lens():
    return headlens.load(build("bert"), toy_tokenizer())


def test_groups_of_like_length():
    made = list(run_batches(lens(), [3, 9, 1, 8, 2], lambda group: sum(group), tokens_at_once=18))
    assert made == [([1, 3], 4), ([0, 4, 2], 6)]
    assert [group for group, _ in run_batches(lens(), [3, 9, 1], len, batch_size=2)] == [[1, 0], [2]]
    assert [group for group, _ in run_batches(lens(), [30, 9], len, tokens_at_once=4)] == [[0], [1]]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_out_of_memory_halves_batches_and_is_said_once(error):
    model, tried = lens(), []

    def work(group):
        tried.append(len(group))
        if len(group) > 2:
            raise error
        return group

    with pytest.warns(UserWarning, match="^Memory ran out; going on with smaller batches.$") as caught:
        made = [group for group, _ in run_batches(model, [1] * 9, work, batch_size=8)]
    assert len(caught) == 1
    assert [index for group in made for index in group] == list(range(9))
    assert tried == [8, 4, 2, 2, 2, 2, 1]
    tried.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(run_batches(model, [1] * 4, work, batch_size=8))  # it is remembered
    assert tried == [2, 2]


def test_one_input_that_does_not_fit_is_an_error():
    def work(_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.warns(UserWarning, match="Memory"), pytest.raises(ModelError) as caught:
        list(run_batches(lens(), [7, 7], work))
    assert str(caught.value) == (
        "Memory does not suffice for one input of 7 tokens. "
        "Type a smaller --max-length, a smaller --dtype, or another --device."
    )
    with pytest.raises(RuntimeError, match="shapes"):
        list(run_batches(lens(), [7], lambda _: (_ for _ in ()).throw(RuntimeError("shapes differ"))))


def test_a_benchmark_gives_the_same_values_when_memory_runs_out(tmp_path):
    spec = write_pairs(tmp_path / "p.tsv", toy_pairs())
    expected = open_benchmark(spec, lens()).measure(lens())
    model = lens()

    def limited(module, args, kwargs):
        if len(kwargs.get("input_ids", ())) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory")

    model.model.bert.register_forward_pre_hook(limited, with_kwargs=True)
    with pytest.warns(UserWarning, match="Memory ran out"):
        values = open_benchmark(spec, model, BenchmarkOptions()).measure(model)
    torch.testing.assert_close(values, expected, atol=1e-6, rtol=0)


def test_memory_that_runs_out_on_the_way_back(tmp_path):
    """Gradients are taken anew with smaller batches, and are those of any batch size."""
    spec = write_pairs(tmp_path / "p.tsv", toy_pairs())
    heads = lens().anatomy.heads
    expected = per_example(lens(), open_benchmark(spec, lens()), heads)
    model = lens()

    def limited(gradient):
        if len(gradient) > 6:
            raise torch.OutOfMemoryError("CUDA out of memory")

    def hook(_, __, output):
        if output.requires_grad:
            output.register_hook(limited)

    model.model.bert.embeddings.register_forward_hook(hook)
    model.model.bert.encoder.layer[0].output.register_forward_hook(hook)
    with pytest.warns(UserWarning, match="^Memory ran out; going on with smaller batches.$") as caught:
        found = per_example(model, open_benchmark(spec, model), heads)
    assert len(caught) == 1
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    with pytest.raises(RuntimeError, match="shapes"):
        until_it_fits(model, lambda: (_ for _ in ()).throw(RuntimeError("shapes differ")))


def test_memory_for_nothing_is_an_error(monkeypatch):
    def work():
        raise torch.OutOfMemoryError("CUDA out of memory")

    with (
        pytest.warns(UserWarning, match="Memory"),
        pytest.raises(ModelError, match="Memory does not suf"),
    ):
        until_it_fits(lens(), work)
