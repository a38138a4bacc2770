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
RARE = WORDS[WORDS.index("dep0") :]
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


def same_token() -> Looks:
    return [(_token(word), _token(word)) for word in WORDS]


def rare_words() -> Looks:
    """Everything looks at rare words, at some of them a little more: two never tie."""
    strengths = [(1 + i / 50) * _token(word) for i, word in enumerate(RARE)]
    return [(_token(*WORDS), torch.stack(strengths).sum(0))]


def same_entity() -> Looks:
    return [(_token(f"alias{i}"), _token(f"name{i}")) for i in range(NAMES)]


def bert(heads: dict[int, Looks], uniform: bool = False) -> BertModel:
    """A BERT of two layers: the heads of layer 0 as told (the others uniform), those of layer 1 at random.

    Args:
        heads: what each planted head looks at.
        uniform: make the heads of layer 1 uniform, too. A head drawn at random has likes and dislikes among
            words, and where few words make up most of a text it may shun them all, which is what a
            rare-token head does.
    """
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
        if uniform:
            model.encoder.layer[1].attention.self.query.weight.zero_()
            model.encoder.layer[1].attention.self.query.bias.zero_()
    return model


def induction_gpt2(copies: float = 1.0) -> GPT2LMHeadModel:
    """A GPT-2 whose head 1.0 looks for what came after the current token before, and raises its logit.

    Head 0.0 looks at the previous token and writes which it was into free directions; head 1.0 compares
    them with the current token. Head 0.1 looks at all copies of the current token.

    Args:
        copies: what head 1.0 writes is this many times the token it looks at; -1 lowers its logit.
    """
    model = gpt2({0: previous_token(), 1: same_token()})
    size, words = N_HEADS * WIDTH, len(WORDS)
    noted = words + N_POSITIONS  # where head 0.0 writes
    one, two = (model.transformer.h[layer] for layer in (0, 1))
    with torch.no_grad():
        for block in (one, two):
            block.mlp.c_proj.weight.zero_()
            block.attn.c_attn.weight[:, 2 * size :] = 0
            block.attn.c_proj.weight.zero_()
        identity = torch.eye(words)
        one.attn.c_attn.weight[:words, 2 * size : 2 * size + words] = identity
        one.attn.c_proj.weight[:words, noted : noted + words] = 10 * identity
        two.attn.c_attn.weight[:, : 2 * size].zero_()
        two.attn.c_attn.weight[:words, :words] = SHARP * identity
        two.attn.c_attn.weight[noted : noted + words, size : size + words] = SHARP * identity
        two.attn.c_attn.weight[:words, 2 * size : 2 * size + words] = identity
        two.attn.c_proj.weight[:words, :words] = copies * identity
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


def rare_text(seed: int = 0, n_documents: int = 14) -> str:
    """CoNLL-U of sentences of common words with two rare ones, the rarest of the corpus, anywhere."""
    rng = random.Random(seed)
    lines = []
    for document in range(n_documents):
        lines.append(f"# newdoc id = d{document}")
        for _ in range(4):
            words = [rng.choice([".", "and"]) for _ in range(12)]
            for word in rng.sample(RARE, 2):
                words.insert(rng.randint(0, len(words)), word)
            lines += [
                f"{number}\t{word}\t{word}\tNOUN\t_\t_\t_\t_\t_\t_" for number, word in enumerate(words, 1)
            ]
            lines.append("")
    return "\n".join(lines) + "\n"


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
