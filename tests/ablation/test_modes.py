"""What stands in a removed head's place, held against another way of computing it in every family."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import headlens
from headlens.errors import InputError, ModelError
from headlens.model.replacements import MODES, gather
from support.families import ALL, BY_HOOKS, batch, build, implementations
from support.toytext import toy_text, toy_tokenizer

SEQ2SEQ = ("t5", "bart", "marian")


def logits(lens, inputs):
    with torch.no_grad():
        return lens.model(**inputs).logits


def one_by_one(lens):
    """The inputs of a batch, each alone and without padding."""
    inputs = batch(lens.model)
    for row in range(len(inputs["input_ids"])):
        yield {
            name: inputs[name][row][inputs[name.replace("input_ids", "attention_mask")][row] != 0][None]
            for name in inputs
        }


@torch.no_grad()
def joined(lens, inputs, part):
    """What W_O of one site receives, heads apart: [row, token, head, width]."""
    seen = []
    layer = lens.model.get_submodule(part.projections.output)
    handle = layer.register_forward_pre_hook(lambda _, taken: seen.append(taken[0]))
    lens.model(**inputs)
    handle.remove()
    calls = [p for p in lens.anatomy.parts if p.projections.output == part.projections.output]
    return seen[calls.index(part)].unflatten(-1, (part.site.n_heads, part.site.head_width))


@torch.no_grad()
def replaced(lens, inputs, part, head, new):
    """Logits when one head's slice of what W_O receives is something else."""
    calls = [p for p in lens.anatomy.parts if p.projections.output == part.projections.output]
    count = [0]

    def hook(_, taken):
        count[0] += 1
        if count[0] - 1 != calls.index(part):
            return None
        heads = taken[0].unflatten(-1, (part.site.n_heads, part.site.head_width)).clone()
        heads[:, :, head] = new
        return (heads.flatten(-2),)

    handle = lens.model.get_submodule(part.projections.output).register_forward_pre_hook(hook)
    found = lens.model(**inputs).logits
    handle.remove()
    return found


def last_parts(lens):
    """The last site of every stack, with a head of it."""
    return [
        ([part for part in lens.anatomy.parts if part.site.stack == stack][-1], 1)
        for stack in lens.anatomy.stacks
    ]


@pytest.mark.parametrize("family", ALL)
def test_mean_is_that_of_all_real_tokens(family):
    lens = headlens.load(build(family))
    inputs = batch(lens.model)
    reference = gather(lens.seam, lambda: logits(lens, inputs), lens.anatomy.sites)
    for part, head in last_parts(lens):
        tokens = torch.cat([joined(lens, row, part)[0] for row in one_by_one(lens)])  # [token, head, width]
        torch.testing.assert_close(
            reference.means[part.site], tokens.double().mean(dim=0), atol=1e-6, rtol=1e-4
        )
        assert reference.tokens[part.site] == len(tokens)
        name = f"{part.site.stack}.{part.site.layer}.{head}"
        expected = replaced(lens, inputs, part, head, tokens[:, head].mean(dim=0))
        with lens.ablate(name, "mean", reference):
            torch.testing.assert_close(logits(lens, inputs), expected, atol=1e-5, rtol=1e-4)
        assert not torch.allclose(logits(lens, inputs), expected, atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "bloom"])
def test_a_reference_does_not_depend_on_batches(family):
    lens = headlens.load(build(family))
    whole = gather(lens.seam, lambda: logits(lens, batch(lens.model)), lens.anatomy.sites)
    apart = gather(
        lens.seam, lambda: [logits(lens, row) for row in one_by_one(lens)][::-1], lens.anatomy.sites
    )
    for site in lens.anatomy.sites:
        torch.testing.assert_close(whole.means[site], apart.means[site], atol=1e-6, rtol=1e-5)
        assert sorted(whole.pool[site.stack]) == sorted(apart.pool[site.stack])
        for name in whole.pool[site.stack]:
            torch.testing.assert_close(whole.other(site, name), apart.other(site, name), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("family", ALL)
def test_resample_is_the_output_on_another_input(family):
    lens = headlens.load(build(family))
    inputs, rows = batch(lens.model), list(one_by_one(lens))
    reference = gather(lens.seam, lambda: logits(lens, inputs), lens.anatomy.sites, seed=2)
    for part, head in last_parts(lens):
        outputs = [joined(lens, row, part)[0][:, head] for row in rows]  # [token, width] of each input
        with lens.ablate(f"{part.site.stack}.{part.site.layer}.{head}", "resample", reference):
            found, alone = logits(lens, inputs), [logits(lens, row) for row in rows]
        for index, row in enumerate(rows):
            length = len(outputs[index])
            candidates = []
            for other in set(range(3)) - {index}:
                times = -(-length // len(outputs[other]))
                new = outputs[other].repeat(times, 1)[:length]
                candidates.append(replaced(lens, row, part, head, new)[0])
            width = len(candidates[0])
            close = [torch.allclose(found[index, :width], c, atol=1e-4, rtol=1e-3) for c in candidates]
            assert sum(close) == 1
            torch.testing.assert_close(alone[index][0], candidates[close.index(True)], atol=1e-4, rtol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "gpt2", "llama", "mistral", "bart"])
def test_uniform_is_a_head_whose_query_is_zero(family):
    """Logits of a head without query are all 0: softmax is uniform over the keys that may be seen."""
    for implementation in implementations(family):
        lens = headlens.load(build(family, implementation))
        inputs = batch(lens.model)
        for part, head in last_parts(lens):
            model = copy.deepcopy(lens.model)
            layer = model.get_submodule(part.projections.query[0])
            place = slice(head * part.key_width, (head + 1) * part.key_width)
            if type(layer).__name__ == "Conv1D":
                layer.weight[:, place] = 0
            else:
                layer.weight[place] = 0
            if layer.bias is not None:
                layer.bias[place] = 0
            mask = inputs.get("decoder_attention_mask", inputs["attention_mask"]) != 0
            with lens.ablate(f"{part.site.stack}.{part.site.layer}.{head}", "uniform"):
                found = logits(lens, inputs)
            torch.testing.assert_close(found[mask], model(**inputs).logits[mask], atol=1e-5, rtol=1e-4)
            assert not torch.allclose(found, logits(lens, inputs), atol=1e-4)


@torch.no_grad()
def test_uniform_in_blocks_is_uniform(monkeypatch):
    lens = headlens.load(build("mistral"))
    inputs = batch(lens.model)
    with lens.ablate("*.2", "uniform"):
        whole = logits(lens, inputs)
        monkeypatch.setattr("headlens.model.attention_call.UNIFORM_CELLS", 40)
        torch.testing.assert_close(logits(lens, inputs), whole)


@torch.no_grad()
def test_a_head_with_constant_output():
    """Without it nothing varies: its mean leaves the logits as they are, zero does not."""
    lens = headlens.load(build("bert"))
    attention = lens.model.bert.encoder.layer[1].attention.self
    attention.value.weight[8:16] = 0  # head 1.1 puts out the bias, whatever it looks at
    inputs = batch(lens.model)
    clean = logits(lens, inputs)
    reference = gather(lens.seam, lambda: logits(lens, inputs), lens.anatomy.sites)
    for mode in ("mean", "resample", "uniform"):
        with lens.ablate("1.1", mode, reference):
            torch.testing.assert_close(logits(lens, inputs), clean, atol=1e-6, rtol=1e-5)
    with lens.ablate("1.1", "zero"):
        assert (logits(lens, inputs) - clean).abs().max() > 0.01


@torch.no_grad()
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "t5", "bloom"])
def test_without_all_heads_only_the_bias_of_w_o_is_left(family):
    lens = headlens.load(build(family))
    inputs = batch(lens.model)
    with lens.ablate(lens.anatomy.heads):
        found = logits(lens, inputs)
    assert torch.isfinite(found).all()
    model = copy.deepcopy(lens.model)
    for part in lens.anatomy.parts:
        model.get_submodule(part.projections.output).weight.zero_()
    torch.testing.assert_close(found, model(**inputs).logits, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_backends_agree_and_nothing_stays_behind(mode):
    found = []
    for implementation in implementations("llama"):
        lens = headlens.load(build("llama", implementation), toy_tokenizer((), mask=False))
        inputs = batch(lens.model)
        clean = logits(lens, inputs)
        texts = [toy_text(n, n) for n in (4, 9, 6)]
        with lens.ablate("0.1,1.*", mode, texts):
            found.append(logits(lens, inputs))
        assert torch.equal(logits(lens, inputs), clean)
        assert lens.seam.given is None
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in lens.model.modules())
    real = inputs["attention_mask"] != 0
    torch.testing.assert_close(found[0][real], found[1][real], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("mode", ["zero", "mean", "resample", "uniform"])
def test_gradients_pass_after_inference(mode):
    lens = headlens.load(build("bert"), toy_tokenizer())
    inputs = batch(lens.model)
    with lens.ablate("0.1", mode, [toy_text(5, seed) for seed in range(3)]):
        with torch.inference_mode():
            before = lens.model(**inputs).logits
        after = lens.model(**inputs).logits
        after.sum().backward()
    torch.testing.assert_close(before, after, rtol=1e-5, atol=1e-6)
    assert lens.model.get_input_embeddings().weight.grad.abs().sum() > 0


def test_a_pass_that_fails_is_forgotten():
    lens = headlens.load(build("bert"))
    inputs = batch(lens.model)
    with lens.edit(lambda site, output: output):
        with pytest.raises(IndexError):
            lens.model(input_ids=torch.tensor([[999]]))
        with pytest.raises(ZeroDivisionError), lens.edit(lambda site, output: 1 / 0):
            lens.model(**inputs)
        assert lens.seam.given is None
        seen = []

        def note(site, output):
            seen.append(lens.seam.given.module)
            return output

        with lens.edit(note):
            logits(lens, inputs)
            lens.model.bert(**inputs)
        assert seen == [lens.model] * 2 + [lens.model.bert] * 2


def test_the_pool_is_bounded(monkeypatch):
    monkeypatch.setattr("headlens.model.replacements.POOL", 5)
    lens = headlens.load(build("bert"), toy_tokenizer())
    texts = [toy_text(3 + n % 5, n) for n in range(20)]
    pools = []
    for order in (texts, texts[::-1]):

        def run(order=order):
            for text in order:
                lens.run(lens.tokenizer(text, return_tensors="pt"))

        pool = gather(lens.seam, run, lens.anatomy.sites, seed=1).pool["encoder"]
        assert all(set(kept) == set(lens.anatomy.sites) for kept in pool.values())
        pools.append(sorted(pool))
    assert len(pools[0]) == 5
    assert pools[0] == pools[1]


def test_what_cannot_be_done_is_said():
    lens = headlens.load(build("bert"), toy_tokenizer())
    inputs = batch(lens.model)
    with pytest.raises(InputError) as caught, lens.ablate("0.1", "mean"):
        pass
    assert str(caught.value) == (
        "The mode mean needs texts that the heads' outputs are taken from. "
        "Write lens.ablate(heads, mode='mean', reference=[text, ...])."
    )
    with pytest.raises(InputError) as caught, lens.ablate("0.1", "median"):
        pass
    assert str(caught.value) == (
        "There is no ablation mode 'median'. Choose one of: zero, mean, resample, uniform."
    )
    with pytest.raises(InputError) as caught, lens.ablate("0.1", "mean", "one text"):
        pass
    assert str(caught.value) == (
        "Expected several texts as reference, and a lens with a tokenizer. Write reference=[text, text, ...]."
    )
    with pytest.raises(InputError) as caught, lens.ablate("0.1", "resample", ["w9 w8"] * 3):
        logits(lens, {**lens.tokenizer("w9 w8", return_tensors="pt")})
    assert str(caught.value) == (
        "The mode resample needs at least two different inputs. Give more, or choose another mode."
    )
    lens = headlens.load(build(next(iter(BY_HOOKS))))
    with pytest.raises(ModelError) as caught, lens.ablate("0.1", "uniform"):
        logits(lens, inputs)
    assert str(caught.value) == (
        "The mode uniform needs the values that heads read, and this model's family does not show them. "
        "Choose the mode zero, mean or resample."
    )


def test_generation_can_be_ablated_by_means():
    lens = headlens.load(build("bart"), toy_tokenizer())
    inputs = {name: batch(lens.model)[name] for name in ("input_ids", "attention_mask")}
    reference = gather(lens.seam, lambda: logits(lens, batch(lens.model)), lens.anatomy.sites)
    clean = lens.model.generate(**inputs, max_new_tokens=6, do_sample=False)
    for mode in ("zero", "mean", "uniform"):
        with lens.ablate("cross.1.*", mode, reference):
            found = lens.model.generate(**inputs, max_new_tokens=6, do_sample=False)
            beams = lens.model.generate(**inputs, max_new_tokens=6, do_sample=False, num_beams=2)
        assert len(beams) == 3
        assert not np.array_equal(found.numpy(), clean.numpy())
    with (
        lens.ablate("cross.1.*", "resample", reference),
        pytest.raises(ModelError, match="needs whole inputs"),
    ):
        lens.model.generate(**inputs, max_new_tokens=6, do_sample=False)
