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

from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.anatomy import Part
from headlens.attention import Seam
from headlens.block import Block, Observer, block_size
from headlens.errors import ModelError
from headlens.heads import Site
from headlens.hook_trace import returning_patterns


class HookSeam(Seam):
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
        size = block_size(watches, 4 * batch * heads * n_keys, pattern.device)  # float32
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
