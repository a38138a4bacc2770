"""Pictures of what heads write."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from headlens.errors import InputError
from headlens.model.heads import Head
from headlens.report.canvas import figure_bytes
from headlens.report.contribution_figures import summary
from headlens.residual.contributions import MEASURES, Contributions, contribution_tables
from headlens.residual.stream import BY_TOKEN
from support import scored, toys
from support.pictures import assert_readable, colours, reddish, said

HREF = "{http://www.w3.org/1999/xlink}href"


def linked(figure):
    found = [node.get(HREF, "") for node in ElementTree.fromstring(figure_bytes(figure, ".svg")).iter()]
    return [link.removeprefix("#head=") for link in found if link.startswith("#head=")]


def made(layers, heads, n_tokens=6, stacks=("encoder",), bias=True, words="token{}"):
    """Heads with numbers of our own: those of head 0.0 are all 1, of head 0.1 all -1, others small."""
    rng = np.random.default_rng(0)
    sites = tuple(
        toys.site(layer, heads, stack, index)
        for index, (stack, layer) in enumerate((stack, layer) for stack in stacks for layer in range(layers))
    )
    values, effects = {}, {}
    for site in sites:
        values[site] = {name: rng.uniform(-0.5, 0.5, (heads + bias, n_tokens)) for name in BY_TOKEN}
        effects[site] = rng.uniform(-0.5, 0.5, heads + bias)
    for table in values[sites[0]].values():
        table[0], table[1] = 1, -1
    effects[sites[0]][:2] = 1, -1
    tokens = {stack: [words.format(n) for n in range(n_tokens + (stack == "cross"))] for stack in stacks}
    if "cross" in stacks:
        for site in sites:
            if site.stack == "cross":
                values[site] = {name: np.pad(v, ((0, 0), (0, 1))) for name, v in values[site].items()}
    everyone = tuple(head for site in sites for head in site.heads)
    token = {"token": "Paris", "id": 5, "position": 2, "logit": 3.0, "probability": 0.4}
    run = {"model": {"name": "toy", "heads": len(everyone)}, "tokens": tokens, "predicted": token}
    return Contributions(*contribution_tables(values, effects, tokens, everyone, 0), run)


@pytest.mark.parametrize(
    ("layers", "heads", "measure"),
    [*((*size, "branch_share") for size in scored.SIZES), *((6, 12, measure) for measure in MEASURES)],
)
def test_maps_are_readable(layers, heads, measure):
    figure = made(layers, heads).heatmap(measure)
    assert_readable(figure)
    assert linked(figure) == [f"{layer}.{head}" for layer in range(layers) for head in range(heads)]


@pytest.mark.parametrize("n_tokens", [1, 6, 40, 300])
@pytest.mark.parametrize(("layers", "heads"), [(1, 2), (6, 12), (48, 25)])
def test_maps_of_tokens_are_readable(layers, heads, n_tokens):
    found = made(layers, heads, n_tokens)
    figure = found.heatmap("stream_share", per_token=True)
    assert_readable(figure)
    names = linked(figure)
    assert len(names) == min(24, layers * heads)
    assert {"0.0", "0.1"} <= set(names)
    assert ("The 24 heads with the largest values" in said(figure)) == (layers * heads > 24)


def test_long_tokens_and_several_stacks():
    found = made(2, 3, 8, ("encoder", "decoder", "cross"), words="a rather long token {}")
    for figure in (found.heatmap("cosine", per_token=True), found.heatmap("cosine")):
        assert_readable(figure)
        assert "encoder.0.0" in linked(figure)


def test_what_a_map_says():
    figure = made(2, 3).heatmap("branch_share")
    assert said(figure).startswith(
        "toy: the largest shares of what their layers' attention writes are those of 0.0 (1)"
    )
    assert "W_O's biases, not shown, have" in said(figure)
    logit = said(made(2, 3).heatmap("logit"))
    assert "0.0 (+1)" in logit.split("raise the logit of 'Paris' most")[0]
    assert "0.1 (-1)" in logit.split("raise the logit of 'Paris' most")[1]
    assert "The logit of 'Paris' at position 2 is 3.00." in logit
    assert made(2, 3).heatmap("logit", title="mine").texts[0].get_text() == "mine"


def test_colours_have_signs():
    grid = colours(made(2, 3).heatmap("stream_share").axes[0])
    assert reddish(grid[0][0]) > 0 > reddish(grid[0][1])
    written = made(2, 3)
    for table in (written.table, written.per_token):
        table["written_norm"] = table["written_norm"].abs()
    grid = colours(written.heatmap("written_norm").axes[0])
    assert all(reddish(cell) >= 0 for row in grid for cell in row)


def test_a_measure_without_values_is_hatched_or_refused():
    found = made(2, 3)
    for table in (found.table, found.per_token):
        table.loc[table["layer"] == 0, "stream_share"] = np.nan
    figure = found.heatmap("stream_share")
    assert "Hatched: no value." in said(figure)
    assert_readable(found.heatmap("stream_share", per_token=True))
    for table in (found.table, found.per_token):
        table["stream_share"] = np.nan
    with pytest.raises(InputError, match=r"^There is no stream_share to draw\."):
        found.heatmap("stream_share")
    with pytest.raises(InputError, match=r"^There is no measure 'size'\."):
        found.heatmap("size")
    with pytest.raises(InputError, match="belongs to one position"):
        found.heatmap("logit", per_token=True)


def test_the_same_bytes_every_time():
    found = made(2, 3)
    for per_token in (False, True):
        one, two = (figure_bytes(found.heatmap("cosine", per_token), ".svg") for _ in range(2))
        assert one == two


def test_a_summary():
    text = summary(made(2, 3))
    assert "Logit of 'Paris' at position 2: 3.00 (probability 0.4).\nFor it: 0.0 (+1)" in text
    assert "Against it: 0.1 (-1)" in text
    assert Head("encoder", 0, 0) in made(2, 3).heads
