"""Logits at chosen positions equal those of the whole model, for every family that predicts tokens."""

from __future__ import annotations

import pytest
import torch

import headlens
import headlens.benchmarks.predict as prediction
from headlens.benchmarks.predict import body_of, has_head, no_cache, predict
from support.families import ALL, batch, build
from support.toytext import toy_tokenizer

FAMILIES = [family for family in ALL if family not in ("t5", "bart", "marian")]


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_are_those_of_all_logits(family, monkeypatch):
    lens = headlens.load(build(family), toy_tokenizer())
    assert has_head(lens)
    assert body_of(lens) is not None
    inputs = batch(lens.model)
    generator = torch.Generator().manual_seed(1)
    rows, places = torch.tensor([0, 2, 1, 0, 1]), torch.tensor([3, 1, 0, 0, 5])
    gold = torch.randint(4, 61, (5,), generator=generator)
    with torch.no_grad():
        whole = lens.model(**inputs).logits
        expected = torch.nn.functional.cross_entropy(whole[rows, places], gold, reduction="none")
        for chunk in (1, 2, 100):
            monkeypatch.setattr(prediction, "LOGITS_AT_ONCE", 61 * chunk)
            found = predict(lens, inputs, rows, places, gold, right=True)
            torch.testing.assert_close(found.loss, expected, atol=1e-5, rtol=1e-5)
            assert found.right.tolist() == (whole[rows, places].argmax(-1) == gold).tolist()
        monkeypatch.setitem(prediction._bodies, lens.model, None)  # a head that cannot be run alone
        torch.testing.assert_close(
            predict(lens, inputs, rows, places, gold).loss, expected, atol=1e-5, rtol=1e-5
        )
    assert not any("forward" in vars(module) for module in lens.model.modules())


def test_only_chosen_positions_make_logits():
    lens = headlens.load(build("gpt2"), toy_tokenizer((), mask=False))
    seen = []
    lens.model.lm_head.register_forward_hook(lambda _, __, output: seen.append(tuple(output.shape)))
    assert body_of(lens) is not None
    seen.clear()
    with torch.no_grad():
        predict(lens, batch(lens.model), torch.tensor([0, 1]), torch.tensor([2, 4]), torch.tensor([5, 6]))
    assert seen == [(1, 2, 61)]


def test_a_head_that_reads_more_than_its_position_is_run_whole():
    lens = headlens.load(build("llama"), toy_tokenizer((), mask=False))
    plain = type(lens.model.lm_head).forward

    def mixing(states):
        return plain(lens.model.lm_head, states - states.mean(dim=1, keepdim=True))

    lens.model.lm_head.forward = mixing
    assert body_of(lens) is None
    rows, places, gold = torch.tensor([0, 1]), torch.tensor([2, 4]), torch.tensor([5, 6])
    with torch.no_grad():
        whole = lens.model(**batch(lens.model)).logits[rows, places]
        found = predict(lens, batch(lens.model), rows, places, gold).loss
    torch.testing.assert_close(found, torch.nn.functional.cross_entropy(whole, gold, reduction="none"))


def test_an_exception_leaves_the_body_as_it_was():
    lens = headlens.load(build("gpt2"), toy_tokenizer((), mask=False))
    assert body_of(lens) is not None
    handle = lens.model.lm_head.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), torch.no_grad():
        predict(lens, batch(lens.model), torch.tensor([0]), torch.tensor([2]), torch.tensor([5]))
    handle.remove()
    assert not any("forward" in vars(module) for module in lens.model.modules())
    assert no_cache(lens) == {"use_cache": False}


def test_the_trial_is_seen_by_nobody():
    """The few tokens on which the head is tried belong to no benchmark."""
    lens = headlens.load(build("gpt2"), toy_tokenizer((), mask=False))
    lens.model.train()
    seen = []

    def note(site, output):
        seen.append(tuple(output.shape[:2]))
        return torch.zeros_like(output)

    with torch.no_grad(), lens.edit(note), lens.observe(lambda site, block: seen.append("observed")):
        assert body_of(lens) is not None
        assert seen == []
        lens.model(**batch(lens.model))
    assert seen == ["observed", (3, 11)] * 2
    assert lens.model.training
