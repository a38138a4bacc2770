"""Small tasks of lm-evaluation-harness, of every kind of request, with their data, and a model for them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import headlens
from headlens.lens import Lens
from support.families import build
from support.toytext import toy_text, toy_tokenizer

CHOICE = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
fewshot_split: train
num_fewshot: {shots}
output_type: multiple_choice
doc_to_text: "{{{{q}}}}"
doc_to_choice: choices
doc_to_target: gold
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
  - metric: mcc
    aggregation: matthews_corrcoef
    higher_is_better: true
metadata:
  version: 1.5
"""
ROLLING = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{q}}}}"
metric_list:
  - metric: word_perplexity
  - metric: byte_perplexity
  - metric: bits_per_byte
"""
LAST_WORD = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: loglikelihood
doc_to_text: "{{{{q}}}}"
doc_to_target: " {{{{choices[gold]}}}}"
metric_list:
  - metric: perplexity
  - metric: acc
"""
WRITING = """\
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {data}
test_split: train
output_type: generate_until
doc_to_text: "{{{{q}}}}"
doc_to_target: "{{{{choices[0]}}}}"
generation_kwargs:
  until: ["w7"]
  max_gen_toks: 6
  do_sample: {sample}
metric_list:
  - metric: exact_match
filter_list:
  - name: first
    filter: [{{function: take_first}}]
  - name: word
    filter:
      - {{function: regex, regex_pattern: "(w[0-9]+)"}}
      - {{function: take_first}}
"""


def task(folder: Path, kind: str = CHOICE, name: str = "toy", n: int = 14, **options) -> str:
    """Write a task with its data and say where it is; a question has one to three choices of 1 to 3 words."""
    generator = np.random.default_rng(len(name))
    documents = [
        {
            "q": toy_text(2 + (5 * i) % 9, i),
            "choices": [toy_text(1 + (i + j) % 3, 100 * j + i) for j in range(3)],
            "gold": int(generator.integers(3)),
        }
        for i in range(n)
    ]
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(one) + "\n" for one in documents))
    path = folder / f"{name}.yaml"
    path.write_text(kind.format(name=name, data=data, **{"shots": 0, "sample": "false", **options}))
    return str(path)


def lens_of(family: str = "llama", frame: tuple[str, ...] = ("[CLS]",)) -> Lens:
    """A small random model whose tokenizer has an end of text."""
    tokenizer = toy_tokenizer(frame, mask=False)
    tokenizer.eos_token = "[SEP]"
    return headlens.load(build(family), tokenizer)
