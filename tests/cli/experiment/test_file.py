"""Experiment files: what they mean, and what is refused with the nearest right name."""

import json

import pytest

from headlens.cli import main
from headlens.cli.experiment_file import Report, on_models, read_experiment
from headlens.cli.experiment_run import cells, steps
from headlens.errors import InputError

GOOD = """
title = "Two models"
note = "Not run."
seeds = [0, 3]

[model]
names = ["minilm", "small"]
device = "cpu"
batch-size = 8

[corpus]
files = ["a.conllu", "b.conllu"]

[classify]
tags = ["syntactic", "coreference"]
min-n = 10

[[ablate]]
benchmark = "similarity:pairs.tsv"
overwrite = true

[[ablate]]
name = "pruning"
sweep = "tags"
from = "classify"

[view]
text = "The dog barks."
words = true
out = "dog.png"

[[published]]
what = "one"
value = 1
source = "someone"
run = "pruning"
table = "ablation.csv"
column = "delta"
"""


def read(tmp_path, text):
    path = tmp_path / "x.toml"
    path.write_text(text)
    return read_experiment(path, main)


def test_every_cell_has_its_commands(tmp_path):
    for name in ("a.conllu", "pairs.tsv"):
        (tmp_path / name).write_text("")
    (tmp_path / "small").mkdir()
    experiment = read(tmp_path, GOOD)
    assert (experiment.title, experiment.note, experiment.seeds) == ("Two models", "Not run.", [0, 3])
    out = tmp_path / "out"
    places = [cell.place for cell in cells(experiment, out)]
    assert places == [out / model / f"seed-{seed}" for model in ("minilm", "small") for seed in (0, 3)]
    typed = [" ".join(step.typed).replace(f"{tmp_path}/", "") for step in steps(experiment, out)]
    assert len(typed) == 16
    assert typed[12:] == [
        "classify small --corpus a.conllu --corpus b.conllu --device cpu --batch-size 8 --seed 3 "
        "--tags syntactic,coreference --min-n 10 --out out/small/seed-3/classify",
        "ablate small --device cpu --batch-size 8 --seed 3 --benchmark similarity:pairs.tsv --overwrite "
        "--out out/small/seed-3/ablate",
        "ablate small --device cpu --batch-size 8 --seed 3 --sweep tags --from out/small/seed-3/classify "
        "--out out/small/seed-3/pruning",
        "view small The dog barks. --device cpu --batch-size 8 --seed 3 --words "
        "--out out/small/seed-3/dog.png",
    ]


def test_one_model_and_one_seed_need_no_directories(tmp_path):
    experiment = read(tmp_path, '[model]\nname = "minilm"\n[classify]\n')
    (step,) = steps(experiment, tmp_path / "out")
    assert step.typed == ("classify", "minilm", "--out", str(tmp_path / "out" / "classify"))


def test_only_options_that_take_a_run_name_other_sections(tmp_path):
    text = (
        MODEL
        + '[[classify]]\nname = "coreference"\ntags = ["coreference"]\n[similar]\ntags = "coreference"\n'
    )
    classify, similar = (" ".join(step.typed) for step in steps(read(tmp_path, text), tmp_path / "out"))
    assert "--tags coreference --out" in classify
    assert f"--tags {tmp_path / 'out' / 'coreference'} --out" in similar


MODEL = '[model]\nname = "minilm"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            MODEL + "[ablate]\nsweeps = 1\n",
            r"\[ablate\] of x.toml cannot have 'sweeps'. Did you mean sweep\?",
        ),
        (MODEL + "[clasify]\n", r"x.toml cannot have 'clasify'. Did you mean classify\?"),
        (
            MODEL + "devise = 'cpu'\n[classify]\n",
            r"\[model\] of x.toml cannot have 'devise'. Did you mean device",
        ),
        (MODEL + "[ablate]\nqqqqqq = 1\n", r"cannot have 'qqqqqq'. It can have: .*sweep"),
        ("[classify]\n", "x.toml does not say which model. Write"),
        (MODEL, "x.toml runs nothing. Add a section: classify"),
        (MODEL + "[[ablate]]\n[[ablate]]\n", "Two sections of x.toml write to 'ablate'. Give one a name"),
        (MODEL + '[ablate]\nname = "../up"\n', "which is no name of a directory"),
        (MODEL + '[ablate]\nout = "x"\n', "has an out, which the experiment chooses. Write name"),
        (MODEL + '[view]\ntext = "a"\n', "needs a text and an out"),
        (MODEL + '[view]\ntext = "-"\nout = "a.png"\n', "has the text '-', which is what is typed"),
        (MODEL + "seeds = 1\n[classify]\n", r"\[model\] of x.toml cannot have 'seeds'"),
        ("seeds = [-1]\n" + MODEL + "[classify]\n", r"has seeds = \[-1\]. Write a list"),
        ("title = \n", "x.toml is no TOML"),
        ("title = 3\n" + MODEL + "[classify]\n", "x.toml has title = 3. Write a text in quotes"),
        (MODEL + 'names = ["gpt2"]\n[classify]\n', r"\[model\] of x.toml has name and names. Leave one"),
        ('[model]\nnames = ["a", "a"]\n[classify]\n', "names the model 'a' twice. One run of it is enough"),
        ("seeds = [1, 1]\n" + MODEL + "[classify]\n", "x.toml has the seed 1 twice. One run of it is enough"),
        (
            "seeds = [1, 2]\n" + MODEL + "[classify]\nseed = 3\n",
            r"\[classify\] of x.toml has a seed, and the file has the seeds \[1, 2\]. Leave one of",
        ),
        (
            MODEL + '[prune]\nfrom = "ablate"\n[ablate]\n',
            r"\[prune\] of x.toml reads 'ablate', which is not run before it. Move the section",
        ),
        (GOOD.replace("value = 1", "value = nan"), "has value = nan. Write a number that is finite"),
        ("classify = 3\n" + MODEL, r"x.toml has classify = 3. Write a section \[classify\]"),
        (MODEL + "[classify]\n[[published]]\nvalue = 1\n", r"\[\[published\]\] of x.toml lacks what"),
        (
            GOOD.replace('run = "pruning"', 'run = "prune"'),
            "names the run 'prune'. There are: classify, ablate",
        ),
        (GOOD.replace("value = 1", 'value = "1"'), "has value = '1'. Write a number"),
        (GOOD + 'take = "maximum"\n', "cannot have 'maximum'. Did you mean max"),
        (
            GOOD + 'bound = "atleast"\n',
            r"bound in \[\[published\]\] of x.toml cannot have 'atleast'. Did you mean at",
        ),
        (GOOD + 'take = "share"\n', "has take = 'share'. take = \"share\" goes with above = a number"),
        (GOOD + "above = 1\n", "has take = 'only'. take = \"share\" goes with above = a number"),
        (GOOD + 'take = "share"\nabove = "1"\n', "has above = '1'. Write a number"),
        (GOOD + 'by = "head"\n', r"has by = 'head'. Write a list such as by = \[\"layer\", \"head\"\]"),
        (GOOD + 'where = "head"\n', "has where = 'head'. Write where = { COLUMN = "),
        (GOOD + 'relative_to = "classfy"\n', "names the run 'classfy'. There are: classify, ablate"),
        (GOOD + 'relativ_to = "classify"\n', "cannot have 'relativ_to'. Did you mean relative_to"),
        (
            GOOD.replace("ablation.csv", "run.json") + "where = { head = 1 }\n",
            "has where, and run.json has no rows. Leave it out",
        ),
        (
            MODEL + "[classify]\n[corpus]\nfile = []\n",
            r"\[corpus\] of x.toml cannot have 'file'. Did you mean files",
        ),
        (
            MODEL + '[classify]\n[corpus]\nfiles = "a.conllu"\n',
            r"\[corpus\] of x.toml has files = 'a.conllu'. Write a list",
        ),
        (
            GOOD + '[report]\nouts = "x.html"\n',
            r"\[report\] of x.toml cannot have 'outs'. Did you mean out\?",
        ),
        (
            GOOD + '[report]\nout = "x.pdf"\n',
            r"\[report\] of x.toml has out = 'x.pdf'. Write the name of a page",
        ),
        (GOOD + '[report]\nout = "../x.html"\n', "has out = '../x.html'. Write the name of a page"),
        (GOOD + '[report]\nruns = "classify"\n', "has runs = 'classify'. Write a list of names"),
        (
            GOOD + '[report]\nruns = ["prunin"]\n',
            r"runs in \[report\] of x.toml cannot have 'prunin'. Did you mean pruning\?",
        ),
        (
            GOOD + '[report]\nruns = ["dog.png"]\n',
            "cannot have 'dog.png'. It can have: ablate, classify, pruning",
        ),
        (
            MODEL + '[view]\ntext = "a"\nout = "report.html"\n',
            "has the name 'report.html', which is no name of a directory or is taken. Write a plain one.",
        ),
    ],
)
def test_what_means_nothing_is_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, text)


def test_the_page_of_an_experiment(tmp_path):
    assert read(tmp_path, GOOD).report == Report("report.html", ["classify", "ablate", "pruning"])
    told = GOOD + '[report]\nout = "all.html"\nruns = ["pruning", "classify"]\n'
    assert read(tmp_path, told).report == Report("all.html", ["pruning", "classify"])


def test_other_models_than_those_of_the_file(tmp_path):
    (tmp_path / "other").mkdir()
    told = GOOD.replace('device = "cpu"', 'revision = "main"')
    experiment = on_models(read(tmp_path, told), ["other"])
    assert dict(experiment.models) == {"other": "other"}  # not the folder beside the file
    typed = [" ".join(step.typed) for step in steps(experiment, tmp_path / "out")]
    assert len(typed) == 8
    assert all(one.split()[1] == "other" and "--revision" not in one for one in typed)
    assert "--revision main" in " ".join(next(steps(read(tmp_path, told), tmp_path / "out")).typed)


def test_models_that_end_alike_have_directories_of_their_own(tmp_path):
    def places(*models):
        text = GOOD.replace('["minilm", "small"]', json.dumps(models)).replace("seeds = [0, 3]", "")
        return [cell.place.name for cell in cells(read(tmp_path, text), tmp_path)]

    assert places("a/bert", "b/gpt2") == ["bert", "gpt2"]
    assert places("a/bert", "b/bert") == ["a_bert", "b_bert"]
    assert places("a/bert", "a_bert", "bert") == ["0-a_bert", "1-a_bert", "2-bert"]


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(
        InputError, match=r"Expected a TOML file at .*nowhere.toml, found nothing. Check the path."
    ):
        read_experiment(tmp_path / "nowhere.toml", main)
