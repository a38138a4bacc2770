"""Every family passes its checks, or a line says why one does not apply."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
import transformers

import headlens
from headlens.checks import check as checks
from headlens.checks.inputs import CheckOptions, Subject
from headlens.errors import InputError
from support.families import ALL, VOCAB, build
from support.toytext import toy_tokenizer

NO_TOKENIZER = {"tokens", "words"}
NO_SDPA = {"gpt_oss", "deberta_v2", "bloom", "gpt_neo", "mpnet"}
NO_MASKS = {"deberta_v2", "bloom", "falcon", "gpt_neo", "mpnet"}
NO_POSITIONS = {"bart", "marian"}
EVEN = {"electra", "gemma3"}  # drawn at random, their heads look nearly everywhere alike


def passed(findings) -> dict[str, bool | None]:
    return {one.name: one.passed for one in findings}


def said(findings) -> dict[str, str]:
    return {one.name: one.said for one in findings}


def state(model):
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    implementations = [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]
    return hooks, implementations, [m.training for m in model.modules()], model.config.output_attentions


@pytest.mark.parametrize("family", ALL)
def test_every_family(family):
    model = build(family).train()
    lens = headlens.load(model)
    weights = {name: weight.clone() for name, weight in model.state_dict().items()}
    # transformers installs hooks of its own at the first pass
    model(**few_tokens(model), output_attentions=False)
    model.base_model(**few_tokens(model), output_attentions=True)
    before = state(model)
    findings = headlens.check(lens)
    assert list(passed(findings)) == list(checks.CHECKS)
    failed = {name for name, fine in passed(findings).items() if fine is False}
    assert failed == ({"evenness"} if family in EVEN else set()), findings
    does_not_apply = {name for name, fine in passed(findings).items() if fine is None}
    assert does_not_apply == (
        NO_TOKENIZER
        | ({"backends"} if family in NO_SDPA else set())
        | ({"windows"} if family in NO_MASKS else set())
        | ({"left-padding"} if family in NO_POSITIONS else set())
    )
    assert state(model) == before
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, weights[name])


def few_tokens(model):
    ids = torch.tensor([[5, 6, 7]])
    return {"input_ids": ids, **({"decoder_input_ids": ids} if model.config.is_encoder_decoder else {})}


@pytest.mark.parametrize("family", ["bert", "distilbert", "llama", "t5", "bart"])
def test_with_a_tokenizer(family):
    lens = headlens.load(build(family), toy_tokenizer())
    findings = headlens.check(lens, only_cheap=True)
    assert set(passed(findings)) == {name for name, one in checks.CHECKS.items() if one.cheap}
    assert not [one for one in findings if one.passed is False]
    assert passed(findings)["tokens"]
    assert said(findings)["words"] == "the tokenizer knows none of the words that it was asked"


@pytest.mark.parametrize("kind", ["BertLMHeadModel", "GPT2LMHeadModel"])
def test_a_decoder_that_looks_at_the_states_of_another_model(kind):
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind.partition('LM')[0]}Config")(
        vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, add_cross_attention=True
    )
    config.is_decoder = True
    model = getattr(transformers, kind)(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 0.2)
    findings = headlens.check(headlens.load(model))
    assert {name for name, fine in passed(findings).items() if not fine} == NO_TOKENIZER
    assert "all 16 heads have an effect" in said(findings)["ablation"]


def test_a_decoder_in_a_wrapper_that_hands_all_on():
    torch.manual_seed(0)
    model = transformers.BartForCausalLM(transformers.BartConfig(**ALL["bart"][2])).eval()
    lens = headlens.load(model)
    ids = torch.arange(3, 9)[None]
    with torch.no_grad():
        expected = model.model.decoder(ids).last_hidden_state
        assert torch.equal(lens.run({"input_ids": ids, "token_type_ids": ids})[0], expected)
    assert "input_ids" in lens.arguments
    failed = {name for name, fine in passed(headlens.check(lens)).items() if fine is False}
    assert failed <= {"evenness"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_precisions(dtype):
    lens = headlens.load(build("gpt2").to(getattr(torch, dtype)))
    findings = {one.name: one for one in headlens.check(lens)}
    assert not [one for one in findings.values() if one.passed is False]
    allowed = {"bfloat16": 0.0625, "float16": 0.0078125, "float64": 1e-5}
    assert findings["padding"].allowed == allowed[dtype]


def test_findings_make_a_table():
    table = pd.DataFrame(headlens.check(headlens.load(build("bert")), only_cheap=True))
    assert list(table) == ["name", "passed", "said", "figure", "allowed", "meaning"]
    assert table["meaning"].str.fullmatch(r"[A-Z].*\.").all()


def test_how_inputs_are_drawn():
    lens = headlens.load(build("t5"))
    lengths = [len(source.encoded) for source, _ in Subject(lens, CheckOptions(max_length=9)).pairs]
    assert lengths == [7, 9, 9]
    one, same, other = (
        [source.encoded.inputs["input_ids"] for source, _ in Subject(lens, CheckOptions(seed=seed)).pairs]
        for seed in (0, 0, 1)
    )
    assert one == same != other
    written = [len(target.encoded) for _, target in Subject(lens).pairs]
    assert written == [22, 12, 7]


def test_a_compact_checkpoint(tmp_path):
    headlens.prune(headlens.load(build("bert")), "0.1,1.0", tmp_path / "small", "compact")
    findings = headlens.check(str(tmp_path / "small"))
    assert not [one for one in findings if one.passed is False]
    assert said(findings)["heads"].startswith("a compact checkpoint")


def test_heads_that_are_masked_are_dead(tmp_path):
    headlens.prune(headlens.load(build("bert")), "0.1,1.0", tmp_path / "masked", "masked")
    findings = headlens.check(str(tmp_path / "masked"))
    assert said(findings)["ablation"] == "2 of 8 heads are dead (no effect above 1e-06): 0.1, 1.0"


@pytest.mark.parametrize("family", ["llama", "bloom"])
def test_a_model_that_is_being_edited_is_refused(family):
    lens = headlens.load(build(family))
    with lens.ablate("0.1"), pytest.raises(InputError) as refused:
        headlens.check(lens)
    assert str(refused.value) == (
        "The model is being observed or edited, so it is not itself. Check it outside of with "
        "lens.observe(...) and lens.ablate(...)."
    )
    assert headlens.check(lens, only_cheap=True)
