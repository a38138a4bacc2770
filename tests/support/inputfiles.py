"""A small file of every kind that headlens reads, and what reads it; each holds the word w5."""

import json
from pathlib import Path

from headlens.benchmarks.files import read_rows, read_table
from headlens.cli import main
from headlens.cli.experiment_file import read_experiment
from headlens.cli.experiment_run import steps
from headlens.corpus.corpus import Corpus, Document, InputFile, Sentence
from headlens.corpus.inputs import read_targets
from headlens.corpus.read import read_files
from headlens.scoring.scorers.rare_token import read_frequencies
from headlens.scoring.scorers.semantic import read_relations
from headlens.util.files import open_regular

TREE = "".join(
    line.replace(" ", "\t") if line[0].isdigit() else line
    for line in (
        "# newdoc id = d\n",
        "# global.Entity = eid-etype-head-other\n",
        "1-2 w5w6 _ _ _ _ _ _ _ _\n",
        "1 w5 w5 NOUN _ _ 2 nsubj _ Entity=(e1-person-1)|SpaceAfter=No\n",
        "2 w6 w6 VERB _ _ 0 root _ _\n",
        "2.1 w7 _ _ _ _ _ _ _ _\n",
        "3 w8 w8 PRON _ _ 2 obj:x _ Entity=(e1-person-1)\n",
        "\n",
    )
)
COREFERENCE = """#begin document (d); part 001
d 0 0 w5 NNP * w5 - - - * (1)
d 0 1 w6 VBZ * - - - - * -
d 0 2 w8 PRP * - - - - * (1)|(2
d 0 3 w9 NN * - - - - * 2)

#end document
"""
COLUMNS = ("text", "label")
ROWS = [COLUMNS, *((f"w5 w{number}", "good" if number % 2 else "bad") for number in range(6, 20))]
JSONL = "".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in ROWS[1:])
EXPERIMENT = """title = "w5"
seeds = [1]
[model]
name = "m"
[classify]
tags = ["syntactic"]
min-n = 1
[[view]]
text = "w5"
out = "v.png"
[[published]]
what = "w5"
value = 1.5
source = "s"
run = "classify"
table = "scores.csv"
column = "score"
where = { layer = 1 }
"""


def targets(path: Path) -> Corpus:
    """Read targets of three sources."""
    sentence = Sentence((), "", "s", 1)
    return read_targets(path, Corpus((Document("d", (sentence,) * 2, ()),), ("s",), "", False, False, False))


def commands(path: Path):
    """Read an experiment down to its command lines."""
    return list(steps(read_experiment(path, main), Path("out")))


READERS = {
    "CoNLL-U": (read_files, "x.conllu", TREE),
    "CoNLL-2012": (read_files, "x.conll", COREFERENCE),
    "plain text": (read_files, "x.txt", "w5 w6. W7 w8! (w9)\n\nw10 \u2026 w11\n"),
    "CSV": (lambda path: read_table(InputFile(path), [COLUMNS]), "x.csv", "\n".join(map(",".join, ROWS))),
    "TSV": (lambda path: read_rows(InputFile(path), COLUMNS), "x.tsv", "\n".join(map("\t".join, ROWS))),
    "JSONL": (lambda path: read_table(InputFile(path), [COLUMNS]), "x.jsonl", JSONL),
    "text": (lambda path: InputFile(path).text, "x.txt", "w5 w6\nw7\n"),
    "TOML": (commands, "x.toml", EXPERIMENT),
    "relations": (read_relations, "x.tsv", "w5\tw6\nw7\tw8\n"),
    "frequencies": (read_frequencies, "x.tsv", "w5\t10\nw6\t1.5\n"),
    "targets": (targets, "x.txt", "w5 w6\nw7\n"),
}
"""What reads each kind of file, how it is named, and what one says."""


def changed_while_read(monkeypatch) -> None:
    """Have another file stand in the place of each input file as soon as that is open."""

    def opened(path: Path):
        file = open_regular(path)
        other = path.with_name(f"{path.name}.other")
        other.write_text("another", encoding="utf-8")
        other.replace(path)
        return file

    monkeypatch.setattr("headlens.corpus.corpus.open_regular", opened)
