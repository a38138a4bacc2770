"""W_O of every site: its slices per head, its bias, and a look at what it puts out in a pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headlens.errors import ModelError
from headlens.model.devices import weight_of
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.weights import output_matrix

Change = Callable[[Site, Tensor], "Tensor | None"]
CHUNK = 512  # rows of a matrix at once, where it has to be found by running the layer


def writers_of(lens: Lens) -> dict[str, tuple[Site, ...]]:
    """List the modules of W_O with the sites that they serve, in the order in which they run.

    Args:
        lens: the model.

    Returns:
        Sites by the path of their W_O; ALBERT has one for all layers.

    Raises:
        ModelError: a site has no W_O that is known, or one that reads the query before the batch.
    """
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
    """Pass what every W_O puts out through a function while the block lasts, for one pass.

    Args:
        model: the model; afterwards it is as it was.
        writers: from `writers_of`.
        change: receives the site and W_O's output [.., model width]; returns another in its place, or None.

    Yields:
        Nothing.
    """
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
    """Get W_O and its bias, also of a layer that is quantised or adapted.

    Args:
        module: W_O.
        n_inputs: heads x width of a head.
        like: a tensor of the kind and on the device that it takes.

    Returns:
        The matrix [heads x width, model width], and the bias [model width], None where it has none.
    """
    matrix = output_matrix(module)
    if matrix is not None:
        return matrix, weight_of(module, "bias")
    nothing = module.forward(like.new_zeros(1, n_inputs))
    rows = torch.eye(n_inputs, dtype=like.dtype, device=like.device)
    chunks = [rows[start : start + CHUNK] for start in range(0, n_inputs, CHUNK)]
    made = torch.cat([module.forward(some) - nothing for some in chunks])
    return made, nothing[0] if bool(nothing.any()) else None
