"""Learned gates: which heads a model can do without, found by training one gate a head."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from headlens.benchmarks.base import Lot
from headlens.benchmarks.metrics import Array
from headlens.benchmarks.predict import until_it_fits
from headlens.benchmarks.registry import Benchmark, Differentiable
from headlens.errors import InputError, ModelError, NotNumbersError
from headlens.model.devices import HostTransfer, lasting, moved
from headlens.model.heads import Head, Site
from headlens.model.lens import Lens
from headlens.model.seam import Edit

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1  # temperature and ends of the hard concrete (Louizos et al. 2018)
START = 2.0  # location of every gate at first: open with probability 0.97, yet often short of 1
FARTHEST = 5.0  # locations stay within -5..5: beyond, no sample would ever change a gate's mind
FLOOR = 0.01  # of the loss: the least that the heads are taken to carry together

ROLES = ("facilitating", "irrelevant", "interfering")


@dataclass(frozen=True, slots=True)
class Fit:
    """How gates are learned.

    Args:
        steps: steps of Adam in each of the two fits.
        learning_rate: of Adam.
        examples_at_once: examples that each step looks at.
        pressure: cost of an open gate, as a share of what a head carries on average: the loss without the
            heads under study minus that with them, over their number.
    """

    steps: int = 300
    learning_rate: float = 0.1
    examples_at_once: int = 8
    pressure: float = 0.5


@dataclass(frozen=True, slots=True)
class Learned:
    """What two fits made of the gates.

    Args:
        open_closing: probability that the gate is open under pressure to close, [head].
        open_opening: the same under pressure to open, [head].
        price: cost of an open gate, in the second fit its gain, in units of the loss.
        all_on: the loss with all heads.
        all_off: the loss without the heads under study.
        skipped: steps of both fits that were left out, since the loss had no finite derivative.
    """

    open_closing: Array
    open_opening: Array
    price: float
    all_on: float
    all_off: float
    skipped: int = 0

    @property
    def importance(self) -> Array:
        """Open under pressure to close minus closed under pressure to open, -1..1, [head]."""
        return self.open_closing - (1 - self.open_opening)

    @property
    def roles(self) -> list[str]:
        """The likeliest of `ROLES` for each head.

        Facilitating: open under pressure to close; interfering: closed under pressure to open; irrelevant:
        it follows either pressure.
        """
        follows = self.open_opening * (1 - self.open_closing)
        likely = np.stack([self.open_closing, follows, 1 - self.open_opening])  # [role, head]
        return [ROLES[place] for place in likely.argmax(axis=0)]


def learn_gates(
    lens: Lens,
    benchmark: Differentiable,
    heads: Sequence[Head],
    fit: Fit | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Learned:
    """Learn a gate for each head twice, with a cost and with a gain for open ones.

    The two fits and the roles are those of causal head gating (Nam et al. 2025), the gates hard concrete
    ones with a penalty on their expected number (Louizos et al. 2018; of heads: Voita et al. 2019). The
    weights stay as they are. Adam; one sample of all gates per step, shared by the examples of the step.

    It misleads where heads stand in for each other: under pressure to close one of them may stay open and
    the others not, and which one is chance. A head that does all its work however little it is open looks
    irrelevant: no gradient tells what closing it costs. Roles depend on `Fit.pressure`.
    """
    fit = fit or Fit()
    on, off = loss_without(lens, benchmark), loss_without(lens, benchmark, heads)
    if not math.isfinite(on - off):
        raise InputError(
            f"The loss of {benchmark.name} is {on:g} with all heads and {off:g} without those under study.",
            "Gates are learned from finite losses only: choose other heads, or find importance by each.",
        )
    price = fit.pressure * max(abs(off - on), FLOOR * abs(on)) / len(heads) or 1.0  # all losses are 0
    opened: list[Array] = []
    made = 0
    with tqdm(
        total=2 * fit.steps, desc="learn gates", disable=not progress, file=sys.stderr, unit="step"
    ) as bar:
        for sign in (1, -1):
            place = torch.full((len(heads),), START, dtype=torch.float64, requires_grad=True)
            for moved in _steps(lens, benchmark, heads, place, (sign * price, fit, seed)):
                made += moved
                bar.update()
            opened.append(open_probability(place.detach()).numpy())
    skipped = 2 * fit.steps - made
    if skipped > made:
        raise InputError(
            f"The loss of {benchmark.name} had no finite derivative in {skipped} of {2 * fit.steps} steps.",
            "Try --dtype float32, choose other heads, or find importance by each.",
        )
    return Learned(opened[0], opened[1], price, on, off, skipped)


def _steps(
    lens: Lens,
    benchmark: Differentiable,
    heads: Sequence[Head],
    place: Tensor,
    plan: tuple[float, Fit, int],
) -> Iterator[bool]:
    """Change the gates' locations [head] in place, step by step, under a price of open gates.

    Yields whether the step was made.

    The objective is the loss in units of the price, so that its scale says nothing.
    """
    price, fit, seed = plan
    adam = torch.optim.Adam([place], lr=fit.learning_rate)
    generator = torch.Generator().manual_seed(seed)
    drawn = _batches(int(benchmark.facts["examples"]), fit.examples_at_once, seed)
    for _ in range(fit.steps):
        gates = draw(place, generator)
        part = cast(Differentiable, benchmark.take(next(drawn)))
        slope = until_it_fits(lens, partial(_slope, lens, part, heads, gates.detach()))
        if slope is not None:
            adam.zero_grad()
            (gates @ slope / abs(price) + math.copysign(1, price) * open_probability(place).sum()).backward()  # type: ignore[no-untyped-call]
            adam.step()
            with torch.no_grad():
                place.clamp_(-FARTHEST, FARTHEST)
        yield slope is not None


def _slope(lens: Lens, benchmark: Differentiable, heads: Sequence[Head], gates: Tensor) -> Tensor | None:
    """The derivative of the mean loss by gates that all inputs share, float64 on the CPU, [head].

    None where it is not finite: a sample of gates may leave no finite loss.
    """
    leaf = gates.to(lens.device, torch.float64 if lens.model.dtype == torch.float64 else torch.float32)
    leaf.requires_grad_()
    with differentiating(lens, _shared(heads, leaf)):
        total = torch.zeros(len(heads), dtype=torch.float64)
        try:
            for lot in benchmark.losses(lens):
                (slope,) = torch.autograd.grad(lot.losses.sum(), leaf, materialize_grads=True)
                total += slope.cpu().double()
        except NotNumbersError:
            return None
    return total / int(benchmark.facts["examples"]) if torch.isfinite(total).all() else None


def _batches(n_examples: int, size: int, seed: int) -> Iterator[list[int]]:
    """Examples in random order, some at a time; what does not fill a batch waits for another round."""
    generator = np.random.default_rng(seed)
    size = min(size, n_examples)
    while True:
        order = generator.permutation(n_examples).tolist()
        for start in range(0, n_examples - size + 1, size):
            yield order[start : start + size]


def draw(place: Tensor, generator: torch.Generator) -> Tensor:
    """Sample hard-concrete gates.

    Args:
        place: their locations, log alpha, [gate].
        generator: of the samples.

    Returns:
        Gates in 0..1, both ends included, differentiable by their locations, [gate].
    """
    uniform = torch.rand(len(place), generator=generator, dtype=place.dtype).clamp(1e-6, 1 - 1e-6)
    concrete = torch.sigmoid((uniform.logit() + place) / BETA)
    return (concrete * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


def open_probability(place: Tensor) -> Tensor:
    """Compute the probability that a hard-concrete gate is not 0.

    Args:
        place: locations, log alpha, [gate].

    Returns:
        Probabilities, [gate].
    """
    return torch.sigmoid(place - BETA * math.log(-GAMMA / ZETA))


# ---- Gates: factors on heads' outputs before W_O that a benchmark's losses can be differentiated by


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
        carrier = HostTransfer()
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


def _shared(heads: Sequence[Head], gates: Tensor) -> Edit:
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
    """Edit heads' outputs so that gradients reach the edit, and it alone, while the block lasts."""
    with lens.edit(edit), _frozen(lens.model), torch.inference_mode(False), torch.enable_grad():
        yield


def loss_without(lens: Lens, benchmark: Differentiable, heads: Sequence[Head] = ()) -> float:
    """Compute a benchmark's loss without some heads: the mean over examples, summed in float64."""
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


# ---- All inputs of a benchmark through a model, for what its heads do


def show(benchmark: Benchmark, lens: Lens) -> None:
    """Run a model over all inputs of a benchmark, for what its heads do."""
    own = getattr(benchmark, "show", None)
    with torch.no_grad():
        if own is not None:
            own(lens)
        elif isinstance(benchmark, Differentiable):
            for _ in benchmark.losses(lens):
                pass
        else:
            benchmark.measure(lens)
