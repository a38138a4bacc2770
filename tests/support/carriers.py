"""BERTs in which it is known what each head carries, and a benchmark made of bare rows."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

import headlens
from headlens.benchmarks.base import Lot
from headlens.benchmarks.predict import padded
from headlens.benchmarks.registry import open_benchmark
from headlens.model.heads import Head
from support.families import build
from support.toytext import toy_pairs, toy_tokenizer, write_pairs

CARRIER, NOISE, DEAD = Head("encoder", 0, 1), Head("encoder", 0, 2), Head("encoder", 0, 3)


@torch.no_grad()
def carriers(carried: Mapping[Head, tuple[int, int, float]]) -> headlens.Lens:
    """A BERT in which only the named heads, of layer 0, reach the output.

    Words stand in features 0-15, which the last LayerNorm hides. A head carries 8 of them, from where
    `carried` says, to 8 features of 16-31, with a gain; all heads look at all tokens alike.
    """
    model = build("bert").bert
    word = model.embeddings.word_embeddings.weight
    word[:, :16].normal_(generator=torch.Generator().manual_seed(1))
    word[:, 16:].normal_(0, 0.05, generator=torch.Generator().manual_seed(2))
    model.embeddings.position_embeddings.weight.zero_()
    for layer in model.encoder.layer:
        layer.attention.output.dense.weight.zero_()
        layer.attention.output.dense.bias.zero_()
        layer.output.dense.weight.zero_()
        layer.output.dense.bias.zero_()
    first = model.encoder.layer[0].attention
    first.self.query.weight.zero_()
    first.self.query.bias.zero_()
    for head, (source, target, gain) in carried.items():
        place = slice(8 * head.head, 8 * head.head + 8)
        first.self.value.weight[place] = torch.eye(32)[source : source + 8]
        first.self.value.bias[place] = 0
        first.output.dense.weight[target : target + 8, place] = gain * torch.eye(8)
    last = model.encoder.layer[-1].output.LayerNorm
    last.weight[:16], last.bias[:] = 0, 0
    return headlens.load(model, toy_tokenizer())


def carrier_and_noise() -> headlens.Lens:
    """Head 0.1 carries one half of the words' features, head 0.2 the other; all others are dead."""
    return carriers({CARRIER: (0, 16, 3.0), NOISE: (8, 24, 3.0)})


def backup_pair(gain: float = 3000.0) -> headlens.Lens:
    """Heads 0.1 and 0.2 write the same, so strongly that LayerNorm makes one as good as both."""
    return carriers({CARRIER: (0, 16, gain), NOISE: (0, 16, gain)})


def benchmark_of(lens: headlens.Lens, path, without: Sequence[Head] = (), n: int = 40) -> Any:
    """Pairs whose gold score is the model's own cosine, without some heads."""
    pairs = toy_pairs(n)
    with lens.ablate(tuple(without)):
        cosine = open_benchmark(write_pairs(path / "own.tsv", pairs), lens).measure(lens)[:, 0]
    pairs = [(a, b, float(c)) for (a, b, _), c in zip(pairs, cosine, strict=True)]
    return open_benchmark(write_pairs(path / "gold.tsv", pairs), lens)


@dataclass(frozen=True)
class Rows:
    """Inputs and the examples they belong to; an example's loss is its factor times a sum over its rows."""

    owners: Sequence[int]
    ids: Sequence[Sequence[int]]
    factors: Sequence[float]
    size: int = 2
    name: str = "rows"
    metrics: Sequence[Any] = ()
    stacks: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def measure(self, lens: headlens.Lens) -> Any:
        raise NotImplementedError

    def take(self, examples: Sequence[int]) -> Rows:
        number = {example: index for index, example in enumerate(examples)}
        kept = [i for i, owner in enumerate(self.owners) if owner in number]
        return replace(
            self,
            owners=[number[self.owners[i]] for i in kept],
            ids=[self.ids[i] for i in kept],
            factors=[self.factors[i] for i in examples],
            facts={"examples": len(examples)},
        )

    def losses(self, lens: headlens.Lens) -> Iterator[Lot]:
        for start in range(0, len(self.ids), self.size):
            owners = torch.tensor(self.owners[start : start + self.size])
            inputs = padded(lens, self.ids[start : start + self.size])
            mask = inputs["attention_mask"][..., None]
            if lens.model.config.is_encoder_decoder:
                inputs["decoder_input_ids"] = inputs["input_ids"]
            logits = lens.model(**inputs).logits  # [row, token, vocabulary]
            loss = (logits.logsumexp(-1, keepdim=True) * mask).sum((1, 2))  # [row]
            yield Lot(owners, owners, loss * torch.tensor(self.factors).to(loss)[owners])


def rows(owners: Sequence[int], ids: Sequence[Sequence[int]], **options: Any) -> Rows:
    n = max(owners) + 1
    return Rows(owners, ids, **{"factors": [1.0] * n, "facts": {"examples": n}, **options})


@torch.no_grad()
def losses_of(lens: headlens.Lens, benchmark: Any) -> torch.Tensor:
    """The loss of every example, float64 [example]."""
    found = torch.zeros(benchmark.facts["examples"], dtype=torch.float64)
    for lot in benchmark.losses(lens):
        found.index_add_(0, lot.examples, lot.losses.double())
    return found


@torch.no_grad()
def scaled(lens: headlens.Lens, head: Head, factor: float) -> headlens.Lens:
    """A copy of the model in which a head's columns of W_O are multiplied."""
    model = copy.deepcopy(lens.model)
    part = next(p for p in lens.anatomy.parts if (p.site.stack, p.site.layer) == (head.stack, head.layer))
    layer = model.get_submodule(part.projections.output)
    place = slice(head.head * part.site.head_width, (head.head + 1) * part.site.head_width)
    weight = layer.weight.T if type(layer).__name__ == "Conv1D" else layer.weight  # GPT-2's lies transposed
    weight[:, place] *= factor
    return headlens.load(model, lens.tokenizer)
