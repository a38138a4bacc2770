"""The seam against `transformers` itself, for every family."""

from __future__ import annotations

import threading

import pytest
import torch
import transformers

import headlens
from headlens.model.heads import Site
from support.families import ALL, BY_INTERFACE, batch, build, implementations

SIZES = [1, 5, None]


def own_patterns(model, inputs):
    """The model's own patterns by stack, in order, under eager attention, and its logits."""
    outputs = model(**inputs, output_attentions=True)
    if model.config.is_encoder_decoder:
        found = {
            "encoder": outputs.encoder_attentions,
            "decoder": outputs.decoder_attentions,
            "cross": outputs.cross_attentions,
        }
    else:
        found = {None: outputs.attentions}
    return found, outputs.logits


def real_queries(site: Site, inputs) -> torch.Tensor:
    """Which queries of a site are no padding, [batch, query]."""
    name = (
        "attention_mask"
        if site.stack == "encoder" or "decoder_input_ids" not in inputs
        else "decoder_attention_mask"
    )
    return inputs[name].bool()


@torch.no_grad()
@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
def test_patterns_are_the_models_own(family, left):
    model = build(family, "eager")
    inputs = batch(model, left)
    expected, logits = own_patterns(model, inputs)
    lens = headlens.load(build(family))
    for size in SIZES:
        parts: dict[Site, list[torch.Tensor]] = {}

        def keep(site, block, parts=parts):
            pad = (0, block.n_keys - block.pattern.shape[-1])
            parts.setdefault(site, []).append(torch.nn.functional.pad(block.pattern, pad))

        with lens.observe(keep, block_size=size):
            observed = lens.model(**inputs).logits
        torch.testing.assert_close(observed, logits, atol=1e-5, rtol=0)
        assert tuple(parts) == lens.anatomy.sites
        for stack, patterns in expected.items():
            mine = [torch.cat(parts[s], dim=2) for s in parts if stack in (None, s.stack)]
            assert len(mine) == len(patterns)
            for pattern, own in zip(mine, patterns, strict=True):
                torch.testing.assert_close(pattern, own, atol=1e-6, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("family", ALL)
def test_visible_keys_are_those_that_can_have_weight(family):
    model = build(family)
    lens = headlens.load(model)
    inputs = batch(model, left=True)

    def check(site, block):
        queries = real_queries(site, inputs)[:, block.start : block.stop]
        pattern = block.pattern.transpose(1, 2)[queries]  # [query, head, key]
        visible = block.visible.expand(len(block.pattern), -1, -1, -1)[:, 0][queries]  # [query, key]
        assert torch.equal((pattern > 0).any(1), visible)

    with lens.observe(check, block_size=3):
        model(**inputs)


@torch.no_grad()
@pytest.mark.parametrize(
    ("family", "implementation"), [(family, name) for family in ALL for name in implementations(family)]
)
def test_ablating_a_head_is_zeroing_its_columns_of_w_o(family, implementation):
    lens = headlens.load(build(family, implementation))
    inputs = batch(lens.model)
    parts = [lens.anatomy.parts[0], lens.anatomy.parts[-1]]
    if family == "albert":  # one W_O for all layers
        parts = parts[:1]
    for part in parts:
        site, head = part.site, part.site.heads[1]
        weights = build(family, implementation)
        columns = slice(head.head * site.head_width, (head.head + 1) * site.head_width)
        if family == "albert":
            selector = [h for s in lens.anatomy.sites for h in s.heads if h.head == 1]
        else:
            selector = [head]
        layer = weights.get_submodule(part.projections.output)
        (layer.weight if type(layer).__name__ == "Conv1D" else layer.weight.T)[columns] = 0
        expected = weights(**inputs).logits
        plain = lens.model(**inputs).logits
        with lens.ablate(selector):
            ablated = lens.model(**inputs).logits
        torch.testing.assert_close(ablated, expected, atol=1e-5, rtol=0)
        assert (plain - ablated).abs().max() > 1e-4
        torch.testing.assert_close(lens.model(**inputs).logits, plain, atol=0, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize("family", ALL)
def test_nothing_stays_behind(family):
    model = build(family).train()
    lens = headlens.load(model)
    heads = lens.anatomy.heads
    inputs = batch(model)

    def state():
        hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
        implementations = [m.config._attn_implementation for m in model.modules() if hasattr(m, "config")]
        flags = [m.training for m in model.modules()]
        return hooks, implementations, flags, model.config.output_attentions, sorted(vars(model))

    model(**inputs, output_attentions=False)  # transformers installs hooks of its own at the first pass
    before = state()
    with pytest.raises(ZeroDivisionError), lens.observe(lambda site, block: 1 / 0):
        model(**inputs)
    assert state() == before
    with lens.ablate(heads[:1]), lens.observe(lambda site, block: None), lens.ablate(heads[1:2]):
        model(**inputs)
        assert not model.training
    assert state() == before


@torch.no_grad()
def test_albert_layers_are_told_apart_after_a_broken_pass():
    lens = headlens.load(build("albert"))
    inputs = batch(lens.model)
    seen = []

    def fail_in_layer_1(site, block):
        seen.append(site.layer)
        if len(seen) == 2:
            raise KeyboardInterrupt

    with lens.observe(fail_in_layer_1):
        with pytest.raises(KeyboardInterrupt):
            lens.model(**inputs)
        lens.model(**inputs)
    assert seen == [0, 1, 0, 1, 2]


@torch.no_grad()
def test_observe_and_ablate_nest_in_any_order():
    lens = headlens.load(build("bert"))
    inputs = batch(lens.model)
    with lens.ablate("0.1"):
        expected = lens.patterns(**inputs)
    seen = {}
    with lens.observe(lambda site, block: seen.update({site: block.pattern})), lens.ablate("0.1"):
        lens.model(**inputs)
    for site, pattern in expected.items():
        assert torch.equal(pattern, seen[site])
    other = headlens.load(lens.model)  # a second lens on the same model
    with lens.observe(lambda site, block: seen.clear()), other.ablate("0.*"):
        lens.model(**inputs)
    assert not seen


@torch.no_grad()
def test_grouped_queries_are_ablated_one_by_one():
    lens = headlens.load(build("llama"))
    site = lens.anatomy.sites[0]
    assert (site.n_heads, site.n_kv_heads) == (4, 2)
    before, after = {}, {}
    inputs = batch(lens.model)
    output = lens.model.get_submodule(lens.anatomy.parts[0].projections.output)
    for store, heads in ((before, []), (after, ["0.2"])):
        handle = output.register_forward_pre_hook(lambda m, x, store=store: store.update(x=x[0]))
        with lens.ablate(",".join(heads) if heads else []):
            lens.model(**inputs)
        handle.remove()
    changed = (before["x"] != after["x"]).unflatten(-1, (4, 8)).any(-1).flatten(0, 1).any(0)
    assert changed.tolist() == [False, False, True, False]


def test_two_models_in_two_threads():
    lenses = [headlens.load(build("bert", seed=seed)) for seed in (0, 1)]
    inputs = batch(lenses[0].model)
    alone = [lens.patterns(**inputs) for lens in lenses]
    failures: list[str] = []

    def work(index: int) -> None:
        for _ in range(10):
            for site, pattern in lenses[index].patterns(**inputs).items():
                if not torch.equal(pattern, alone[index][site]):
                    failures.append(f"model {index}, {site}")

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@torch.no_grad()
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_model_that_shares_its_config_is_untouched(implementation):
    import transformers

    config = transformers.BertConfig(**BY_INTERFACE["bert"][2])
    first, second = (
        transformers.BertModel._from_config(config, attn_implementation=implementation).eval()
        for _ in range(2)
    )
    second.config = first.config
    for module in second.modules():
        if hasattr(module, "config"):
            module.config = first.config
    inputs = batch(first)
    plain = second(**inputs).last_hidden_state
    calls: list[Site] = []
    with (
        headlens.load(first).observe(lambda site, block: calls.append(site)),
        headlens.load(first).ablate("*.*"),
    ):
        assert torch.equal(second(**inputs).last_hidden_state, plain)
    assert not calls


@torch.no_grad()
def test_fully_ablated_layer_leaves_the_bias_only():
    lens = headlens.load(build("bert"))
    dense = lens.model.get_submodule(lens.anatomy.parts[0].projections.output)
    outputs = []
    handle = dense.register_forward_hook(lambda m, x, y: outputs.append(y))
    with lens.ablate("0.*"):
        logits = lens.model(**batch(lens.model)).logits
    handle.remove()
    assert torch.equal(outputs[0], dense.bias.expand_as(outputs[0]))
    assert torch.isfinite(logits).all()


def test_no_four_dimensional_mask_is_made(monkeypatch):
    from headlens.model import attention_call as masks

    lens = headlens.load(build("llama"))
    rows = []
    real = masks.sdpa_mask
    monkeypatch.setattr(masks, "sdpa_mask", lambda **k: rows.append(k["q_length"]) or real(**k))
    assert lens.anatomy.sites
    rows.clear()
    with torch.no_grad(), lens.observe(lambda site, block: None, block_size=2):
        lens.model(**batch(lens.model))
    assert rows
    assert max(rows) == 2


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "gpt2", "bart", "deberta_v2"])
def test_dropout_is_off_while_heads_are_looked_at_or_taken_out(family):
    """Also of a model in training mode, whose outputs are otherwise never the same."""
    model = build(family)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout) or type(module).__name__ == "StableDropout":
            module.p = module.drop_prob = 0.5
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.5
    inputs = batch(model)
    lens = headlens.load(model)
    expected, patterns = model(**inputs).logits, lens.patterns(**inputs)
    with lens.ablate(lens.anatomy.heads[:1]):
        ablated = model(**inputs).logits
    model.train()
    assert (model(**inputs).logits - expected).abs().max() > 0.01
    with lens.observe(lambda site, block: None):
        torch.testing.assert_close(model(**inputs).logits, expected, atol=1e-5, rtol=0)
    with lens.ablate(lens.anatomy.heads[:1]):
        torch.testing.assert_close(model(**inputs).logits, ablated, atol=1e-5, rtol=0)
    for site, pattern in lens.patterns(**inputs).items():
        torch.testing.assert_close(pattern, patterns[site], atol=1e-6, rtol=0)
    assert model.training
    assert (model(**inputs).logits - expected).abs().max() > 0.01


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "llama", "t5", "bloom"])
def test_what_the_caller_gives_is_not_edited(family):
    lens = headlens.load(build(family))
    inputs = batch(lens.model)
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    lens.patterns(**inputs)
    lens.run(inputs)
    for mode in ("zero", "uniform"):
        if (family, mode) != ("bloom", "uniform"):
            with lens.ablate(lens.anatomy.heads[:1], mode), lens.observe(lambda site, block: None):
                lens.model(**inputs)
    assert before.keys() == inputs.keys()
    assert all(torch.equal(before[name], tensor) for name, tensor in inputs.items())


HYBRID = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "pad_token_id": 0,
    "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
KINDS = {
    "Lfm2": {"layer_types": ["conv", "full_attention", "conv", "full_attention"]},
    "Qwen3Next": {
        "layer_types": ["linear_attention", "full_attention"] * 2, "head_dim": 8, "linear_num_key_heads": 2,
        "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 2,
        "num_experts_per_tok": 1, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    },
}  # fmt: skip


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_layers_without_attention_are_no_layers_of_attention(kind):
    """Of convolutions and linear attention between layers of attention, these alone, by their own numbers."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**HYBRID, **KINDS[kind])
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
    lens = headlens.load(model)
    assert [(site.layer, site.n_heads, site.n_kv_heads) for site in lens.anatomy.sites] == [
        (1, 4, 2),
        (3, 4, 2),
    ]
    assert [site.module.split(".")[2] for site in lens.anatomy.sites] == ["1", "3"]
    inputs = batch(model)
    found, clean = lens.patterns(**inputs), model(**inputs).logits
    with lens.ablate("3.2"):
        ablated = model(**inputs).logits
    layer = model.model.layers[3].self_attn
    (layer.o_proj if hasattr(layer, "o_proj") else layer.out_proj).weight[:, 16:24] = 0
    torch.testing.assert_close(ablated, model(**inputs).logits, atol=1e-5, rtol=0)
    assert (ablated - clean).abs().max() > 1e-5
    model.set_attn_implementation("eager")
    own = [one for one in model(**inputs, output_attentions=True).attentions if one is not None]
    real = inputs["attention_mask"].bool()
    for one, pattern in zip(own, found.values(), strict=True):
        torch.testing.assert_close(
            pattern.transpose(1, 2)[real], one.transpose(1, 2)[real], atol=1e-6, rtol=0
        )
