"""The direct effect of heads on a logit, against formulas, replayed passes and planted heads."""

import pytest
import torch

import headlens
from headlens.model.heads import Head
from headlens.residual.contributions import contributions
from headlens.residual.measure import _confined, slopes_of
from headlens.residual.stream import writers_of
from support import planted, toys
from support.families import ALL, build
from support.replay import Held

POSITION, TOKEN = 3, 7
SINGLE = {"gpt_oss"}  # its experts do not run in float64
PRE_NORM = ["gpt2", "llama"]
EMBEDDED = {"gpt2": ("transformer.wte", "transformer.wpe"), "llama": ("model.embed_tokens",)}
MLP = {"gpt2": "transformer.h.{}.mlp", "llama": "model.layers.{}.mlp"}
FINAL = {"gpt2": "transformer.ln_f", "llama": "model.norm"}


def lens_of(family):
    """A model with norms that are far from the identity, in float64, and a tokenizer."""
    model = build(family)
    model = model if family in SINGLE else model.double()
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        name = type(module).__name__
        if "LayerNorm" in name or "RMSNorm" in name:
            module.weight.data = 0.5 + torch.rand(module.weight.shape, generator=generator).to(module.weight)
    return headlens.load(model, toys.word_tokenizer())


def inputs_of(model):
    ids = torch.tensor([[5, 9, 4, 6, 3]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if model.config.is_encoder_decoder:
        inputs |= {"decoder_input_ids": ids.flip(1)[:, :4]}
    return inputs


def final_map(model, family, x):
    """What the final norm makes of parts of its input x [width], at its scale."""
    norm = model.get_submodule(FINAL[family])
    if family == "llama":
        s = (x.square().mean() + norm.variance_epsilon).sqrt()
        return lambda part: part / s * norm.weight.detach()
    s = (x.var(unbiased=False) + norm.eps).sqrt()
    return lambda part: (part - part.mean()) / s * norm.weight.detach()


def kept(model, paths, inputs):
    """What modules put out, and what they took, at the position."""
    out, taken = {}, {}

    def hook(path):
        def note(_, arguments, output):
            out[path] = output[0, POSITION] if output.ndim == 3 and len(output) else output[POSITION]
            taken[path] = arguments[0][0, POSITION]

        return note

    handles = [model.get_submodule(path).register_forward_hook(hook(path)) for path in paths]
    with torch.no_grad():
        logits = model(**inputs).logits[0, POSITION]
    for handle in handles:
        handle.remove()
    return out, taken, logits


class TestFormulas:
    @pytest.mark.parametrize("family", PRE_NORM)
    def test_everything_adds_up_to_the_logit(self, family):
        """Heads and biases from the table; embeddings and MLPs by hand from final norm and unembedding."""
        lens = lens_of(family)
        found = contributions(lens, toys.SOURCE, token="tail", position=POSITION)
        model = lens.model
        inputs = {"input_ids": lens.tokenizer(toys.SOURCE, return_tensors="pt").input_ids}
        mlps = [MLP[family].format(layer) for layer in range(2)]
        out, taken, logits = kept(model, [*EMBEDDED[family], *mlps, FINAL[family]], inputs)
        mapped = final_map(model, family, taken[FINAL[family]])
        row = model.get_output_embeddings().weight.detach()[found.predicted.id]
        others = sum(mapped(out[path]) @ row for path in (*EMBEDDED[family], *mlps))
        norm_bias = getattr(model.get_submodule(FINAL[family]), "bias", None)
        norm_bias = None if norm_bias is None else norm_bias.detach()
        others += 0 if norm_bias is None else norm_bias @ row
        total = found.table["logit"].sum() + float(others)
        assert total == pytest.approx(float(logits[found.predicted.id]), abs=1e-6)
        assert found.logit == pytest.approx(total, abs=1e-4)

    @pytest.mark.parametrize("family", PRE_NORM)
    def test_the_last_layer_by_hand(self, family):
        lens = lens_of(family)
        model, inputs = lens.model, inputs_of(lens.model)
        last = lens.anatomy.parts[-1]
        output = model.get_submodule(last.projections.output)
        _, taken, _ = kept(model, [last.projections.output, FINAL[family]], inputs)
        mapped = final_map(model, family, taken[FINAL[family]])
        row = model.get_output_embeddings().weight.detach()[TOKEN]
        slope = slopes_of(lens, inputs, POSITION, TOKEN).by_site[last.site]
        weight = (
            output.weight.detach() if family == "gpt2" else output.weight.detach().T
        )  # [heads x width, model width]
        joined = taken[last.projections.output]
        for head in range(4):
            place = slice(head * 8, head * 8 + 8)
            written = joined[place] @ weight[place]
            assert float(written @ slope) == pytest.approx(float(mapped(written) @ row), abs=1e-6)

    @pytest.mark.parametrize("family", PRE_NORM)
    def test_removing_a_head_of_the_last_layer_at_the_old_scale(self, family):
        """All else of the pass replayed, the change of the logit is exactly minus its effect."""
        lens = lens_of(family)
        inputs = {"input_ids": lens.tokenizer(toys.SOURCE, return_tensors="pt").input_ids}
        table = contributions(lens, toys.SOURCE, token="tail", position=POSITION)
        last = lens.anatomy.parts[-1]
        with torch.no_grad():
            outputs = []
            module = lens.model.get_submodule(last.projections.output)
            handle = module.register_forward_hook(lambda _, __, output: outputs.append(output))
            lens.model(**inputs)
            with lens.ablate("1.2"):
                lens.model(**inputs)
            handle.remove()
        held = Held(lens.model, inputs, blocks_of(lens))
        change = held.run({(last.projections.output, 0): outputs[1] - outputs[0]}) - held.logits
        effect = table.table.query("layer == 1 and head == 2")["logit"].item()
        assert float(change[0, POSITION, table.predicted.id]) == pytest.approx(-effect, abs=1e-6)

    def test_a_linear_model_by_hand(self):
        """One-hot tokens; W_O copies what a head reads, so head and unembedding meet in one number."""
        model = planted.gpt2({0: planted.same_token()})
        with torch.no_grad():
            for block in model.transformer.h:
                for layer in (block.mlp.c_proj, block.attn.c_proj):
                    layer.weight.zero_()
                    layer.bias.zero_()
            attn = model.transformer.h[0].attn
            size = planted.N_HEADS * planted.WIDTH
            attn.c_attn.weight[:, 2 * size :] = 0
            attn.c_attn.bias[2 * size :] = 0
            attn.c_attn.bias[2 * size] = 2.0  # head 0 reads 2 from every key, in its first number
            attn.c_proj.weight[0, 40] = 3.0  # and writes 6 into direction 40
        lens = headlens.load(model, planted.tokenizer(special=False))
        found = contributions(lens, "dep0 and top1", token=planted.WORDS[4])
        x = torch.zeros(size)  # the stream at the last token: its token, its position, what head 0 writes
        x[planted.ID["top1"]] += 1
        x[len(planted.WORDS) + 2] += 1
        x[40] += 6
        row = model.transformer.wte.weight[4].detach()
        written = torch.zeros(size)
        written[40] = 6
        expected = float(((written - written.mean()) / x.std(unbiased=False)) @ row)
        table = found.table.dropna(subset=["head"]).set_index(["layer", "head"])
        assert table.loc[(0, 0), "logit"] == pytest.approx(expected, rel=1e-5)
        assert table.loc[(0, 0), "written_norm"] == pytest.approx(6)
        assert table.loc[(0, 0), "output_norm"] == pytest.approx(2)
        assert table.loc[(0, 0), "branch_share"] == pytest.approx(1)
        assert table.loc[(0, 0), "stream_share"] == pytest.approx(36 / 38, rel=1e-5)
        assert table.loc[(0, 1), "logit"] == table.loc[(0, 1), "written_norm"] == 0


class TestPlanted:
    @pytest.mark.parametrize("copies", [1.0, -1.0])
    def test_an_induction_head_raises_what_it_copies(self, copies):
        model = planted.induction_gpt2(copies)
        lens = headlens.load(model, planted.tokenizer(special=False))
        raised, other = (
            contributions(lens, "dep1 top4 name2 and dep1", token=token).table.dropna(subset=["head"])
            for token in ("top4", "top5")
        )
        difference = raised["logit"] - other["logit"]  # without what moves all logits alike
        largest = raised.loc[difference.abs().idxmax()]
        assert (largest["layer"], largest["head"]) == (1, 0)
        assert difference.abs().max() * copies == pytest.approx(difference[largest.name])
        assert (difference.abs() > 1e-5).sum() == 1


def blocks_of(lens):
    paths = {site.module for site in lens.anatomy.sites}
    first = [next(i for i, part in enumerate(path.split(".")) if part.isdigit()) for path in paths]
    return {".".join(path.split(".")[:n]) + "." for path, n in zip(paths, first, strict=True)}


class TestFamilies:
    @pytest.mark.parametrize("family", ALL)
    def test_the_slope_is_the_difference_when_all_else_is_replayed(self, family):
        lens = lens_of(family)
        inputs = inputs_of(lens.model)
        if not lens.model.config.is_encoder_decoder:
            assert slopes_of(lens, inputs, 1, TOKEN).lacking == ()
        slopes = slopes_of(lens, inputs, POSITION, TOKEN)
        held = Held(lens.model, inputs, blocks_of(lens))
        generator = torch.Generator().manual_seed(5)
        size, rough = (1e-1, 1e-3) if family in SINGLE else (1e-4, 1e-5)
        several = len(lens.anatomy.stacks) > 1
        assert set(slopes.by_site) == {s for s in lens.anatomy.sites if not several or s.stack != "encoder"}
        assert slopes.logit == pytest.approx(float(held.logits[0, POSITION, TOKEN]), abs=1e-6)
        for path, sites in writers_of(lens).items():
            for turn, site in enumerate(sites):
                if site not in slopes.by_site:
                    continue
                change = torch.randn(32, generator=generator).to(lens.model.dtype) * size
                logits = []
                for sign in (1, -1):
                    added = torch.zeros_like(held.outputs[path][turn])
                    added.view(-1, 32)[POSITION] = sign * change
                    logits.append(held.run({(path, turn): added})[0, POSITION, TOKEN])
                measured = float(logits[0] - logits[1]) / 2
                assert float(slopes.by_site[site] @ change) == pytest.approx(
                    measured, rel=rough, abs=rough * size
                )


def test_nothing_stays_behind():
    lens = lens_of("gpt2")
    before = [parameter.requires_grad for parameter in lens.model.parameters()]
    lens.model.train()
    slopes_of(lens, inputs_of(lens.model), POSITION, TOKEN)
    assert [parameter.requires_grad for parameter in lens.model.parameters()] == before
    assert all(parameter.grad is None for parameter in lens.model.parameters())
    assert all(module.training for module in lens.model.modules())
    assert sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in lens.model.modules()) == 0


@pytest.mark.parametrize("other", [0, 1, 3, 4])
def test_a_gradient_elsewhere_is_seen_at_every_other_position(other):
    gradient = torch.zeros(5, 3)
    gradient[2] = torch.tensor([1.0, -2.0, 0.5])
    assert torch.equal(_confined(gradient, 2), gradient[2])
    gradient[other, 1] = 1e-5
    assert _confined(gradient, 2) is None


def test_a_stream_that_mixes_tokens_has_no_direct_effect():
    lens = lens_of("llama")
    block = lens.model.get_submodule("model.layers.1")
    block.register_forward_hook(lambda _, __, out: out + out.mean(1, keepdim=True))
    slopes = slopes_of(lens, inputs_of(lens.model), POSITION, TOKEN)
    assert slopes.by_site == {}
    assert slopes.lacking == lens.anatomy.sites
    assert Head("decoder", 0, 0) in lens.anatomy.heads
