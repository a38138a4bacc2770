"""The seam for models that do not use the attention interface: forward hooks, behind the same two methods.

Such a model returns its patterns when `output_attentions` is set. The dry run finds the innermost module
that puts out each of them, and W_O as the first linear layer that is computed from it. Observing
hooks the former (and drops the pattern at once, so that the model does not collect all layers); editing
hooks the input of the latter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.attention import BLOCK_BYTES, Block, Observer, Seam
from headlens.dryrun import dry, run
from headlens.errors import ModelError
from headlens.heads import Site
from headlens.probe import Call, Linear, Log, logging, makers, stack_of


def trace_by_hooks(model: PreTrainedModel) -> list[Call]:
    """Find the attention of a model that returns its patterns but does not use the interface.

    Args:
        model: any text model of `transformers`.

    Returns:
        Its attention calls in order; empty where the model returns no patterns.
    """
    owners: dict[int, str] = {}  # id of a pattern -> the innermost module that puts it out
    kept: list[Tensor] = []  # holds every tensor whose id is noted
    before: dict[int, int] = {}  # id of a pattern -> how many linear layers had run when its module ended
    log = Log()

    def hook(path: str) -> Any:
        def note(_: nn.Module, __: Any, output: Any) -> None:
            for tensor in output if isinstance(output, tuple) else ():
                if isinstance(tensor, Tensor) and tensor.ndim == 4 and id(tensor) not in owners:
                    owners[id(tensor)] = path
                    before[id(tensor)] = len(log.linears)
                    kept.append(tensor)

        return note

    with ExitStack() as stack:
        stack.enter_context(dry(model))
        stack.enter_context(_returning_patterns(model))
        stack.enter_context(logging(model, log))
        for path, module in model.named_modules():
            stack.callback(module.register_forward_hook(hook(path)).remove)
        outputs = run(model)
        patterns = [pattern for pattern in _patterns(outputs) if id(pattern) in owners]
        return [_note(model, owners[id(p)], p, log.linears[: before[id(p)] + 1]) for p in patterns]


def _patterns(outputs: Any) -> list[Tensor]:
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions", "attentions")
    return [
        pattern
        for name in names
        for pattern in getattr(outputs, name, None) or ()
        if isinstance(pattern, Tensor) and pattern.ndim == 4
    ]


def _note(model: PreTrainedModel, path: str, pattern: Tensor, linears: list[Linear]) -> Call:
    _, n_heads, n_queries, n_keys = pattern.shape
    output = next((linear for linear in linears if _depends(linear.input, pattern)), None)
    if output is None:
        raise _unseen(model, path)
    inside = [x for x in linears[: linears.index(output)] if x.path.startswith(path + ".")]
    inside = [x for x in inside if not x.path.rpartition(".")[2].startswith("pos_")]  # DeBERTa's positions
    of_pattern = makers(pattern, inside)
    of_output = tuple(x.path for x in inside)
    fused = len(of_output) == 1
    width = output.input.shape[-1] // n_heads
    value = of_output if fused else tuple(x for x in of_output if x not in of_pattern)
    module_width = next((x.output.shape[-1] for x in inside if x.path in value), 0)
    query_width = next((x.output.shape[-1] for x in inside if x.path in of_pattern), 0)
    if (not fused and query_width != n_heads * width) or module_width < width:
        raise _unseen(model, path)
    if pattern.device.type == "meta":
        causal = bool(getattr(model.get_submodule(path), "is_causal", _is_generator(model)))
    else:
        causal = n_queries == n_keys and bool((pattern.triu(1) == 0).all())
    return Call(
        module=path,
        stack=stack_of(model, n_queries, n_keys, causal),
        n_heads=n_heads,
        # a fused layer makes n_heads queries and as many keys as values; a plain one makes values alone
        n_kv_heads=(module_width // width - n_heads) // 2 if fused else module_width // width,
        key_width=width,
        value_width=width,
        causal=causal,
        n_queries=n_queries,
        n_keys=n_keys,
        query_layers=of_pattern[:1],
        key_layers=of_pattern[-1:],
        value_layers=value,
        output_layer=output.path,
    )


def _unseen(model: PreTrainedModel, path: str) -> ModelError:
    return ModelError(
        f"{type(model).__name__} shows its patterns, but how {path} joins its heads cannot be seen.",
        "headlens serves models whose heads stand side by side before one output layer.",
    )


def _depends(tensor: Tensor, source: Tensor) -> bool:
    if not tensor.requires_grad:
        return False
    return torch.autograd.grad(tensor.sum(), source, retain_graph=True, allow_unused=True)[0] is not None


def _is_generator(model: PreTrainedModel) -> bool:
    """Whether the family writes from left to right: its kin with a language head predicts the next token."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    kind = type(model.config)
    return kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING


@contextmanager
def _returning_patterns(model: PreTrainedModel) -> Iterator[None]:
    """Have the model compute its patterns eagerly and return them, as its config can say for it."""
    config = model.config
    implementation, flag = config._attn_implementation_internal, config._output_attentions
    config._attn_implementation_internal, config._output_attentions = "eager", True
    try:
        yield
    finally:
        config._attn_implementation_internal, config._output_attentions = implementation, flag


class HookSeam(Seam):
    """The seam of a model that keeps its attention to itself: forward hooks found by the dry run.

    Args:
        model: the model.
        sites: its sites, in the order in which they run.
        outputs: path of W_O for each site.
    """

    def __init__(self, model: PreTrainedModel, sites: Sequence[Site], outputs: Sequence[str]) -> None:
        super().__init__(model, sites)
        self._outputs = dict(zip(sites, outputs, strict=True))
        self._looking = 0
        self._taken = ExitStack()

    @contextmanager
    def _install(self) -> Iterator[None]:
        model = self._model
        with ExitStack() as stack:
            for site, output in self._outputs.items():
                given = model.get_submodule(output).register_forward_pre_hook(self._change(site))
                stack.callback(given.remove)
            yield

    @contextmanager
    def observe(
        self, observer: Observer, sites: Sequence[Site] | None = None, block_size: int | None = None
    ) -> Iterator[None]:
        """Hand every block to an observer; while one is there the model computes its patterns eagerly."""
        with super().observe(observer, sites, block_size):
            with self._lock:
                if self._looking == 0:
                    self._taken = self._take_patterns()
                self._looking += 1
            try:
                yield
            finally:
                with self._lock:
                    self._looking -= 1
                    if self._looking == 0:
                        self._taken.close()

    def skip(self, sites: Sequence[Site]) -> None:
        """See `Seam.skip`; here each site is known by its module, and none is counted."""

    def _take_patterns(self) -> ExitStack:
        with ExitStack() as stack:
            stack.enter_context(_returning_patterns(self._model))
            for site in self.sites:
                module = self._model.get_submodule(site.module)
                stack.callback(module.register_forward_hook(self._take(site)).remove)
            return stack.pop_all()

    def _take(self, site: Site) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> Any:
            watches = self._watching(site)
            place = next((i for i, x in enumerate(output) if isinstance(x, Tensor) and x.ndim == 4), None)
            if place is None:
                if watches:
                    raise ModelError(
                        f"{site.module} returned no pattern.",
                        "Do not pass output_attentions=False while observing.",
                    )
                return None
            if watches:
                self._show(site, output[place])
            return (*output[:place], None, *output[place + 1 :])

        return hook

    def _show(self, site: Site, pattern: Tensor) -> None:
        batch, heads, n_queries, n_keys = pattern.shape
        # a key that is masked has weight exactly 0 in every head
        visible = (pattern > 0).any(dim=1, keepdim=True)  # [batch, 1, query, key]
        watches = self._watching(site)
        sizes = [watch.size for watch in watches if watch.size is not None]
        size = min(sizes) if sizes else max(1, BLOCK_BYTES // (batch * heads * n_keys * 4))
        for start in range(0, n_queries, size):
            stop = min(start + size, n_queries)
            block = Block(
                pattern[:, :, start:stop], visible[:, :, start:stop], start, stop, n_queries, n_keys
            )
            for watch in watches:
                watch.observer(site, block)

    def _change(self, site: Site) -> Any:
        def hook(_: nn.Module, arguments: tuple[Any, ...]) -> Any:
            if not self._edits:
                return None
            joined = arguments[0]  # [batch, query, head x width], heads side by side
            heads = joined.unflatten(-1, (site.n_heads, site.head_width))
            return (self._edited(site, heads).flatten(-2), *arguments[1:])

        return hook
