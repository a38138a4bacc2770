"""Small stand-ins for what the experiment files name: models of the same shape, and data of the same format.

Texts and trees are those of the bundled sample, and the tokenizers know its words, one piece each.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel, PreTrainedTokenizerFast

from headlens.benchmarks.registry import SAMPLE
from headlens.corpus.conllu import read_conllu
from headlens.corpus.corpus import Document
from support import planted

MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
STANFORD = {"obj": "dobj", "case": "prep", "obl": "pobj", "nmod:poss": "poss", "compound:prt": "prt"}
ANSWERS = {"entailment": "yes", "neutral": "maybe", "contradiction": "no"}


@cache
def documents() -> tuple[Document, ...]:
    """The bundled sample."""
    return read_conllu([SAMPLE / "english.conllu"]).documents


def tokenizer(words: Iterable[str], before: str = "[CLS] ", after: str = " [SEP]") -> PreTrainedTokenizerFast:
    """One piece per word between blanks."""
    ids = {word: index for index, word in enumerate(dict.fromkeys([*MARKS, *words]))}
    inner = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single=f"{before}$A{after}",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        eos_token="[SEP]", model_max_length=128, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def words() -> list[str]:
    """The words of the sample."""
    return [form for document in documents() for sentence in document.sentences for form in sentence.forms]


def treebank(path: Path, rename: dict[str, str], n_documents: int) -> None:
    """Write the sample's trees under other names of relations, blanks between all words."""
    text = (SAMPLE / "english.conllu").read_text("utf-8").replace("SpaceAfter=No", "_").replace("|_\n", "\n")
    parts = text.split("# newdoc")[1 : 1 + n_documents]
    lines = [line.split("\t") for line in "".join(f"# newdoc{part}" for part in parts).split("\n")]
    for cells in lines:
        if len(cells) == 10:
            cells[7] = rename.get(cells[7], cells[7])
    path.write_text("\n".join("\t".join(cells) for cells in lines), "utf-8")


def conll2012(folder: Path, n_documents: int, longest: int = 126) -> None:
    """Write the sample's entities as a folder of CoNLL-2012, the documents that fit into one window."""
    folder.mkdir()
    for number, document in enumerate(documents()[:n_documents]):
        if sum(len(sentence.words) for sentence in document.sentences) > longest:
            continue
        tags = {"PRON": "PRP", "PROPN": "NNP"}
        lines = [f"#begin document ({document.name}); part 000"]
        for index, sentence in enumerate(document.sentences):
            marks = defaultdict(list)
            for m in sorted(document.mentions, key=lambda m: m.start - m.end):
                if m.sentence == index and m.end - m.start == 1:
                    marks[m.start].append(f"({m.entity[1:]})")
                elif m.sentence == index:
                    marks[m.start].append(f"({m.entity[1:]}")
                    marks[m.end - 1].insert(0, f"{m.entity[1:]})")
            for place, word in enumerate(sentence.words):
                tag, mark = tags.get(word.upos, "NN"), "|".join(marks[place]) or "-"
                row = [document.name, "0", str(place), word.form, tag, "*", "-", "-", "-", "S", "*", mark]
                lines.append(" ".join(row))
            lines.append("")
        (folder / f"{number:02}.v4_gold_conll").write_text("\n".join([*lines, "#end document", ""]), "utf-8")


def random_model(kind: str, **options: object) -> PreTrainedModel:
    """A model with random weights, whose heads look at few tokens each, not at the same in all rows."""
    torch.manual_seed(0)
    found = getattr(transformers, kind)
    model: PreTrainedModel = found(found.config_class(**options)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim >= 2 and "embed" not in name:
                looks = any(part in name for part in ("query", "key", "q_proj", "k_proj"))
                weight.normal_(0, 0.3 if looks else 0.1)
    return model


def bert(place: Path) -> None:
    """Write a random BERT of 12 layers of 12 heads."""
    known = tokenizer(words())
    shape = {"num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 48, "intermediate_size": 32}
    random_model("BertModel", vocab_size=len(known), **shape).save_pretrained(place)
    known.save_pretrained(place)


def marian(place: Path) -> None:
    """Write a random translator with 6 encoder layers of 8 heads."""
    known = tokenizer(words(), before="")
    sides = ("encoder", "decoder")
    options = {f"{side}_attention_heads": 8 for side in sides} | {f"{side}_ffn_dim": 32 for side in sides}
    options |= {"encoder_layers": 6, "decoder_layers": 1, "d_model": 32, "vocab_size": len(known)}
    options |= {"pad_token_id": 0, "eos_token_id": 3, "bos_token_id": 2, "decoder_start_token_id": 0}
    model = random_model("MarianMTModel", **options, forced_eos_token_id=3, max_position_embeddings=128)
    with torch.no_grad():
        for layer in model.model.encoder.layers:
            layer.self_attn.out_proj.weight.mul_(0.2)  # some of them can go, and not all is lost
    model.save_pretrained(place)
    known.save_pretrained(place)


def classifier(place: Path) -> None:
    """Train a small BERT, for a second, on pairs of texts with one of `ANSWERS`, and write it."""
    pairs = entailment(1, 120)
    known = tokenizer(word for a, b, _ in pairs for word in f"{a} {b}".split())
    names = list(ANSWERS)
    model = random_model(
        "BertForSequenceClassification", vocab_size=len(known), num_hidden_layers=2, hidden_size=32,
        num_attention_heads=4, intermediate_size=32, id2label=dict(enumerate(names)),
    )  # fmt: skip
    inputs = known(
        [pair[0] for pair in pairs], [pair[1] for pair in pairs], padding=True, return_tensors="pt"
    )
    labels = torch.tensor([names.index(pair[2]) for pair in pairs])
    adam = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        adam.zero_grad()
        model(**inputs, labels=labels).loss.backward()
        adam.step()
    model.save_pretrained(place)
    known.save_pretrained(place)


def entailment(seed: int, n: int) -> list[tuple[str, str, str]]:
    """Make pairs of texts of which one word tells the label, but for every tenth."""
    rng, rows = random.Random(seed), []
    for number in range(n):
        label = list(ANSWERS)[number % 3]
        tells = ANSWERS[label if number % 10 else rng.choice(list(ANSWERS))]
        text = [f"w{rng.randrange(30)}" for _ in range(rng.randint(3, 7))]
        text.insert(rng.randint(0, len(text)), tells)
        rows.append(
            (" ".join(f"w{rng.randrange(30)}" for _ in range(rng.randint(3, 7))), " ".join(text), label)
        )
    return rows


def tab_separated(path: Path, rows: list[tuple[str, ...]]) -> None:
    """Write a table, its header first."""
    path.write_text("\n".join("\t".join(row) for row in rows), "utf-8")


def gpt2(place: Path, make: Callable[[], GPT2LMHeadModel], layers: dict[int, dict[int, int]]) -> None:
    """Write a GPT-2 of 12 heads with planted ones in layers and places of choice.

    Args:
        place: where.
        make: makes a planted model of two layers.
        layers: by layer, which head of it a head of the planted model becomes; the first layer that is
            named takes those of layer 0, the second those of layer 1. All other layers do nothing.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planted, "N_HEADS", 12)
        source = make()
    config = GPT2Config(**{**source.config.to_dict(), "n_layer": 12, "n_inner": 4})
    model = GPT2LMHeadModel(config).eval()
    size, width = config.n_embd, planted.WIDTH
    with torch.no_grad():
        for weight in model.transformer.h.parameters():
            if weight.ndim == 2:
                weight.zero_()
        for name in ("wte", "wpe"):
            getattr(model.transformer, name).load_state_dict(getattr(source.transformer, name).state_dict())
        for block, (layer, moves) in zip(source.transformer.h, layers.items(), strict=False):
            heads = list(range(12))
            for old, new in moves.items():
                heads[new], heads[old] = heads[old], heads[new]
            order = torch.cat([torch.arange(width) + head * width for head in heads])
            attention = model.transformer.h[layer].attn
            columns = torch.cat([order, order + size, order + 2 * size])
            attention.c_attn.weight.copy_(block.attn.c_attn.weight[:, columns])
            attention.c_attn.bias.copy_(block.attn.c_attn.bias[columns])
            attention.c_proj.weight.copy_(block.attn.c_proj.weight[order])
    model.save_pretrained(place)
    planted.tokenizer(special=False).save_pretrained(place)


def plain_text(path: Path, n: int = 40) -> None:
    """Write sentences of the planted tokenizer's words, a line each."""
    rng = random.Random(0)
    said = [" ".join(rng.choices(planted.RARE, k=rng.randint(6, 14))) for _ in range(n)]
    path.write_text("\n\n".join(f"{sentence} ." for sentence in said), "utf-8")
