"""``headlens check``, and what other commands do with the quick checks."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from headlens import cli
from headlens.checks.check import CHECKS
from support.families import build
from support.real import need_minilm
from support.toytext import toy_pairs, toy_tokenizer, write_pairs

CONLLU = "1\tw7\t_\tNOUN\t_\t_\t2\tnsubj\t_\t_\n2\tw9\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n"


def run(*arguments: object):
    result = CliRunner().invoke(cli.main, [str(one) for one in arguments])
    return result.exit_code, result.stdout, result.stderr


def saved(place, uniform: bool = False) -> str:
    """A small BERT on disk; its heads can be made to look everywhere alike."""
    model = build("bert").bert
    with torch.no_grad():
        for layer in model.encoder.layer if uniform else ():
            layer.attention.self.query.weight.zero_()
            layer.attention.self.query.bias.zero_()
    model.save_pretrained(place)
    toy_tokenizer().save_pretrained(place)
    return str(place)


def test_minilm():
    code, out, err = run("check", need_minilm(), "--quiet")
    first, *lines, last = out.splitlines()
    assert (code, err) == (0, "")
    assert first == "minilm: BertModel, 72 heads, float32 on cpu"
    assert [line.split()[:2] for line in lines] == [["ok", name] for name in CHECKS]
    assert last == f"{len(CHECKS)} of {len(CHECKS)} checks passed."


def test_a_failure_ends_with_1_and_says_what_it_means(tmp_path):
    code, out, err = run("check", saved(tmp_path / "m", uniform=True))
    assert code == 1
    (line,) = [line for line in out.splitlines() if line.startswith("FAILED")]
    assert line == (
        "FAILED  evenness      the least even head, 0.0, has 1.00 of the largest entropy, allowed 0.95. "
        + CHECKS["evenness"].meaning
    )
    assert out.splitlines()[-1] == "15 of 16 checks passed; failed: evenness."
    assert "Checking" in err
    assert [line.split()[1] for line in out.splitlines()[1:-1] if line.startswith("-")] == ["words"]


def test_json(tmp_path):
    code, out, err = run("check", saved(tmp_path / "m", uniform=True), "--json", "--quiet")
    facts = json.loads(out)
    assert (code, err) == (1, "")
    assert (facts["architecture"], facts["dtype"], facts["passed"]) == ("BertModel", "float32", False)
    found = {one["name"]: one for one in facts["checks"]}
    assert list(found) == list(CHECKS)
    assert found["evenness"]["passed"] is False
    assert found["evenness"]["figure"] > found["evenness"]["allowed"] == 0.95
    assert found["words"]["passed"] is None


def test_a_checkpoint_that_lacks_weights_is_checked(tmp_path):
    from safetensors.torch import load_file, save_file

    place = saved(tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    weights = load_file(file)
    weights.pop("encoder.layer.0.attention.self.key.weight")
    save_file(weights, file, {"format": "pt"})
    code, out, _ = run("check", place, "--quiet")
    assert code == 1
    assert out.splitlines()[-1].endswith("failed: weights.")


def test_a_model_that_is_not_there():
    code, out, err = run("check", "no/such/model.gguf")
    assert (code, out) == (1, "")
    assert err.startswith("Error: There is no model at")


def commands(tmp_path):
    (tmp_path / "a.conllu").write_text(CONLLU * 4)
    pairs = write_pairs(tmp_path / "p.tsv", toy_pairs())
    return {
        "classify": ("--corpus", tmp_path / "a.conllu", "--tags", "delimiter"),
        "ablate": ("--benchmark", pairs, "--heads", "0.0"),
        "prune": ("--heads", "0.0"),
    }


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("command", ["classify", "ablate", "prune"])
def test_the_quick_checks_come_first(tmp_path, command, uniform):
    arguments = commands(tmp_path)[command]
    place = saved(tmp_path / "m", uniform)
    code, _, err = run(command, place, *arguments, "--out", tmp_path / "run", "--quiet")
    assert code == 0, err
    checks = json.loads((tmp_path / "run" / "run.json").read_text())["checks"]
    assert list(checks) == [name for name, one in CHECKS.items() if one.cheap]
    assert checks["padding"]["passed"]
    assert 0 <= checks["padding"]["figure"] <= checks["padding"]["allowed"]
    warned = "Warning: the check evenness failed: the least even head, 0.0, has 1.00 of the largest entropy"
    assert (warned in err) == uniform
    assert checks["evenness"]["passed"] is not uniform


def test_an_ablation_goes_on_whatever_the_checks_said(tmp_path, monkeypatch):
    place, arguments = saved(tmp_path / "m"), commands(tmp_path)["ablate"]
    again = ("ablate", place, *arguments, "--out", tmp_path / "run", "--quiet")
    assert run(*again)[0] == 0
    first = (tmp_path / "run" / "ablation.csv").read_bytes()
    monkeypatch.setattr("headlens.checks.of_attention.EVEN", 0.0)
    code, _, err = run(*again)
    assert (code, (tmp_path / "run" / "ablation.csv").read_bytes()) == (0, first)
    assert "Warning: the check evenness failed" in err
    assert "1 of 1 ablations were measured before; kept." in err
