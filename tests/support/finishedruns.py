"""Finished runs with numbers of our own, as reports read them."""

import json

import pandas as pd

from headlens.scoring.compare import BY_MEASURE, BY_TAG, HEADS
from headlens.util.files import ABLATION, CONTROLS, IMPORTANCE, write_csv, write_text
from support import scored

TAGS = {
    ("encoder", 0, 0): ["positional"],
    ("encoder", 0, 1): ["syntactic", "delimiter"],
    ("encoder", 1, 1): ["syntactic"],
}
SVG = """<?xml version="1.0"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="150pt" height="75pt"
 viewBox="0 0 150 75"><metadata>not shown</metadata><defs><style>*{fill: red}</style>
<clipPath id="box"><rect x="0" y="0" width="150" height="75"/></clipPath><path id="dot"
 d="M 0 0 L 9 9"/></defs>
<g id="axes_1" clip-path="url(#box)"><text x="10" y="10">A text, as text</text><use xlink:href="#dot"/>
<a xlink:href="#head=0.0"><rect x="10" y="20" width="30" height="30" style="clip-path: url(#box)"/></a>
<a xlink:href="#head=0.1"><rect x="60" y="20" width="30" height="30"/></a></g></svg>"""


def scores(heads):
    """Evidence that agrees with `TAGS`."""

    def special(layer, head):
        return 0.7 if (layer, head) == (0, 1) else 0.2

    def obj(layer, head):
        return 0.6 + layer / 10 if head else 0.1

    parts = [
        scored.score_rows(heads, "positional", "argmax@-1", lambda layer, head: 0.95 - layer - head),
        scored.score_rows(heads, "delimiter", "special", special),
        scored.score_rows(heads, "syntactic", "obj:dependent->head", obj),
        scored.score_rows(heads, "syntactic", "nsubj:head->dependent", lambda layer, head: 0.2, q_value=1.0),
        scored.score_rows(heads, "broad", "entropy", lambda layer, head: 0.5, baseline=0.0, margin=0.9),
    ]
    return pd.concat(parts, ignore_index=True)


def classify_run(path, tags=None, stacks=("encoder",), figure=SVG, **run):
    """A run of classify on a model of two layers of two heads."""
    heads = scored.tag_rows(2, 2, stacks, TAGS if tags is None else tags)
    told = {
        "arguments": "headlens classify toy --out 'my run'",
        "options": {"corpora": []},
        "corpus": {"files": ["toy.conllu"], "documents": 3, "sentences": 12, "words": 99},
        "model": {"name": "some/where/toy", "architecture": "ToyModel", "missing_weights": []},
        "evidence": {"min_n": 30},
    }
    scored.write_run(path, scores(heads), heads, **{**told, **run})
    if figure:
        write_text(figure, path / "figures" / "tags.svg")
    return path


def ablation_rows(kind="each", metric="spearman", baseline=0.5):
    """Rows of a sweep on four heads: the first matters, the last harms."""
    changes = [(-0.2, 0.001), (-0.01, 0.6), (0.0, 1.0), (0.1, 0.01)]
    rows = []
    for number, (delta, q_value) in enumerate(changes):
        name = f"{number // 2}.{number % 2}"
        rows.append(
            (f"head {name}", kind, "zero", f"encoder.{name}", 1, metric, baseline + delta, baseline, delta,
             delta - 0.05, delta + 0.05, q_value / 2, q_value, 40, not (delta < 0 and q_value < 0.05),
             "", "", "")
        )  # fmt: skip
    return pd.DataFrame(rows, columns=ABLATION)


def importance_rows(method="each"):
    rows = [("encoder", n // 2, n % 2, method, 0.2 - n / 10, n + 1) for n in range(4)]
    return pd.DataFrame(rows, columns=IMPORTANCE)


def ablate_run(path, table=None, controls=None, **run):
    """A run of ablate."""
    write_csv(ablation_rows() if table is None else table, path / "ablation.csv", ABLATION)
    write_csv(importance_rows(), path / "importance.csv", IMPORTANCE)
    if controls is not None:
        write_csv(controls, path / "controls.csv", CONTROLS)
    told = {
        "command": "ablate",
        "arguments": "headlens ablate toy --out a",
        "model": {"name": "toy"},
        "benchmark": {"name": "similarity:toy.tsv", "examples": 40},
        "baseline": {"spearman": 0.5},
        "larger_is_better": {"spearman": True},
        "bundled_sample": False,
        "notes": ["Mind this."],
    }
    (path / "run.json").write_text(json.dumps({**told, **run}))
    return path


def compare_run(path, **run):
    """A comparison."""
    heads = [
        ("encoder", 0, 0, "positional", "", "", "positional"),
        ("encoder", 0, 1, "syntactic", "syntactic", "", ""),
    ]
    by_tag = [
        ("positional", 1, 0, 0, 0, 1, 0.0),
        ("syntactic", 1, 1, 1, 0, 0, 1.0),
        ("all", 2, 1, 1, 0, 1, 0.5),
    ]
    by_measure = [("syntactic", "obj:dependent->head", 2, 0.5, 0.6, 0.9, None)]
    write_csv(pd.DataFrame(heads, columns=HEADS), path / "compare_heads.csv", HEADS)
    write_csv(pd.DataFrame(by_tag, columns=BY_TAG), path / "compare_tags.csv", BY_TAG)
    write_csv(pd.DataFrame(by_measure, columns=BY_MEASURE), path / "compare_scores.csv", BY_MEASURE)
    told = {
        "command": "compare",
        "first": "runs/one",
        "second": "runs/two",
        "notes": ["The runs differ in: corpus."],
    }
    (path / "run.json").write_text(json.dumps({**told, **run}))
    return path
