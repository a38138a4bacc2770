"""Checks of the model: its weights, its shape, its config, its text."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from headlens.checks.inputs import (
    TEXTS,
    CheckOutcome,
    Subject,
    apart,
    as_check,
    does_not_apply,
    largest,
    look,
    real_states,
    rounding,
    run,
    sample,
    unknown_ids,
    within,
    worst,
)
from headlens.corpus.inputs import AsTarget, sentence_inputs
from headlens.corpus.words import AlignmentError, Encoded, encode_text, encode_words
from headlens.model.attention_call import configs_of
from headlens.model.finite import broken_parameter
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens, body_weights, n_known
from headlens.model.load import in_order, surplus_weights
from headlens.model.masks import LazyMask
from headlens.model.source import read_compact
from headlens.util.formatting import counted


@as_check(
    "This is not the trained model: missing weights are random, layers that are left out change what is "
    "computed, and broken weights spoil all numbers."
)
def weights(subject: Subject) -> CheckOutcome:
    """No weight of the embeddings and blocks is missing, none is left over, and none holds NaN."""
    lens = subject.lens
    lacking = body_weights(lens)
    if lacking:
        n = len(lacking)
        return CheckOutcome(False, f"the checkpoint lacks {n} weights, such as {lacking[0]}", n, 0)
    surplus = surplus_weights(lens.model, lens.unused)
    if surplus:
        n = len(surplus)
        problem = f"the files hold {counted(n, 'weight')} of layers that the model does not have, such as "
        return CheckOutcome(False, problem + surplus[0], n, 0)
    broken = broken_parameter(lens.model.named_parameters())
    if broken:
        return CheckOutcome(False, f"the weight {broken} holds NaN or an infinite number")
    n = sum(name not in lens.missing for name, _ in lens.model.named_parameters())
    where = "are numbers" if lens.source is None else "are there, and numbers"
    return CheckOutcome(True, f"all {n} weights {where}{_made_up(lens.missing)}{_unused(lens.unused)}", 0, 0)


def _made_up(names: Sequence[str]) -> str:
    """A remark on a pooler or a task's head that is random: what needs it refuses the model."""
    if not names:
        return ""
    also = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f" (but {names[0]}{also}, which no head looks through: random)"


def _unused(names: Sequence[str]) -> str:
    """A remark on what is in the files and serves another task, say."""
    if not names:
        return ""
    return f" (the files hold {counted(len(names), 'other')}, not used, such as {in_order(names)[0]})"


# ---- Checks of what a model is against what its config says: heads, and how far each layer sees


FAR = 2**17  # tokens behind and ahead


@as_check("Heads are counted or grouped otherwise than in the config, so numbers may stand at wrong heads.")
def heads(subject: Subject) -> CheckOutcome:
    """Layers have the heads and key-value heads that the config says."""
    lens = subject.lens
    if lens.source is not None and read_compact(lens.source.place) is not None:
        return does_not_apply("a compact checkpoint: its layers have fewer heads than its config says")
    wrong, told = [], Counter[str]()
    for site in lens.anatomy.sites:
        config = config_of(lens, site)
        for kind, name, found in (
            ("heads", "num_attention_heads", site.n_heads),
            ("kv heads", "num_key_value_heads", site.n_kv_heads),
        ):
            counted = counts(config, site, name)
            told[kind] += bool(counted)
            if counted and found not in counted:
                wrong.append(f"layer {site} has {found} {kind}, its config says {counted[0]}")
    if not told.total():
        return does_not_apply("the config does not say how many heads there are")
    if wrong:
        return CheckOutcome(False, f"{len(wrong)} counts are not the config's: {wrong[0]}", len(wrong), 0)
    said = "heads and kv heads that the config says" if told["kv heads"] else "heads that the config says"
    return CheckOutcome(True, f"{len(lens.anatomy.sites)} layers have the {said}", 0, 0)


@as_check("Layers are taken to see other tokens than they do, so far-away attention is invented or lost.")
def windows(subject: Subject) -> CheckOutcome:
    """Layers see as far as the config says.

    By `transformers`' masks, a causal layer with a window of W tokens sees W - 1 tokens back and itself, one
    that looks both ways W tokens back and W ahead (in some families W - 1).
    """
    masks = _masks(subject)
    said = {site: reach_of(config_of(subject.lens, site), site) for site in masks}
    known = {site: reach for site, reach in said.items() if reach is not None}
    if not known:
        return does_not_apply(
            "the model does not show its masks" if not masks else "the config does not say how far layers see"
        )
    seen = {site: _seen(masks[site], reach) for site, reach in known.items()}
    wrong = [site for site in known if seen[site] not in _expected(site, known[site])]
    if wrong:
        site = wrong[0]
        reach, (behind, ahead) = known[site], seen[site]
        size = f" ({reach.size} tokens)" if reach.size else ""
        first = f"layer {site} sees {behind} back and {ahead} ahead, its config says {reach.kind}{size}"
        return CheckOutcome(False, f"{len(wrong)} of {len(known)} layers are wrong: {first}", len(wrong), 0)
    return CheckOutcome(True, _in_words(known, seen), 0, 0)


Extent = tuple[str, str]  # how many tokens are seen behind and ahead


def _masks(subject: Subject) -> dict[Site, LazyMask]:
    lens, fed, found = subject.lens, subject.alone[0].fed, dict[Site, LazyMask]()

    def note(site: Site, output: Tensor) -> Tensor:
        call = lens.seam.call
        if call is not None and isinstance(call.mask, LazyMask):
            found[site] = call.mask
        return output

    with lens.edit(note):
        run(lens, fed)
    return found


def _seen(mask: LazyMask, reach: Reach) -> Extent:
    """How far a query sees in both directions from where it stands, far from either end."""
    most = 2 * reach.size if reach.size else FAR
    place = 3 * reach.size - 1 if reach.kind == "chunked" else most  # the last of its chunk
    back = mask.seen_by(place, place - most, most).flip(0)
    ahead = mask.seen_by(place, place + 1, most)
    return _count(back), _count(ahead)


def _count(seen: Tensor) -> str:
    n = int(seen.sum())
    if n == len(seen):
        return "all"
    return str(n) if bool(seen[:n].all()) else "in places"


def _expected(site: Site, reach: Reach) -> Sequence[Extent]:
    if reach.kind == "full":
        return [("all", "0" if site.causal else "all")]
    nearest = str(reach.size - 1)
    if site.causal:
        return [(nearest, "0")]
    return [(nearest, nearest), (str(reach.size), str(reach.size))]


def _in_words(known: dict[Site, Reach], seen: dict[Site, Extent]) -> str:
    parts = []
    for kind in dict.fromkeys(reach.kind for reach in known.values()):
        sites = [site for site, reach in known.items() if reach.kind == kind]
        far = "all" if kind == "full" else f"{seen[sites[0]][0]} tokens back"
        parts.append(f"{len(sites)} {kind} {'layers see' if len(sites) > 1 else 'layer sees'} {far}")
    return ", ".join(parts)


# ---- What a config says of each layer: how many heads it has, and how far it sees


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a layer sees.

    Args:
        kind: "full", "sliding" or "chunked".
        size: of the window, or of a chunk; 0 for "full".
    """

    kind: str
    size: int = 0


def config_of(lens: Lens, site: Site) -> Any:
    """Find the config that a layer goes by.

    Args:
        lens: the model.
        site: the layer.

    Returns:
        The config of its stack.
    """
    config: Any = lens.model.config
    if not config.is_encoder_decoder:
        return config.get_text_config()
    side = "encoder" if site.stack == "encoder" else "decoder"
    own = getattr(config, side, None)
    return own if isinstance(own, PreTrainedConfig) else config.get_text_config(**{side: True})


def counts(config: Any, site: Site, name: str) -> list[int]:
    """List how many heads a layer may have by its config.

    Args:
        config: of its stack.
        site: the layer.
        name: "num_attention_heads" or "num_key_value_heads".

    Returns:
        What the config says by this name, for this layer where it tells layers apart; and what it says by
        longer names of this kind (for sliding layers, say). Empty where it says nothing.
    """
    if getattr(config, "is_heterogeneous", False):
        config = config.per_layer_config[site.layer]
    said = [getattr(config, name, None)]
    said += [
        value
        for key, value in config.to_dict().items()
        if name.removeprefix("num_") in key and not key.startswith(("encoder_", "decoder_"))
    ]
    numbers = [_of_layer(value, site.layer) for value in said]
    return [] if numbers[0] is None else [number for number in numbers if number is not None]


def reach_of(config: Any, site: Site) -> Reach | None:
    """Tell how far a layer sees by its config.

    Args:
        config: of its stack.
        site: the layer.

    Returns:
        None where the config does not say it in words that are known here.
    """
    window, chunk = getattr(config, "sliding_window", None), getattr(config, "attention_chunk_size", None)
    kinds = getattr(config, "layer_types", None)
    if site.stack == "cross":
        return Reach("full")
    if kinds is not None:
        kind = kinds[site.layer] if site.layer < len(kinds) else ""
    else:  # then all layers are alike, as transformers makes their masks
        kind = "sliding_attention" if window else "chunked_attention" if chunk else "full_attention"
    sizes = {"full_attention": 0, "sliding_attention": window, "chunked_attention": chunk}
    size = sizes.get(kind)
    return None if size is None else Reach(kind.removesuffix("_attention"), size)


def _of_layer(value: Any, layer: int) -> int | None:
    if isinstance(value, list | tuple):
        value = value[layer] if layer < len(value) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


# ---- Checks of what stands before the model: tokens are the tokenizer's, and words own their pieces


NO_TOKENIZER = "the model came without a tokenizer"
AROUND = 3  # tokens shown on either side of a difference


@as_check("The model reads another text than yours, so tokens and weights do not belong together.")
def tokens(subject: Subject) -> CheckOutcome:
    """Ids are exactly those that the tokenizer makes of the text, and the model knows them."""
    lens = subject.lens
    if lens.tokenizer is None:
        return does_not_apply(NO_TOKENIZER)
    known, n = n_known(lens), 0
    for tokenizer, text, found in _read(subject):
        wanted = list(tokenizer(text)["input_ids"])
        if found != wanted:
            return CheckOutcome(False, _first_difference(text, found, wanted))
        if known is not None and max(found, default=0) >= known:
            problem = f"the tokenizer makes the id {max(found)}, the model knows ids below {known}"
            return CheckOutcome(False, problem)
        n += len(found)
    special, beyond = _beyond(lens.tokenizer, known)
    if beyond:
        token, number = next(iter(beyond.items()))
        problem = f"the model has no embedding for {counted(len(beyond), 'token')} of the tokenizer, such as "
        return CheckOutcome(False, f"{problem}{token!r} ({number}); it knows ids below {known}")
    rest = f" ({counted(len(special), 'special token')} without embedding: {', '.join(special)})"
    return CheckOutcome(True, f"{n} tokens are those of the tokenizer{rest if special else ''}", n)


def _beyond(tokenizer: Any, known: int | None) -> tuple[dict[str, int], dict[str, int]]:
    """Tokens without a row: added special ones, as for padding, that no text needs, and all others."""
    every = sorted(tokenizer.get_vocab().items(), key=lambda one: one[1])
    beyond = {token: number for token, number in every if known is not None and number >= known}
    special = {token: number for token, number in beyond.items() if number in tokenizer.all_special_ids}
    return special, {token: number for token, number in beyond.items() if token not in special}


def _read(subject: Subject) -> Iterator[tuple[Any, str, list[int]]]:
    """Every way in which a text becomes tokens: the tokenizer, the text, and the tokens."""
    lens = subject.lens
    readers = [lens.tokenizer]
    if lens.model.config.is_encoder_decoder:
        readers.append(AsTarget(lens.tokenizer))
    for tokenizer in readers:
        for text in TEXTS:
            yield tokenizer, text, encode_text(tokenizer, text).inputs["input_ids"]
        for item in sentence_inputs(sample(), tokenizer, subject.longest).items:
            yield tokenizer, " ".join(item.encoded.forms), item.encoded.inputs["input_ids"]
    for (source, _), ids, real in zip(
        subject.pairs, subject.together.inputs["input_ids"], subject.together.source, strict=True
    ):
        if source.encoded.forms:  # else it was drawn
            yield lens.tokenizer, " ".join(source.encoded.forms), ids[real].tolist()


def _first_difference(text: str, found: list[int], wanted: list[int]) -> str:
    place = next(
        (i for i, (one, two) in enumerate(zip(found, wanted, strict=False)) if one != two),
        min(len(found), len(wanted)),
    )
    shown = slice(max(0, place - AROUND), place + AROUND + 1)
    return (
        f"{text!r} is read as {len(found)} tokens, its tokenizer makes {len(wanted)}; from "
        f"token {shown.start} on they are {found[shown]} instead of {wanted[shown]}"
    )


@as_check("Attention would be added up over the wrong pieces, so scores by words are of other words.")
def words(subject: Subject) -> CheckOutcome:
    """Every word owns pieces, and they spell it."""
    tokenizer = subject.lens.tokenizer
    if tokenizer is None:
        return does_not_apply(NO_TOKENIZER)
    unknown = unknown_ids(tokenizer)
    spelled = n = 0
    for _, sentence in sample().sentences:
        try:
            encoded = encode_words(tokenizer, sentence.forms)
        except AlignmentError as error:
            return CheckOutcome(False, f"{sentence.text!r}: {error.problem}")
        n += len(encoded.forms)
        for form, ids in _pieces(encoded):
            if unknown.intersection(ids):
                continue
            told = tokenizer.decode(ids)
            if _bare(told) != _bare(form):
                return CheckOutcome(False, f"the pieces of {form!r} in {sentence.text!r} spell {told!r}")
            spelled += 1
    if not spelled:
        return does_not_apply("the tokenizer knows none of the words that it was asked")
    rest = f" ({n - spelled} more are unknown to the tokenizer)" if n > spelled else ""
    return CheckOutcome(True, f"the pieces of {spelled} words spell them{rest}", spelled)


def _pieces(encoded: Encoded) -> Iterator[tuple[str, list[int]]]:
    for number, form in enumerate(encoded.forms):
        ids = encoded.inputs["input_ids"]
        yield form, [one for one, word in zip(ids, encoded.words, strict=True) if word == number]


def _bare(text: str) -> str:
    """A text without case, accents and blanks, which tokenizers may drop."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in parts if not char.isspace() and not unicodedata.combining(char))


# ---- Checks against `transformers` itself: its other way to compute, and the patterns that it returns


PATTERNS = {
    "encoder": ("encoder_attentions", "attentions"),
    "decoder": ("decoder_attentions", "attentions"),
    "cross": ("cross_attentions",),
}
"""Where transformers puts the patterns of a stack."""


@as_check(
    "Patterns are those of eager attention, but under sdpa the model computes other numbers, so its "
    "outputs do not belong to them.",
    cheap=False,
)
def backends(subject: Subject) -> CheckOutcome:
    """Eager and sdpa give the same states, with all heads and with some out."""
    lens, fed = subject.lens, subject.together
    parts = [part for part in lens.model.modules() if isinstance(part, PreTrainedModel)]
    if not all(part._supports_sdpa for part in parts):
        return does_not_apply(f"{type(lens.model).__name__} has no sdpa attention")
    first = [site.heads[0] for site in subject.alone[0].patterns]
    whole: list[Sequence[Tensor]] = []
    without: list[Sequence[Tensor]] = []
    for name in ("eager", "sdpa"):
        with computing(lens.model, name):
            whole.append(real_states(run(lens, fed), fed))
            with lens.ablate(first):
                without.append(real_states(run(lens, fed), fed))
    plain, ablated = apart(*whole), apart(*without)
    said = f"eager and sdpa differ by {plain:.2g}, with head 0 of each layer out by {ablated:.2g}"
    return within(largest([plain, ablated]), subject.rounding, said)


@as_check(
    "What is captured differs from the patterns that transformers itself returns for this model.",
    cheap=False,
)
def own_patterns(subject: Subject) -> CheckOutcome:
    """Patterns are those that the model returns itself, on a padded batch."""
    lens, fed = subject.lens, subject.together
    body: Any = lens.model.base_model
    given = {name: x.to(lens.device) for name, x in fed.inputs.items() if name in lens.arguments}
    with computing(lens.model, "eager"):
        outputs = body(**given, output_attentions=True)
    seen = look(lens, fed)
    gaps: dict[Head, float] = {}
    for stack in lens.anatomy.stacks:
        own, sites = _returned(outputs, stack), [site for site in seen.patterns if site.stack == stack]
        if len(own) != len(sites):
            return does_not_apply(f"transformers returns {len(own)} patterns for {len(sites)} {stack} layers")
        for site, pattern in zip(sites, own, strict=True):
            differs = (pattern.float().cpu() - seen.patterns[site]).abs().amax(-1)  # [row, head, query]
            differs = differs.transpose(1, 2)[fed.queries(site)].amax(0)
            gaps |= dict(zip(site.heads, differs.tolist(), strict=True))
    said = f"weights differ from those of output_attentions=True by {worst(lens, gaps)}"
    return within(largest(gaps.values()), rounding(lens), said)


def _returned(outputs: Any, stack: str) -> Sequence[Tensor]:
    for name in PATTERNS[stack]:
        found = getattr(outputs, name, None)
        if found:
            return [pattern for pattern in found if isinstance(pattern, Tensor)]
    return []


@contextmanager
def computing(model: PreTrainedModel, name: str) -> Iterator[None]:
    """Have a model compute its attention in another way while the block lasts.

    Args:
        model: the model; afterwards it is as it was.
        name: "eager" or "sdpa".

    Yields:
        Nothing.
    """
    configs = configs_of(model)
    kept = [config._attn_implementation_internal for config in configs]
    for config in configs:
        config._attn_implementation_internal = name
    try:
        yield
    finally:
        for config, implementation in zip(configs, kept, strict=True):
            config._attn_implementation_internal = implementation
