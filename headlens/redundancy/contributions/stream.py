"""Where a model adds what its attention writes to the residual stream, found by a dry run.

In the dry run every W_O puts out noise instead. Noise is like nothing else in the model, so wherever a later
tensor is an earlier one plus that noise, the earlier one is the stream that the branch is added to. Nothing
is looked up by the name of a family.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headlens.model.devices import input_device
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.trace import run
from headlens.model.unembedding import norm_of
from headlens.redundancy.contributions.fitting import UnclearError, best_fit, scaled_fit
from headlens.redundancy.contributions.places import Place, noting
from headlens.redundancy.contributions.writers import at_outputs, writers_of

N_PROJECTIONS = 8  # numbers by which a token's vector is known
TINY = 1e-3  # noise where all is silent
LEVEL = 0.3  # of the noise, in sizes of the largest tensor around: so the stream stays what it is
AHEAD = 2  # up to the second W_O after its own a branch must have been added


@dataclass(frozen=True, slots=True)
class Joint:
    """Where the attention branch of one site joins the residual stream: stream + factor x branch.

    Args:
        stream: where the stream that the branch is added to can be met, before W_O runs.
        norm: path of a norm that what W_O puts out passes before it is added; empty where there is none.
        parallel: whether another branch is added in the same breath (GPT-J adds its MLP).
        factor: a number that the branch is multiplied by, the same for all tokens (Granite).
    """

    stream: Place
    norm: str = ""
    parallel: bool = False
    factor: float = 1.0


@dataclass(slots=True)
class _Seen:
    """One tensor of the dry run: its place, its tokens projected [token, N_PROJECTIONS], its size."""

    place: Place
    marks: Tensor
    width: int


@dataclass(slots=True)
class _Log:
    seen: list[_Seen] = field(default_factory=list)
    writes: list[tuple[Site, int]] = field(default_factory=list)  # site -> index of W_O's output in `seen`
    # (tokens, width) -> size of the largest tensor since the last W_O, [token]
    peaks: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def largest(self, tensor: Tensor) -> Tensor:
        flat = tensor.reshape(-1, tensor.shape[-1])
        known = self.peaks.get((len(flat), flat.shape[1]))
        return torch.ones(len(flat)) if known is None else known


def joints_of(lens: Lens) -> dict[Site, Joint]:
    """Find where each site's branch joins the residual stream.

    Args:
        lens: the model, with real weights.

    Returns:
        The joint of every site for which there is one; a site whose branch is gated or mixed before it is
        added has none.

    Raises:
        ModelError: a site has no W_O that is known, or the model does not run on a few tokens.
    """
    writers = writers_of(lens)
    log, sketch = _Log(), _Sketch()
    awaited: list[Site] = []

    def noise(site: Site, output: Tensor) -> Tensor:
        awaited.append(site)
        size = LEVEL * log.largest(output).clamp(min=TINY)
        made = torch.randn(len(size), output.shape[-1], generator=sketch.generator) * size[:, None]
        log.peaks.clear()
        return made.reshape(output.shape).to(output)

    def note(place: Place, tensor: Tensor) -> None:
        if not tensor.is_floating_point() or not 2 <= tensor.ndim <= 3 or tensor.numel() == 0:
            return
        width = tensor.shape[-1]
        sizes = tensor.detach().reshape(-1, width).float().square().mean(-1).sqrt().cpu()
        key = len(sizes), width
        log.peaks[key] = torch.maximum(log.peaks.get(key, torch.zeros(1)), sizes)
        log.seen.append(_Seen(place, sketch.of(tensor), width))
        if awaited and not place.enters and place.path in writers:
            log.writes.append((awaited.pop(), len(log.seen) - 1))

    with ExitStack() as stack:
        stack.enter_context(lens.seam.alone())
        stack.enter_context(torch.no_grad())
        stack.enter_context(at_outputs(lens.model, writers, noise))  # first, so that noise is what is noted
        stack.enter_context(noting(lens.model, note))
        run(lens.model)
    eps = torch.finfo(lens.model.dtype).eps
    found = {site: _joint(lens.model, log, number, eps) for number, (site, _) in enumerate(log.writes)}
    return {site: joint for site, joint in found.items() if joint is not None}


class _Sketch:
    """Random projections: vectors that differ have different ones."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)
        self._maps: dict[int, Tensor] = {}

    def of(self, tensor: Tensor) -> Tensor:
        width = tensor.shape[-1]
        if width not in self._maps:
            made = torch.randn(width, N_PROJECTIONS, generator=self.generator, dtype=torch.float64)
            self._maps[width] = made / width**0.5
        return tensor.detach().reshape(-1, width).cpu().double() @ self._maps[width]


def _joint(model: PreTrainedModel, log: _Log, number: int, eps: float) -> Joint | None:
    """Find the joint of the number-th W_O."""
    mine = log.writes[number][1]
    start = log.writes[number - 1][1] if number else -1
    after = log.writes[number + AHEAD][1] if number + AHEAD < len(log.writes) else len(log.seen)
    branch = log.seen[mine]
    alike = [
        index
        for index in range(start + 1, after)
        if log.seen[index].width == branch.width and log.seen[index].marks.shape == branch.marks.shape
    ]
    before, later = [i for i in alike if i < mine], [i for i in alike if i > mine]
    if not before or not later:
        return None
    known, sums = _stack(log, before), _stack(log, later)
    try:
        for norm, marks in (("", branch.marks), *_behind_norms(model, log, mine, later)):
            found = best_fit(sums, sums - marks, known, eps)
            if found is not None:
                if best_fit(sums, sums - marks - known[found], known, eps) is not None:
                    return None  # it is itself a branch, which is added to a stream along with this one
                return Joint(log.seen[before[found]].place, norm)
            for other in (*later, *before):  # one more branch is added as well
                beside = log.seen[other].marks
                found = best_fit(sums, sums - marks - beside, known, eps)
                # of a stream and a branch that is made of it the stream is there first
                if found is not None and _first(known, known[found]) < _first(_stack(log, alike), beside):
                    return Joint(log.seen[before[found]].place, norm, parallel=True)
    except UnclearError:
        return None
    scaled = scaled_fit(sums, known, branch.marks, eps)
    return None if scaled is None else Joint(log.seen[before[scaled[0]]].place, factor=scaled[1])


def _first(marks: Tensor, one: Tensor) -> int:
    """Where a tensor is met first; those before come first among all that are alike."""
    return next(i for i, some in enumerate(marks) if torch.equal(some, one))


def _stack(log: _Log, indices: list[int]) -> Tensor:
    return torch.stack([log.seen[index].marks for index in indices])


def _behind_norms(model: PreTrainedModel, log: _Log, mine: int, later: list[int]) -> list[tuple[str, Tensor]]:
    """Norms that take what W_O puts out: their paths and what they put out."""
    branch = log.seen[mine].marks
    takers = {
        (log.seen[i].place.path, log.seen[i].place.turn)
        for i in later
        if log.seen[i].place.enters and torch.equal(log.seen[i].marks, branch)
    }
    found = []
    for index in later:
        place, marks = log.seen[index].place, log.seen[index].marks
        if not place.enters and (place.path, place.turn) in takers and not torch.equal(marks, branch):
            module = model.get_submodule(place.path)
            like = torch.empty(0, dtype=model.dtype, device=input_device(model))
            if norm_of(module, log.seen[index].width, like) is not None:
                found.append((place.path, marks))
    return found
