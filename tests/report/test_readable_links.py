"""Heads in every kind of figure can be clicked, and what can be clicked is met by a pointer."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from headlens.ablation.importance import ranked
from headlens.report.ablation_figures import figures
from headlens.report.canvas import figure_bytes
from headlens.report.score_figures import best_heads_figure, offset_figure
from headlens.report.tag_figures import changes_figure, draw_all
from headlens.scoring.classify import Classification
from headlens.scoring.compare import compare
from support import scored
from support.pictures import pixels
from support.sweeps import each, heads_of, only

HREF, SVG = "{http://www.w3.org/1999/xlink}href", "{http://www.w3.org/2000/svg}"
NAMES = [f"{layer}.{head}" for layer in range(2) for head in range(3)]


def links(figure):
    """Names of heads and what is drawn for them."""
    root = ElementTree.fromstring(figure_bytes(figure, ".svg"))
    found = [node for node in root.iter(f"{SVG}a") if node.get(HREF, "").startswith("#head=")]
    return [(node.get(HREF).removeprefix("#head="), list(node.iter())) for node in found]


def names(figure):
    return [name for name, _ in links(figure)]


def unlinked(figure):
    """The figure without what can be clicked."""
    for axes in figure.axes:
        for area in [one for one in axes.collections if one.get_urls()[0]]:
            area.remove()
    return figure


def ablation():
    heads = heads_of(2, 3)
    sweep = each([0.1] * 5, [0.01] * 5, heads[:5], in_question=heads)
    importance = pd.concat([ranked(heads, "taylor", np.arange(6.0)), sweep.importance], ignore_index=True)
    gates = importance[:6].assign(open_closing=0.9, open_opening=1.0, role="facilitating")
    return replace(sweep, importance=importance, gates=gates)


def classify():
    tags = scored.mixed(2, 3)
    return draw_all(scored.everything(tags), tags, "toy")


def drawn(kind):
    """One figure, such as ``ablate heads``."""
    command, name = kind.split()
    found = figures(ablation()) if command == "ablate" else classify()
    return next(figure for its, figure in found if its == name)


MAPS = ["ablate heads", "ablate importance-taylor", "ablate gates", "classify tags", "classify offsets"]
KINDS = [*MAPS, "classify entropy", "classify best-syntactic"]


@pytest.mark.parametrize("kind", [*MAPS, "classify entropy"])
def test_every_head_has_one_link(kind):
    assert sorted(names(drawn(kind))) == NAMES


def test_every_row_of_one_head_has_a_link():
    kept = {name: np.full(40, 1.0 + place) for place, name in enumerate(["0.1", "1.2", "2.0"])}
    assert names(next(figures(only(kept)))[1]) == ["0.1", "1.2", "2.0"]
    kept = {f"{stack}.0.1": np.ones(40) for stack in ("encoder", "cross")}
    assert names(next(figures(only(kept)))[1]) == ["encoder.0.1", "cross.0.1"]


def test_a_head_that_is_best_twice_has_two_links():
    heads = scored.tag_rows(2, 2)
    measures = [f"{relation}:dependent->head" for relation in ("obj", "nsubj")]
    parts = [scored.score_rows(heads, "syntactic", one, lambda x, h: x / 2 + h / 4) for one in measures]
    assert names(best_heads_figure(pd.concat(parts), "syntactic")) == ["1.1", "1.1"]


def test_what_changed(tmp_path):
    runs = []
    for most in (2, 3):
        tags = scored.mixed(2, 3, ("encoder", "decoder"), most)
        scores = pd.concat([scored.score_rows(tags, tag, tag, lambda x, h: 0.5) for tag in scored.NAMES])
        runs.append(Classification.read(scored.write_run(tmp_path / str(most), scores, tags)))
    expected = [f"{stack}.{name}" for stack in ("encoder", "decoder") for name in NAMES]
    assert names(changes_figure(compare(*runs))) == expected


def test_the_strongest_head_of_a_panel_of_offsets_lies_above_the_others():
    scores = scored.everything(scored.tag_rows(1, 3))
    scores.loc[(scores["measure"] == "mass@-1") & (scores["head"] == 1), "score"] = 0.99
    assert names(offset_figure(scores))[-1] == "0.1"


@pytest.mark.parametrize("kind", KINDS)
def test_a_pointer_meets_what_leads_to_a_head(kind):
    """SVG takes no click on a shape whose fill is "none": it must be painted, however thinly."""
    found = links(drawn(kind))
    assert found
    for _, nodes in found:
        styles = [node.get("style", "") for node in nodes]
        painted = [style for style in styles if "fill: #" in style or "stroke: #" in style]
        assert painted, styles


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_does_not_show_what_can_be_clicked(kind):
    linked, plain = drawn(kind), unlinked(drawn(kind))
    assert names(plain) == []
    assert np.array_equal(pixels(linked), pixels(plain))
