"""Looking, padding, backends and ablation: models and seams that are broken in one way each."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import pytest
import torch
import transformers
from transformers.models.bert import modeling_bert

import headlens
from headlens.checks import inputs as fed
from headlens.checks.check import CHECKS, finding_of
from headlens.checks.inputs import Subject
from headlens.model.attention_call import AttentionCall
from headlens.model.seam import Seam
from support.families import ALL, build
from support.findings import failed, found, ok


def test_looking_that_changes_the_model(monkeypatch):
    exact = modeling_bert.eager_attention_forward

    def louder(*arguments, **options):
        output, weights = exact(*arguments, **options)
        return 1.5 * output, weights

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", louder)
    model = build("bert", "sdpa")
    assert "under observation and by 0 after it" in failed(model, "observing")
    assert "eager and sdpa differ by" in failed(model, "backends")


def test_looking_that_leaves_something_behind(monkeypatch):
    exact = headlens.Lens.observe

    @contextmanager
    def observe(self, *arguments, **options):
        with exact(self, *arguments, **options):
            yield
        with torch.no_grad():
            self.model.bert.encoder.layer[0].output.dense.weight[0] += 0.1

    lens = headlens.load(build("bert"))
    subject = Subject(lens)
    with torch.no_grad(), lens.seam.alone():
        _ = subject.plain_logits
        monkeypatch.setattr(headlens.Lens, "observe", observe)
        finding = finding_of(CHECKS["observing"], subject)
    assert not finding.passed
    assert finding.said.startswith("logits change by ")
    assert " and by 0 after it" not in finding.said


def test_taking_nothing_out_that_changes_the_model(monkeypatch):
    monkeypatch.setattr(Seam, "_edited", lambda self, site, output: output + 0.1)
    assert "with no head out" in failed(build("llama"), "no-op")


def test_padding_that_is_not_masked():
    model = build("bert")
    model.bert.register_forward_pre_hook(_without_mask, with_kwargs=True)
    assert failed(model, "padding").startswith("an input beside longer ones: weights differ by ")
    assert failed(model, "left-padding")
    assert ok(model, "batch")


def _without_mask(module, arguments, named):
    return arguments, {name: value for name, value in named.items() if name != "attention_mask"}


def test_positions_that_move(monkeypatch):
    assert ok(build("gpt2"), "left-padding")
    monkeypatch.setattr(fed, "takes_positions", lambda lens: False)
    assert failed(build("gpt2"), "left-padding")
    assert ok(build("gpt2"), "padding")


def test_rows_of_a_batch_that_mix():
    model = build("llama")
    model.model.layers[0].register_forward_hook(lambda m, x, y: y - 0.1 * y.mean(0, keepdim=True))
    assert failed(model, "batch").startswith("an input beside 3 others of its length: weights differ by ")


def test_patterns_that_are_not_the_models_own(monkeypatch):
    exact = AttentionCall.block

    def block(self, start, stop):
        output, pattern, visible = exact(self, start, stop)
        return output, pattern.flip(1), visible  # heads in another order

    monkeypatch.setattr(AttentionCall, "block", block)
    assert "weights differ from those of output_attentions=True by" in failed(build("llama"), "own-patterns")


def test_falcon_with_alibi():
    name, kind, options = ALL["falcon"]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**{**options, "alibi": True})
    findings = headlens.check(headlens.load(getattr(transformers, kind)(config).eval()))
    broken = {one.name: one for one in findings if one.passed is False}
    assert {"observing", "backends"} <= set(broken) <= {"observing", "backends", "evenness"}
    assert broken["backends"].meaning.startswith("Patterns are those of eager attention, but under sdpa")


def silenced(heads: dict[int, list[int]]):
    """A GPT-2 some of whose heads write nothing."""
    model = build("gpt2")
    with torch.no_grad():
        for layer, numbers in heads.items():
            for number in numbers:
                model.transformer.h[layer].attn.c_proj.weight[8 * number : 8 * number + 8] = 0
    return model


def test_dead_heads():
    assert "all 8 heads have an effect" in ok(build("gpt2"), "ablation")
    assert ok(silenced({0: [1], 1: [0, 3]}), "ablation") == (
        "3 of 8 heads are dead (no effect above 1e-06): 0.1, 1.0, 1.3"
    )
    assert failed(silenced({1: [0, 1, 2, 3]}), "ablation") == (
        "no head of layer decoder.1 has an effect above 1e-06"
    )


@pytest.mark.parametrize("size", [1, 3])
def test_few_rows_at_once(size):
    (finding,) = found(silenced({0: [2]}), "ablation", batch_size=size)
    assert finding.passed
    assert finding.said == "1 of 8 heads are dead (no effect above 1e-06): 0.2"


def test_ablation_that_does_nothing(monkeypatch):
    monkeypatch.setattr(headlens.Lens, "ablate", lambda self, heads: nullcontext())
    assert failed(build("llama"), "ablation").startswith(
        "a head that lens.ablate takes out and one that is zeroed by hand differ by "
    )


def test_an_edit_that_does_nothing(monkeypatch):
    monkeypatch.setattr(Seam, "_edited", lambda self, site, output: output)
    assert failed(build("llama"), "ablation") == "no head of layer decoder.0 has an effect above 1e-06"


def test_a_model_that_fails(monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("a\nb")

    model = build("bert")
    monkeypatch.setattr(modeling_bert, "eager_attention_forward", broken)
    findings = {one.name: one for one in headlens.check(headlens.load(model))}
    assert findings["numbers"].said == "the model fails (RuntimeError: a b)"
    assert findings["rows"].passed is None
    assert findings["heads"].passed
