"""Small models whose heads are set by hand, and corpora that tell them apart.

Tokens and positions are embedded as one-hot vectors, so that a head can be told exactly which key each
query shall look at. Whatever a layer norm does to a sum of two one-hot vectors is affine with known
numbers, and is undone inside the head's own weights.
"""

from __future__ import annotations

import math
import random

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

PAIRS = 8  # of a dependent word and its head word
NAMES = 6  # of entities, each called by two words
N_POSITIONS = 32
WIDTH = 44
N_HEADS = 6
SHARP = 40.0  # logit of the key that a planted head looks at; the others have 0

WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    ".",
    "and",
    *(f"dep{i}" for i in range(PAIRS)),
    *(f"top{i}" for i in range(PAIRS)),
    *(f"name{i}" for i in range(NAMES)),
    *(f"alias{i}" for i in range(NAMES)),
]
ID = {word: index for index, word in enumerate(WORDS)}


def tokenizer(special: bool = True) -> PreTrainedTokenizerFast:
    """One piece per word; with [CLS] and [SEP] around a text, or without."""
    made = Tokenizer(models.WordLevel(ID, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", ID["[CLS]"]), ("[SEP]", ID["[SEP]"])]
        )
    marks = {"cls_token": "[CLS]", "sep_token": "[SEP]"} if special else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", model_max_length=N_POSITIONS, **marks
    )


def _token(*words: str) -> torch.Tensor:
    row = torch.zeros(len(WORDS) + N_POSITIONS)
    row[[ID[word] for word in words]] = 1
    return row


def _position(place: int) -> torch.Tensor:
    row = torch.zeros(len(WORDS) + N_POSITIONS)
    row[len(WORDS) + place] = 1
    return row


Looks = list[tuple[torch.Tensor, torch.Tensor]]  # (which queries, which keys they look at)


def previous_token() -> Looks:
    return [(_position(i + 1), _position(i)) for i in range(N_POSITIONS - 1)]


def looks_at(words: list[str]) -> Looks:
    return [(_token(*WORDS), _token(*words))]


def first_position() -> Looks:
    return [(_token(*WORDS), _position(0))]


def gold_arc() -> Looks:
    return [(_token(f"dep{i}"), _token(f"top{i}")) for i in range(PAIRS)]


def reversed_arc() -> Looks:
    return [(keys, queries) for queries, keys in gold_arc()]


def same_entity() -> Looks:
    return [(_token(f"alias{i}"), _token(f"name{i}")) for i in range(NAMES)]


def bert(heads: dict[int, Looks]) -> BertModel:
    """A BERT of two layers: the heads of layer 0 as told (the others uniform), those of layer 1 at random."""
    size = N_HEADS * WIDTH
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=size,
        num_hidden_layers=2,
        num_attention_heads=N_HEADS,
        intermediate_size=16,
        max_position_embeddings=N_POSITIONS,
        pad_token_id=0,
        layer_norm_eps=1e-12,
    )
    torch.manual_seed(0)
    model = BertModel(config).eval()
    attention = model.encoder.layer[0].attention.self
    with torch.no_grad():
        _one_hot(model.embeddings.word_embeddings.weight, model.embeddings.position_embeddings.weight)
        model.embeddings.token_type_embeddings.weight.zero_()
        query, key = _projections(heads, size)
        for layer, (weight, bias) in ((attention.query, query), (attention.key, key)):
            layer.weight.copy_(weight.T)
            layer.bias.copy_(bias)
    return model


def gpt2(heads: dict[int, Looks]) -> GPT2LMHeadModel:
    """A GPT-2 of two layers: the heads of layer 0 as told (the others uniform), those of layer 1 drawn."""
    size = N_HEADS * WIDTH
    config = GPT2Config(
        vocab_size=len(WORDS),
        n_embd=size,
        n_layer=2,
        n_head=N_HEADS,
        n_positions=N_POSITIONS,
        layer_norm_epsilon=1e-12,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    model = GPT2LMHeadModel(config).eval()
    attention = model.transformer.h[0].attn
    with torch.no_grad():
        _one_hot(model.transformer.wte.weight, model.transformer.wpe.weight)
        (query, query_bias), (key, key_bias) = _projections(heads, size)
        attention.c_attn.weight[:, :size] = query
        attention.c_attn.weight[:, size : 2 * size] = key
        attention.c_attn.bias[:size] = query_bias
        attention.c_attn.bias[size : 2 * size] = key_bias
    return model


def _one_hot(tokens: torch.Tensor, positions: torch.Tensor) -> None:
    tokens.zero_()
    positions.zero_()
    for index in range(len(WORDS)):
        tokens[index, index] = 1
    for index in range(N_POSITIONS):
        positions[index, len(WORDS) + index] = 1


def _projections(heads: dict[int, Looks], size: int) -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Weights [in, out] and biases of query and key, with the layer norm of two ones undone."""
    mean, deviation = 2 / size, math.sqrt(2 / size - 4 / size**2)
    made = []
    for side in (0, 1):
        weight = torch.zeros(size, size)
        scale = SHARP * math.sqrt(WIDTH) if side == 0 else 1.0
        for head, looks in heads.items():
            assert len(looks) <= WIDTH
            for column, look in enumerate(looks):
                weight[: len(look[side]), head * WIDTH + column] = scale * look[side]
        made.append((weight * deviation, mean * weight.sum(0)))
    return tuple(made)


def corpus_text(seed: int = 0, n_documents: int = 14) -> str:
    """CoNLL-U of short documents that no fixed offset and no nearest mention explains.

    Most sentences have five dependents ("obj") and their heads in random order among fillers, a head always
    before its dependent, every other time just before it. In the others two entities are named by one
    word each, and then one of the two, drawn at random, by another word. What holds the trees together is
    "dep", no ground for a tag.
    """
    rng = random.Random(seed)
    lines = []
    for document in range(n_documents):
        lines += [f"# newdoc id = d{document}", "# global.Entity = eid-etype-head-other"]
        for _ in range(4):
            lines += _arcs(rng)
        names = rng.sample(range(NAMES), NAMES)
        for pair in (names[:2], names[2:4], names[4:]):
            lines += _coreference(rng, pair)
    return "\n".join(lines) + "\n"


def _arcs(rng: random.Random) -> list[str]:
    chosen = rng.sample(range(PAIRS), 5)
    tokens = [f"top{i}" for i in chosen]
    for _ in range(12):
        tokens.insert(rng.randint(0, len(tokens)), "and")
    for i in chosen:
        after = tokens.index(f"top{i}") + 1
        tokens.insert(rng.choice([after, rng.randint(after, len(tokens))]), f"dep{i}")
    root = rng.choice([word for word in tokens if word.startswith("top")])
    rows = []
    for number, word in enumerate(tokens, 1):
        head, relation = tokens.index(root) + 1, "dep"
        if word == root:
            head, relation = 0, "root"
        elif word.startswith("dep"):
            head, relation = tokens.index("top" + word[3:]) + 1, "obj"
        rows.append(f"{number}\t{word}\t{word}\tNOUN\t_\t_\t{head}\t{relation}\t_\t_")
    end = len(tokens) + 1
    return [*rows, f"{end}\t.\t.\tPUNCT\t_\t_\t{tokens.index(root) + 1}\tpunct\t_\t_", ""]


def _coreference(rng: random.Random, pair: list[int]) -> list[str]:
    words = [*(f"name{i}" for i in pair), f"alias{rng.choice(pair)}"]
    lines = [
        f"{number}\t{word}\t{word}\tPROPN\t_\t_\t{0 if number == 1 else 1}\t"
        f"{'root' if number == 1 else 'dep'}\t_\tEntity=(e{word[-1]}-person-1-)"
        for number, word in enumerate(words, 1)
    ]
    return [*lines, ""]
