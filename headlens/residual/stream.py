"""The residual stream: where branches join it, and which of them are attention heads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from headlens.errors import ModelError
from headlens.model.devices import input_device, weight_of
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.trace import run
from headlens.model.unembedding import norm_of
from headlens.model.weights import output_matrix

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

    stream: StreamPlace
    norm: str = ""
    parallel: bool = False
    factor: float = 1.0


@dataclass(slots=True)
class _Seen:
    """One tensor of the dry run: its place, its tokens projected [token, N_PROJECTIONS], its size."""

    place: StreamPlace
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
    """Find where each site's branch joins the residual stream."""
    writers = writers_of(lens)
    log, sketch = _Log(), _Sketch()
    awaited: list[Site] = []

    def noise(site: Site, output: Tensor) -> Tensor:
        awaited.append(site)
        size = LEVEL * log.largest(output).clamp(min=TINY)
        made = torch.randn(len(size), output.shape[-1], generator=sketch.generator) * size[:, None]
        log.peaks.clear()
        return made.reshape(output.shape).to(output)

    def note(place: StreamPlace, tensor: Tensor) -> None:
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
            found = _best_fit(sums, sums - marks, known, eps)
            if found is not None:
                if _best_fit(sums, sums - marks - known[found], known, eps) is not None:
                    return None  # it is itself a branch, which is added to a stream along with this one
                return Joint(log.seen[before[found]].place, norm)
            for other in (*later, *before):  # one more branch is added as well
                beside = log.seen[other].marks
                found = _best_fit(sums, sums - marks - beside, known, eps)
                # of a stream and a branch that is made of it the stream is there first
                if found is not None and _first(known, known[found]) < _first(_stack(log, alike), beside):
                    return Joint(log.seen[before[found]].place, norm, parallel=True)
    except _UnclearError:
        return None
    scaled = _scaled_fit(sums, known, branch.marks, eps)
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


# ---- W_O of every site: its slices per head, its bias, and a look at what it puts out in a pass


Change = Callable[[Site, Tensor], "Tensor | None"]
CHUNK = 512  # rows of a matrix at once, where it has to be found by running the layer


def writers_of(lens: Lens) -> dict[str, tuple[Site, ...]]:
    """List the modules of W_O with the sites that they serve, in the order in which they run."""
    found: dict[str, tuple[Site, ...]] = {}
    for part in lens.anatomy.parts:
        path = part.projections.output
        if not path:
            raise ModelError(
                f"What heads of {lens.anatomy.architecture} write cannot be told: no output layer (W_O) is "
                f"known for {part.site.module}.",
                "headlens view and headlens ablate work without it.",
            )
        if not part.batch_first:
            raise ModelError(
                f"What heads of {lens.anatomy.architecture} write cannot be told: the output layer (W_O) of "
                f"{part.site.module} reads the query before the batch.",
                "headlens view and headlens ablate work with it.",
            )
        found[path] = (*found.get(path, ()), part.site)
    return found


@contextmanager
def at_outputs(model: nn.Module, writers: Mapping[str, tuple[Site, ...]], change: Change) -> Iterator[None]:
    """Pass what every W_O puts out through a function while the block lasts, for one pass."""
    turns: Counter[str] = Counter()

    def hook(path: str) -> Any:
        def called(_: nn.Module, __: Any, output: Tensor) -> Tensor | None:
            turns[path] += 1
            return change(writers[path][(turns[path] - 1) % len(writers[path])], output)

        return called

    with ExitStack() as stack:
        for path in writers:
            stack.callback(model.get_submodule(path).register_forward_hook(hook(path)).remove)
        yield


@torch.no_grad()
def matrix_and_bias(module: nn.Module, n_inputs: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Get W_O [heads x width, model width] and its bias or None, also of a quantised or adapted layer."""
    matrix = output_matrix(module)
    if matrix is not None:
        return matrix, weight_of(module, "bias")
    nothing = module.forward(like.new_zeros(1, n_inputs))
    rows = torch.eye(n_inputs, dtype=like.dtype, device=like.device)
    chunks = [rows[start : start + CHUNK] for start in range(0, n_inputs, CHUNK)]
    made = torch.cat([module.forward(some) - nothing for some in chunks])
    return made, nothing[0] if bool(nothing.any()) else None


# ---- Places in a model where a tensor can be met: what goes into a module and what comes out


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """One tensor of one call of a module.

    Args:
        path: dotted path of the module.
        turn: which of its calls in a pass, from 0: ALBERT runs one module for all layers.
        enters: whether the tensor is an argument of the call, or comes out of it.
        key: number or name of the argument or output.
    """

    path: str
    turn: int
    enters: bool
    key: int | str


@contextmanager
def noting(
    model: nn.Module, note: Callable[[StreamPlace, Tensor], None], paths: Collection[str] | None = None
) -> Iterator[None]:
    """Show all tensors that go into and come out of modules, in order, while the block lasts."""
    turns: Counter[str] = Counter()

    def before(path: str) -> Any:
        def hook(_: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
            turns[path] += 1
            for key, tensor in (*_tensors(arguments), *_tensors(named)):
                note(StreamPlace(path, turns[path] - 1, True, key), tensor)

        return hook

    def after(path: str) -> Any:
        def hook(_: nn.Module, __: Any, output: Any) -> None:
            for key, tensor in _tensors(output):
                note(StreamPlace(path, turns[path] - 1, False, key), tensor)

        return hook

    with ExitStack() as stack:
        for path, module in model.named_modules():
            if path and (paths is None or path in paths):
                stack.callback(module.register_forward_pre_hook(before(path), with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after(path)).remove)
        yield


def _tensors(value: Any) -> list[tuple[int | str, Tensor]]:
    if isinstance(value, Tensor):
        return [(0, value)]
    pairs = value.items() if isinstance(value, Mapping) else enumerate(value if _many(value) else ())
    return [(key, one) for key, one in pairs if isinstance(one, Tensor)]


def _many(value: Any) -> bool:
    return isinstance(value, (tuple, list))


# ---- Which stream a sum is without its branch: told by a few random projections, and never guessed


NEAR = 1e-4  # of the size of a sum: an error that passes for rounding
EXPLAINED = 0.1  # of the size of a stream: what a sum without its branch may differ from it
DISTINCT = 3.0  # how many times worse another stream must fit than the one that is taken


class _UnclearError(Exception):
    """Several streams fit as well, and they are not the same."""


def _best_fit(sums: Tensor, wanted: Tensor, known: Tensor, eps: float) -> int | None:
    """Which earlier tensor [stream, token, projection] a sum without its branch is; None where none fits."""
    near = max(NEAR, 4 * eps)
    errors = (wanted[:, None] - known[None]).abs().amax(-1)  # [sum, stream, token]
    explained = (errors / _size(known) <= EXPLAINED).all(-1)  # nothing is no stream
    errors = (errors / _size(sums)[:, None]).amax(-1).where(explained, torch.inf).amin(0)  # [stream]
    least = float(errors.min())
    if not least <= near:
        return None
    best = max(i for i, error in enumerate(errors.tolist()) if error == least)
    _check_same(known[errors <= max(DISTINCT * least, eps)], known[best], eps)
    return best


def _check_same(streams: Tensor, one: Tensor, eps: float) -> None:
    """Raise `_UnclearError` where streams [stream, token, projection] are not the one [token, projection]."""
    apart = (streams - one).abs().amax(-1) / _size(one)  # [stream, token]
    if bool((apart > max(NEAR / 10, 2 * eps)).any()):
        raise _UnclearError


def _size(marks: Tensor) -> Tensor:
    """How large projected vectors are, [..., token, projection] to [..., token]."""
    return marks.square().mean(-1).sqrt()


def _scaled_fit(later: Tensor, before: Tensor, branch: Tensor, eps: float) -> tuple[int, float] | None:
    """Which stream a sum [sum, token, projection] is but for a multiple of its branch, and the multiple.

    None where there is none, and in half precision.
    """
    if 4 * eps > NEAR:  # half precision: no multiple is told from a scale of each direction that is nearly 1
        return None
    change = later[:, None] - before[None]  # [later, before, token, projection]
    factors = (change * branch).sum((2, 3)) / branch.square().sum()
    rest = (change - factors[..., None, None] * branch).abs().amax((2, 3))
    rest = rest / (factors.abs() * branch.abs().mean())  # infinite where nothing was added
    if not bool(rest.isfinite().any()) or not float(rest[rest.isfinite()].min()) <= NEAR:
        return None
    rest = rest.nan_to_num(nan=torch.inf)
    least, one = rest.amin(0), float(rest.min())  # [before]
    last = max(i for i, value in enumerate(least.tolist()) if value <= 2 * one)
    return last, float(factors[int(rest[:, last].argmin()), last])


# ---- The measures of the parts of one attention branch, one part at a time: no vectors are kept


Array = NDArray[np.float64]
BY_TOKEN = ("output_norm", "written_norm", "branch_share", "cosine", "stream_share")


class Sums:
    """What has been added so far, and what it is of the whole.

    Args:
        branch: b, what W_O puts out, [token, model width].
        stream: r, the residual stream with the branch added, [token, model width]; None where it is not
            known.
        position: where what is written is kept as vectors; nowhere where it is None.
    """

    def __init__(self, branch: Tensor, stream: Tensor | None, position: int | None) -> None:
        self.branch, self.stream, self._position = branch, stream, position
        self.total = torch.zeros_like(branch)  # of all parts
        self.lengths = torch.zeros_like(branch[:, 0])  # of all parts, added up
        self._rows: dict[str, list[Tensor]] = {name: [] for name in BY_TOKEN}  # [token] each
        self._kept: list[Tensor] = []

    def add(self, written: Tensor, added: Tensor, before: Tensor) -> None:
        """Measure one part.

        Args:
            written: c, what it writes, [token, model width].
            added: what of it reaches the stream: c itself, or c through a norm behind W_O.
            before: length of what it puts out before W_O, [token].
        """
        own, length = written.norm(dim=-1), self.branch.norm(dim=-1)
        along = (written * self.branch).sum(-1)
        self.total += written
        self.lengths += own
        self._rows["output_norm"].append(before)
        self._rows["written_norm"].append(own)
        self._rows["branch_share"].append(along / length.square())  # 0 / 0 is NaN: nothing to share out
        self._rows["cosine"].append(along / (own * length))
        self._rows["stream_share"].append(
            torch.full_like(own, torch.nan)
            if self.stream is None
            else (added * self.stream).sum(-1) / self.stream.square().sum(-1)
        )
        if self._position is not None:
            self._kept.append(written[self._position].cpu())

    def arrays(self) -> dict[str, Array]:
        """Every measure in `BY_TOKEN`, [part, token]."""
        return {name: torch.stack(rows).cpu().numpy().astype(np.float64) for name, rows in self._rows.items()}

    def at_position(self) -> Tensor:
        """What each part writes at the position, [part, model width]; nothing where there is none."""
        return torch.stack(self._kept) if self._kept else torch.empty(0)
