"""Checks of what a model is against what its config says: heads, and how far each layer sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch import Tensor

from headlens.checks.base import Outcome, does_not_apply
from headlens.checks.fed import run
from headlens.checks.said import Reach, config_of, counts, reach_of
from headlens.checks.subject import Subject
from headlens.model.heads import Site
from headlens.model.masks import LazyMask
from headlens.model.source import read_compact

FAR = 2**17  # tokens behind and ahead


def heads(subject: Subject) -> Outcome:
    """Layers have the heads and key-value heads that the config says."""
    lens = subject.lens
    if lens.source is not None and read_compact(lens.source.place) is not None:
        return does_not_apply("a compact checkpoint: its layers have fewer heads than its config says")
    wrong, told = [], Counter[str]()
    for site in lens.anatomy.sites:
        config = config_of(lens, site)
        for kind, name, found in (
            ("heads", "num_attention_heads", site.n_heads),
            ("kv heads", "num_key_value_heads", site.n_kv_heads),
        ):
            counted = counts(config, site, name)
            told[kind] += bool(counted)
            if counted and found not in counted:
                wrong.append(f"layer {site} has {found} {kind}, its config says {counted[0]}")
    if not told.total():
        return does_not_apply("the config does not say how many heads there are")
    if wrong:
        return Outcome(False, f"{len(wrong)} counts are not the config's: {wrong[0]}", len(wrong), 0)
    said = "heads and kv heads that the config says" if told["kv heads"] else "heads that the config says"
    return Outcome(True, f"{len(lens.anatomy.sites)} layers have the {said}", 0, 0)


def windows(subject: Subject) -> Outcome:
    """Layers see as far as the config says.

    By `transformers`' masks, a causal layer with a window of W tokens sees W - 1 tokens back and itself, one
    that looks both ways W tokens back and W ahead (in some families W - 1).
    """
    masks = _masks(subject)
    said = {site: reach_of(config_of(subject.lens, site), site) for site in masks}
    known = {site: reach for site, reach in said.items() if reach is not None}
    if not known:
        return does_not_apply(
            "the model does not show its masks" if not masks else "the config does not say how far layers see"
        )
    seen = {site: _seen(masks[site], reach) for site, reach in known.items()}
    wrong = [site for site in known if seen[site] not in _expected(site, known[site])]
    if wrong:
        site = wrong[0]
        reach, (behind, ahead) = known[site], seen[site]
        size = f" ({reach.size} tokens)" if reach.size else ""
        first = f"layer {site} sees {behind} back and {ahead} ahead, its config says {reach.kind}{size}"
        return Outcome(False, f"{len(wrong)} of {len(known)} layers are wrong: {first}", len(wrong), 0)
    return Outcome(True, _in_words(known, seen), 0, 0)


Extent = tuple[str, str]  # how many tokens are seen behind and ahead


def _masks(subject: Subject) -> dict[Site, LazyMask]:
    lens, fed, found = subject.lens, subject.alone[0].fed, dict[Site, LazyMask]()

    def note(site: Site, output: Tensor) -> Tensor:
        call = lens.seam.call
        if call is not None and isinstance(call.mask, LazyMask):
            found[site] = call.mask
        return output

    with lens.edit(note):
        run(lens, fed)
    return found


def _seen(mask: LazyMask, reach: Reach) -> Extent:
    """How far a query sees in both directions from where it stands, far from either end."""
    most = 2 * reach.size if reach.size else FAR
    place = 3 * reach.size - 1 if reach.kind == "chunked" else most  # the last of its chunk
    back = mask.seen_by(place, place - most, most).flip(0)
    ahead = mask.seen_by(place, place + 1, most)
    return _count(back), _count(ahead)


def _count(seen: Tensor) -> str:
    n = int(seen.sum())
    if n == len(seen):
        return "all"
    return str(n) if bool(seen[:n].all()) else "in places"


def _expected(site: Site, reach: Reach) -> Sequence[Extent]:
    if reach.kind == "full":
        return [("all", "0" if site.causal else "all")]
    nearest = str(reach.size - 1)
    if site.causal:
        return [(nearest, "0")]
    return [(nearest, nearest), (str(reach.size), str(reach.size))]


def _in_words(known: dict[Site, Reach], seen: dict[Site, Extent]) -> str:
    parts = []
    for kind in dict.fromkeys(reach.kind for reach in known.values()):
        sites = [site for site, reach in known.items() if reach.kind == kind]
        far = "all" if kind == "full" else f"{seen[sites[0]][0]} tokens back"
        parts.append(f"{len(sites)} {kind} {'layers see' if len(sites) > 1 else 'layer sees'} {far}")
    return ", ".join(parts)
