"""How well a language model predicts tokens at chosen positions: logits are made there only, in chunks."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from headlens.errors import ModelError
from headlens.model.blocks import replaced_forward
from headlens.model.devices import moved
from headlens.model.lens import Lens
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
        yield logits(model(**inputs, **options)), lambda picked: picked  # they are logits already
        return
    outputs = body(**inputs, **options)

    def head(picked: Tensor) -> Tensor:
        with _returning(body, outputs, picked):
            made = model(input_ids=inputs["input_ids"][:1], **options)
        return logits(made)[0]

    yield outputs.last_hidden_state, head


def body_of(lens: Lens) -> nn.Module | None:
    """Find the part of a language model whose last hidden states its head reads one by one.

    Args:
        lens: the model.

    Returns:
        That part, if logits made of some positions equal those made of all, which is tried once for each
        model; None where the head needs more.
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
        whole = logits(run(model))[0]
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
            some = logits(run(model))
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
    """Bound a batch by the logits that it makes.

    Args:
        lens: a language model.

    Returns:
        Most tokens, padding included, where the head makes logits of all positions; else None.
    """
    if body_of(lens) is not None:
        return None
    return max(1, 4 * LOGITS_AT_ONCE // int(lens.model.config.get_text_config().vocab_size))


def logits(outputs: Any) -> Tensor:
    """Find the logits among what a language model returns.

    Args:
        outputs: what its forward returns.

    Returns:
        [input, token, vocabulary].
    """
    found: Tensor = outputs["logits" if "logits" in outputs else "prediction_logits"]
    return found


def no_cache(lens: Lens) -> dict[str, Any]:
    """Make the option that keeps a generating model from storing keys and values, where it knows it.

    Args:
        lens: the model.

    Returns:
        Keyword arguments of its forward.
    """
    causal = any(site.causal for site in lens.anatomy.sites)
    return {"use_cache": False} if causal and hasattr(lens.model.config, "use_cache") else {}
