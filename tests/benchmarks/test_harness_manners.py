from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path

import pytest
import torch
import transformers

import headlens
from headlens.ablation.sweep import sweep
from headlens.benchmarks import harness as harness_tasks
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.registry import open_benchmark
from headlens.errors import InputError, ModelError, RunError
from support.families import build
from support.toytasks import ROLLING, WRITING, lens_of, task
from support.toytext import toy_tokenizer

tasks = pytest.importorskip("lm_eval.tasks")


def test_the_model_is_left_as_it_was(tmp_path):
    model = build("gpt2")
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone() + 0.1)  # tied by config
    lens = headlens.load(model, toy_tokenizer((), mask=False))
    lens.tokenizer.pad_token = None
    lens.tokenizer.padding_side = "right"
    model.train()
    model.transformer.h[0].eval()
    modes = [module.training for module in model.modules()]
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    implementation = model.config._attn_implementation
    benchmark = open_benchmark(f"harness:{task(tmp_path)}", lens)
    benchmark.measure(lens)
    assert [module.training for module in model.modules()] == modes
    assert model.lm_head.weight is not model.transformer.wte.weight
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.state_dict().items())
    assert "tie_weights" not in vars(model)
    assert (lens.tokenizer.pad_token, lens.tokenizer.padding_side) == (None, "right")
    assert model.config._attn_implementation == implementation


def test_nothing_is_printed_and_loggers_are_put_back(tmp_path, capfd):
    level = logging.getLogger("lm_eval").level
    lens = lens_of()
    lens.tokenizer.model_max_length = 12  # lm_eval warns of what it cuts
    specs = [task(tmp_path, shots=2), task(tmp_path, WRITING, "write"), task(tmp_path, ROLLING, "stream")]
    open_benchmark(f"harness:{','.join(specs)}", lens).measure(lens)
    assert capfd.readouterr() == ("", "")
    assert logging.getLogger("lm_eval").level == level


def test_a_run_goes_on_unless_the_task_changes(tmp_path):
    lens, spec = lens_of(), task(tmp_path)
    run = {"heads": "0.0-1", "out": tmp_path / "run"}
    assert sweep(lens, f"harness:{spec}", **run).run["conditions_reused"] == 0
    assert sweep(lens, f"harness:{spec}", **run).run["conditions_reused"] == 2
    path, data = Path(spec), tmp_path / "toy.jsonl"
    texts = path.read_text(), data.read_text()
    path.write_text(texts[0].replace("num_fewshot: 0", "num_fewshot: 1"))
    with pytest.raises(RunError, match="its benchmark tasks is"):
        sweep(lens, f"harness:{spec}", **run)
    path.write_text(texts[0])
    data.write_text(texts[1].replace("w1", "w2"))
    with pytest.raises(RunError, match="its benchmark tasks is"):
        sweep(lens, f"harness:{spec}", **run)


def test_bad_tasks_are_told(tmp_path, monkeypatch):
    lens = lens_of()
    path = Path(task(tmp_path))
    text = path.read_text()

    def told(spec) -> str:
        with pytest.raises(InputError) as caught:
            open_benchmark(f"harness:{spec}", lens)
        return str(caught.value)

    assert (
        told(tmp_path / "x.yaml")
        == f"Expected a file at {tmp_path / 'x.yaml'}, found nothing. Check the path."
    )
    assert told(task(tmp_path, n=9, name="few")) == (
        f"{tmp_path / 'few.yaml'}: expected at least 10 examples, found 9. Take a longer task, or several."
    )
    path.write_text(text.partition("metric_list")[0] + "metric_list:\n  - metric: mcc\n  - metric: f1\n")
    assert told(path) == (
        f"No metric of {path} is a mean over examples: mcc, f1. Choose another task, or list the metric acc "
        "in its metric_list."
    )
    path.write_text(text.replace(str(tmp_path / "toy.jsonl"), str(tmp_path / "gone.jsonl")))
    assert told(path) == (
        f"The task {path} cannot be loaded: Unable to find '{tmp_path / 'gone.jsonl'}'. Correct its .yaml "
        "file and its data."
    )
    path.write_text(text.replace("doc_to_text", "unsafe_code: true\ndoc_to_text"))
    assert told(path) == (
        "The task toy needs pictures or sound, or runs code that a model wrote. Choose a task of plain text."
    )


def test_the_network_is_asked_only_for_what_is_not_here(monkeypatch):
    from huggingface_hub import constants

    asked = []

    class Manager:
        def load(self, places):
            asked.append(constants.HF_HUB_OFFLINE)
            if len(asked) == 1:
                raise ConnectionError("not here")
            return {"tasks": {"toy": places}}

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(harness_tasks, "_hub_answers", lambda: True)
    assert harness_tasks._loaded(Manager(), "toy", "toy.yaml") == {"toy": ["toy.yaml"]}
    assert harness_tasks._loaded(Manager(), "toy", "toy.yaml") == {"toy": ["toy.yaml"]}
    assert asked == [True, False, True]
    assert constants.HF_HUB_OFFLINE is False


def test_a_task_that_needs_the_network_is_told_at_once(tmp_path):
    path = Path(task(tmp_path))
    head, _, tail = path.read_text().partition("dataset_kwargs:\n")
    path.write_text(head.replace("json", "nobody/nothing") + tail.partition("\n")[2])
    start = time.monotonic()
    with pytest.raises(InputError) as caught:
        open_benchmark(f"harness:{path}", lens_of())
    assert time.monotonic() - start < 10
    assert str(caught.value) == (
        f"The task {path} cannot be loaded: Couldn't reach 'nobody/nothing' on the Hub "
        "(OfflineModeIsEnabled). Load it once with network, or name a .yaml file whose data are on this "
        "machine."
    )


def test_names_that_lm_eval_does_not_know(monkeypatch):
    place = sys.modules[tasks.TaskManager.__module__]  # one folder of names: all take many seconds
    monkeypatch.setattr(place, "__file__", str(Path(place.__file__).parent / "blimp" / "all.py"))
    with pytest.raises(InputError) as caught:
        open_benchmark("harness:no_such_task", lens_of())
    assert str(caught.value) == (
        "lm-evaluation-harness has no task 'no_such_task'. Name one of `lm_eval ls tasks`, or the path of a "
        "task's .yaml file."
    )


def test_unfit_models_are_refused(tmp_path):
    spec = f"harness:{task(tmp_path)}"
    for model, kind in ((build("bert"), "BertForMaskedLM"), (build("gpt2").transformer, "GPT2Model")):
        with pytest.raises(ModelError) as caught:
            open_benchmark(spec, headlens.load(model, toy_tokenizer()))
        assert str(caught.value) == (
            f"The benchmark harness needs a model that writes text, but this is a {kind}. Take a checkpoint "
            "whose class ends in ForCausalLM, LMHeadModel or ForConditionalGeneration."
        )
    writing = f"harness:{task(tmp_path, WRITING)}"
    with pytest.raises(ModelError) as caught:
        open_benchmark(writing, headlens.load(build("gpt2"), toy_tokenizer()))
    assert str(caught.value) == (
        "lm-evaluation-harness needs a tokenizer with a BOS or EOS token, to write text one with an EOS "
        "token; this one has none. Set tokenizer.eos_token."
    )


def test_a_head_that_was_never_trained_is_refused(tmp_path):
    config = build("gpt2").config
    config.tie_word_embeddings = False
    transformers.GPT2Model(config).save_pretrained(tmp_path / "m")
    toy_tokenizer().save_pretrained(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": ["GPT2LMHeadModel"]}))
    lens = headlens.load(str(tmp_path / "m"))
    with pytest.raises(ModelError) as caught:
        open_benchmark(f"harness:{task(tmp_path)}", lens)
    assert str(caught.value) == (
        "The checkpoint lacks weights of the language-model head of GPT2LMHeadModel: lm_head.weight. Use a "
        "complete checkpoint, or --allow-random-weights to measure it all the same."
    )
    open_benchmark(f"harness:{task(tmp_path)}", lens, BenchmarkOptions(allow_random_weights=True))


def test_without_lm_eval_there_is_a_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "lm_eval.tasks", raising=False)
    monkeypatch.delitem(sys.modules, "lm_eval.models.huggingface", raising=False)
    with pytest.raises(InputError) as caught:
        open_benchmark(f"harness:{task(tmp_path)}", lens_of())
    assert str(caught.value).startswith(
        "The benchmark harness needs the package lm_eval, which cannot be imported: "
    )
    assert str(caught.value).endswith(" Type: pip install 'headlens[harness]'")
