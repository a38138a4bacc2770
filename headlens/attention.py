"""The one seam with the model: every look at a pattern and every change to a head's output passes here.

`Seam.observe` and `Seam.edit` are `with` blocks that nest freely. While any is open the model is in eval
mode and its attention calls come to this seam; when the last one closes, the model is as it was. A seam
belongs to one model, so two models (and two threads with a model each) do not meet.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any
from weakref import ref

from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.block import Observer, Watch
from headlens.call import AttentionCall
from headlens.given import Entrance, Given
from headlens.heads import Site

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
        self._watches: list[Watch] = []
        self._edits: list[Edit] = []
        self._supplies: list[Supply] = []
        self._open = 0
        self._lock = threading.RLock()
        self._installed = ExitStack()
        self._entrance = Entrance()

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
        with self._entry(self._watches, Watch(observer, chosen, block_size)):
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

    def _watching(self, site: Site) -> list[Watch]:
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
