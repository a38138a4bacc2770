"""Nothing that comes with a model is run or fetched unasked, and nobody is told of anything."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

import headlens
from headlens.ablation.measure import Units
from headlens.cli import main
from headlens.errors import ModelError
from support import refusals
from support.families import build
from support.toytext import toy_pairs, toy_tokenizer, write_lines, write_pairs


@pytest.fixture
def model(tmp_path):
    """A saved model whose folder holds code that leaves a trace when it runs."""
    place = tmp_path / "model"
    build("bert").save_pretrained(place)
    toy_tokenizer().save_pretrained(place)
    code = f"open({str(tmp_path / 'ran')!r}, 'w').write('x')\nclass Evil: pass\nclass EvilConfig: pass\n"
    (place / "evil.py").write_text(code)
    (place / "custom_generate").mkdir()
    (place / "custom_generate" / "generate.py").write_text(code)
    yield place
    assert not (tmp_path / "ran").exists()


def changed(place, name, **more):
    facts = json.loads((place / name).read_text())
    (place / name).write_text(json.dumps(facts | more))


def refused(place):
    return refusals.refused(ModelError, headlens.load, str(place), device="cpu")


AUTO = {"AutoConfig": "evil.EvilConfig", "AutoModel": "evil.Evil", "AutoModelForMaskedLM": "evil.Evil"}


def test_code_of_a_checkpoint_is_left_alone(model):
    changed(model, "config.json", auto_map=AUTO)
    changed(model, "tokenizer_config.json", auto_map={"AutoTokenizer": ["evil.Evil", "evil.Evil"]})
    lens = headlens.load(str(model), device="cpu")
    assert type(lens.model).__name__ == "BertForMaskedLM"


def test_a_model_that_is_nothing_but_code_is_refused_with_the_flag(model):
    changed(model, "config.json", auto_map=AUTO, model_type="evilbert", architectures=["EvilModel"])
    for command in (["describe", str(model)], ["view", str(model), "w5", "--out", str(model / "x.csv")]):
        done = CliRunner().invoke(main, command, input="y\ny\n")  # nobody is asked
        assert done.exit_code == 1
        assert done.stderr.startswith(f"Error: The config of {str(model)!r} cannot be read: The repository ")
        assert done.stderr.endswith("Read that code, and type --trust-remote-code to run it.\n")


@pytest.mark.parametrize(
    "names",
    [["__import__('os').system('x')"], ["../../evil"], ["Trainer", "pipeline", "torch"], ["evil.Evil"]],
)
def test_architectures_are_looked_up_among_models(model, names):
    changed(model, "config.json", architectures=names)
    assert type(headlens.load(str(model), device="cpu").model).__name__ == "BertModel"


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("wanted", ["kernels-community/flash-attn", "evil/attention@main:fn"])
def test_kernels_of_the_hub_are_code(model, key, wanted):
    changed(model, "config.json", **{key: wanted})
    assert refused(model) == (
        f"The config of {str(model)!r} asks for the attention {wanted!r}, which is code on the hub. Remove "
        "attn_implementation from its config.json."
    )
    assert CliRunner().invoke(main, ["describe", str(model)]).exit_code == 1


@pytest.mark.parametrize(
    "target", ["a.bin", "a.pt", "../a.safetensors", "deep/a.safetensors", "{folder}/a.safetensors"]
)
def test_an_index_leads_to_no_pickle_and_to_no_other_place(model, tmp_path, target):
    target = target.format(folder=tmp_path)
    weights = load_file(model / "model.safetensors")
    (model / "model.safetensors").unlink()
    (model / "deep").mkdir()
    if target.endswith(".safetensors"):
        save_file(weights, model / target, {"format": "pt"})
    else:
        torch.save(weights, model / target)
    (model / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": dict.fromkeys(weights, target)})
    )
    name = f"model.safetensors.index.json of {str(model)!r} names {target!r}"
    assert refused(model) == (
        f"{name}, where .safetensors files beside it were expected. headlens reads no pickled files and none "
        "elsewhere: save the model with save_pretrained."
    )


def test_an_index_of_files_beside_it_is_read(model):
    weights = load_file(model / "model.safetensors")
    (model / "model.safetensors").rename(model / "part.safetensors")
    (model / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": dict.fromkeys(weights, "part.safetensors")})
    )
    assert headlens.load(str(model), device="cpu").missing == ()


class Trace:
    """What runs code when it is unpickled."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "model.pt", "adapter_model.bin"])
def test_a_pickle_under_any_name_does_not_run(model, tmp_path, name):
    (model / "model.safetensors").unlink()
    (model / name).write_bytes(pickle.dumps(Trace(tmp_path / "ran")))
    told = "loads none" if name == "pytorch_model.bin" else "no pickled .bin files."
    assert told in refused(model)


def test_a_pickle_in_a_run_directory_does_not_run(tmp_path):
    units = Units(tmp_path, {})
    np.save(tmp_path / "units" / "baseline.npy", np.array([Trace(tmp_path / "ran")], dtype=object))
    assert units.load("baseline", 1) is None
    (tmp_path / "units" / "baseline.npy").write_bytes(pickle.dumps(Trace(tmp_path / "ran")))
    assert units.load("baseline", 1) is None
    assert not (tmp_path / "ran").exists()


WATCHED = """
import os, socket, sys
def refuse(*given, **more):
    print("CALLED", given, file=sys.stderr)
    raise OSError("no network here")
socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = socket.create_connection = refuse
from headlens.cli import main
for line in sys.stdin.read().splitlines():
    try:
        main(line.split("\\t"))
    except SystemExit as done:
        print("DONE", done.code)
import huggingface_hub.constants, transformers.utils.hub
print("TELEMETRY", "telemetry/off" in transformers.utils.hub.http_user_agent())
"""


def ran(lines, **environment):
    """Commands in a process of its own that no socket leaves."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")
    }
    typed = "\n".join("\t".join(map(str, line)) for line in lines)
    words = [sys.executable, "-c", WATCHED]
    return subprocess.run(
        words, input=typed, text=True, capture_output=True, timeout=300, env=kept | environment
    )


@pytest.mark.slow
def test_a_local_model_needs_no_network_and_tells_nobody(model, tmp_path):
    spec, text = write_pairs(tmp_path / "p.tsv", toy_pairs(12)), write_lines(tmp_path / "l.txt")
    lines = [
        ["describe", model],
        ["view", model, "w5 w6", "--out", tmp_path / "a.html"],
        ["ablate", model, "--benchmark", spec, "--sweep", "layer", "--out", tmp_path / "b"],
        ["similar", model, "--text", text.partition(":")[2], "--out", tmp_path / "c"],
        ["contributions", model, "w5 w6", "--out", tmp_path / "d.csv"],
        ["prune", model, "--heads", "0.1", "--out", tmp_path / "e"],
    ]
    done = ran(lines)
    assert "CALLED" not in done.stderr, done.stderr[-2000:]
    assert done.stdout.count("DONE 0") == len(lines), done.stdout + done.stderr[-2000:]
    assert "TELEMETRY True" in done.stdout


@pytest.mark.slow
def test_offline_no_one_is_asked_for_a_hub_model(tmp_path):
    done = ran(
        [["describe", "someone/some-model"], ["view", "some-model", "x", "--out", "x.png"]],
        HF_HUB_OFFLINE="1",
        HF_HOME=str(tmp_path),
    )
    assert "CALLED" not in done.stderr
    assert done.stdout.count("DONE 1") == 2
    assert done.stderr.count("Error: There is no file or directory") == 2
