"""Whatever is named on the command line, a command does its work or says in one line why it does not."""

import os

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headlens.cli import LONGEST, main
from support import hostile
from support.families import build
from support.inputfiles import READERS, TREE
from support.toytext import toy_tokenizer

CORPUS = ["classify", "{model}", "--corpus", "{corpus}", "--tags"]
BENCHMARKS = {
    "language": ("masked", "x.txt"),
    "pairs": ("masked", "x.jsonl"),
    "classification": ("classifier", "x.csv"),
    "probe": ("model", "x.csv"),
    "similarity": ("model", "x.tsv"),
    "translation": ("translator", "x.tsv"),
    "harness": ("masked", "x.yaml"),
}
COMMANDS = {
    "--corpus": (["classify", "{model}", "--corpus", "{file}"], "x.conllu"),
    "--corpus .conll": (["classify", "{model}", "--corpus", "{file}"], "x.conll"),
    "--corpus .txt": (["classify", "{model}", "--corpus", "{file}"], "x.txt"),
    "--relations": ([*CORPUS, "semantic", "--relations", "{file}"], "x.tsv"),
    "--frequencies": ([*CORPUS, "rare-token", "--frequencies", "{file}"], "x.tsv"),
    "--targets": (["classify", "{translator}", "--corpus", "{corpus}", "--targets", "{file}"], "x.txt"),
    "--text": (["similar", "{model}", "--text", "{file}"], "x.txt"),
    "--from": (["ablate", "{model}", "--sweep", "tags", "--from", "{file}"], ""),
    "--tags": (["similar", "{model}", "--text", "{corpus}", "--tags", "{file}"], ""),
    "prune --from": (["prune", "{model}", "--keep", "0.5", "--from", "{file}"], ""),
    "run": (["run", "{file}"], "x.toml"),
    "compare": (["compare", "{file}", "{file}"], ""),
    "report": (["report", "{file}"], ""),
    **{
        f"--benchmark {kind}": (["ablate", f"{{{model}}}", "--benchmark", f"{kind}:{{file}}"], name)
        for kind, (model, name) in BENCHMARKS.items()
    },
}


@pytest.fixture(scope="module")
def given_paths(tmp_path_factory):
    """Models on disk, and a small corpus."""
    from transformers import BertConfig, BertForSequenceClassification

    folder = tmp_path_factory.mktemp("models")
    bert = build("bert")
    labels = BertConfig(**{**bert.config.to_dict(), "id2label": {0: "good", 1: "bad"}})
    models = {
        "model": bert.bert,
        "masked": bert,
        "classifier": BertForSequenceClassification(labels),
        "translator": build("t5"),
    }
    for name, model in models.items():
        model.save_pretrained(folder / name)
        toy_tokenizer().save_pretrained(folder / name)
    (folder / "corpus.conllu").write_text(TREE * 4, encoding="utf-8")
    return {"corpus": folder / "corpus.conllu", **{name: folder / name for name in models}}


def refusal(arguments):
    """The one line that a command fails with."""
    with hostile.within(30):
        done = CliRunner().invoke(main, list(map(str, arguments)))
    assert isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 1, done.output
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.startswith("Error: ")] == lines[-1:]
    assert "headlens failed where it should not" not in done.stderr
    assert not [sign for sign in done.output if sign != "\n" and not sign.isprintable()]
    assert len(lines[-1]) < LONGEST + 100
    return lines[-1]


@pytest.mark.parametrize("option", COMMANDS)
def test_what_is_no_file(given_paths, tmp_path, option):
    typed, name = COMMANDS[option]
    pipe, *_, device, nothing, _, absent, long = hostile.no_files(tmp_path, name or "x")
    binary = tmp_path / f"\x1b[2J\n-{name or 'x'}"
    binary.write_bytes(b"a\0b\n" * 20)
    out = tmp_path / ("x.html" if option == "report" else "out")
    for path in (pipe, device, nothing, absent, long, binary):
        told = refusal([*(word.format(file=path, **given_paths) for word in typed), "--out", out])
        assert path.name.rpartition("\n")[2][:200] in told or "harness" in option
    assert not list(tmp_path.glob("out/*.csv"))
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize(
    "command", ["classify", "ablate", "similar", "prune", "run", "compare", "report", "view"]
)
def test_places_that_nothing_can_be_written_to(given_paths, tmp_path, command):
    (tmp_path / "file").write_text("mine")
    toml = tmp_path / "x.toml"
    toml.write_text(f'[model]\nname = "{given_paths["model"]}"\n[view]\ntext = "w5"\nout = "v.csv"\n')
    model, corpus = given_paths["model"], given_paths["corpus"]
    typed = {
        "classify": ["classify", model, "--corpus", corpus],
        "ablate": ["ablate", model],
        "similar": ["similar", model, "--text", corpus],
        "prune": ["prune", model, "--heads", "0.0"],
        "run": ["run", toml],
        "compare": ["compare", tmp_path, tmp_path],
        "report": ["report", tmp_path],
        "view": ["view", model, "w5"],
    }[command]
    ending = {"report": ".html", "view": ".csv"}.get(command, "")
    places = [tmp_path / "file" / f"below{ending}", tmp_path / f"{'a' * 260}{ending}"]
    if not ending:
        pipe, *_, loop, _, _ = hostile.no_files(tmp_path, "x")
        places += [tmp_path / "file", pipe, loop]
    for place in places:
        done = CliRunner().invoke(main, [*map(str, typed), "--out", str(place)])
        assert done.exit_code in (1, 2), done.output
        assert done.stderr.splitlines()[-1].startswith("Error: ")
        assert "headlens failed where it should not" not in done.stderr
    assert (tmp_path / "file").read_text() == "mine"


TEXTS = st.one_of(
    hostile.words(), st.text(max_size=6), st.sampled_from(["", "\ud800", "\0", "w5 " * 200, "-"])
)


@hostile.examples(25)
@given(TEXTS, st.sampled_from([".csv", ".html"]))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_any_text(given_paths, tmp_path_factory, text, ending):
    out = tmp_path_factory.getbasetemp() / f"any-text{ending}"
    typed = ["view", str(given_paths["model"]), "--out", str(out), "--", text]
    done = CliRunner().invoke(main, typed, input=b"\xff\0w5")
    assert done.exit_code in (0, 1), done.output
    assert "headlens failed where it should not" not in done.stderr
    assert isinstance(done.exception, SystemExit | None)


def test_paths_that_are_no_text(given_paths, tmp_path):
    name = os.fsdecode(b"\xff\n\x1b[31m")
    (tmp_path / f"{name}.conllu").write_text(TREE * 4, encoding="utf-8")
    typed = [
        "classify",
        given_paths["model"],
        "--corpus",
        tmp_path / f"{name}.conllu",
        "--tags",
        "positional",
    ]
    done = CliRunner().invoke(main, [*map(str, typed), "--quiet", "--out", str(tmp_path / name)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / name / "report.html").is_file()


def test_readers_are_all_reached():
    """A new kind of file is to be tried here, too."""
    reached = {name for _, name in COMMANDS.values() if name} | {"x.tsv"}
    assert {name for _, name, _ in READERS.values()} <= reached
