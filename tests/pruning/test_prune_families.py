"""Removed for good is what ablated was: every family, saved, and loaded in a new process."""

import json
import random
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

import headlens
from headlens.errors import ModelError
from headlens.model.trace import run
from headlens.pruning.forms import compact, cut, masked
from headlens.pruning.prune import prune
from support import families

CUT = (
    "phi",
    "llama",
    "mistral",
    "qwen3",
    "gemma3",
    "gpt_oss",
    "t5",
)  # their configs name the width of a head
COUNTED_ELSEWHERE = ("t5", "deberta_v2", "bloom", "mpnet")  # position biases of all heads

PLAIN = """
import json, sys
import torch, transformers
from safetensors.torch import save_file
cases = json.load(open(sys.argv[1]))
transformers.logging.set_verbosity_error()
found = {}
for name, (kind, place, inputs) in cases.items():
    model = getattr(transformers, kind).from_pretrained(place).eval()
    with torch.no_grad():
        found[name] = model(**{k: torch.tensor(v) for k, v in inputs.items()}).logits.contiguous()
save_file(found, sys.argv[2])
"""


def sets_of(lens):
    """One head, a whole group, a whole layer, a random third; the same in all layers that share weights."""
    heads, first = lens.anatomy.heads, lens.anatomy.sites[0]
    shared = len({site.module for site in lens.anatomy.sites}) < len(lens.anatomy.sites)
    if shared:
        numbers = {"one": {1}, "group": {2}, "third": {0, 3}}
        return {name: [head for head in heads if head.head in mine] for name, mine in numbers.items()}
    group = first.n_heads // first.n_kv_heads
    third = random.Random(0).sample(heads, len(heads) // 3)
    return {
        "one": [heads[1]],
        "group": list(first.heads[-group:]),
        "layer": list(lens.anatomy.sites[-1].heads),
        "third": [head for head in heads if head in third],
    }


def inputs_of(model):
    return {name: tensor[:, :6].tolist() for name, tensor in families.batch(model).items()}


def logits(model, inputs):
    with torch.no_grad():
        return model(**{name: torch.tensor(values) for name, values in inputs.items()}).logits


@pytest.mark.slow
def test_masked_checkpoints_of_every_family_in_a_new_process(tmp_path):
    cases, expected = {}, {}
    for family in families.ALL:
        lens = headlens.load(families.build(family))
        inputs = inputs_of(lens.model)
        for name, removed in sets_of(lens).items():
            case, place = f"{family} {name}", tmp_path / family / name
            with lens.ablate(removed):
                expected[case] = logits(lens.model, inputs)
            assert (expected[case] - logits(lens.model, inputs)).abs().max() > 1e-4, case  # it matters
            found = masked(lens, removed)
            assert (logits(found.model, inputs) - expected[case]).abs().max() < 1e-5, case
            found.model.save_pretrained(place)
            cases[case] = (families.ALL[family][1], str(place), inputs)
    found = in_a_new_process(cases, tmp_path)
    for case, values in expected.items():
        assert (found[case] - values).abs().max() < 1e-5, case


def in_a_new_process(cases, tmp_path):
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    files = str(tmp_path / "cases.json"), str(tmp_path / "found.safetensors")
    subprocess.run([sys.executable, "-c", PLAIN, *files], check=True)
    return load_file(files[1])


@pytest.mark.slow
def test_cut_checkpoints_are_smaller_and_load_in_a_new_process(tmp_path):
    cases, expected = {}, {}
    for family in CUT:
        lens = headlens.load(families.build(family))
        removed = lens.anatomy.select(",".join(f"{site}.2-3" for site in lens.anatomy.sites))
        inputs = inputs_of(lens.model)
        with lens.ablate(removed):
            expected[family] = logits(lens.model, inputs)
        found = prune(lens, removed, tmp_path / family, "cut")
        assert (found.pruned.form, found.pruned.compact) == ("cut", None)
        assert [site.n_heads for site in found.lens.anatomy.sites] == [2] * len(lens.anatomy.sites)
        assert found.after.parameters < found.before.parameters
        n_cut = sum(part.n_weights for part in lens.anatomy.parts) // 2
        assert found.before.parameters - found.after.parameters >= n_cut
        assert found.after.multiply_adds * 2 == found.before.multiply_adds
        cases[family] = (families.ALL[family][1], str(tmp_path / family), inputs)
    found = in_a_new_process(cases, tmp_path)
    for case, values in expected.items():
        assert (found[case] - values).abs().max() < 1e-5, case


@pytest.mark.parametrize("family", [f for f in families.ALL if f not in (*CUT, *COUNTED_ELSEWHERE)])
def test_other_configs_cannot_say_it(family):
    lens = headlens.load(families.build(family))
    removed = lens.anatomy.select(",".join(f"{site}.2-3" for site in lens.anatomy.sites))
    with pytest.raises(
        ModelError, match=f"A config of {families.ALL[family][1]} cannot say what would be left"
    ):
        cut(lens, removed)


@pytest.mark.parametrize("family", [f for f in families.ALL if f not in COUNTED_ELSEWHERE])
def test_compact_checkpoints(family, tmp_path):
    lens = headlens.load(families.build(family))
    inputs = inputs_of(lens.model)
    for name, removed in sets_of(lens).items():
        group = lens.anatomy.sites[0].n_heads // lens.anatomy.sites[0].n_kv_heads
        if name in ("one", "third") and group > 1:
            continue  # no whole group goes
        with lens.ablate(removed):
            expected = logits(lens.model, inputs)
        found = prune(lens, removed, tmp_path / name, "compact")
        again = headlens.load(str(tmp_path / name))
        assert (logits(again.model, inputs) - expected).abs().max() < 1e-5
        sizes = {site.module: site.n_heads for site in again.anatomy.sites}
        assert sizes == {cut.site.module: len(cut.kept) for cut in found.pruned.plan.cuts}
        assert found.after.parameters == sum(p.numel() for p in again.model.parameters())
        assert found.after.parameters < found.before.parameters


@pytest.mark.parametrize("family", COUNTED_ELSEWHERE)
def test_families_that_count_heads_elsewhere_are_refused(family):
    lens = headlens.load(families.build(family))
    with pytest.raises(ModelError, match=r"does not run with other numbers of heads .* Type --form masked"):
        compact(lens, lens.anatomy.heads[:2])


def test_the_model_itself_is_left_alone(tmp_path):
    lens = headlens.load(families.build("llama"))
    before = {name: tensor.clone() for name, tensor in lens.model.state_dict().items()}
    for form in ("masked", "compact", "cut"):
        prune(lens, "*.2-3", tmp_path / form, form)
    after = lens.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert lens.anatomy.sites[0].n_heads == 4
    with torch.no_grad():
        run(lens.model)
