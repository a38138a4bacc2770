"""Which outputs of which linear layer are the query, the key and the value of each head.

Families lay their projections out in many ways: three layers, one fused layer with all queries first, one
with query, key and value of each head side by side. A run of a few tokens tells them apart: a head's query
depends on its own outputs of the layer and on no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headlens.anatomy import Part
from headlens.call import AttentionCall
from headlens.dryrun import dry, run
from headlens.heads import Site
from headlens.hook_trace import patterns_of_a_run
from headlens.interface import route
from headlens.lens import Lens
from headlens.probe import Log, logging


@dataclass(frozen=True, slots=True)
class Places:
    """Where one role (query, key or value) of one site's heads is made.

    Args:
        layer: path of the linear layer.
        rows: the layer's outputs for each head (for key and value each key-value head), in rising order,
            [head, width].
    """

    layer: str
    rows: Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the query, the key and the value of one site's heads are made.

    Args:
        query: [head, key width].
        key: [key-value head, key width].
        value: [key-value head, value width].
    """

    query: Places
    key: Places
    value: Places

    @property
    def roles(self) -> tuple[Places, Places, Places]:
        """All three."""
        return self.query, self.key, self.value


def layouts(lens: Lens) -> dict[Site, Layout]:
    """Find out by a run of a few tokens how a model's projections are laid out.

    Args:
        lens: the model, with its weights.

    Returns:
        For every site where its heads are made. Sites are left out whose query, key or value is not made by
        one linear layer each (DeepSeek's are made by several), or whose parts cannot be told apart.
    """
    found = _by_interface(lens) if lens.anatomy.by_interface else _by_hooks(lens)
    return {site: layout for site, layout in found.items() if layout is not None}


def _by_interface(lens: Lens) -> dict[Site, Layout | None]:
    waiting = list(lens.anatomy.parts)  # calls come in the order of the sites
    found: dict[Site, Layout | None] = {}
    log = Log()

    def attend(call: AttentionCall) -> Tensor:
        part = waiting.pop(0)
        outputs = {linear.path: linear.output for linear in log.linears}
        places = []
        for layers, tensor in zip(_layers(part), (call.query, call.key, call.value), strict=True):
            rows = [_touched(tensor[0, head], layers, outputs).any(0) for head in range(tensor.shape[1])]
            places.append(_places(layers, rows, tensor.shape[-1]))
        found[part.site] = _layout(places)
        log.linears.clear()
        batch, heads, n_queries, _ = call.query.shape
        return call.value.new_ones(batch, n_queries, heads, call.value.shape[-1])

    with dry(lens.model), logging(lens.model, log), route(lens.model, attend, lens.anatomy.dense_masks):
        run(lens.model)
    return found


def _by_hooks(lens: Lens) -> dict[Site, Layout | None]:
    with patterns_of_a_run(lens.model) as (patterns, log):
        outputs = {linear.path: linear.output for linear in log.linears}
        inputs = {linear.path: linear.input for linear in log.linears}
        return {
            part.site: _from_pattern(part, pattern, inputs[part.projections.output], outputs)
            for part, pattern in zip(lens.anatomy.parts, patterns, strict=True)
        }


def _from_pattern(
    part: Part, pattern: Tensor, joined: Tensor, outputs: Mapping[str, Tensor]
) -> Layout | None:
    """Tell the roles by what the last query's pattern and output depend on.

    Of earlier tokens they depend on nothing but keys (the pattern) and keys and values (the output).
    """
    site, (query, key, value) = part.site, _layers(part)
    heads = joined.reshape(*joined.shape[:-1], site.n_heads, site.head_width)  # [1, query, head, width]
    rows: tuple[list[Tensor], ...] = ([], [], [])
    for head in range(site.n_heads):
        looked, read = pattern[0, head, -1], heads[0, -1, head]
        keys = _touched(looked, key, outputs)[:-1].any(0)
        queries, values = _touched(looked, query, outputs)[-1], _touched(read, value, outputs)[:-1].any(0)
        rows[0].append(queries & ~keys if query == key else queries)
        rows[1].append(keys)
        rows[2].append(values & ~keys if value == key else values)
    group = site.n_heads // site.n_kv_heads
    return _layout(
        [
            _places(query, rows[0], part.key_width),
            _places(key, rows[1][::group], part.key_width),
            _places(value, rows[2][::group], site.head_width),
        ]
    )


def _layers(part: Part) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    where = part.projections
    return where.query, where.key, where.value


def _touched(tensor: Tensor, layers: Sequence[str], outputs: Mapping[str, Tensor]) -> Tensor:
    """Which outputs of a layer a tensor depends on, bool [token, output]; of several layers, of the last."""
    if not layers or layers[-1] not in outputs:
        return torch.zeros(1, 0, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)  # a plain sum of a pattern's row is always 1
    weights = torch.rand(tensor.shape, generator=generator).to(tensor) + 0.5
    (gradient,) = torch.autograd.grad(
        (tensor * weights).sum(), outputs[layers[-1]], retain_graph=True, allow_unused=True
    )
    output = outputs[layers[-1]]
    return (torch.zeros_like(output) if gradient is None else gradient)[0] != 0


def _places(layers: Sequence[str], heads: Sequence[Tensor], width: int) -> Places | None:
    """Gather each head's rows; None where several layers make them, or they are not `width` each."""
    if len(layers) != 1 or any(int(rows.sum()) != width for rows in heads):
        return None
    rows = torch.stack([rows.nonzero()[:, 0] for rows in heads]).cpu()
    return Places(layers[0], rows) if len(set(rows.flatten().tolist())) == rows.numel() else None


def _layout(places: Sequence[Places | None]) -> Layout | None:
    query, key, value = places
    return None if query is None or key is None or value is None else Layout(query, key, value)
