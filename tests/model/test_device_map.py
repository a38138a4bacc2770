"""`--device-map`: a model spread over memory and disk gives the same numbers as in one place."""

import importlib.util
import json
import warnings

import pandas as pd
import pytest
import torch
from click.testing import CliRunner

import headlens
from headlens.ablation.sweep import sweep
from headlens.cli import main
from headlens.cli.experiment_file import read_experiment
from headlens.errors import ModelError
from headlens.model.devices import is_spread, named_weights
from headlens.model.lens import fingerprint
from headlens.scoring.classify import classify
from headlens.similarity.similar import similar
from support import families, planted, toytext

pytestmark = pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="needs accelerate")
DISK = {
    "model.embed_tokens": "cpu",
    "model.layers.0": "disk",
    "model.layers.1": "cpu",
    "model.norm": "disk",
    "model.rotary_emb": "cpu",
    "lm_head": "disk",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("llama")
    families.build("llama").save_pretrained(place)
    toytext.toy_tokenizer(("[CLS]",), mask=False).save_pretrained(place)
    lines = []
    for sentence in range(24):
        for i, word in enumerate(toytext.toy_text(6, sentence).split(), 1):
            arc = "0\troot" if i == 1 else "1\tobj"
            lines.append(f"{i}\t{word}\t{word}\t{('NOUN', 'VERB')[i % 2]}\t_\t_\t{arc}\t_\t_")
        lines.append("")
    (place / "text.conllu").write_text("\n".join(lines) + "\n")
    toytext.write_lines(place / "lines.txt", 120)
    return place


@pytest.fixture(scope="module")
def near(folder):
    return headlens.load(str(folder), device="cpu")


@pytest.fixture(scope="module", params=["auto", {"": "cpu"}, DISK, {"": "disk"}], ids=str)
def spread(folder, request):
    return headlens.load(str(folder), device_map=request.param)


def test_weights_are_where_the_map_says(folder):
    lens = headlens.load(str(folder), device_map=DISK)
    away = [name for name, weight in lens.model.named_parameters() if weight.is_meta]
    assert any("layers.0" in name for name in away)
    assert not any("layers.1" in name for name in away)
    assert is_spread(lens.model)
    assert lens.device == torch.device("cpu")
    assert not is_spread(headlens.load(str(folder), device_map={"": "cpu"}).model)


def test_the_same_scores(folder, near, spread):
    one, two = (classify(lens, folder / "text.conllu") for lens in (near, spread))
    pd.testing.assert_frame_equal(one.scores, two.scores, check_exact=True)
    pd.testing.assert_frame_equal(one.tags, two.tags)
    assert "induction" in set(one.scores["tag"])
    assert one.scores.query("measure == 'copying'")["score"].notna().all()  # W_O and unembedding were there


def test_the_same_importance_and_ablation(folder, near, spread):
    classify(spread, folder / "text.conllu", ["positional"])  # what ran before must not matter
    for order in ("gradient", "integrated"):
        one, two = (
            sweep(x, f"language:{folder / 'lines.txt'}", "layer", order=order) for x in (near, spread)
        )
        pd.testing.assert_frame_equal(one.importance, two.importance, check_exact=True)
        pd.testing.assert_frame_equal(one.table, two.table, check_exact=True)


def test_the_same_weights(near, spread):
    for head in near.anatomy.heads[::3]:
        one, two = near.weights(head), spread.weights(head)
        for name in ("query", "key", "value", "output"):
            assert torch.equal(getattr(one, name), getattr(two, name))
        assert one.copying_score == two.copying_score
    assert fingerprint(near.model) == fingerprint(spread.model)
    assert not any(weight.is_meta for _, weight in named_weights(spread.model))


def test_the_same_distances_and_contributions(folder, near, spread):
    one, two = (similar(lens, folder / "text.conllu").distances for lens in (near, spread))
    pd.testing.assert_frame_equal(one, two, check_exact=True)
    assert one["cka"].notna().all()
    one, two = (lens.contributions(toytext.toy_text(5, 1)).table for lens in (near, spread))
    pd.testing.assert_frame_equal(one, two, check_exact=True)
    assert one["logit"].notna().all()


def test_a_family_served_by_hooks(tmp_path):
    families.build("falcon").save_pretrained(tmp_path)
    toytext.toy_tokenizer().save_pretrained(tmp_path)
    names = ["word_embeddings", "h.0", "h.1", "ln_f", "rotary_emb"]
    where = {f"transformer.{name}": "disk" if name == "h.1" else "cpu" for name in names} | {"lm_head": "cpu"}
    near, spread = (headlens.load(str(tmp_path), **x) for x in ({"device": "cpu"}, {"device_map": where}))
    inputs = families.batch(near.model)
    one, two = near.patterns(**inputs), spread.patterns(**inputs)
    assert len(two) == 2
    assert all(torch.equal(a, b) for a, b in zip(one.values(), two.values(), strict=True))


def test_code_that_reads_weights_on_disk_is_refused(tmp_path):
    families.build("deberta_v2").save_pretrained(tmp_path)
    lens = headlens.load(str(tmp_path), device_map={"": "disk"})
    with pytest.raises(ModelError) as caught:
        _ = lens.anatomy
    assert str(caught.value).endswith(
        "Its code reads weights that --device-map keeps on disk: give it a --device."
    )


def run(*words):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return CliRunner().invoke(main, list(map(str, words)))


def test_the_command_line(folder, tmp_path):
    common = ["classify", folder, "--corpus", folder / "text.conllu", "--tags", "positional", "--quiet"]
    one = run(*common, "--device", "cpu", "--out", tmp_path / "one")
    two = run(*common, "--device-map", "auto", "--out", tmp_path / "two")
    assert (one.exit_code, two.exit_code) == (0, 0), two.output
    assert (tmp_path / "one" / "scores.csv").read_bytes() == (tmp_path / "two" / "scores.csv").read_bytes()
    told = json.loads((tmp_path / "two" / "run.json").read_text())
    assert told["options"]["device_map"] == "auto"


def test_what_does_not_go_together(folder, tmp_path):
    both = run("classify", folder, "--device", "cpu", "--device-map", "auto", "--out", tmp_path / "x")
    assert both.exit_code == 2
    assert "--device-map places the model, and so does --device: give one of the two." in both.output
    pruned = run("prune", folder, "--heads", "0.0", "--device-map", "auto", "--out", tmp_path / "x")
    assert pruned.exit_code == 2
    assert "A pruned model is saved from one device: leave --device-map out." in pruned.output
    with pytest.raises(ModelError, match="A device map places the model, and so does a device"):
        headlens.load(str(folder), device="cpu", device_map="auto")
    with pytest.raises(ModelError) as caught:
        headlens.load(str(folder), device_map="all")
    assert str(caught.value) == (
        "There is no device map 'all'. Choose one of: auto, balanced, balanced_low_0, sequential."
    )


def test_pruning_a_spread_model_is_refused(folder, tmp_path):
    from headlens.pruning.prune import prune

    with pytest.raises(ModelError) as caught:
        prune(headlens.load(str(folder), device_map=DISK), "0.0", tmp_path / "x")
    assert str(caught.value) == (
        "A model that is spread over devices is not pruned: its weights are not all in one place. Leave "
        "--device-map out; --device cpu takes the machine's memory."
    )
    assert not (tmp_path / "x").exists()


def test_without_accelerate(folder, monkeypatch):
    own = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "accelerate" else own(name, *a)
    )
    with pytest.raises(ModelError) as caught:
        headlens.load(str(folder), device_map="auto")
    assert str(caught.value) == (
        "Spreading a model over devices needs the package accelerate, which is not installed. Type: pip "
        "install 'headlens[accelerate]'"
    )


def test_the_record_says_where_the_parts_are(folder):
    from headlens.runs.record import Clock, record

    def told(**options):
        return record("x", headlens.load(str(folder), **options), {}, {}, Clock.start())["model"]

    assert told(device_map=DISK)["device_map"]["model.layers.0"] == "disk"
    assert "device_map" not in told(device="cpu")


def test_in_an_experiment_file(tmp_path):
    (tmp_path / "x.toml").write_text('[model]\nname = "m"\ndevice-map = "auto"\n[classify]\n')
    assert read_experiment(tmp_path / "x.toml", main).loading == {"--device-map": "auto"}


def test_a_model_on_one_gpu_by_a_map_is_pruned_as_ever(tmp_path):
    from headlens.pruning.prune import prune

    model = planted.bert({0: planted.previous_token()})
    model.hf_device_map = {"": 0}
    lens = headlens.load(model, planted.tokenizer())
    assert prune(lens, "0.1", tmp_path / "x", "masked").difference < 1e-5
