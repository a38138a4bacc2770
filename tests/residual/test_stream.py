"""Where each family adds its attention to the residual stream."""

import pytest
import torch
from transformers import (
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.models.gpt2.modeling_gpt2 import GPT2Block
from transformers.pytorch_utils import Conv1D

import headlens
from headlens.model.trace import run
from headlens.model.unembedding import norm_of
from headlens.residual.stream import StreamPlace, joints_of, noting
from support import families, toys
from support.families import ALL, JOINED, build
from support.streams import by_site

BESIDE = {"gptj", "gpt_neox", "phi", "falcon"}  # attention and MLP are added together
BEHIND = {"gemma3": "post_attention_layernorm"}  # a norm stands between W_O and the addition
PLAIN = {
    *("bert", "roberta", "electra", "albert", "distilbert", "modernbert", "deberta_v2", "mpnet"),
    *("gpt2", "opt", "llama", "mistral", "qwen3", "gpt_oss", "bloom", "gpt_neo", "t5", "bart", "marian"),
}


def hooks(model):
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


class TestFamilies:
    @pytest.mark.parametrize("family", ALL)
    def test_every_site_is_found(self, family):
        lens = headlens.load(build(family))
        found = joints_of(lens)
        assert set(found) == set(lens.anatomy.sites)
        assert {joint.factor for joint in found.values()} == {1}
        assert {joint.parallel for joint in found.values()} == {family in BESIDE}
        assert {joint.norm.rpartition(".")[2] for joint in found.values()} == {BEHIND.get(family, "")}
        assert len({joint.stream for joint in found.values()}) == len(found)
        assert hooks(lens.model) == 0

    def test_every_family_is_known_here(self):
        assert set(ALL) == PLAIN | BESIDE | set(BEHIND)

    @pytest.mark.parametrize("family", JOINED)
    def test_the_stream_and_the_branch_make_what_comes_next(self, family):
        model = build(family)
        lens = headlens.load(model)
        joints, met, branch, joined = joints_of(lens), {}, {}, {}

        def keep(store, key, which):
            return lambda _, taken, put_out: store.update({key: (taken[0] if which else put_out).clone()})

        handles = []
        for part in lens.anatomy.parts:
            output = model.get_submodule(part.projections.output)
            handles.append(output.register_forward_hook(keep(branch, part.site, False)))
            later = model.get_submodule(JOINED[family].format(part.site.layer))
            handles.append(later.register_forward_hook(keep(joined, part.site, True)))
        with torch.no_grad(), noting(model, lambda place, x: met.update({place: x.clone()})):
            run(model)
        for handle in handles:
            handle.remove()
        for site, joint in joints.items():
            torch.testing.assert_close(met[joint.stream] + branch[site], joined[site])


class Block(GPT2Block):
    """A block whose MLP runs first, and whose two branches are joined before they are added."""

    def __init__(self, config, layer_idx=None):
        super().__init__(config, layer_idx)
        self.both = torch.nn.Identity()

    def forward(self, hidden_states, *arguments, **named):
        written = self.mlp(self.ln_2(hidden_states))
        named.pop("use_cache", None)
        attended = self.attn(self.ln_1(hidden_states), *arguments, **named)[0]
        return hidden_states + self.both(attended + written)


class Backwards(GPT2LMHeadModel):
    def __init__(self, config):
        super().__init__(config)
        self.transformer.h = torch.nn.ModuleList(Block(config, layer) for layer in range(config.n_layer))
        self.eval()


class TestPlanted:
    @pytest.mark.parametrize("family", ["gpt2", "llama", "bert", "gptj"])
    def test_a_silent_layer_has_its_place_all_the_same(self, family):
        """Where layers write nothing, nothing is not taken for the stream."""
        model = build(family)
        with torch.no_grad():
            for module in model.base_model.modules():
                if isinstance(module, (torch.nn.Linear, Conv1D)) and module.weight.shape != (32, 32):
                    for parameter in module.parameters():
                        parameter.zero_()
            paths = [part.projections.output for part in headlens.load(model).anatomy.parts]
            for parameter in [p for path in paths for p in model.get_submodule(path).parameters()]:
                parameter.zero_()
        lens = headlens.load(model)
        met = {}
        joints = joints_of(lens)
        assert set(joints) == set(lens.anatomy.sites)
        with torch.no_grad(), noting(model, lambda place, x: met.update({place: x.clone()})):
            run(model)
        assert all(met[joint.stream].abs().min() > 0 for joint in joints.values())

    def test_an_mlp_that_runs_before_attention_is_not_the_stream(self):
        """The stream is found, or nothing: never the other branch, though both are added in one breath."""
        lens = headlens.load(Backwards(build("gpt2").config))
        met, found = {}, joints_of(lens)
        with torch.no_grad(), noting(lens.model, lambda place, x: met.update({place: x.clone()})):
            run(lens.model)
        for site, joint in found.items():
            stream = met[StreamPlace(f"transformer.h.{site.layer}.ln_1", 0, True, 0)]
            torch.testing.assert_close(met[joint.stream], stream)

    @pytest.mark.parametrize("family", ["gpt2", "llama"])
    def test_a_branch_that_is_gated_has_none(self, family):
        model = build(family)
        lens = headlens.load(model)
        first, second = lens.anatomy.sites
        gated = model.get_submodule(first.module)
        gated.register_forward_hook(lambda _, __, out: (out[0] * torch.sigmoid(out[0]), *out[1:]))
        assert set(joints_of(lens)) == {second}

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
    @pytest.mark.parametrize("family", ["bert", "llama", "gptj", "gemma3"])
    def test_other_precisions(self, family, dtype):
        whole = joints_of(headlens.load(build(family)))
        half = joints_of(headlens.load(build(family).to(dtype)))
        assert half == whole

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
    def test_many_layers_in_half_precision(self, dtype):
        """Noise must not pile up from layer to layer; what is unclear all the same is left out."""
        torch.manual_seed(0)
        config = LlamaConfig(**{**families._LLAMA, "num_hidden_layers": 40})
        model = LlamaForCausalLM(config).eval()
        with torch.no_grad():
            for layer, block in enumerate(model.model.layers):
                block.mlp.down_proj.weight *= 1 + layer
        whole = joints_of(headlens.load(model))
        assert len(whole) == 40
        half = joints_of(headlens.load(model.to(dtype)))
        assert half.items() <= whole.items()  # none is wrong
        assert len(half) >= 36  # rounding hides a few: they are left out

    def test_modes_and_chance_stay(self):
        model = build("llama").train()
        lens = headlens.load(model)
        assert lens.anatomy.sites
        state = torch.get_rng_state()
        joints_of(lens)
        assert model.training
        assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("factor", [0.22, -3.0])
def test_a_branch_that_is_multiplied_by_a_number(factor):
    """Granite: what is added is a multiple of what W_O puts out."""
    torch.manual_seed(0)
    config = GraniteConfig(**{**families._LLAMA, "residual_multiplier": factor})
    lens = headlens.load(GraniteForCausalLM(config).eval(), toys.word_tokenizer())
    found = joints_of(lens)
    assert [joint.factor for joint in found.values()] == pytest.approx([factor] * 2, rel=1e-5)
    joined, branch = {}, {}
    for part in lens.anatomy.parts:
        block = lens.model.model.layers[part.site.layer]
        for module, store, which in (
            (block.post_attention_layernorm, joined, 0),
            (block.self_attn.o_proj, branch, 1),
        ):
            module.register_forward_hook(
                lambda _, taken, out, s=store, n=part.site, w=which: s.update({n: (taken[0], out)[w][0]})
            )
    made = headlens.contributions(lens, toys.SOURCE)
    assert made.table["logit"].notna().all()
    for site, values in by_site(lens, made).items():
        stream = joined[site]
        whole = (factor * branch[site] * stream).sum(-1) / stream.square().sum(-1)
        torch.testing.assert_close(torch.tensor(values["stream_share"].sum(0)).float(), whole.detach())


class TestNorms:
    def test_what_is_a_norm(self):
        x = torch.randn(3, 7)
        norms = (torch.nn.LayerNorm(7), torch.nn.RMSNorm(7), torch.nn.LayerNorm(7, elementwise_affine=False))
        assert all(norm_of(module, 7, x) is not None for module in norms)
        others = (
            torch.nn.GELU(),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.0),
            torch.nn.Linear(7, 7),
            torch.nn.Tanh(),
            torch.nn.Softmax(-1),
            torch.nn.Identity(),
            torch.nn.Embedding(9, 7),
        )
        assert all(norm_of(module, 7, x) is None for module in others)

    @pytest.mark.parametrize("width", [7, 8])
    @pytest.mark.parametrize("kind", [torch.nn.LayerNorm, torch.nn.RMSNorm])
    def test_value_is_the_linear_map_at_the_observed_scale(self, kind, width):
        module = kind(width).double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.normal_()
        x = torch.randn(5, width, dtype=torch.float64) + 0.5
        norm, y = norm_of(module, width, x), module(x).detach()
        assert norm.centred == (kind is torch.nn.LayerNorm)
        assert norm.has_offset == (kind is torch.nn.LayerNorm)
        torch.testing.assert_close(norm.weight, module.weight.detach(), rtol=1e-4, atol=1e-4)
        inverse = norm.inverse_scale(x, y)
        torch.testing.assert_close(norm.offset + norm.directed(x) * inverse, y)
        centred = x - x.mean(-1, keepdim=True) if norm.centred else x
        torch.testing.assert_close(1 / inverse[:, 0], centred.square().mean(-1).sqrt(), rtol=1e-3, atol=0)
