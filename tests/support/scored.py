"""Tables and runs of classify with numbers of our own."""

import json
import math

import pandas as pd

from headlens.util.files import SCORES, TAGS, write_csv

NAMES = (
    "positional",
    "delimiter",
    "syntactic",
    "coreference",
    "semantic",
    "induction",
    "duplicate-token",
    "rare-token",
    "broad",
)
SIZES = [(6, 12), (12, 12), (30, 9), (48, 25)]  # layers and heads of models that there are


def tag_rows(layers, heads, stacks=("encoder",), tags=None):
    """Every head with the tags that `tags` holds for (stack, layer, head)."""
    return pd.DataFrame(
        [
            (stack, layer, head, ";".join((tags or {}).get((stack, layer, head), ())), "")
            for stack in stacks
            for layer in range(layers)
            for head in range(heads)
        ],
        columns=TAGS,
    )


def mixed(layers, heads, stacks=("encoder",), most=4):
    """Heads with 0 to `most` tags by turns."""
    tags, turn = {}, 0
    for stack in stacks:
        for layer in range(layers):
            for head in range(heads):
                turn += 1
                tags[stack, layer, head] = [NAMES[(turn + i) % 9] for i in range(turn % (most + 1))]
    return tag_rows(layers, heads, stacks, tags)


def score_rows(heads, tag, measure, score, **columns):
    """One measure on the heads of a tag table; `score` is called with (layer, head)."""
    frame = heads[["stack", "layer", "head"]].copy()
    frame["tag"], frame["measure"] = tag, measure
    frame["score"] = [score(layer, head) for layer, head in zip(heads["layer"], heads["head"], strict=True)]
    frame["baseline"] = columns.get("baseline", 0.25)
    frame["effect"] = frame["score"] - frame["baseline"]
    frame["ci_low"], frame["ci_high"] = frame["effect"] - 0.05, frame["effect"] + 0.08
    frame["p_value"] = frame["q_value"] = columns.get("q_value", 0.001)
    frame["n"] = columns.get("n", 1234)
    frame["tagged"] = frame["effect"] > columns.get("margin", 0.1)
    return frame[SCORES]


def everything(heads):
    """Scores of several kinds on some heads."""
    n_heads = heads["head"].max() + 1

    def rising(layer, head):
        return (layer * n_heads + head + 1) / (len(heads) + 1)

    parts = [
        score_rows(heads, "positional", "mass@-1", lambda layer, head: 0.9 if head == 0 else 0.1, margin=0.4),
        score_rows(heads, "positional", "mass@0", lambda layer, head: 0.2),
        score_rows(heads, "positional", "mass@+1", lambda layer, head: math.nan, n=0),
        score_rows(heads, "syntactic", "obj:dependent->head", rising),
        score_rows(heads, "syntactic", "obj:head->dependent", lambda layer, head: 0.1),
        score_rows(heads, "syntactic", "punct:dependent->head", rising, q_value=math.nan),
        score_rows(heads, "coreference", "antecedent", lambda layer, head: 0.3),
        score_rows(heads, "broad", "entropy", rising, baseline=math.nan, q_value=math.nan),
    ]
    return pd.concat(parts, ignore_index=True)


def write_run(path, scores, tags, **run):
    """What classify leaves, without the rest."""
    path.mkdir(parents=True, exist_ok=True)
    write_csv(scores, path / "scores.csv", SCORES)
    write_csv(tags, path / "tags.csv", TAGS)
    told = {"command": "classify", "headlens": "0.1.0", "model": {"name": "toy"}, **run}
    (path / "run.json").write_text(json.dumps(told))
    return path
