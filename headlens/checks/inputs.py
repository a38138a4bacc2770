"""What checks are made on: a model, short inputs, and what it computed for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from headlens.corpus.batches import make_batches
from headlens.corpus.corpus import Corpus, Document
from headlens.corpus.inputs import AsTarget, Item, as_decoder_input, sentence_inputs
from headlens.corpus.plain import Chunk, split_sentences
from headlens.corpus.words import Encoded
from headlens.errors import InputError
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens, known_pad, longest_input, n_known, takes_positions
from headlens.model.seam import Block
from headlens.model.trace import token_ids

N_STATES = 5  # positions of the states that a decoder without an encoder of its own looks at


@dataclass(frozen=True, slots=True)
class Fed:
    """Inputs side by side.

    Args:
        inputs: what the model is given.
        source: which tokens are real, bool [row, token].
        target: the same of a decoder beside an encoder; None where there is none.
    """

    inputs: dict[str, Tensor]
    source: Tensor
    target: Tensor | None

    @property
    def sides(self) -> tuple[Tensor, ...]:
        """Which tokens are real of what the model puts out, then of its encoder where it has both."""
        return (self.source,) if self.target is None else (self.target, self.source)

    def queries(self, site: Site) -> Tensor:
        """Which queries of a site are real, bool [row, query]."""
        return self.source if self.target is None or site.stack == "encoder" else self.target

    def keys(self, site: Site) -> Tensor:
        """Which keys of a site are real, bool [row, key]."""
        if site.stack != "cross":
            return self.queries(site)
        if self.target is not None:
            return self.source
        return torch.ones(len(self.source), N_STATES, dtype=torch.bool)


def feed(lens: Lens, pairs: Sequence[Pair], left: bool = False) -> Fed:
    """Put inputs side by side.

    Args:
        lens: the model.
        pairs: the inputs.
        left: pad what is read (not what is written) on the left.

    Returns:
        The inputs.
    """
    pad, n = _pad_id(lens), len(pairs)
    sources = [source for source, _ in pairs]
    (source,) = make_batches(sources, pad, n, left, takes_positions(lens), ordered=True)
    inputs = dict(source.inputs)
    targets = [target for _, target in pairs if target is not None]
    if not targets:
        if getattr(lens.model.config.get_text_config(), "add_cross_attention", False):
            inputs["encoder_hidden_states"] = torch.cat([_states(lens)] * n)
        return Fed(inputs, source.real, None)
    (target,) = make_batches(targets, pad, n, ordered=True)
    inputs |= {f"decoder_{name}": target.inputs[name] for name in ("input_ids", "attention_mask")}
    return Fed(inputs, source.real, target.real)


def repeated(fed: Fed, n: int) -> Fed:
    """Put one input beside itself.

    Args:
        fed: one input.
        n: how many rows of it there shall be.

    Returns:
        The rows.
    """
    target = None if fed.target is None else fed.target.expand(n, -1)
    inputs = {name: torch.cat([x] * n) for name, x in fed.inputs.items()}
    return Fed(inputs, fed.source.expand(n, -1), target)


def run(lens: Lens, fed: Fed) -> tuple[Tensor, ...]:
    """Run inputs through the body of the model.

    Args:
        lens: the model.
        fed: the inputs.

    Returns:
        Its last hidden states, and its encoder's where it has both; float32 on the CPU.
    """
    outputs: Any = lens.run(fed.inputs)
    states = (outputs[0],) if fed.target is None else (outputs[0], outputs.encoder_last_hidden_state)
    return tuple(one.float().cpu() for one in states)


def real_states(states: Sequence[Tensor], fed: Fed) -> list[Tensor]:
    """Leave padding out.

    Args:
        states: from `run`, [row, token, width].
        fed: what they are of.

    Returns:
        The same, [real token, width].
    """
    return [one[real] for one, real in zip(states, fed.sides, strict=True)]


def apart(some: Sequence[Tensor], others: Sequence[Tensor]) -> float:
    """Tell by how much numbers differ at most.

    Args:
        some: tensors.
        others: the same, got in another way.

    Returns:
        The largest difference, as a share of the largest number of its tensor where that is above 1.
    """
    shares = [_share(one, other) for one, other in zip(some, others, strict=True)]
    return float(torch.stack(shares).max())  # keeps NaN


def _share(one: Tensor, other: Tensor) -> Tensor:
    return (one - other).abs().max() / one.abs().max().clamp(min=1)


def _pad_id(lens: Lens) -> int:
    """The padding id, which the attention mask hides; but RoBERTa counts its positions by it."""
    for holder in (lens.tokenizer, lens.model.config.get_text_config()):
        pad = getattr(holder, "pad_token_id", None)
        if isinstance(pad, int) and pad >= 0:
            return known_pad(lens, pad)
    return 0


def _states(lens: Lens) -> Tensor:
    """Drawn once, for a decoder that looks at the states of another model."""
    width = lens.model.config.get_text_config().hidden_size
    drawn = torch.randn(1, N_STATES, width, generator=torch.Generator().manual_seed(0))
    return drawn.to(lens.model.dtype)


# ---- What is seen of inputs, and how it differs from what was seen of the same inputs elsewhere


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of inputs.

    Args:
        fed: the inputs.
        states: last hidden states [row, token, width] of the model, then of its encoder where it has both.
        patterns: weights [row, head, query, key] of every site that ran.
        visible: which keys each query could see, bool [row, 1, query, key].
    """

    fed: Fed
    states: tuple[Tensor, ...]
    patterns: dict[Site, Tensor]
    visible: dict[Site, Tensor]

    def real_states(self, row: int) -> list[Tensor]:
        """The states of one input's real tokens, each [token, width]."""
        return [one[row][real[row]] for one, real in zip(self.states, self.fed.sides, strict=True)]

    def real_pattern(self, site: Site, row: int) -> Tensor:
        """What the real queries of one input look at, all keys, [head, query, key]."""
        return self.patterns[site][row][:, self.fed.queries(site)[row]]


def look(lens: Lens, fed: Fed) -> Seen:
    """Run inputs under observation.

    Args:
        lens: the model.
        fed: the inputs.

    Returns:
        What was seen, as float32 on the CPU.
    """
    parts: dict[Site, list[tuple[Tensor, Tensor]]] = {}

    def keep(site: Site, block: Block) -> None:
        unseen = (0, block.n_keys - block.pattern.shape[-1])
        pattern, visible = (torch.nn.functional.pad(x, unseen) for x in (block.pattern, block.visible))
        parts.setdefault(site, []).append((pattern.float().cpu(), visible.cpu()))

    with lens.observe(keep):
        states = run(lens, fed)
    patterns, visible = (
        {site: torch.cat([block[part] for block in blocks], dim=2) for site, blocks in parts.items()}
        for part in (0, 1)
    )
    return Seen(fed, states, patterns, visible)


@dataclass(frozen=True, slots=True)
class Gap:
    """How what was seen of an input differs from what was seen of it elsewhere.

    Args:
        weights: by head, the largest difference of a weight.
        states: largest difference of states, see `apart`.
    """

    weights: dict[Head, float]
    states: float


def gap(alone: Seen, together: Seen, row: int) -> Gap:
    """Compare an input by itself with the same among others.

    Args:
        alone: the input by itself.
        together: with others.
        row: which of them it is.

    Returns:
        How they differ; weight on padding counts as a difference.
    """
    differ: dict[Head, float] = {}
    for site, mine in alone.patterns.items():
        theirs = together.real_pattern(site, row)
        expected = torch.zeros_like(theirs)
        expected[..., together.fed.keys(site)[row]] = mine[0]
        largest = (theirs - expected).abs().amax(dim=(1, 2))  # [head]
        differ |= dict(zip(site.heads, largest.tolist(), strict=True))
    return Gap(differ, apart(alone.real_states(0), together.real_states(row)))


# ---- What checks read: a few sentences, or random tokens where there is no tokenizer


TEXTS = (
    "It had paid a lower price for it.",
    "Will her next film have a happier hero?",
    "The uncle will not let Marek repair it.",
    "He found a torch in the kitchen, but it didn't have any batteries.",
    "Last week a nurse brought him a red racer that had lost its chain.",
    "Their teacher asked them whether the machine had been tested on the stairs.",
    "They searched the woods for 2 nights, but nobody answered when they called his name.",
    '"I never touched her," Dana told a reporter, "and the man with the whistle saw everything."',
)
DRAWN = (7, 12, 22)  # lengths of random inputs

Pair = tuple[Item, Item | None]
"""What a model reads, and what its decoder reads, where it has one beside an encoder."""


@cache
def sample() -> Corpus:
    """The sentences as a corpus."""
    sentences = [next(split_sentences([Chunk(text, (0,), (1,))], "")) for text in TEXTS]
    return Corpus((Document("sample", tuple(sentences), ()),), ("sample",), "", False, False, False)


def pairs_of_text(lens: Lens, longest: int) -> list[Pair]:
    """Make inputs of a short, a middling and a long sentence.

    Args:
        lens: the model.
        longest: how many tokens they may have.

    Returns:
        Shortest first; empty where there is no tokenizer, or the model cannot read what it makes.
    """
    if lens.tokenizer is None:
        return []
    sources = _readable(lens, sentence_inputs(sample(), lens.tokenizer, longest).items)
    if not sources:
        return []
    places = dict.fromkeys((0, len(sources) // 2, len(sources) - 1))
    sources = [sources[place] for place in places]
    if not lens.model.config.is_encoder_decoder:
        return [(source, None) for source in sources]
    try:
        targets = sentence_inputs(sample(), AsTarget(lens.tokenizer), longest).items
        shifted = _readable(lens, [as_decoder_input(lens.model, item) for item in targets])
    except InputError:  # no start token
        return []
    others = shifted[-2::-1]  # others than the encoder reads, the long with the short
    return list(zip(sources, others, strict=False))


def drawn_pairs(lens: Lens, longest: int, seed: int) -> list[Pair]:
    """Make inputs of tokens that are drawn at random.

    Args:
        lens: the model.
        longest: how many tokens they may have.
        seed: of the draw.

    Returns:
        Shortest first.
    """
    drawn = torch.Generator().manual_seed(seed)
    config, cpu = lens.model.config.get_text_config(), torch.device("cpu")

    def draw(length: int) -> Item:
        return bare(token_ids(config, min(length, longest), cpu, drawn)[0].tolist())

    sources = [draw(length) for length in DRAWN]
    if not lens.model.config.is_encoder_decoder:
        return [(source, None) for source in sources]
    return [(source, draw(length)) for source, length in zip(sources, reversed(DRAWN), strict=True)]


def bare(ids: Sequence[int]) -> Item:
    """Make an input of token ids about whose words nothing is known."""
    n = len(ids)
    encoded = Encoded({"input_ids": list(ids)}, ("",) * n, (None,) * n, (False,) * n, ())
    return Item(encoded, 0, ())


def unknown_ids(tokenizer: Any) -> set[int]:
    """The ids that stand for a word that a tokenizer does not know, whether it declares them or not."""
    inner = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    tokens = {getattr(tokenizer, "unk_token", None), getattr(inner, "unk_token", None)} - {None}
    return {tokenizer.convert_tokens_to_ids(token) for token in tokens}


def _count(item: Item, ids: set[int]) -> int:
    return sum(one in ids for one in item.encoded.inputs["input_ids"])


def _readable(lens: Lens, items: Sequence[Item]) -> list[Item]:
    """Inputs of tokens that the model knows, and that are not mostly the unknown one; shortest first."""
    known = n_known(lens) or math.inf
    unknown = unknown_ids(lens.tokenizer)
    ids = [item.encoded.inputs["input_ids"] for item in items]
    fit = [item for item, mine in zip(items, ids, strict=True) if max(mine) < known]
    told = [item for item in fit if 2 * _count(item, unknown) < len(item.encoded)]
    return sorted(told, key=lambda item: len(item.encoded))


# ---- A model that is being checked: the inputs of the checks, and what several of them look at


LONGEST = 64  # tokens


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """How a model is run when it is checked.

    Args:
        max_length: longest input in tokens; 64 by default, or what the model takes.
        batch_size: rows at once where a text is repeated; as many as hold 2,048 tokens by default.
        seed: of random tokens, which are read where there is no tokenizer.
    """

    max_length: int | None = None
    batch_size: int | None = None
    seed: int = 0


class Subject:
    """A model that is being checked; whatever several checks need is worked out once.

    Args:
        lens: the model.
        options: how it is run.
    """

    def __init__(self, lens: Lens, options: CheckOptions | None = None) -> None:
        self.lens = lens
        self.options = options or CheckOptions()

    @property
    def longest(self) -> int:
        """How many tokens an input may have."""
        return min(self.options.max_length or LONGEST, longest_input(self.lens) or LONGEST, LONGEST)

    @cached_property
    def pairs(self) -> list[Pair]:
        """The inputs, shortest first."""
        return pairs_of_text(self.lens, self.longest) or drawn_pairs(
            self.lens, self.longest, self.options.seed
        )

    @cached_property
    def alone(self) -> list[Seen]:
        """What is seen of each input by itself."""
        return [look(self.lens, feed(self.lens, [pair])) for pair in self.pairs]

    @cached_property
    def together(self) -> Fed:
        """All inputs side by side, padded on the right."""
        return feed(self.lens, self.pairs)

    @cached_property
    def rounding(self) -> float:
        """How far numbers may lie apart that were computed in other ways, see `amplified`."""
        return amplified(self.lens, self.alone[-1])

    @cached_property
    def plain_logits(self) -> Tensor:
        """The logits of the longest input by itself, while nobody looks at the model."""
        return self.logits(self.alone[-1].fed)

    def logits(self, fed: Fed) -> Tensor:
        """Run inputs through the whole model, its task's head included.

        Args:
            fed: the inputs.

        Returns:
            Its logits, or its states where it has none, float32 on the CPU.
        """
        device, model = self.lens.device, self.lens.model
        taken = signature(model.forward).parameters
        outputs: Any = model(**{name: x.to(device) for name, x in fed.inputs.items() if name in taken})
        found: Tensor = outputs.logits if "logits" in outputs else outputs[0]
        return found.float().cpu()


# ---- How far numbers of a model may lie apart for no other reason than rounding


CLOSE = 1e-5  # of the largest number, in float32 and finer
STEPS = 8  # units of the last place, in half precision
MARGINS = {True: 8, False: 2}  # times what a change of the last place comes to; False: in half precision
MOST = {True: 10, False: 2.5}  # times the least that is allowed: more than that has another reason


def rounding(lens: Lens) -> float:
    """Tell how far numbers may lie apart that were computed in the same way.

    Args:
        lens: the model.

    Returns:
        A share of the largest number: 1e-5 in float32 and finer, 8 units of the last place in half precision.
    """
    return CLOSE if _fine(lens) else STEPS * torch.finfo(lens.model.dtype).eps


def amplified(lens: Lens, seen: Seen) -> float:
    """Tell how far numbers may lie apart that were computed in batches of other shapes, or by other kernels.

    Deep models and sharp heads make more of a rounding error than others. By how much is tried: embeddings
    are changed in their last place.

    Args:
        lens: the model.
        seen: of one input.

    Returns:
        A few times what that change comes to, but not less than `rounding` says, nor more than 1e-4 (in half
        precision, 20 units of the last place).
    """
    with last_place(lens.model):
        changed = gap(seen, look(lens, seen.fed), row=0)
    fine, least = _fine(lens), rounding(lens)
    moved = MARGINS[fine] * max(changed.states, *changed.weights.values())
    return min(max(least, moved), MOST[fine] * least)


def _fine(lens: Lens) -> bool:
    return lens.model.dtype.itemsize >= 4


@contextmanager
def last_place(model: nn.Module) -> Iterator[None]:
    """Have a model's embeddings differ in their last place while the block lasts.

    Args:
        model: the model; afterwards it is as it was.

    Yields:
        Nothing.
    """
    drawn = torch.Generator().manual_seed(0)

    def change(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        signs = 2 * torch.randint(0, 2, output.shape, generator=drawn) - 1
        step = torch.finfo(output.dtype).eps * signs
        return output * (1 + step.to(output))

    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, nn.Embedding):
                stack.callback(module.register_forward_hook(change).remove)
        yield


# ---- What a check of the measuring is, and what it finds


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """What a check came to.

    Args:
        passed: None where it does not apply.
        said: in words, with its figure; why, where it does not apply.
        figure: what was measured.
        allowed: the largest figure that passes.
    """

    passed: bool | None
    said: str
    figure: float | None = None
    allowed: float | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold for numbers to mean anything.

    Args:
        name: of the check.
        does: looks at a model.
        meaning: what it means where it does not hold, one sentence.
        cheap: whether it takes a few short passes at most.
    """

    name: str
    does: Callable[[Subject], CheckOutcome]
    meaning: str
    cheap: bool = True


def as_check(meaning: str, cheap: bool = True) -> Callable[[Callable[[Subject], CheckOutcome]], Check]:
    """Make a check of a function; ``own_patterns`` is called own-patterns.

    Args:
        meaning: what it means where it does not hold, one sentence.
        cheap: whether it takes a few short passes at most.

    Returns:
        A decorator.
    """
    return lambda does: Check(does.__name__.replace("_", "-"), does, meaning, cheap)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found.

    Args:
        name: of the check.
        passed: None where it does not apply.
        said: in words, with its figure; why, where it does not apply.
        figure: what was measured, None where there is no number.
        allowed: the largest figure that passes.
        meaning: what a failure means, one sentence.
    """

    name: str
    passed: bool | None
    said: str
    figure: float | None
    allowed: float | None
    meaning: str


def within(figure: float, allowed: float, said: str) -> CheckOutcome:
    """Pass where a figure is small enough; one that is no number is not.

    Args:
        figure: what was measured.
        allowed: the largest that passes.
        said: what it is, with the figure in it.

    Returns:
        The outcome; what is allowed is added to what is said.
    """
    return CheckOutcome(figure <= allowed, f"{said}, allowed {allowed:.2g}", figure, allowed)


def does_not_apply(reason: str) -> CheckOutcome:
    """Say why a check does not apply."""
    return CheckOutcome(None, reason)


def worst(lens: Lens, figures: Mapping[Head, float]) -> str:
    """Write the largest figure, with its head where it is not 0."""
    head = max(figures, key=lambda head: figures[head])
    where = f" (head {lens.anatomy.name(head)})" if figures[head] else ""
    return f"{largest(figures.values()):.2g}{where}"


def largest(figures: Iterable[float]) -> float:
    """Find the largest figure, NaN where one is NaN, 0 of none."""
    known = [0.0, *figures]
    return math.nan if any(map(math.isnan, known)) else max(known)
