"""Whether rows that sum to less than 1 do so for the sake of a sink, found by trying."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from headlens.checks.base import largest
from headlens.checks.fed import run
from headlens.checks.subject import Subject
from headlens.model.heads import Site
from headlens.model.seam import Seam

NOWHERE = -1e4  # a logit that takes nothing, in float16, too


def without_sinks(subject: Subject, sites: Sequence[Site]) -> dict[Site, float]:
    """Try whether rows sum to 1 once what may be a sink takes nothing.

    A sink is a parameter of the attention module with a number for each head. With it so low that it takes
    nothing, rows have to sum to 1, and their weights have to stay in proportion.

    Args:
        subject: the model.
        sites: whose rows sum to less than 1.

    Returns:
        For every site that has such a parameter: how far it is from that, at most.
    """
    lens, fed, found = subject.lens, subject.alone[-1].fed, dict[Site, float]()

    def look(site: Site, output: Tensor) -> Tensor:
        if site in sites:
            module = lens.model.get_submodule(site.module)
            gaps = [_gap(lens.seam, one) for one in module.parameters(recurse=False) if _fits(one, site)]
            if gaps:
                found[site] = min(gaps)
        return output

    if sites:
        with lens.edit(look):
            run(lens, fed)
    return found


def _fits(parameter: nn.Parameter, site: Site) -> bool:
    return parameter.numel() == site.n_heads


def _gap(seam: Seam, sink: nn.Parameter) -> float:
    """How far the site that is running is from rows that sum to 1 and were in proportion."""
    call = seam.call
    if call is None:
        return float("inf")
    n_queries = call.query.shape[2]
    before = call.block(0, n_queries)[1].float()
    with _lowered(sink):
        after = call.block(0, n_queries)[1].float()
    in_proportion = after * before.sum(-1, keepdim=True)
    return largest([float((after.sum(-1) - 1).abs().max()), float((in_proportion - before).abs().max())])


@contextmanager
def _lowered(parameter: nn.Parameter) -> Iterator[None]:
    kept = parameter.detach().clone()
    with torch.no_grad():
        parameter.fill_(NOWHERE)
        try:
            yield
        finally:
            parameter.copy_(kept)
