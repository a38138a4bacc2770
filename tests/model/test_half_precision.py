"""Models in bfloat16 and float16: scores add up in float32 or better, and come near those of float32."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

import headlens
from headlens.ablation.sweep import sweep
from headlens.corpus.read import read_files
from headlens.model.heads import Head
from headlens.model.replacements import gather
from headlens.scoring.classify import classify
from headlens.scoring.passes import RunOptions
from headlens.similarity.similar import similar
from support import families, planted, toytext

NEAR = {torch.bfloat16: 0.01, torch.float16: 0.002}  # of masses; decisions can fall otherwise
COUNTED = "argmax|->|antecedent|rare-token|related"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("half") / "text.conllu"
    lines = []
    for sentence in range(30):
        for i, word in enumerate(toytext.toy_text(9, sentence).split(), 1):
            arc = "0\troot" if i == 1 else f"1\t{('obj', 'dep')[i % 2]}"
            lines.append(f"{i}\t{word}\t{word}\t{('NOUN', 'VERB')[i % 2]}\t_\t_\t{arc}\t_\t_")
        lines.append("")
    path.write_text("\n".join(lines) + "\n")
    return read_files(path)


def lens_of(family, dtype):
    return headlens.load(families.build(family).to(dtype), toytext.toy_tokenizer())


@pytest.mark.parametrize("dtype", NEAR, ids=str)
@pytest.mark.parametrize(("family", "norms"), [("bert", False), ("llama", True), ("gpt2", False)])
def test_scores_come_near(family, norms, dtype, corpus):
    reading = RunOptions(norms=norms)
    one, two = (
        classify(lens_of(family, kind), corpus, reading=reading).scores for kind in (torch.float32, dtype)
    )
    assert (one["measure"] == two["measure"]).all()
    assert (one["score"].isna() == two["score"].isna()).all()
    apart = (one["score"] - two["score"]).abs()
    counted = one["measure"].str.contains(COUNTED)
    assert apart[~counted].max() < NEAR[dtype]
    assert apart[counted].mean() < NEAR[dtype]
    measured = two.dropna(subset=["score"])
    assert np.isfinite(measured[["score", "baseline", "effect"]].to_numpy(float)).all()


@pytest.mark.parametrize("dtype", NEAR, ids=str)
def test_means_for_ablation_are_added_up_in_float64(dtype):
    """Of the very outputs that the model has, whatever else they are rounded to."""
    lens = lens_of("bert", dtype)
    site, outputs = lens.anatomy.sites[1], []

    def keep(at, output):
        if at == site:
            outputs.append(output.double().flatten(0, 1))  # [token, head, width]
        return output

    texts = [toytext.toy_text(9, seed) for seed in range(20)]

    def run():
        for text in texts:
            lens.run(lens.tokenizer(text, return_tensors="pt"))

    found = gather(lens.seam, run, [site]).means[site]
    with torch.no_grad(), lens.edit(keep):
        run()
    torch.testing.assert_close(found, torch.cat(outputs).mean(dim=0), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("dtype", NEAR, ids=str)
def test_sums_are_those_of_the_very_weights(dtype, corpus):
    """The mean mass, entropy and offsets of the weights that the model has, added up by hand in float64."""
    lens = lens_of("bert", dtype)
    scores = classify(lens, corpus, ["delimiter", "broad", "positional"]).scores
    sums = {"special": 0.0, "entropy": 0.0, "mass@-1": 0.0}
    counts = dict.fromkeys(sums, 0)
    site = lens.anatomy.sites[1]
    for _, sentence in corpus.sentences:
        found = lens.patterns(**lens.tokenizer(" ".join(sentence.forms), return_tensors="pt"))[site]
        assert found.dtype == dtype
        rows = found[0, 2].double()  # [query, key]
        n = len(rows)
        sums["special"] += float(rows[:, [0, -1]].sum())
        sums["entropy"] += float(-(rows * rows.clamp(min=1e-300).log()).sum() / np.log(n))
        sums["mass@-1"] += float(rows.diagonal(-1).sum())
        counts["special"] += n
        counts["entropy"] += n
        counts["mass@-1"] += n - 1
    mine = scores[(scores["layer"] == 1) & (scores["head"] == 2)].set_index("measure")["score"]
    for name in sums:
        assert mine[name] == pytest.approx(sums[name] / counts[name], abs=2e-6)


@pytest.mark.parametrize("dtype", NEAR, ids=str)
def test_distances_importance_and_contributions(dtype, corpus, tmp_path):
    one, two = (similar(lens_of("llama", kind), corpus).distances for kind in (torch.float32, dtype))
    assert (one["js"] - two["js"]).abs().max() < NEAR[dtype]
    assert (one["cka"] - two["cka"]).abs().max() < NEAR[dtype]
    lines = toytext.write_lines(tmp_path / "lines.txt", 120)
    one, two = (
        sweep(lens_of("llama", kind), lines, "layer", order="gradient") for kind in (torch.float32, dtype)
    )
    size = one.importance["importance"].abs().max()
    assert (one.importance["importance"] - two.importance["importance"]).abs().max() < 20 * NEAR[dtype] * size
    assert (one.table["value"] / two.table["value"] - 1).abs().max() < NEAR[dtype]
    one, two = (
        lens_of("llama", kind).contributions(toytext.toy_text(6, 1)).table for kind in (torch.float32, dtype)
    )
    assert (one["branch_share"] - two["branch_share"]).abs().max() < 10 * NEAR[dtype]


def test_planted_heads_are_found_in_half_precision(tmp_path):
    model = planted.bert({0: planted.previous_token(), 1: planted.looks_at(["[SEP]"])}).to(torch.bfloat16)
    (tmp_path / "x.conllu").write_text(planted.corpus_text(n_documents=12))
    found = classify(
        headlens.load(model, planted.tokenizer()), tmp_path / "x.conllu", ["positional", "delimiter"]
    )
    tags = {Head(row.stack, row.layer, row.head): row.tags for row in found.tags.itertuples()}
    assert tags[Head("encoder", 0, 0)] == "positional"
    assert "delimiter" in tags[Head("encoder", 0, 1)]


def test_the_record_names_the_type(tmp_path, corpus):
    from click.testing import CliRunner

    from headlens.cli import main

    planted.bert({0: planted.previous_token()}).save_pretrained(tmp_path / "model")
    planted.tokenizer().save_pretrained(tmp_path / "model")
    (tmp_path / "x.conllu").write_text(planted.corpus_text(n_documents=2))
    words = [
        "classify",
        tmp_path / "model",
        "--corpus",
        tmp_path / "x.conllu",
        "--dtype",
        "bfloat16",
        "--quiet",
    ]
    done = CliRunner().invoke(
        main, [*map(str, words), "--tags", "positional", "--out", str(tmp_path / "run")]
    )
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "run" / "run.json").read_text())["model"]["dtype"] == "bfloat16"
    assert pd.read_csv(tmp_path / "run" / "scores.csv")["score"].notna().any()
