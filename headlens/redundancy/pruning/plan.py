"""Which heads leave a checkpoint's matrices, and which stay there silent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headlens.errors import InputError
from headlens.model.anatomy import Anatomy
from headlens.model.heads import Head, Site, number_ranges


@dataclass(frozen=True, slots=True)
class Cut:
    """What becomes of one site's heads.

    Args:
        site: where.
        kept_groups: numbers of the key-value heads that stay, each with all query heads that read it.
        silent: numbers of query heads that stay but whose rows of W_O become 0.
    """

    site: Site
    kept_groups: tuple[int, ...]
    silent: tuple[int, ...]

    @property
    def group(self) -> int:
        """How many query heads read one key-value head."""
        return self.site.n_heads // self.site.n_kv_heads

    @property
    def kept(self) -> tuple[int, ...]:
        """Numbers of the query heads that stay."""
        return tuple(g * self.group + i for g in self.kept_groups for i in range(self.group))


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of all heads.

    Args:
        removed: the heads that shall go.
        cuts: what becomes of each site.
    """

    removed: tuple[Head, ...]
    cuts: tuple[Cut, ...]

    @property
    def n_cut(self) -> int:
        """How many heads leave the matrices."""
        return sum(cut.site.n_heads - len(cut.kept) for cut in self.cuts)

    @property
    def n_silent(self) -> int:
        """How many heads stay silent."""
        return sum(len(cut.silent) for cut in self.cuts)

    @property
    def sizes(self) -> set[tuple[int, int]]:
        """Numbers of query and key-value heads that sites are left with."""
        return {(len(cut.kept), len(cut.kept_groups)) for cut in self.cuts}


def silence(anatomy: Anatomy, removed: Sequence[Head]) -> Plan:
    """Keep all matrices as large as they are.

    Args:
        anatomy: of the model.
        removed: the heads that shall go.

    Returns:
        The plan.

    Raises:
        InputError: one module runs several layers, and a head would go in some of them only.
    """
    return _plan(anatomy, removed, {site: range(site.n_kv_heads) for site in anatomy.sites})


def cut_each(anatomy: Anatomy, removed: Sequence[Head]) -> Plan:
    """Cut what can be cut in each layer by itself.

    A key-value head can go with all query heads that read it; query heads that go without it stay silent. A
    layer keeps one group: of a layer whose heads all go the first stays, silent.

    Args:
        anatomy: of the model.
        removed: the heads that shall go.

    Returns:
        The plan.

    Raises:
        InputError: see `silence`.
    """
    needed = {site: _needed(site, removed) for site in anatomy.sites}
    return _plan(anatomy, removed, {site: groups or [0] for site, groups in needed.items()})


def cut_alike(anatomy: Anatomy, removed: Sequence[Head]) -> Plan:
    """Cut as much as leaves every layer with the same number of heads; the rest stays silent.

    Args:
        anatomy: of the model.
        removed: the heads that shall go.

    Returns:
        The plan.

    Raises:
        InputError: see `silence`.
    """
    needed = {site: _needed(site, removed) for site in anatomy.sites}
    most = max(1, *(len(groups) for groups in needed.values()))
    kept: dict[Site, Iterable[int]] = {}
    for site, groups in needed.items():
        spare = [group for group in range(site.n_kv_heads) if group not in groups]
        kept[site] = sorted([*groups, *spare[: most - len(groups)]])
    return _plan(anatomy, removed, kept)


def _needed(site: Site, removed: Sequence[Head]) -> list[int]:
    """Key-value heads that a head reads which stays."""
    group = site.n_heads // site.n_kv_heads
    gone = set(removed)
    return sorted({head.head // group for head in site.heads if head not in gone})


def _plan(anatomy: Anatomy, removed: Sequence[Head], kept: dict[Site, Iterable[int]]) -> Plan:
    gone = set(removed)
    cuts = []
    for site, groups in kept.items():
        whole = Cut(site, tuple(groups), ())
        silent = tuple(n for n in whole.kept if Head(site.stack, site.layer, n) in gone)
        cuts.append(Cut(site, whole.kept_groups, silent))
    _check_shared(anatomy, cuts)
    return Plan(tuple(removed), tuple(cuts))


def _check_shared(anatomy: Anatomy, cuts: Sequence[Cut]) -> None:
    """ALBERT runs one module for all layers: a head goes in all of them or in none."""
    for cut in cuts:
        same = [other for other in cuts if other.site.module == cut.site.module]
        if any((other.kept, other.silent) != (cut.kept, cut.silent) for other in same):
            layers = number_ranges(sorted(other.site.layer for other in same))
            raise InputError(
                f"In {anatomy.architecture} the layers {layers} share one set of weights, so a head goes in "
                "all of them or in none.",
                "Name it in all layers, such as *.3.",
            )
