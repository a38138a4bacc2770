"""The one seam with a model: every capture of a pattern and every change of a head passes here."""

from __future__ import annotations

import hashlib
import inspect
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel

from headlens.errors import InputError, ModelError
from headlens.model.anatomy import Anatomy, Part, examine
from headlens.model.attention_call import AttentionCall, plain_where_equal, route
from headlens.model.heads import Site
from headlens.model.trace import returning_patterns

Edit = Callable[[Site, Tensor], Tensor]  # a site's output before W_O [batch, query, head, width] -> the same
Supply = Callable[[Site], Tensor | None]  # a site -> its output before W_O, where it is known


class Seam(ABC):
    """What is open on one model now: who observes, what is edited.

    Args:
        model: the model.
        sites: its sites, in the order in which they run.
    """

    def __init__(self, model: PreTrainedModel, sites: Sequence[Site]) -> None:
        self._model_ref = ref(model)
        self.sites = tuple(sites)
        self._watches: list[_Watch] = []
        self._edits: list[Edit] = []
        self._supplies: list[Supply] = []
        self._open = 0
        self._lock = threading.RLock()
        self._installed = ExitStack()
        self._entrance = _Entrance()

    @property
    def given(self) -> Given | None:
        """What the model is being given, while it runs under this seam."""
        return self._entrance.given

    @property
    def is_open(self) -> bool:
        """Whether anybody observes or edits the model now."""
        return self._open > 0

    @property
    def changes(self) -> bool:
        """Whether anything is open that changes what the model computes."""
        return bool(self._edits or self._supplies)

    @property
    def call(self) -> AttentionCall | None:
        """The attention call whose output is being edited, where the model's family shows it."""
        return None

    @property
    def _model(self) -> PreTrainedModel:
        model = self._model_ref()
        assert model is not None  # whoever uses the seam holds the model
        return model

    @contextmanager
    def observe(
        self, observer: Observer, sites: Sequence[Site] | None = None, block_size: int | None = None
    ) -> Iterator[None]:
        """Hand every block of queries to an observer while the block lasts.

        Args:
            observer: called with the site and the `Block`; it must not change what it is given.
            sites: where to look; everywhere by default. Other sites run at full speed.
            block_size: queries per block; by default as many as keep a block under 64 MiB.

        Yields:
            Nothing.
        """
        chosen = None if sites is None else frozenset(sites)
        with self._entry(self._watches, _Watch(observer, chosen, block_size)):
            yield

    @contextmanager
    def edit(self, edit: Edit) -> Iterator[None]:
        """Pass every site's output before W_O through a function while the block lasts.

        Args:
            edit: receives the site and [batch, query, head, width], returns the same shape; where it
                changes nothing it returns the tensor it was given.

        Yields:
            Nothing.
        """
        with self._entry(self._edits, edit):
            yield

    @contextmanager
    def supply(self, supply: Supply) -> Iterator[None]:
        """Take sites' outputs before W_O from a function while the block lasts, where it knows them.

        Edits see them as they see computed ones. Only a model whose attention goes through the interface
        is spared the computing; others do not ask.

        Args:
            supply: receives the site, returns [batch, query, head, width], or None to have it computed.

        Yields:
            Nothing.
        """
        with self._entry(self._supplies, supply):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run the model as it is while the block lasts, whatever is open around it.

        Yields:
            Nothing.
        """
        with self._lock, _eval_mode(self._model):
            kept = self._watches, self._edits, self._supplies
            self._watches, self._edits, self._supplies = [], [], []
            try:
                yield
            finally:
                self._watches, self._edits, self._supplies = kept

    @abstractmethod
    def skip(self, sites: Sequence[Site]) -> None:
        """Count sites as run that a pass leaves out.

        Args:
            sites: which; those that one module runs follow in order.
        """

    @contextmanager
    def _entry(self, entries: list[Any], entry: Any) -> Iterator[None]:
        with self._lock:
            if self._open == 0:
                with ExitStack() as stack:
                    stack.enter_context(_eval_mode(self._model))
                    stack.enter_context(self._entrance.watch(self._model))
                    stack.enter_context(self._install())
                    self._installed = stack.pop_all()
            self._open += 1
            entries.append(entry)
        try:
            yield
        finally:
            with self._lock:
                entries.pop(next(i for i, known in enumerate(entries) if known is entry))
                self._open -= 1
                if self._open == 0:
                    self._installed.close()

    def fits(self) -> bool:
        """Whether the model still has the attention modules that were found in it."""
        return True

    @abstractmethod
    def _install(self) -> AbstractContextManager[None]:
        """Take the place in the model where attention passes; leaving the block gives it back."""

    def _watching(self, site: Site) -> list[_Watch]:
        return [watch for watch in self._watches if watch.wants(site)]

    def _edited(self, site: Site, output: Tensor) -> Tensor:
        for edit in self._edits:
            output = edit(site, output)
        return output


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


# ---- Patterns as they are shown: some queries at a time


BLOCK_BYTES = 64 * 2**20  # a block of patterns larger than this is cut into fewer queries
CACHED_BYTES = 8 * 2**20  # a block of this size stays in the caches of a CPU
WORTH = 64  # rows that make a product worth while: no block is cut into fewer for the caches' sake


@dataclass(frozen=True, slots=True)
class Block:
    """The pattern of some consecutive queries at one site.

    Args:
        pattern: attention weights after softmax, [batch, head, stop - start, keys]. Keys past the last
            one that any of these queries may see can be missing: their weight is 0.
        visible: which keys each query may see, bool [batch, 1, stop - start, keys].
        start: first query of the block.
        stop: one past its last query.
        n_queries: number of queries of the whole input.
        n_keys: number of keys of the whole input.
        values: what each key-value head holds for each key, [batch, kv head, keys, width]; None where the
            model does not show it.
    """

    pattern: Tensor
    visible: Tensor
    start: int
    stop: int
    n_queries: int
    n_keys: int
    values: Tensor | None = None


Observer = Callable[[Site, Block], None]


@dataclass(frozen=True, slots=True)
class _Watch:
    """Someone who observes.

    Args:
        observer: what is called.
        sites: where; None for everywhere.
        size: queries per block; None for as many as suit.
    """

    observer: Observer
    sites: frozenset[Site] | None
    size: int | None

    def wants(self, site: Site) -> bool:
        """Whether it looks at a site."""
        return self.sites is None or site in self.sites


def _block_size(watches: Sequence[_Watch], bytes_per_query: int, device: torch.device, rows: int = 1) -> int:
    """Choose how many queries a block has."""
    asked = [watch.size for watch in watches if watch.size is not None]
    if asked:
        return min(asked)
    most = max(1, BLOCK_BYTES // bytes_per_query)
    if device.type != "cpu":
        return most
    return min(most, max(WORTH // rows, CACHED_BYTES // bytes_per_query, 1))


# ---- The seam for models whose attention goes through `transformers`' attention interface


class _InterfaceSeam(Seam):
    """The seam of a model whose attention goes through `transformers.AttentionInterface`."""

    def __init__(self, model: PreTrainedModel, sites: Sequence[Site], dense_masks: bool = False) -> None:
        super().__init__(model, sites)
        self._dense_masks = dense_masks
        self._local = threading.local()
        self._turns: dict[int, _Turns] = {}
        for path in dict.fromkeys(site.module for site in sites):
            mine = [site for site in sites if site.module == path]
            self._turns[id(model.get_submodule(path))] = _Turns(mine)

    @contextmanager
    def _install(self) -> Iterator[None]:
        self._restart()
        with ExitStack() as stack:
            for part in self._model.modules():  # whichever part of the model a pass begins with
                if isinstance(part, PreTrainedModel):
                    stack.callback(part.register_forward_pre_hook(self._restart).remove)
            stack.enter_context(route(self._model, self._attend, self._dense_masks))
            yield

    def fits(self) -> bool:
        """Whether the model still has the attention modules that were found in it."""
        model = self._model
        return all(_has(model, site.module, self._turns) for site in self.sites)

    def skip(self, sites: Sequence[Site]) -> None:
        """See `Seam.skip`."""
        for site in sites:
            self._turns[id(self._model.get_submodule(site.module))].next()

    def _restart(self, *_: Any) -> None:
        """Count calls anew: the pass before may have ended in an exception half-way."""
        for turns in self._turns.values():
            turns.reset()

    def _attend(self, call: AttentionCall) -> Tensor:
        turns = self._turns.get(id(call.module))
        if turns is None:  # attention that the dry run did not reach, such as a vision tower's
            return call.plain()
        site = turns.next()
        watches = self._watching(site)
        known = next((x for x in (supply(site) for supply in self._supplies) if x is not None), None)
        if watches or known is None:
            known = self._observed(site, call, watches) if watches else call.plain()
        self._local.call = call
        try:
            return self._edited(site, known)
        finally:
            self._local.call = None

    @property
    def call(self) -> AttentionCall | None:
        """The attention call whose output is being edited."""
        return getattr(self._local, "call", None)

    def _observed(self, site: Site, call: AttentionCall, watches: list[_Watch]) -> Tensor:
        batch, n_heads, n_queries, _ = call.query.shape
        n_keys, device = call.key.shape[2], call.query.device
        size = _block_size(watches, 4 * batch * n_heads * n_keys, device)  # float32
        if size < n_queries:
            call = plain_where_equal(call)
            size = _block_size(watches, 4 * batch * n_heads * n_keys, device, call.rows_per_query)
        outputs = []
        for start in range(0, n_queries, size):
            stop = min(start + size, n_queries)
            output, pattern, visible = call.block(start, stop)
            outputs.append(output)
            values = call.value[:, :, : pattern.shape[-1]]
            for watch in watches:
                watch.observer(site, Block(pattern, visible, start, stop, n_queries, n_keys, values))
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1)  # along the queries


def _has(model: nn.Module, path: str, known: Mapping[int, object]) -> bool:
    try:
        return id(model.get_submodule(path)) in known
    except AttributeError:
        return False


class _Turns:
    """The sites of one module in the order of its calls: ALBERT runs one module for all layers."""

    def __init__(self, sites: Sequence[Site]) -> None:
        self._sites = sites
        self._calls = threading.local()

    def reset(self) -> None:
        self._calls.count = 0

    def next(self) -> Site:
        count = getattr(self._calls, "count", 0)
        self._calls.count = count + 1
        return self._sites[count % len(self._sites)]


# ---- The seam for models that do not use the attention interface: forward hooks, behind the same two methods


class _HookSeam(Seam):
    """The seam of a model that keeps its attention to itself: forward hooks found by the dry run.

    Args:
        model: the model.
        parts: its sites with their weights, in the order in which they run.
    """

    def __init__(self, model: PreTrainedModel, parts: Sequence[Part]) -> None:
        super().__init__(model, [part.site for part in parts])
        self._parts = tuple(parts)
        self._looking = 0
        self._taken = ExitStack()

    @contextmanager
    def _install(self) -> Iterator[None]:
        model = self._model
        with ExitStack() as stack:
            for part in self._parts:
                output = model.get_submodule(part.projections.output)
                given = output.register_forward_pre_hook(self._change(part.site, part.batch_first))
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
            stack.enter_context(returning_patterns(self._model))
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
        size = _block_size(watches, 4 * batch * heads * n_keys, pattern.device)  # float32
        for start in range(0, n_queries, size):
            stop = min(start + size, n_queries)
            block = Block(
                pattern[:, :, start:stop], visible[:, :, start:stop], start, stop, n_queries, n_keys
            )
            for watch in watches:
                watch.observer(site, block)

    def _change(self, site: Site, batch_first: bool) -> Any:
        def turned(joined: Any) -> Any:
            return joined if batch_first else joined.transpose(0, 1)

        def hook(_: nn.Module, arguments: tuple[Any, ...]) -> Any:
            if not self._edits:
                return None
            joined = turned(arguments[0])  # [batch, query, head x width], heads side by side
            heads = joined.unflatten(-1, (site.n_heads, site.head_width))
            return (turned(self._edited(site, heads).flatten(-2)), *arguments[1:])

        return hook


# ---- The anatomy and the seam of every model that is looked at: they are the model's, whatever lenses it has


_known: WeakKeyDictionary[PreTrainedModel, tuple[Anatomy, Seam]] = WeakKeyDictionary()
_lock = threading.Lock()


def known(model: PreTrainedModel) -> tuple[Anatomy, Seam]:
    """Get a model's anatomy and seam, which are worked out anew where its parts were exchanged."""
    with _lock:
        if model not in _known or not _known[model][1].fits():
            anatomy = examine(model)
            _known[model] = (anatomy, _seam(model, anatomy))
        return _known[model]


def _seam(model: PreTrainedModel, anatomy: Anatomy) -> Seam:
    if anatomy.by_interface:
        return _InterfaceSeam(model, anatomy.sites, anatomy.dense_masks)
    return _HookSeam(model, anatomy.parts)


# ---- What a model is given while it runs: the arguments of its outermost call, and which tokens are real


@dataclass(frozen=True, slots=True)
class Given:
    """One pass through a model, as it was asked for.

    Args:
        module: the model, or the part of it (its body, its encoder), that was called.
        inputs: the arguments of its forward, by name.
        names: what `row_names` has found, by stack.
    """

    module: nn.Module
    inputs: dict[str, Any]
    names: dict[str, list[bytes]] = field(default_factory=dict)

    @property
    def in_steps(self) -> bool:
        """Whether this is a step of generation: keys and values of earlier tokens are in a cache."""
        return any(isinstance(value, Cache) for value in self.inputs.values())

    def real(self, stack: str, output: Tensor) -> Tensor:
        """Tell which queries of a stack stand for tokens, not for padding.

        Args:
            stack: "encoder", "decoder" or "cross".
            output: what a site of it puts out, [row, query, ...].

        Returns:
            Bool [row, query]; all True where no attention mask was given.
        """
        rows, queries = output.shape[:2]
        mask = self.inputs.get(f"{self._side(stack)}attention_mask")
        if not isinstance(mask, Tensor) or mask.ndim != 2:
            return torch.ones(rows, queries, dtype=torch.bool, device=output.device)
        real = mask[:, -queries:].to(output.device) != 0  # a generating model's mask covers what it has read
        return real.repeat_interleave(rows // len(real), dim=0)  # beams

    def row_names(self, stack: str, output: Tensor) -> list[bytes]:
        """Name each row of a batch by its tokens, so that the same input has the same name in every batch.

        Args:
            stack: see `real`.
            output: see `real`.

        Returns:
            A digest of each row's real tokens, of both sides for an encoder-decoder model.
        """
        if stack in self.names:
            return self.names[stack]
        digests = [hashlib.blake2b(digest_size=16) for _ in range(output.shape[0])]
        for side in dict.fromkeys(("", self._side(stack))):
            ids, mask = (self.inputs.get(f"{side}{name}") for name in ("input_ids", "attention_mask"))
            if not isinstance(ids, Tensor):
                continue
            rows = ids.cpu()
            real = None if mask is None else mask[:, -ids.shape[1] :].cpu() != 0
            for row, digest in enumerate(digests):
                own = rows[row] if real is None else rows[row][real[row]]
                digest.update(own.numpy().tobytes() + b"|")
        self.names[stack] = [digest.digest() for digest in digests]
        return self.names[stack]

    def _side(self, stack: str) -> str:
        two_sides = "decoder_input_ids" in self.inputs or "labels" in self.inputs
        return "decoder_" if two_sides and stack != "encoder" else ""


class _Entrance:
    """Notes what a model is given, from the moment its outermost call begins until it ends.

    Parts of a model that are models of their own (its body, its encoder) can be called by themselves.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def given(self) -> Given | None:
        """The pass that is running in this thread."""
        return getattr(self._local, "given", None)

    @contextmanager
    def watch(self, model: PreTrainedModel) -> Iterator[None]:
        """Note what the model is given while the block lasts."""
        with ExitStack() as stack:
            for part in model.modules():
                if isinstance(part, PreTrainedModel):
                    stack.callback(part.register_forward_pre_hook(self._enter, with_kwargs=True).remove)
                    stack.callback(part.register_forward_hook(self._leave, always_call=True).remove)
            yield

    def _enter(self, module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        if self.given is None:
            bound = inspect.signature(module.forward).bind_partial(*arguments, **named).arguments
            named_freely = bound.pop("kwargs", {})
            inputs = {k: v for k, v in {**bound, **named_freely}.items() if v is not None}
            self._local.given = Given(module, inputs)

    def _leave(self, module: nn.Module, _: Any, __: Any) -> None:
        given = self.given
        if given is not None and given.module is module:
            self._local.given = None


# ---- How much memory there is, and a refusal of what cannot fit into it


def check_patterns(sites: Sequence[Site], block: Block) -> None:
    """Refuse to keep all patterns of an input where they take more memory than there is."""
    own = block.pattern
    most = memory_of(own.device)
    n_heads = sum(site.n_heads for site in sites)
    size = len(own) * n_heads * block.n_queries * block.n_keys * own.element_size()
    if most is not None and size > most:
        raise InputError(
            f"The patterns of {n_heads} heads for {block.n_queries:,} tokens take {size / 2**30:.1f} GiB, "
            f"more than the {most / 2**30:.1f} GiB of this machine.",
            "Look at them block by block with lens.observe, which keeps nothing.",
        )


def memory_of(device: torch.device) -> int | None:
    """Find how much memory a device has."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if device.type == "cpu" else None
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None
