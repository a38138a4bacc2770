"""Forms, files and refusals of pruned models."""

import json

import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

import headlens
from headlens.errors import InputError, ModelError, RunError, SelectorError
from headlens.model.source import read_compact
from headlens.pruning.forms import FORMS, FormProbe, automatic, cut, masked
from headlens.pruning.plan import stored_dtype
from headlens.pruning.prune import prune
from support import families, toys


def llama(**options):
    return toys.family("llama")


def test_automatic_cuts_what_the_config_can_say_whole():
    lens = llama()
    forms = {
        selector: automatic(lens, lens.anatomy.select(selector)).form
        for selector in ("*.2-3", "0.2-3", "0.1", "1.*")
    }
    assert forms == {"*.2-3": "cut", "0.2-3": "masked", "0.1": "masked", "1.*": "masked"}


def test_cut_silences_what_layers_do_not_have_in_common():
    lens = llama()
    found = cut(lens, lens.anatomy.select("0.0-1,1.*"))
    assert (found.plan.n_cut, found.plan.n_silent) == (4, 2)
    assert found.model.config.num_attention_heads == 2
    assert found.difference < 1e-5


def test_layers_that_a_config_tells_apart_load_in_plain_transformers(tmp_path):
    """Step 3.7 reads the number of heads layer by layer."""
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, "Step3p7TextConfig"):
        pytest.skip("this transformers has no family with heads by layer")
    torch.manual_seed(0)
    config = transformers.Step3p7TextConfig(
        vocab_size=61,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        intermediate_size=48,
        pad_token_id=0,
        n_routed_experts=2,
        num_experts_per_tok=1,
        moe_intermediate_size=16,
        share_expert_dim=16,
        mlp_layer_types=["dense"] * 3,
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        sliding_window=4,
        max_position_embeddings=64,
    )
    lens = headlens.load(transformers.Step3p7TextModel(config))
    found = prune(lens, "0.2-3,1.0-1", tmp_path, "compact")
    assert found.pruned.compact is None
    plain = transformers.Step3p7TextModel.from_pretrained(tmp_path)
    assert [layer.self_attn.q_proj.out_features for layer in plain.layers] == [16, 16, 32]
    assert FormProbe(lens, lens.anatomy.select("0.2-3,1.0-1")).difference(plain.eval()) < 1e-5


class TestProbe:
    def test_it_tells_a_wrong_model(self):
        lens = llama()
        removed = lens.anatomy.select("0.2-3")
        probe = FormProbe(lens, removed)
        assert probe.difference(lens.model) > 100 * probe.tolerance
        assert probe.difference(masked(lens, lens.anatomy.select("0.1-2")).model) > 100 * probe.tolerance
        with pytest.raises(
            ModelError, match="of another kind puts out other values than with the same heads"
        ):
            probe.check(lens.model, "of another kind")

    def test_what_stands_between_heads_and_w_o_is_noticed(self):
        """A norm over all heads: silent rows are not what ablation before the norm gives."""
        lens = headlens.load(families.build("bert"))
        dense = lens.model.bert.encoder.layer[0].attention.output.dense
        handle = dense.register_forward_pre_hook(
            lambda module, arguments: (nn.functional.layer_norm(arguments[0], arguments[0].shape[-1:]),),
            prepend=True,
        )
        with pytest.raises(ModelError, match="puts out other values"):
            masked(lens, lens.anatomy.select("0.1"))
        handle.remove()


class TestFiles:
    def test_everything_goes_along(self, tmp_path):
        source = tmp_path / "source"
        lens = llama()
        lens.model.generation_config.temperature = 0.5
        lens.model.generation_config.do_sample = True
        lens.model.save_pretrained(source)
        lens.tokenizer.save_pretrained(source)
        (source / "LICENSE").write_text("free")
        (source / "1_Pooling").mkdir()
        (source / "1_Pooling" / "config.json").write_text("{}")
        (source / "modules.json").write_text('[{"path": "1_Pooling"}]')
        (source / "README.md").write_text("---\nlicense: mit\n---\n# The old card\n")
        (source / "weights.bin").write_bytes(b"pickle")
        for form in ("cut", "masked", "compact"):
            out = tmp_path / form
            prune(str(source), "*.2-3", out, form)
            names = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
            assert {"LICENSE", "1_Pooling/config.json", "model.safetensors", "config.json"} <= names
            assert {"generation_config.json", "tokenizer.json", "README.md"} <= names
            assert not any(name.endswith(".bin") for name in names)
            card = (out / "README.md").read_text()
            assert card.startswith("---\nlicense: mit\n---\n# ")
            assert "without 4 of 8 attention heads" in card
            assert "Removed (layer.head, both counted from 0): 0.2-3,1.2-3." in card
            assert card.endswith("# The old card\n")
            again = headlens.load(str(out))
            assert again.model.generation_config.temperature == 0.5
            assert again.tokenizer("the dog").input_ids == lens.tokenizer("the dog").input_ids

    def test_weights_keep_the_type_of_the_checkpoint(self, tmp_path):
        lens = llama()
        lens.model.to(torch.bfloat16).save_pretrained(tmp_path / "half")
        for form in ("masked", "cut"):
            prune(str(tmp_path / "half"), "*.2-3", tmp_path / form, form)
            plain = AutoModelForCausalLM.from_pretrained(tmp_path / form)
            assert plain.dtype == torch.bfloat16

    def test_files_say_the_type_not_the_config(self, tmp_path):
        llama().model.save_pretrained(tmp_path / "a")
        config = json.loads((tmp_path / "a" / "config.json").read_text())
        (tmp_path / "a" / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
        found = prune(headlens.load(str(tmp_path / "a")), "*.2-3", tmp_path / "b", "cut")
        assert found.difference < 1e-5
        assert stored_dtype(found.lens) == torch.float32
        before, after = found.bytes_on_disk
        assert before > after > 0
        assert found.lens.source.place == str(tmp_path / "b")

    def test_weights_that_loading_rounded_are_refused(self, tmp_path):
        llama().model.save_pretrained(tmp_path / "a")
        lens = headlens.load(str(tmp_path / "a"), dtype="bfloat16")
        with pytest.raises(InputError, match=r"holds float32 and was loaded as bfloat16.* Leave --dtype out"):
            prune(lens, "*.2-3", tmp_path / "b")
        assert not (tmp_path / "b").exists()

    def test_modules_behind_the_model_go_along_whole(self, tmp_path):
        source = tmp_path / "a"
        llama().model.save_pretrained(source)
        for folder in ("2_Dense", "onnx"):
            (source / folder).mkdir()
            (source / folder / "config.json").write_text("{}")
            (source / folder / "model.safetensors").write_bytes(b"dense" * 10)
        modules = [{"path": ""}, {"path": "2_Dense"}]
        (source / "modules.json").write_text(json.dumps(modules))
        prune(str(source), "*.2-3", tmp_path / "b", "cut")
        assert (tmp_path / "b" / "2_Dense" / "model.safetensors").read_bytes() == b"dense" * 10
        assert not (tmp_path / "b" / "onnx").exists()

    def test_plain_transformers_refuses_a_compact_checkpoint(self, tmp_path, capsys):
        lens = toys.family("bert")
        prune(lens, "0.2", tmp_path, "compact")
        with pytest.raises(ValueError, match="headlens_compact"):
            AutoModel.from_pretrained(tmp_path)
        assert AutoTokenizer.from_pretrained(tmp_path)("the dog").input_ids
        config = json.loads((tmp_path / "config.json").read_text())
        assert config["model_type"] == "headlens_compact"
        assert "_name_or_path" not in config["config"]
        assert read_compact(tmp_path).config["model_type"] == "bert"
        capsys.readouterr()
        assert headlens.load(str(tmp_path)).tokenizer("the dog").input_ids
        assert "headlens_compact" not in capsys.readouterr().err
        assert read_compact(tmp_path / "nowhere") is None

    def test_a_compact_model_is_pruned_again(self, tmp_path):
        lens = headlens.load(families.build("gpt2"))
        prune(lens, "0.2,1.0", tmp_path / "once", "compact")
        found = prune(str(tmp_path / "once"), "0.0", tmp_path / "twice", "compact")
        assert [site.n_heads for site in found.lens.anatomy.sites] == [2, 3]
        with lens.ablate("0.0,0.2,1.0"):
            expected = lens.model(torch.tensor([[5, 6, 7]])).logits
        assert (found.lens.model(torch.tensor([[5, 6, 7]])).logits - expected).abs().max() < 1e-5

    def test_the_model_itself_is_not_overwritten(self, tmp_path):
        prune(llama(), "*.2-3", tmp_path / "a", "cut")
        (tmp_path / "a" / "run.json").write_text("{}")
        with pytest.raises(RunError, match=r"a is the model that is pruned. Choose another"):
            prune(str(tmp_path / "a"), "0.0", tmp_path / "a", "masked")
        assert headlens.load(str(tmp_path / "a")).anatomy.sites[0].n_heads == 2

    def test_nothing_of_an_earlier_result_stays(self, tmp_path):
        out = tmp_path / "out"
        prune(llama(), "*.2-3", out, "cut")
        (out / "run.json").write_text("{}")
        (out / "model-00001-of-00002.safetensors").write_bytes(b"old")
        prune(llama(), "0.1", out, "masked")
        assert [path.name for path in out.glob("*.safetensors*")] == ["model.safetensors"]

    def test_a_checkpoint_that_is_not_right_is_not_left(self, tmp_path, monkeypatch):
        kept, count = FormProbe.difference, []

        def difference(self, model):
            count.append(model)
            return kept(self, model) if len(count) < 2 else 1.0

        monkeypatch.setattr(FormProbe, "difference", difference)
        with pytest.raises(ModelError, match=r"as loaded again puts out other values"):
            prune(llama(), "0.1", tmp_path / "out", "masked")
        assert not list(tmp_path.iterdir())

    def test_other_files_are_not_overwritten(self, tmp_path):
        (tmp_path / "thesis.tex").write_text("years of work")
        with pytest.raises(RunError, match=r"is not empty, and no pruned model of headlens. Choose another"):
            prune(llama(), "0.1", tmp_path)


def test_what_was_read_from_a_gguf_is_saved_as_what_it_stands_for(tmp_path):
    pytest.importorskip("gguf")
    from support.gguf_file import write_llama

    lens = headlens.load(write_llama(tmp_path / "small.gguf"))
    found = prune(lens, "0.1,1.*", tmp_path / "a", "masked")
    assert found.difference < 1e-4
    config = json.loads((tmp_path / "a" / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["dtype"] == "float32"
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "a").eval()
    ids = lens.tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        whole = lens.model(ids).logits
        with lens.ablate("0.1,1.*"):
            ablated = lens.model(ids).logits
        assert (plain(ids).logits - ablated).abs().max() < 1e-4
    assert (whole - ablated).abs().max() > 0.1


class TestRefusals:
    def test_all_heads(self, tmp_path):
        with pytest.raises(InputError, match="All heads of the model would go"):
            prune(llama(), "*.*", tmp_path / "x")

    def test_no_such_form_or_head(self, tmp_path):
        with pytest.raises(
            InputError, match=r"There is no form 'small'. Choose one of: auto, cut, masked, compact"
        ):
            prune(llama(), "0.1", tmp_path / "x", "small")
        with pytest.raises(SelectorError):
            prune(llama(), "7.1", tmp_path / "x")
        assert not (tmp_path / "x").exists()

    def test_part_of_a_group_makes_nothing_smaller(self):
        lens = llama()
        for form in ("compact", "cut"):
            with pytest.raises(ModelError, match=r"no matrix gets smaller. Remove whole groups"):
                FORMS[form](lens, lens.anatomy.select("0.1"))

    def test_quantised_weights_are_refused_by_name(self):
        class Int8Linear(nn.Module):
            def __init__(self, plain):
                super().__init__()
                scale = plain.weight.detach().abs().max() / 127
                self.register_buffer("weight", (plain.weight.detach() / scale).round().to(torch.int8))
                self.scale, self.bias = scale, plain.bias

            def forward(self, x):
                return nn.functional.linear(x, self.weight * self.scale, self.bias)

        model = families.build("bert")
        attention = model.bert.encoder.layer[0].attention
        attention.output.dense = Int8Linear(attention.output.dense)
        lens = headlens.load(model)
        with pytest.raises(
            ModelError, match="is a Int8Linear, not a plain linear layer: no head can be taken out"
        ):
            masked(lens, lens.anatomy.select("0.1"))


@pytest.fixture
def headless(tmp_path):
    """A checkpoint that lacks the language head that its config names."""
    place = tmp_path / "headless"
    model = toys.family("llama").model
    state = {name: value for name, value in model.state_dict().items() if name != "lm_head.weight"}
    model.save_pretrained(place, state_dict=state)
    return str(place)


@pytest.mark.parametrize(("form", "selector"), [("cut", "*.2-3"), ("masked", "0.1")])
def test_what_a_checkpoint_lacked_is_lacking_again(headless, tmp_path, form, selector):
    lens = headlens.load(headless)
    assert lens.missing == ("lm_head.weight",)
    found = prune(lens, selector, tmp_path / "out", form)
    assert found.difference < 1e-5
    assert headlens.load(str(tmp_path / "out")).missing == ("lm_head.weight",)


def test_a_compact_checkpoint_cannot_lack_weights(headless, tmp_path):
    with pytest.raises(ModelError, match=r"lacks 1 weights, such as lm_head.weight: they are random here"):
        prune(headlens.load(headless), "0.2-3", tmp_path / "out", "compact")
    assert not (tmp_path / "out").exists()
