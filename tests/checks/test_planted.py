"""Each check fails on a model that is broken in its way, and says so."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext

import pytest
import torch
import transformers
from transformers import masking_utils
from transformers.models.bert import modeling_bert
from transformers.models.gpt_oss import modeling_gpt_oss
from transformers.models.llama import modeling_llama

import headlens
from families import ALL, build
from headlens.attention import Seam
from headlens.call import AttentionCall
from headlens.checks import CHECKS, fed
from headlens.checks.checking import _find
from headlens.checks.subject import Options, Subject


def found(model, *names: str, **options) -> list:
    """What some checks say of a model."""
    lens = model if isinstance(model, headlens.Lens) else headlens.load(model)
    subject = Subject(lens, Options(**options))
    with torch.no_grad(), lens.seam.alone():
        return [_find(name, CHECKS[name], subject) for name in names]


def failed(model, name: str) -> str:
    (finding,) = found(model, name)
    assert finding.passed is False, finding
    return finding.said


def ok(model, name: str) -> str:
    (finding,) = found(model, name)
    assert finding.passed is True, finding
    return finding.said


# --- weights


def test_missing_weights(tmp_path):
    model = build("bert").bert
    model.save_pretrained(tmp_path)
    assert ok(headlens.load(str(tmp_path)), "weights") == "all 39 weights are there, and numbers"
    from safetensors.torch import load_file, save_file

    weights = load_file(tmp_path / "model.safetensors")
    gone = "encoder.layer.1.attention.self.key.weight"
    save_file(
        {k: v for k, v in weights.items() if k != gone}, tmp_path / "model.safetensors", {"format": "pt"}
    )
    lens = headlens.load(str(tmp_path), allow_random_weights=True)
    assert failed(lens, "weights") == f"the checkpoint lacks 1 weights, such as {gone}"
    no_pooler = {k: v for k, v in weights.items() if "pooler" not in k}
    save_file(no_pooler, tmp_path / "model.safetensors", {"format": "pt"})
    assert ok(headlens.load(str(tmp_path)), "weights")


def test_broken_weights_and_what_comes_of_them():
    model = build("bert")
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.self.query.weight[9] = float("nan")  # width 8: head 1
    lens = headlens.load(model)
    assert "encoder.layer.1.attention.self.query.weight holds NaN" in failed(lens, "weights")
    assert failed(lens, "numbers") == "1 of 8 heads look at NaN, first 1.1"
    findings = headlens.check(lens)  # none raises, and none passes that has seen NaN
    fine = {one.name for one in findings if one.passed}
    assert fine == {"heads", "windows", "evenness", "ablation"}  # the last reads a text on which sdpa gives 0
    assert all(one.figure is None or one.figure == one.figure for one in findings)


def test_logits_that_are_no_numbers():
    model = build("bert")
    model.cls.predictions.transform.register_forward_hook(lambda m, x, y: y * float("nan"))
    n = 22 * model.config.vocab_size
    assert failed(model, "numbers") == f"no number where 0 states and {n} logits should be"


# --- heads


def test_a_config_that_lies_about_heads():
    model = build("llama")
    assert ok(model, "heads") == "2 layers have the heads and kv heads that the config says"
    model.config.num_key_value_heads = 4
    assert failed(model, "heads") == (
        "2 counts are not the config's: layer decoder.0 has 2 kv heads, its config says 4"
    )
    model.config.num_key_value_heads, model.config.num_attention_heads = 2, 8
    assert "layer decoder.0 has 4 heads, its config says 8" in failed(model, "heads")


def test_heads_of_both_sides():
    options = {**ALL["bart"][2], "decoder_attention_heads": 8}
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(**options)).eval()
    assert ok(model, "heads") == "6 layers have the heads that the config says"
    model.config.decoder_attention_heads = 2
    assert "layer decoder.0 has 8 heads, its config says 2" in failed(model, "heads")


# --- windows


@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("llama", "2 full layers see all"),
        ("mistral", "2 sliding layers see 3 tokens back"),
        ("gemma3", "1 sliding layer sees 3 tokens back, 1 full layer sees all"),
        ("gpt_oss", "1 sliding layer sees 3 tokens back, 1 full layer sees all"),
        ("modernbert", "2 full layers see all, 2 sliding layers see 2 tokens back"),
        ("t5", "6 full layers see all"),
    ],
)
def test_how_far_layers_see(family, words):
    assert ok(build(family), "windows") == words


def test_chunks():
    config = transformers.Llama4TextConfig(
        **{**ALL["llama"][2], "attention_chunk_size": 4, "intermediate_size_mlp": 48, "num_local_experts": 2},
        layer_types=["chunked_attention", "full_attention"],
    )
    torch.manual_seed(0)
    model = transformers.Llama4ForCausalLM(config).eval()
    assert ok(model, "windows") == "1 chunked layer sees 3 tokens back, 1 full layer sees all"


def test_a_window_that_is_off_by_one(monkeypatch):
    exact = masking_utils.sliding_window_causal_mask_function
    monkeypatch.setattr(masking_utils, "sliding_window_causal_mask_function", lambda size: exact(size + 1))
    assert failed(build("mistral"), "windows") == (
        "2 of 2 layers are wrong: layer decoder.0 sees 4 back and 0 ahead, its config says sliding (4 tokens)"
    )


def test_a_window_that_is_not_there(monkeypatch):
    from transformers.models.gemma3 import modeling_gemma3

    full = modeling_gemma3.create_causal_mask
    monkeypatch.setattr(modeling_gemma3, "create_sliding_window_causal_mask", full)
    assert "1 of 2 layers are wrong: layer decoder.0 sees all back" in failed(build("gemma3"), "windows")


def test_a_window_that_the_config_does_not_say(monkeypatch):
    near = masking_utils.sliding_window_causal_mask_function(5)
    monkeypatch.setattr(masking_utils, "causal_mask_function", near)
    said = failed(build("llama"), "windows")
    assert "layer decoder.0 sees 4 back and 0 ahead, its config says full" in said


# --- numbers in rows


def scaled(function, by: float):
    def eager(*arguments, **options):
        output, weights = function(*arguments, **options)
        return output, weights * by

    return eager


@pytest.mark.parametrize("by", [0.9, 1.1])
def test_rows_that_do_not_sum_to_1(monkeypatch, by):
    monkeypatch.setattr(
        modeling_bert, "eager_attention_forward", scaled(modeling_bert.eager_attention_forward, by)
    )
    model = build("bert")
    for layer in model.bert.encoder.layer:  # a number for each head is no sink by itself
        layer.attention.self.register_parameter("scale", torch.nn.Parameter(torch.ones(4)))
    assert failed(model, "rows") == "rows sum to 1: largest difference 0.1, allowed 1e-05"


def test_sinks(monkeypatch):
    model = build("gpt_oss")
    lens = headlens.load(model)
    kept = [parameter.clone() for name, parameter in model.named_parameters() if name.endswith("sinks")]
    said = ok(lens, "rows")
    subject = Subject(lens)
    sums = torch.cat(
        [
            pattern.sum(-1).flatten()
            for ids in (source.encoded.inputs["input_ids"] for source, _ in subject.pairs)
            for pattern in lens.patterns(input_ids=torch.tensor([ids])).values()
        ]
    )
    assert f"less the sinks' share ({(1 - sums).min():.2g} to {(1 - sums).max():.2g})" in said
    after = [parameter for name, parameter in model.named_parameters() if name.endswith("sinks")]
    assert all(map(torch.equal, kept, after))
    eager = modeling_gpt_oss.eager_attention_forward
    monkeypatch.setattr(modeling_gpt_oss, "eager_attention_forward", scaled(eager, 0.9))
    assert failed(build("gpt_oss"), "rows").startswith("rows sum to 1: largest difference")


# --- causality


def test_a_mask_that_leaks(monkeypatch):
    exact = modeling_llama.create_causal_mask

    def leaking(*arguments, **options):
        return exact(*arguments, **options, or_mask_function=lambda b, h, q, k: (q == 3) & (k == 4))

    monkeypatch.setattr(modeling_llama, "create_causal_mask", leaking)
    assert "layer decoder.0 gives a later token the weight 0." in failed(build("llama"), "causality")


def test_a_causal_model_that_looks_both_ways(monkeypatch):
    monkeypatch.setattr(modeling_llama, "create_causal_mask", modeling_llama_both_ways)
    said = failed(build("llama"), "causality")
    assert said == "layer encoder.0 calls itself causal and sees later tokens"
    model = build("llama")
    model.config.is_causal = False  # as it was meant
    assert "layers that look both ways" in ok(model, "causality")


def modeling_llama_both_ways(**options):
    options.pop("position_ids", None)
    return masking_utils.create_bidirectional_mask(**options)


def test_a_leak_beside_attention():
    model = build("gpt2")
    assert "changes earlier states by 0" in ok(model, "causality")
    model.transformer.h[0].mlp.register_forward_hook(lambda m, x, y: y + 0.1 * y.mean(1, keepdim=True))
    said = failed(model, "causality")
    assert "causal layers give later tokens no weight; another last token changes earlier states" in said


def test_an_encoder_that_does_not_look_ahead(monkeypatch):
    exact = modeling_bert.eager_attention_forward

    def backwards(*arguments, **options):
        output, weights = exact(*arguments, **options)
        return output, weights.tril()

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", backwards)
    said = failed(build("bert"), "causality")
    assert said == "layer encoder.0, which is not causal, gives later tokens no weight"


def test_both_stacks():
    said = ok(build("bart"), "causality")
    assert "look both ways" in said
    assert "causal layers give later tokens no weight" in said


# --- heads that tell nothing apart


def test_uniform_patterns():
    model = build("bert")
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            layer.attention.self.query.weight.zero_()
            layer.attention.self.query.bias.zero_()
    assert failed(model, "evenness") == (
        "the least even head, 0.0, has 1.00 of the largest entropy, allowed 0.95"
    )
    with torch.no_grad():
        model.bert.encoder.layer[1].attention.self.query.weight[8:16].normal_(0, 1)
    assert "the least even head, 1.1, has" in ok(model, "evenness")


# --- looking, and taking nothing out


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
        finding = _find("observing", CHECKS["observing"], subject)
    assert not finding.passed
    assert finding.said.startswith("logits change by ")
    assert " and by 0 after it" not in finding.said


def test_taking_nothing_out_that_changes_the_model(monkeypatch):
    monkeypatch.setattr(Seam, "_edited", lambda self, site, output: output + 0.1)
    assert "with no head out" in failed(build("llama"), "no-op")


# --- what stands beside an input


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


# --- transformers itself


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


# --- ablation


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


# --- a model that fails


def test_a_model_that_fails(monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("a\nb")

    model = build("bert")
    monkeypatch.setattr(modeling_bert, "eager_attention_forward", broken)
    findings = {one.name: one for one in headlens.check(headlens.load(model))}
    assert findings["rows"].said == "the model fails (RuntimeError: a b)"
    assert findings["heads"].passed
