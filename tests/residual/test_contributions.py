"""What heads write, against W_O run with one head at a time, by hand, and on planted heads."""

import inspect
import math

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

import headlens
from headlens.corpus.batches import read
from headlens.errors import InputError, ModelError, SelectorError
from headlens.residual.contributions import CONTRIBUTIONS, MEASURES, contributions
from headlens.residual.stream import Sums
from support import toys
from support.families import ALL, JOINED, VOCAB, build
from support.streams import by_site


def measured(lens, **options):
    target = toys.TARGET if lens.model.config.is_encoder_decoder else None
    return contributions(lens, toys.SOURCE, target=target, **options)


def run(lens):
    target = toys.TARGET if lens.model.config.is_encoder_decoder else None
    inputs = read(lens, toys.SOURCE, target=target).inputs
    taken = inspect.signature(lens.model.forward).parameters
    with torch.no_grad():
        lens.model(**{name: value for name, value in inputs.items() if name in taken})


def alone(lens):
    """What each head writes, as W_O with all other heads silent, less W_O with all silent; and all of W_O."""
    paths = {part.projections.output: [] for part in lens.anatomy.parts}
    heads, whole = {}, {}
    for part in lens.anatomy.parts:
        paths[part.projections.output].append(part.site)
    with lens.edit(lambda site, output: heads.setdefault(site, output.clone())):
        run(lens)
    found = {}
    for path, sites in paths.items():
        module = lens.model.get_submodule(path)
        for site in sites:
            z = heads[site][0]  # [token, head, width]
            with torch.no_grad():
                nothing = module(torch.zeros_like(z).flatten(1))
                whole[site] = module(z.flatten(1)).double()
                rows = []
                for head in range(site.n_heads):
                    only = torch.zeros_like(z)
                    only[:, head] = z[:, head]
                    rows.append((module(only.flatten(1)) - nothing).double())
            found[site] = torch.stack([*rows, nothing.double()]), z.double().norm(dim=-1).T
    return found, whole


class TestFamilies:
    @pytest.mark.parametrize("family", ALL)
    def test_heads_one_at_a_time_say_the_same(self, family):
        lens = toys.family(family)
        made = measured(lens)
        parts, whole = alone(lens)
        for site, values in by_site(lens, made).items():
            written, lengths = parts[site]  # [part, token, width]
            count = len(values["written_norm"])  # with or without bias
            branch = whole[site]
            torch.testing.assert_close(written.sum(0), branch, rtol=1e-5, atol=1e-5)
            expected = {
                "written_norm": written.norm(dim=-1),
                "branch_share": (written * branch).sum(-1) / branch.square().sum(-1),
                "cosine": torch.cosine_similarity(written, branch[None], dim=-1),
            }
            for name, answer in expected.items():
                np.testing.assert_allclose(values[name], answer[:count].numpy(), rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(values["output_norm"][: site.n_heads], lengths.numpy(), rtol=1e-5)
            assert np.isnan(values["output_norm"][site.n_heads :]).all()
            np.testing.assert_allclose(values["branch_share"].sum(0), 1, atol=1e-5)

    @pytest.mark.parametrize("family", JOINED)
    def test_the_share_of_a_stream_met_elsewhere(self, family):
        lens = toys.family(family)
        made, (parts, _), joined = measured(lens), alone(lens), {}
        for site in lens.anatomy.sites:
            lens.model.get_submodule(JOINED[family].format(site.layer)).register_forward_hook(
                lambda _, taken, __, site=site: joined.update({site: taken[0][0].double()})
            )
        run(lens)
        for site, values in by_site(lens, made).items():
            stream = joined[site]
            share = (parts[site][0] * stream).sum(-1) / stream.square().sum(-1)
            count = len(values["stream_share"])
            np.testing.assert_allclose(values["stream_share"], share[:count].numpy(), rtol=1e-4, atol=1e-6)

    def test_a_norm_behind_the_branch(self):
        """Gemma 3: parts pass the norm at its scale, and add up to what it puts out."""
        lens = toys.family("gemma3")
        made, (parts, _), seen = measured(lens), alone(lens), {}
        for site in lens.anatomy.sites:
            block = lens.model.model.layers[site.layer]
            block.post_attention_layernorm.weight.data.uniform_(-0.5, 0.5)
            for module, key in (
                (block.post_attention_layernorm, "norm"),
                (block.pre_feedforward_layernorm, "r"),
            ):
                module.register_forward_hook(
                    lambda _, taken, out, k=(key, site): seen.update(
                        {k: (taken[0][0].double(), out[0].double())}
                    )
                )
        made = measured(lens)
        parts, _ = alone(lens)
        seen.clear()
        run(lens)
        for site, values in by_site(lens, made).items():
            taken, put_out = seen["norm", site]
            stream = seen["r", site][0]
            weight = 1 + lens.model.model.layers[site.layer].post_attention_layernorm.weight.double()
            scale = (taken.square().mean(-1, keepdim=True) + 1e-6).sqrt()
            added = parts[site][0][:4] / scale * weight
            torch.testing.assert_close(added.sum(0), put_out.detach(), rtol=1e-4, atol=1e-4)
            share = (added * stream).sum(-1) / stream.square().sum(-1)
            np.testing.assert_allclose(values["stream_share"], share.detach().numpy(), rtol=1e-4, atol=1e-5)


def shares(parts, stream):
    sums = Sums(sum(parts), stream, None)
    for part in parts:
        sums.add(part, part, part.norm(dim=-1))
    torch.testing.assert_close(sums.total, sums.branch)
    return sums.arrays()


def test_shares_by_hand():
    """Two heads at right angles, 3 and 4 long, onto a stream of (0, 0, 5)."""
    one, two = torch.tensor([[3.0, 0, 0]]), torch.tensor([[0, 4.0, 0]])
    found = shares([one, two], one + two + torch.tensor([[0, 0, 5.0]]))
    assert found["written_norm"].tolist() == [[3], [4]]
    np.testing.assert_allclose(found["branch_share"], [[9 / 25], [16 / 25]], rtol=1e-6)
    np.testing.assert_allclose(found["cosine"], [[0.6], [0.8]], rtol=1e-6)
    np.testing.assert_allclose(found["stream_share"], [[9 / 50], [16 / 50]], rtol=1e-6)


def test_a_head_against_the_others_has_a_negative_share():
    one, two = torch.tensor([[3.0]]), torch.tensor([[-1.0]])
    found = shares([one, two], None)
    assert found["branch_share"].tolist() == [[1.5], [-0.5]]
    assert found["cosine"].tolist() == [[1], [-1]]
    assert np.isnan(found["stream_share"]).all()


class TestPlanted:
    def test_a_head_without_values_writes_nothing(self):
        lens = toys.family("gpt2")
        attn = lens.model.transformer.h[1].attn.c_attn
        with torch.no_grad():
            attn.weight[:, 64 + 16 : 64 + 24] = 0  # the values of head 2
            attn.bias[64 + 16 : 64 + 24] = 0
        table = measured(lens).table.set_index(["layer", "head"])
        silent = table.loc[(1, 2)]
        assert silent[["output_norm", "written_norm", "branch_share", "stream_share", "logit"]].eq(0).all()
        assert math.isnan(silent["cosine"])
        assert (table.loc[(1, 1), ["output_norm", "written_norm"]] > 0.01).all()

    def test_a_layer_that_writes_nothing_has_no_shares(self):
        lens = toys.family("llama")
        lens.model.model.layers[0].self_attn.o_proj.weight.data.zero_()
        table = measured(lens).table.query("layer == 0")
        assert table["written_norm"].eq(0).all()
        assert table[["branch_share", "cosine"]].isna().all(axis=None)
        assert table[["stream_share", "logit"]].eq(0).all(axis=None)

    def test_a_gated_branch_has_no_stream_and_no_logit(self):
        lens = toys.family("gpt2")
        attn = lens.model.get_submodule(lens.anatomy.sites[0].module)
        attn.register_forward_hook(lambda _, __, out: (out[0] * torch.sigmoid(out[0]), *out[1:]))
        made = measured(lens)
        missing = made.table.isna()[["stream_share", "logit"]].all(axis=1)
        assert missing.tolist() == (made.table["layer"] == 0).tolist()
        assert made.notes == (
            "Where decoder.0 adds what it writes to the residual stream was not found: its stream_share and "
            "logit are empty.",
        )

    def test_a_norm_before_w_o_is_refused(self):
        config = transformers.BitNetConfig(
            vocab_size=VOCAB, hidden_size=32, num_hidden_layers=1, num_attention_heads=4,
            num_key_value_heads=4, intermediate_size=48, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        torch.manual_seed(0)
        lens = headlens.load(transformers.BitNetForCausalLM(config), toys.word_tokenizer())
        with pytest.raises(
            ModelError, match=r"^What the heads of BitNetForCausalLM write does not add up to"
        ):
            measured(lens)


class Adapted(torch.nn.Linear):
    """No plain linear layer: its weights are not where one would look for them."""

    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_that_is_no_plain_one(bias):
    """Twice W_O in the layer's own way, and in the weights of a plain one."""
    tables = []
    for kind, factor in ((Adapted, 1), (torch.nn.Linear, 2)):
        lens = toys.family("bert" if bias else "llama")
        paths = [part.projections.output for part in lens.anatomy.parts]
        for path in paths:
            old = lens.model.get_submodule(path)
            made = kind(32, 32, bias=bias)
            made.weight.data = old.weight.data * factor
            if bias:
                made.bias.data = old.bias.data * factor
            lens.model.set_submodule(path, made)
        tables.append(measured(lens, position=1).table)
    pd.testing.assert_frame_equal(*tables, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["bert", "llama", "gptj", "gemma3"])
def test_half_precision_says_about_the_same(name, dtype):
    whole = measured(toys.family(name), position=1, token="dog")
    half = measured(headlens.load(build(name).to(dtype), toys.word_tokenizer()), position=1, token="dog")
    assert half.notes == whole.notes
    for measure in MEASURES:
        one, two = (made.table[measure].to_numpy(float) for made in (whole, half))
        np.testing.assert_allclose(one, two, atol=0.05 * np.nanmax(np.abs(one)), rtol=0.05)


class TestTable:
    def test_columns_and_the_rows_of_biases(self):
        table = measured(toys.family("bert"), position=1).table
        assert list(table) == CONTRIBUTIONS
        assert (
            table["head"].astype(object).where(table["head"].notna(), None).tolist() == [0, 1, 2, 3, None] * 2
        )
        assert table[["position", "token"]].isna().all(axis=None)
        assert table.groupby("layer")["branch_share"].sum().to_numpy() == pytest.approx([1, 1])
        assert measured(toys.family("llama")).table["head"].notna().all()

    def test_means_of_the_long_table(self):
        made = measured(toys.family("gpt2"))
        long = made.per_token
        assert list(long) == CONTRIBUTIONS
        n_tokens = len(made.tokens["decoder"])
        assert len(long) == n_tokens * len(made.table)
        assert list(long["token"][:5]) == toys.SOURCE.split()
        means = long.groupby(["layer", "head"], dropna=False)[list(MEASURES)].mean()
        expected = made.table.set_index(["layer", "head"])[list(MEASURES)]
        pd.testing.assert_frame_equal(means, expected)
        assert set(long.dropna(subset=["logit"])["position"]) == {made.position}

    def test_heads_that_are_asked_for(self):
        whole, some = (
            measured(toys.family("bert")).table,
            measured(toys.family("bert"), heads="1.1,1.3").table,
        )
        assert some["head"].tolist() == [1, 3]
        expected = whole[(whole["layer"] == 1) & whole["head"].isin([1, 3])]
        pd.testing.assert_frame_equal(some, expected.reset_index(drop=True))
        with pytest.raises(SelectorError):
            measured(toys.family("bert"), heads="5.0")

    def test_stacks_of_an_encoder_decoder(self):
        made = measured(toys.family("bart"))
        assert set(made.table["stack"]) == {"encoder", "decoder", "cross"}
        assert made.table[made.table["stack"] == "encoder"]["logit"].isna().all()
        assert made.table[made.table["stack"] != "encoder"]["logit"].notna().all()
        assert made.notes == (
            "The encoder's heads write to no stream that the language head reads: their logit is empty.",
        )
        assert made.position == len(made.tokens["cross"]) - 1

    def test_an_ablated_model_is_measured_as_it_is(self):
        lens = toys.family("gpt2")
        with lens.ablate("0.1"):
            table = measured(lens).table.set_index(["layer", "head"])
        assert table.loc[(0, 1), "written_norm"] == 0
        assert measured(lens).table.set_index(["layer", "head"]).loc[(0, 1), "written_norm"] > 0


class TestPrediction:
    def test_the_last_position_and_the_first_choice(self):
        lens = toys.family("gpt2")
        made = measured(lens)
        inputs = lens.tokenizer(toys.SOURCE, return_tensors="pt").input_ids
        with torch.no_grad():
            logits = lens.model(inputs).logits[0, -1]
        assert (made.position, made.predicted.id) == (inputs.shape[1] - 1, int(logits.argmax()))
        assert made.logit == pytest.approx(float(logits.max()), abs=1e-5)
        assert made.predicted.probability == pytest.approx(float(logits.softmax(-1).max()), abs=1e-5)

    def test_a_masked_model_needs_a_mask(self):
        lens = toys.family("bert")
        made = measured(lens)
        assert (made.token, made.position) == (None, None)
        assert math.isnan(made.logit)
        assert made.table["logit"].isna().all()
        assert made.notes == (
            "The text has no mask token, so no token is predicted and logit is empty: write [MASK] where a "
            "word shall be filled in, or choose --position N.",
        )
        lens.tokenizer.add_special_tokens({"mask_token": "dog"})
        made = measured(lens)
        assert made.position == 1
        assert made.table["logit"].notna().all()

    def test_no_language_head(self):
        lens = headlens.load(build("bert").bert, toys.word_tokenizer())
        made = measured(lens)
        assert made.notes == (
            "BertModel has no language head, so heads have no effect on a logit: logit is empty.",
        )
        assert made.table["stream_share"].notna().all()

    def test_a_token_of_ones_choice(self):
        lens = toys.family("gpt2")
        made = measured(lens, token="tail", position=2)
        assert (made.token, made.position) == ("tail", 2)
        assert measured(lens, position=0).position == 0
        with pytest.raises(InputError) as error:
            measured(lens, token="dog tail")
        assert str(error.value) == (
            "--token must be one token, but 'dog tail' is 2: dog | tail. Give one of them, or another word; "
            "a blank before a word counts."
        )
        with pytest.raises(InputError, match="The tokenizer does not know --token 'cat'"):
            measured(lens, token="cat")
        with pytest.raises(InputError) as error:
            measured(lens, position=9)
        assert str(error.value) == (
            "There is no position 9: the text has 6 tokens. Positions count from 0: give one from 0 to 5."
        )


def test_by_the_lens_and_by_the_package():
    lens = toys.family("gpt2")
    pd.testing.assert_frame_equal(
        lens.contributions(toys.SOURCE).table, headlens.contributions(lens, toys.SOURCE).table
    )
