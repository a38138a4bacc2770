"""Gates: factors on heads' outputs before W_O that a benchmark's losses can be differentiated by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from headlens.benchmarks.base import Lot
from headlens.benchmarks.registry import Differentiable
from headlens.errors import ModelError
from headlens.model.devices import Carrier, lasting, moved
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.model.seam import Edit

Places = Mapping[tuple[str, int], tuple[list[int], list[int]]]  # see `_places`


class RowGates:
    """One gate for each row of a batch and each head, so that one backward pass serves all examples of it.

    Args:
        heads: the heads under study; the gates of others stay 1.
        value: what the gates of the heads under study are.
    """

    def __init__(self, heads: Sequence[Head], value: float = 1.0) -> None:
        self._n_heads = len(heads)
        self._places = _places(heads)
        self._value = value
        self._made: dict[Site, Tensor] = {}  # gates of the latest pass, [row, head of the site]

    def edit(self, site: Site, output: Tensor) -> Tensor:
        """Multiply heads' outputs by gates of their own; see `headlens.model.seam.Edit`."""
        mine = self._places.get((site.stack, site.layer))
        if mine is None:
            return output
        row = torch.ones(site.n_heads, dtype=_precise(output))
        row[mine[0]] = self._value
        gate = moved(row, output.device).repeat(output.shape[0], 1)  # [row, head]
        self._made[site] = gate.requires_grad_()
        return _times(output, gate[:, None, :, None])  # [row, query, head, width]

    def gradients(self, lot: Lot) -> Tensor:
        """Differentiate the losses of the pass that just ended by its gates.

        Args:
            lot: what came of that pass.

        Returns:
            float64 on the CPU, [row, head under study]; 0 for heads that the pass did not use.

        Raises:
            ModelError: the model saw other rows than the lot has, so that gates belong to no example.
        """
        found = torch.zeros(len(lot.owners), self._n_heads, dtype=torch.float64)
        made, self._made = self._made, {}
        if not made:
            return found
        gradients = torch.autograd.grad(lot.losses.sum(), list(made.values()), allow_unused=True)
        carrier = Carrier()
        for site, gradient in zip(made, gradients, strict=True):
            if gradient is None:
                continue
            if len(gradient) != len(found):
                raise ModelError(
                    f"{site} was given {len(gradient)} rows for {len(found)} inputs.",
                    "Find importance by each, shapley or random instead.",
                )
            numbers, columns = self._places[site.stack, site.layer]
            carrier.bring(gradient, _keeping(found, numbers, columns))
        carrier.arrive()
        return found


def _keeping(found: Tensor, numbers: list[int], columns: list[int]) -> Callable[[Tensor], object]:
    def keep(gradient: Tensor) -> None:
        found[:, columns] = gradient[:, numbers].double()

    return keep


def shared(heads: Sequence[Head], gates: Tensor) -> Edit:
    """Make the edit that multiplies heads' outputs by the same gates for all inputs.

    Args:
        heads: the heads under study; others are left alone.
        gates: of each of them, on the model's device, [head].

    Returns:
        The edit, for `Lens.edit`.
    """
    places = _places(heads)
    known: dict[tuple[Site, torch.device], tuple[Tensor, Tensor]] = {}

    def edit(site: Site, output: Tensor) -> Tensor:
        mine = places.get((site.stack, site.layer))
        if mine is None:
            return output
        if (site, output.device) not in known:  # made once: each waits for its device
            known[site, output.device] = lasting(
                lambda: (
                    moved(torch.tensor(mine[0]), output.device),
                    moved(torch.tensor(mine[1]), gates.device),
                )
            )
        numbers, columns = known[site, output.device]
        ones = torch.ones(site.n_heads, dtype=_precise(output), device=output.device)
        factor = ones.index_put((numbers,), gates[columns].to(ones))
        return _times(output, factor[:, None])  # [head, width]

    return edit


@contextmanager
def differentiating(lens: Lens, edit: Edit) -> Iterator[None]:
    """Edit heads' outputs so that gradients reach the edit, and it alone, while the block lasts.

    Args:
        lens: the model; its weights are frozen inside, and afterwards it is as it was, also after an
            exception.
        edit: for `Lens.edit`.

    Yields:
        Nothing.
    """
    with lens.edit(edit), _frozen(lens.model), torch.inference_mode(False), torch.enable_grad():
        yield


def loss_without(lens: Lens, benchmark: Differentiable, heads: Sequence[Head] = ()) -> float:
    """Compute a benchmark's loss without some heads.

    Args:
        lens: the model.
        benchmark: what it is measured on.
        heads: whose outputs before W_O are 0.

    Returns:
        The mean loss over examples, summed in float64.
    """
    total = 0.0
    with torch.no_grad(), lens.ablate(tuple(heads)):
        for lot in benchmark.losses(lens):
            total += float(lot.losses.cpu().double().sum())
    return total / int(benchmark.facts["examples"])


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Without gradients for weights a pass keeps less, and starts keeping at the first gate.

    Weights that are not in memory are left alone: a pass makes other tensors of them.
    """
    learning = [weight for weight in model.parameters() if weight.requires_grad and not weight.is_meta]
    for weight in learning:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in learning:
            weight.requires_grad_()


def _places(heads: Sequence[Head]) -> Places:
    """For each stack and layer, the numbers of its heads under study and their columns in tables."""
    places: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
    for column, head in enumerate(heads):
        numbers, columns = places.setdefault((head.stack, head.layer), ([], []))
        numbers.append(head.head)
        columns.append(column)
    return places


def _precise(output: Tensor) -> torch.dtype:
    return torch.float32 if output.dtype in (torch.float16, torch.bfloat16) else output.dtype


def _times(output: Tensor, gate: Tensor) -> Tensor:
    """Multiply in float32 or better, so that a gate's gradient is summed there."""
    return (output.to(gate.dtype) * gate).to(output.dtype)
