import json

import pandas as pd
import pytest
from click.testing import CliRunner

from headlens.cli import main
from headlens.similarity.similar import CLUSTERS, DISTANCES
from support import planted, real, runpages, scored, toys


def run(*arguments):
    return CliRunner().invoke(main, ["similar", *map(str, arguments)])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    first, last = planted.first_position(), planted.looks_at(["[SEP]"])
    planted.bert({0: first, 1: last, 2: first}, uniform=True).save_pretrained(path)
    planted.tokenizer().save_pretrained(path)
    (path / "text.conllu").write_text(planted.corpus_text(n_documents=2))
    return path


def test_what_is_said_and_written(model, tmp_path):
    out = tmp_path / "out"
    done = run(model, "--text", model / "text.conllu", "--out", out, "--quiet")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0] == (
        "12 heads fall into 3 clusters (9, 2 and 1 heads) by what they look at; mean silhouette 0.92 (1: far "
        "apart, 0: no clusters to speak of)."
    )
    assert lines[1].startswith("The closest pairs: 0.0 and 0.2 (0.000 nats, no CKA); 0.3 and 0.4 (")
    # heads that always look at the same token write the same everywhere
    assert (
        lines[3]
        == "11 of 12 heads have a twin, another head less than 0.05 nats away, 11 of them at distance 0."
    )
    assert "Layers and heads count from 0." in lines
    distances, clusters = pd.read_csv(out / "distances.csv"), pd.read_csv(out / "clusters.csv")
    assert list(distances) == DISTANCES
    assert list(clusters) == CLUSTERS
    assert (len(distances), len(clusters)) == (66, 12)
    record = json.loads((out / "run.json").read_text())
    assert record["command"] == "similar"
    assert record["options"]["smoothing"] == 0
    assert record["stacks"]["encoder"]["clusters"] == 3
    assert record["stacks"]["encoder"]["cka_tokens"] > 100
    assert {path.name for path in (out / "figures").iterdir()} == {
        f"{name}.{ending}" for name in ("clustermap", "embedding") for ending in ("png", "svg")
    }
    page = runpages.page_of(out)
    assert any("0.0 and 0.2 (0.000 nats" in text for text in runpages.said(page))
    assert len(runpages.cells(page, "The closest pairs")) == 66
    assert len(runpages.cells(page, "Every head and its cluster")) == 12
    again = tmp_path / "again"
    assert run(model, "--text", model / "text.conllu", "--out", again, "--quiet").exit_code == 0
    for name in ("distances.csv", "clusters.csv", "figures/embedding.svg", "figures/clustermap.png"):
        assert (out / name).read_bytes() == (again / name).read_bytes()


def tagged_run(place, tags, model):
    """A run of classify about a model."""
    run = scored.write_run(place, scored.everything(tags), tags)
    told = json.loads((run / "run.json").read_text())
    told["model"] |= {"name": str(model), "weights_sha256": {}}
    (run / "run.json").write_text(json.dumps(told))
    return run


def test_options_and_tags(model, tmp_path):
    tags = scored.tag_rows(2, 6, tags={("encoder", 0, 0): ["broad", "delimiter"]})
    tagged = tagged_run(tmp_path / "tags", tags, model)
    out = tmp_path / "out"
    text, second = model / "text.conllu", tmp_path / "second.conllu"
    second.write_text(planted.corpus_text(seed=1, n_documents=2))
    done = run(
        model, "--text", text, "--text", second, "--heads", "0.*", "--clusters", 2, "--smoothing", 0.001,
        "--tags", tagged, "--out", out, "--quiet",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    clusters = pd.read_csv(out / "clusters.csv", keep_default_na=False)
    assert clusters["tags"].tolist() == ["broad;delimiter", *[""] * 5]
    assert clusters["cluster"].nunique() == 2
    assert clusters["nearest_js"].astype(float).iloc[0] == 0
    page = runpages.page_of(out)
    assert "Rows are smoothed: 0.001 of each is the uniform row over its visible keys." in runpages.notes(
        page
    )
    assert runpages.cells(page, "Every head and its cluster")[0][0] == "0.0"


def test_a_large_table_is_not_carried(model, tmp_path, monkeypatch):
    from headlens.report.page import similar

    out = tmp_path / "out"
    assert run(model, "--text", model / "text.conllu", "--out", out, "--quiet").exit_code == 0
    monkeypatch.setattr(similar, "CARRIED", 100)
    monkeypatch.setattr(similar, "PAIRS", 5)
    page = runpages.page_of(out)
    assert len(runpages.cells(page, "The closest pairs")) == 5
    text = page.text_content()
    assert "These are the closest 5 of 66 pairs; distances.csv of the run has all." in text
    assert "distances.csv is too large for this page" in text
    assert not page.xpath('//script[@data-name="distances.csv"]')


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--smoothing", "1"], 2, "Invalid value for '--smoothing': 1.0 is not in the range 0<=x<1."),
        (["--clusters", "0"], 2, "Invalid value for '--clusters': 0 is not in the range x>=1."),
        (["--clusters", "13"], 1, "Error: 12 heads do not make 13 clusters. Type --clusters 12."),
        (["--heads", "7.0"], 1, "Error: There is no head 7.0 in this model."),
        (["--tags", "nowhere"], 1, "Error: Expected the --out of a headlens classify; nowhere has"),
        (["--text", "nowhere.txt"], 1, "nowhere.txt"),
    ],
)
def test_what_cannot_be_done(model, tmp_path, arguments, code, message):
    text = [] if "--text" in arguments else ["--text", model / "text.conllu"]
    done = run(model, *text, *arguments, "--out", tmp_path / "out", "--quiet")
    assert done.exit_code == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_one_head_alone(model, tmp_path):
    done = run(model, "--text", model / "text.conllu", "--heads", "0.1", "--out", tmp_path / "out", "--quiet")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("There is one head, and nothing to compare it with.\n")
    assert not (tmp_path / "out" / "figures").exists()
    assert (tmp_path / "out" / "report.html").is_file()


def test_a_page_of_several_runs(model, tmp_path):
    tags = scored.tag_rows(2, 6, tags={("encoder", 0, 0): ["broad", "delimiter"]})
    tagged = tagged_run(tmp_path / "tags", tags, model)
    out = tmp_path / "out"
    text = model / "text.conllu"
    assert run(model, "--text", text, "--tags", tagged, "--out", out, "--quiet").exit_code == 0
    page = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["report", str(out), str(out), "--out", str(page)])
    assert done.exit_code == 0, done.output
    assert "#run=1&amp;head=0.2" in page.read_text()


def test_the_directory_of_another_command(model, tmp_path):
    tags = scored.tag_rows(2, 6)
    scored.write_run(tmp_path / "tags", scored.everything(tags), tags)
    done = run(model, "--out", tmp_path / "tags")
    assert done.exit_code == 1
    assert done.stderr == (
        f"Error: {tmp_path / 'tags'} holds what headlens classify wrote. Choose another --out.\n"
    )


def test_help_has_examples():
    done = run("-h")
    assert done.exit_code == 0
    assert "Examples:  headlens similar minilm --out runs/similar" in done.stdout


def test_minilm_on_the_sample(tmp_path):
    real.need_minilm()
    toys.minilm()
    done = run("minilm", "--out", tmp_path / "out", "--quiet")
    assert done.exit_code == 0, done.output
    assert done.stderr == "No --text was given: these are results for the small English sample of headlens.\n"
    lines = done.stdout.splitlines()
    assert lines[0].startswith("72 heads fall into 2 clusters (71 and 1 heads)")
    assert lines[0].endswith("Nearly all are in one cluster: --clusters K cuts it finer.")
    assert lines[1].startswith("The closest pairs: 3.4 and 4.2 (0.033 nats, CKA 0.27); ")
    clusters = pd.read_csv(tmp_path / "out" / "clusters.csv")
    (alone,) = clusters[clusters["cluster"] == 1][["layer", "head"]].to_numpy().tolist()
    assert alone == [0, 2]  # it looks at the next token
