"""Ways in which a model stops computing with numbers, while its weights may be in order."""

from __future__ import annotations

import json

import torch
import transformers

import headlens
from support.families import ALL, build
from support.toytext import toy_pairs, toy_text, toy_tokenizer, write_lines, write_pairs

WORD = 33  # the id of w33, which stands in some inputs and not in others


def logits(model, value, word=None):
    """The model's logits become a value, where the input holds a word; states and attention stay."""

    def spoil(_, arguments, options, output):
        ids = options.get("input_ids", arguments[0] if arguments else None)
        if word is None or (ids is not None and bool((ids == word).any())):
            output["logits"] = output["logits"] + value
        return output

    model.register_forward_hook(spoil, with_kwargs=True)


def states(model, value, word=WORD):
    """What one word is embedded as becomes a value, though the table of embeddings holds numbers."""

    def spoil(_, arguments, output):
        return output.masked_fill((arguments[0] == word)[..., None], value)

    model.get_input_embeddings().register_forward_hook(spoil)


def last(model, value):
    """The last layer of the body puts out a value: no attention is touched."""
    body = getattr(model.base_model, "decoder", model.base_model)
    layers = getattr(body, "layers", None) or getattr(body, "h", None) or body.encoder.layer

    def spoil(_, __, output):
        first = output[0] if isinstance(output, tuple) else output
        spoilt = first + value
        return (spoilt, *output[1:]) if isinstance(output, tuple) else spoilt

    layers[-1].register_forward_hook(spoil)


def values_of_head(model, number):
    """W_V of one head of layer 1 of a BERT holds NaN."""
    with torch.no_grad():
        model.base_model.encoder.layer[1].attention.self.value.weight[8 * number] = float("nan")


def classifier():
    config_name, _, options = ALL["bert"]
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**options, id2label={0: "good", 1: "bad"})
    return transformers.BertForSequenceClassification(config).eval()


def lens_for(kind, model=None):
    """A model that can do a kind of benchmark."""
    made = {
        "language": lambda: build("gpt2"),
        "masked": lambda: build("bert"),
        "pairs": lambda: build("gpt2"),
        "classification": classifier,
        "probe": lambda: build("bert"),
        "similarity": lambda: build("bert"),
        "translation": lambda: build("marian"),
    }[kind]()
    return headlens.load(made, toy_tokenizer())


def spec_for(kind, folder):
    """A small file for a kind of benchmark; w33 stands in some of its examples."""
    texts = [toy_text(3 + i % 5, i) + (" w33 w9" if i % 4 == 1 else "") for i in range(24)]
    if kind in ("language", "masked"):
        spec = write_lines(folder / "l.txt", 60)
        (folder / "l.txt").write_text("\n\n".join([*(folder / "l.txt").read_text().split("\n\n"), *texts]))
        return spec
    if kind == "similarity":
        pairs = [(f"{a} w33" if i % 4 == 1 else a, b, score) for i, (a, b, score) in enumerate(toy_pairs(24))]
        return write_pairs(folder / "p.tsv", pairs)
    if kind == "pairs":
        rows = [{"sentence_good": t, "sentence_bad": toy_text(4, 900 + i)} for i, t in enumerate(texts)]
        (folder / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
        return f"pairs:{folder / 'p.jsonl'}"
    if kind == "translation":
        rows = [f"{text}\t{toy_text(3, 500 + i)}" for i, text in enumerate(texts)]
        (folder / "t.tsv").write_text("source\treference\n" + "\n".join(rows) + "\n")
        return f"translation:{folder / 't.tsv'}"
    rows = ["text,label", *(f"{text},{('good', 'bad')[i % 2]}" for i, text in enumerate(texts))]
    (folder / "c.csv").write_text("\n".join(rows))
    path = folder / "c.csv"
    if kind == "classification":
        return f"classification:{path}"
    (folder / "d.csv").write_text("\n".join([*rows, f"{toy_text(4, 99)},good"]))
    return f"probe:{folder / 'd.csv'},{path}"
