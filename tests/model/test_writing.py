"""The way from heads to logits, family by family: the final norm as it acts, or None."""

from __future__ import annotations

import math

import pytest
import torch

import headlens
from headlens.corpus.batches import make_batches
from headlens.corpus.inputs import Item
from headlens.corpus.words import Encoded
from headlens.errors import ModelError
from headlens.lens import Lens
from headlens.model.unembedding import Writing
from headlens.scoring.passes import Reader
from headlens.scoring.scorers.copying import Induction
from support.families import ALL, build
from support.handmade import shares


def measured(lens: Lens) -> bool:
    """Whether copying is measured for any head."""
    nothing = (None,) * 8
    encoded = Encoded({"input_ids": [5, 6, 7, 8] * 2}, ("x",) * 8, nothing, (False,) * 8, ())
    reader = Reader([Induction(Writing.of(lens))], lens.anatomy.sites, 1)
    reader.read(lens, make_batches([Item(encoded, 0, ())], 0))
    return not all(map(math.isnan, shares(reader.tallies[0], "copying")))


def random_norms(model):
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and name.endswith("weight"):
            parameter.data = 0.5 + torch.rand(parameter.shape, generator=generator)
    return model


NORMS = {
    "gpt2": "transformer.ln_f",
    "gptj": "transformer.ln_f",
    "gpt_neox": "gpt_neox.final_layer_norm",
    "opt": "model.decoder.final_layer_norm",
    "phi": "model.final_layernorm",
    "llama": "model.norm",
    "mistral": "model.norm",
    "qwen3": "model.norm",
    "gpt_oss": "model.norm",
}


class TestFamilies:
    @pytest.mark.parametrize("family", NORMS)
    def test_the_norm_is_folded_as_it_acts(self, family):
        """A numerical derivative of the final norm is the folded map, but for what changes the scale."""
        model = random_norms(build(family))
        writing = Writing.of(headlens.load(model))
        norm = model.get_submodule(NORMS[family]).double()
        generator = torch.Generator().manual_seed(2)
        x, change = torch.randn(2, 32, generator=generator, dtype=torch.float64)
        x += 0.3
        derivative = (norm(x + 0.01 * change) - norm(x - 0.01 * change)).detach().double() / 0.02
        assert writing.norm.centred == isinstance(norm, torch.nn.LayerNorm)
        if writing.norm.centred:
            x, change = x - x.mean(), change - change.mean()
        scale = x.square().mean().sqrt()
        direction = x / scale
        along = (direction @ change) / 32 * direction  # what only makes x longer
        folded = (change - along) * writing.norm.weight.double() / scale
        torch.testing.assert_close(derivative, folded, atol=1e-3, rtol=0)

    @pytest.mark.parametrize("family", ["bloom", "falcon", "gpt_neo"])
    def test_values_that_are_not_shown_are_not_measured(self, family):
        lens = headlens.load(build(family))
        assert Writing.of(lens) is not None
        assert not measured(lens)

    def test_a_norm_behind_each_output_is_not_linear(self):
        lens = headlens.load(build("gemma3"))
        assert Writing.of(lens) is None
        assert not measured(lens)

    @pytest.mark.parametrize(
        "family",
        ["bert", "roberta", "electra", "albert", "distilbert", "modernbert", "deberta_v2", "mpnet"],
    )
    def test_encoders_are_not_measured(self, family):
        masked = build(family)
        for model in (masked, masked.base_model):
            lens = headlens.load(model)
            assert Writing.of(lens) is None
            assert not measured(lens)

    def test_every_family_is_known_here(self):
        pairs = {"t5", "bart", "marian"}  # encoder and decoder: classify refuses them
        encoders = {name for name, (_, kind, _) in ALL.items() if "MaskedLM" in kind}
        assert set(ALL) == {*NORMS, "bloom", "falcon", "gpt_neo", "gemma3"} | pairs | encoders


class TestNothingStaysBehind:
    def hooks(self, model):
        return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())

    def test_modes_threads_and_chance(self):
        model = build("gpt2").train()
        model.transformer.h[1].eval()
        modes = [module.training for module in model.modules()]
        lens = headlens.load(model)
        assert lens.anatomy.sites
        threads, state = torch.get_num_threads(), torch.get_rng_state()
        assert Writing.of(lens) is not None
        assert [module.training for module in model.modules()] == modes
        assert torch.get_num_threads() == threads
        assert torch.equal(torch.get_rng_state(), state)
        assert self.hooks(model) == 0
        assert all(parameter.grad is None for parameter in model.parameters())

    def test_after_an_exception(self):
        model = build("gpt2").train()
        lens = headlens.load(model)
        assert lens.anatomy.sites

        def fail(*_):
            raise RuntimeError("on the way")

        handle = model.transformer.ln_f.register_forward_hook(fail)
        try:
            with pytest.raises(ModelError, match="on the way"):
                Writing.of(lens)
        finally:
            handle.remove()
        assert self.hooks(model) == 0
        assert all(module.training for module in model.modules())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_folded_alike(dtype):
    model = random_norms(build("gpt2"))
    whole = Writing.of(headlens.load(model))
    half = Writing.of(headlens.load(random_norms(build("gpt2")).to(dtype)))
    assert half.norm.centred
    torch.testing.assert_close(half.norm.weight.float(), whole.norm.weight, atol=0.02, rtol=0)
