"""Predictions of a model: log-probabilities, embeddings, batches of about the same length."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from headlens.benchmarks.base import BenchmarkOptions, need_tokenizer
from headlens.errors import ModelError, is_out_of_memory
from headlens.model.devices import moved
from headlens.model.finite import holds_none
from headlens.model.lens import Lens, body_weights, check_ids, known_pad, replaced_forward
from headlens.model.trace import run

LOGITS_AT_ONCE = 2**25  # in float32: 128 MiB
CACHED = 2**19  # logits that a CPU's cache holds while they are summed
_bodies: WeakKeyDictionary[Any, str | None] = WeakKeyDictionary()  # model -> path of what its head reads


@dataclass(frozen=True, slots=True)
class Predicted:
    """What a model makes of the tokens at chosen positions.

    Args:
        loss: minus the log-probability of each gold token, in nats, float32 or better, [position].
        right: whether it is the token predicted first, [position]; None unless it was asked for.
    """

    loss: Tensor
    right: Tensor | None


def predict(
    lens: Lens, inputs: Mapping[str, Tensor], rows: Tensor, places: Tensor, gold: Tensor, right: bool = False
) -> Predicted:
    """Run a language model and look at chosen positions of its output.

    The body runs as a whole; the vocabulary's logits are made at these positions only, some at a time. A
    model whose head needs more than the last hidden states makes all logits at once.

    Args:
        lens: the model, whatever is ablated in it now.
        inputs: input_ids, attention_mask, ... [input, token].
        rows: the input that each position is in, [position].
        places: where in it, [position].
        gold: the token that should be predicted there, [position].
        right: whether to say if it is predicted first, too.

    Returns:
        Losses, differentiable unless gradients are off.
    """
    with _states(lens, inputs) as (states, logits_of):
        rows, places, gold = moved((rows, places, gold), states.device)
        picked = states[rows, places]  # [position, width], or [position, vocabulary]
        step = max(1, LOGITS_AT_ONCE // lens.model.config.get_text_config().vocab_size)
        parts = [
            _score(logits_of(picked[start : start + step]), gold[start : start + step], right)
            for start in range(0, len(rows), step)
        ]
    loss = torch.cat([part.loss for part in parts])
    return Predicted(
        loss, torch.cat([part.right for part in parts if part.right is not None]) if right else None
    )


def _score(logits: Tensor, gold: Tensor, right: bool) -> Predicted:
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    rows = max(1, CACHED // logits.shape[-1]) if logits.device.type == "cpu" else len(logits)
    parts = [logits[start : start + rows] for start in range(0, len(logits), rows)]
    total = torch.cat([part.logsumexp(dim=-1) for part in parts])
    gold = gold.to(logits.device)
    loss = total - logits.gather(-1, gold[:, None])[:, 0]
    return Predicted(loss, logits.argmax(dim=-1) == gold if right else None)


@contextmanager
def _states(lens: Lens, inputs: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Any]]:
    """The body's last hidden states [input, token, width] and what makes logits of some of them."""
    model: Any = lens.model
    options = no_cache(lens)
    body = body_of(lens)
    if body is None:
        yield _logits(model(**inputs, **options)), lambda picked: picked  # they are logits already
        return
    outputs = body(**inputs, **options)

    def head(picked: Tensor) -> Tensor:
        with _returning(body, outputs, picked):
            made = model(input_ids=inputs["input_ids"][:1], **options)
        return _logits(made)[0]

    yield outputs.last_hidden_state, head


def body_of(lens: Lens) -> nn.Module | None:
    """Find the part of a language model whose last hidden states its head reads one by one.

    That it does is tried once for each model: logits of some positions equal those of all. None where the
    head needs more.
    """
    if lens.model not in _bodies:
        _bodies[lens.model] = _tried(lens)
    path = _bodies[lens.model]
    return None if path is None else lens.model.get_submodule(path)


def _tried(lens: Lens) -> str | None:
    model: Any = lens.model
    last: list[tuple[str, Any]] = []

    def note(path: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            if isinstance(getattr(output, "last_hidden_state", None), Tensor):
                last[:] = [(path, output)]

        return hook

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(lens.seam.alone())
        for path, module in model.named_modules():
            if path:
                stack.callback(module.register_forward_hook(note(path)).remove)
        whole = _logits(run(model))[0]
    if not last or model.config.is_encoder_decoder:
        return None
    path, outputs = last[0]
    places = [len(whole) - 1, 0]
    with (
        torch.no_grad(),
        lens.seam.alone(),
        _returning(model.get_submodule(path), outputs, outputs.last_hidden_state[0, places]),
    ):
        try:
            some = _logits(run(model))
        except ModelError:
            return None
    close = 1e-3 if some.dtype in (torch.float32, torch.float64) else 5e-2
    same = some.shape == (1, 2, whole.shape[-1]) and torch.allclose(
        some[0], whole[places], rtol=close, atol=close
    )
    return path if same else None


@contextmanager
def _returning(body: nn.Module, outputs: Any, picked: Tensor) -> Iterator[None]:
    """Have a body return some of its last hidden states, [position, width], instead of running."""
    short = copy.copy(outputs)
    short["last_hidden_state"] = picked[None]
    with replaced_forward([(body, lambda forward, *_, **__: short)]):
        yield


def tokens_at_once(lens: Lens) -> int | None:
    """Bound a batch by the logits that it makes."""
    if body_of(lens) is not None:
        return None
    return max(1, 4 * LOGITS_AT_ONCE // int(lens.model.config.get_text_config().vocab_size))


def _logits(outputs: Any) -> Tensor:
    """Find the logits among what a language model returns.

    Args:
        outputs: what its forward returns.

    Returns:
        [input, token, vocabulary].
    """
    found: Tensor = outputs["logits" if "logits" in outputs else "prediction_logits"]
    return found


def no_cache(lens: Lens) -> dict[str, Any]:
    """Make the option that keeps a generating model from storing keys and values, where it knows it."""
    causal = any(site.causal for site in lens.anatomy.sites)
    return {"use_cache": False} if causal and hasattr(lens.model.config, "use_cache") else {}


# ---- Which models can predict tokens, and whether their head was ever trained


def predicts_next(lens: Lens) -> bool:
    """Tell whether a language model reads from left to right.

    Args:
        lens: the model.

    Returns:
        True where no query sees a later key.
    """
    return all(site.causal for site in lens.anatomy.sites)


def has_head(lens: Lens) -> bool:
    """Tell whether a model can predict tokens of one text: causal or masked, not encoder-decoder."""
    head = lens.model.get_output_embeddings()  # type: ignore[no-untyped-call]
    return head is not None and not lens.model.config.is_encoder_decoder


def check_head(lens: Lens, options: BenchmarkOptions, benchmark: str = "language") -> None:
    """Refuse a model that cannot predict tokens, or whose head is random."""
    kind = type(lens.model).__name__
    if not has_head(lens):
        raise ModelError(
            f"The benchmark {benchmark} needs a causal or masked language model, but this is a {kind}.",
            "Take a checkpoint whose class ends in ForCausalLM, LMHeadModel or ForMaskedLM, or another "
            "benchmark: similarity:FILE.tsv works with every encoder.",
        )
    check_head_weights(lens, options)
    if not predicts_next(lens) and getattr(need_tokenizer(lens), "mask_token_id", None) is None:
        raise ModelError(
            f"{kind} predicts masked tokens, but its tokenizer has no mask token.", "Take its own tokenizer."
        )


def check_head_weights(lens: Lens, options: BenchmarkOptions) -> None:
    """Refuse a language-model head that was never trained."""
    body = set(body_weights(lens))
    lacking = [name for name in lens.missing if name not in body and "pooler" not in name]
    if lacking and not options.allow_random_weights:
        kind = type(lens.model).__name__
        raise ModelError(
            f"The checkpoint lacks weights of the language-model head of {kind}: {', '.join(lacking)}.",
            "Use a complete checkpoint, or --allow-random-weights to measure it all the same.",
        )


# ---- Batches of like length, as large as memory allows


T = TypeVar("T")

TOKENS_AT_ONCE = {"cpu": 4096}  # padding included; a CPU is no faster with more
TOKENS_ELSEWHERE = 65536
MOST_HALVINGS = 16
_halved: WeakKeyDictionary[Any, int] = WeakKeyDictionary()  # model -> how often memory ran out


def run_batches(
    lens: Lens,
    lengths: Sequence[int],
    work: Callable[[list[int]], T],
    batch_size: int | None = None,
    tokens_at_once: int | None = None,
) -> Iterator[tuple[list[int], T]]:
    """Group inputs of like length and work on each group.

    Where memory runs out, batches are halved, from there on and for later calls with the same model, and
    the work goes on; a warning says so once.

    Args:
        lens: the model.
        lengths: tokens of each input.
        work: what is done with a group of inputs, given as indices.
        batch_size: inputs in a batch; by default as many as hold `tokens_at_once`, padding included.
        tokens_at_once: see there; by default as suits the device.

    Yields:
        The indices of a batch and what the work made of it; longest inputs first, so that memory runs out at
        once or not at all.

    Raises:
        ModelError: memory does not suffice for one input.
    """
    most = tokens_at_once or TOKENS_AT_ONCE.get(lens.device.type, TOKENS_ELSEWHERE)
    waiting = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    while waiting:
        size = batch_size or max(1, most // max(1, lengths[waiting[0]]))
        group = waiting[: max(1, size >> _halved.get(lens.model, 0))]
        result = []  # empty where memory ran out
        try:
            result.append(work(group))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(group) == 1:
                raise ModelError(
                    f"Memory does not suffice for one input of {lengths[group[0]]} tokens.",
                    "Type a smaller --max-length, a smaller --dtype, or another --device.",
                ) from error
        if not result:  # outside `except`, which would keep the tensors of the failed pass
            _halve(lens)
            continue
        yield group, result[0]
        waiting = waiting[len(group) :]


def until_it_fits(lens: Lens, work: Callable[[], T]) -> T:
    """Do work that goes on after a batch has run, such as a backward pass; begin anew if memory runs out.

    Args:
        lens: the model.
        work: runs batches through `run_batches`; each attempt begins with nothing done.

    Returns:
        What the work made.

    Raises:
        ModelError: memory does not suffice for one input.
    """
    for _ in range(MOST_HALVINGS):
        done = []
        try:
            done.append(work())
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        if done:
            return done[0]
        _halve(lens)
    raise ModelError(
        "Memory does not suffice for one input.",
        "Type a smaller --max-length, a smaller --dtype, or another --device.",
    )


def _halve(lens: Lens) -> None:
    if lens.model not in _halved:
        warnings.warn("Memory ran out; going on with smaller batches.", stacklevel=3)
    _halved[lens.model] = _halved.get(lens.model, 0) + 1
    if lens.device.type == "cuda":
        torch.cuda.empty_cache()


def padded(lens: Lens, rows: Sequence[Sequence[int]]) -> dict[str, Tensor]:
    """Put inputs of unequal length side by side, padded on the right.

    Args:
        lens: the model that will read them.
        rows: token ids of each input.

    Returns:
        input_ids and attention_mask, int64 [input, token], on the model's device.

    Raises:
        InputError: the model has no embedding for a token.
    """
    check_ids(lens, rows)
    ids = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=_pad_id(lens))
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(ids.shape[1]) < lengths[:, None]  # [input, token]
    return {"input_ids": moved(ids, lens.device), "attention_mask": moved(mask.long(), lens.device)}


def _pad_id(lens: Lens) -> int:
    """The padding id; the attention mask hides it, but RoBERTa's positions depend on it."""
    for holder in (lens.tokenizer, lens.model.config.get_text_config()):
        pad = getattr(holder, "pad_token_id", None)
        if isinstance(pad, int) and pad >= 0:
            return known_pad(lens, pad)
    return 0


# ---- Refuses what a model puts out where it is no number: an argmax of it would look like a result


SHOWN = 8  # tokens of an input that a message begins with


def check_outputs(
    lens: Lens,
    values: Tensor,
    rows: Tensor | Sequence[int],
    ids: Sequence[Sequence[int]],
    what: str = "logits",
) -> None:
    """Refuse what was made of a batch where any of it is NaN or infinite.

    Args:
        lens: the model.
        values: losses, log-probabilities or states, [row, ...].
        rows: which input of the batch each row belongs to, [row].
        ids: token ids of each input of the batch.
        what: they were made of.

    Raises:
        NotNumbersError: it names the first such input by its words.
    """
    broken = ~torch.isfinite(values.detach()).reshape(len(values), -1).all(1)
    if bool(broken.any()):
        first = int(rows[int(broken.int().argmax())])
        raise holds_none(f"The {what} of the input that begins {_begin(lens, ids[first])!r}")


def _begin(lens: Lens, ids: Sequence[int]) -> str:
    if lens.tokenizer is None:
        return " ".join(map(str, ids[:SHOWN]))
    text: str = lens.tokenizer.decode(list(ids[:SHOWN]), skip_special_tokens=True)
    return text.strip()


@contextmanager
def writing_numbers(model: nn.Module) -> Iterator[None]:
    """Refuse, while the block lasts, logits for the next token that leave nothing to choose from."""

    def see(_: nn.Module, __: Any, output: Any) -> None:
        logits = output["logits"] if isinstance(output, dict) and "logits" in output else None
        if isinstance(logits, Tensor) and not bool(torch.isfinite(logits[:, -1].amax(-1)).all()):
            raise holds_none("The logits of the next token")

    handle = model.register_forward_hook(see)
    try:
        yield
    finally:
        handle.remove()


# ---- Embeddings of texts: the mean of a model's last hidden states


def embed(lens: Lens, ids: Sequence[Sequence[int]], batch_size: int | None = None) -> Tensor:
    """Embed many texts, batch by batch.

    Args:
        lens: the model, whatever is ablated in it now.
        ids: token ids of each text.
        batch_size: texts at once; by default as suits their length.

    Returns:
        float64 on the CPU, [text, width].
    """
    vectors: dict[int, Tensor] = {}
    lengths = [len(row) for row in ids]
    work = lambda group: embed_batch(lens, [ids[index] for index in group]).cpu().double()  # noqa: E731
    for group, rows in run_batches(lens, lengths, work, batch_size):
        vectors.update(zip(group, rows, strict=True))
    return torch.stack([vectors[index] for index in range(len(ids))])


def embed_batch(lens: Lens, ids: Sequence[Sequence[int]]) -> Tensor:
    """Embed some texts at once: the mean of the last hidden states over all tokens, padding excluded.

    Args:
        lens: the model; of an encoder-decoder model the encoder is run.
        ids: token ids of each text.

    Returns:
        In float32 or better, differentiable unless gradients are off, [text, width].
    """
    model: Any = lens.model
    seq2seq = model.config.is_encoder_decoder
    body = model.get_encoder() if seq2seq else model.base_model
    inputs = padded(lens, ids)
    hidden = body(**inputs, **({} if seq2seq else no_cache(lens))).last_hidden_state  # [text, token, width]
    if hidden.dtype in (torch.float16, torch.bfloat16):
        hidden = hidden.float()
    mask = inputs["attention_mask"].to(hidden.device)
    hidden = hidden.masked_fill(mask[..., None] == 0, 0)
    mean: Tensor = hidden.sum(dim=1) / mask.sum(dim=1, keepdim=True)
    check_outputs(lens, mean, range(len(ids)), ids, "last hidden states")
    return mean
