"""An experiment file with a small model and corpus beside it, whose heads are set by hand."""

from pathlib import Path

from click.testing import CliRunner, Result
from transformers import BertForMaskedLM

from headlens.cli import main
from support import planted

FILE = """
title = "Planted heads"
note = "A made-up model."
seeds = [0, 1]

[model]
name = "model"

[corpus]
files = ["text.conllu"]

[classify]
tags = ["delimiter", "positional"]

[similar]
tags = "classify"

[ablate]
benchmark = "language:lines.txt"
heads = "0.*"

[[published]]
what = "the planted head"
value = 1.0
source = "by hand"
run = "classify"
table = "scores.csv"
where = { layer = 0, head = 0, measure = "argmax@-1" }
column = "score"

[[published]]
what = "what was not measured"
value = 2.0
source = "nobody"
run = "classify"
table = "scores.csv"
where = { measure = "nsubj:dependent->head" }
column = "score"
"""


def run(*arguments: object) -> Result:
    """Type ``headlens run`` with these arguments."""
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


def write(place: Path) -> Path:
    """Write the file as x.toml, a model with a previous-token head, its corpus and lines."""
    body = planted.bert({0: planted.previous_token(), 1: planted.looks_at(["."])})
    model = BertForMaskedLM(body.config)
    model.bert.load_state_dict(body.state_dict(), strict=False)
    model.save_pretrained(place / "model")
    tokenizer = planted.tokenizer()
    tokenizer.add_special_tokens({"mask_token": "and"})
    tokenizer.save_pretrained(place / "model")
    (place / "text.conllu").write_text(planted.corpus_text(n_documents=4))
    (place / "lines.txt").write_text("dep0 top0 . dep1 top1 .\n" * 60)
    (place / "x.toml").write_text(FILE)
    return place
