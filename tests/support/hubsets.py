"""Datasets made for tests: treebanks as the hub holds them, written as files of a folder."""

import json
from pathlib import Path

import conllu
import datasets

UPOS = ["NOUN", "PUNCT", "ADP", "NUM", "SYM", "SCONJ", "ADJ", "PART", "DET"]
UPOS += ["CCONJ", "PROPN", "PRON", "X", "_", "ADV", "INTJ", "VERB", "AUX"]
LISTS = ("tokens", "lemmas", "upos", "xpos", "head", "deprel", "misc")


def _misc(token):
    parts = (f"{key}={value}" if value is not None else key for key, value in (token["misc"] or {}).items())
    return "|".join(parts) or None


def treebank_rows(text, comments=True):
    """Sentences of CoNLL-U as rows: words apart from multiword tokens, with comments; by conllu's parser."""
    rows = []
    for block in text.strip().split("\n\n"):
        tokens = conllu.parse(block + "\n\n")[0]
        words = [token for token in tokens if isinstance(token["id"], int)]
        spans = [token for token in tokens if not isinstance(token["id"], int) and token["id"][1] == "-"]
        row = {
            "sent_id": tokens.metadata.get("sent_id"),
            "tokens": [token["form"] for token in words],
            "lemmas": [token["lemma"] for token in words],
            "upos": [token["upos"] for token in words],
            "xpos": [token["xpos"] for token in words],
            "head": [token["head"] for token in words],
            "deprel": [token["deprel"] for token in words],
            "misc": [_misc(token) for token in words],
            "mwt": [
                {"id": "{}-{}".format(*token["id"][::2]), "form": token["form"], "misc": _misc(token)}
                for token in spans
            ],
        }
        if comments:
            lines = [line[2:] for line in block.splitlines() if line.startswith("# ")]
            row["comments"] = [line for line in lines if not line.startswith("sent_id")]
        rows.append(row)
    return rows


def all_tokens_rows(text):
    """The same as an older dataset of the hub has it: all tokens in one list, cells as Python says them."""
    rows = []
    for tokens in conllu.parse(text):
        row = {name: [] for name in LISTS}
        for token in tokens:
            row["tokens"].append(token["form"])
            row["lemmas"].append(token["lemma"])
            row["upos"].append(token["upos"] or "_")
            row["xpos"].append(token["xpos"])
            for name in ("head", "deprel", "misc"):
                row[name].append(str(token[name]))
        rows.append(row)
    return rows


def write_parquet(rows, path, labelled=True, **types):
    """Rows with heads as texts and parts of speech as numbers of classes."""
    text = datasets.Value("string")
    features = {name: datasets.List(text) for name in rows[0] if isinstance(rows[0][name], list)}
    features |= {name: text for name in rows[0] if name not in features}
    if labelled:
        features["upos"] = datasets.List(datasets.ClassLabel(names=UPOS))
    if "mwt" in rows[0]:
        features["mwt"] = datasets.List({"id": text, "form": text, "misc": text})
    rows = [{**row, "head": [None if head is None else str(head) for head in row["head"]]} for row in rows]
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    made = datasets.Dataset.from_list(rows, features=datasets.Features(features | types))
    datasets.disable_progress_bars()
    made.to_parquet(path)


def write_jsonl(rows, path):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
