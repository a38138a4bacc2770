import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from headlens.errors import InputError
from headlens.report.canvas import save_drawn, style_of
from headlens.report.score_figures import best_heads
from headlens.report.tag_figures import best_heads_figure, draw_all, entropy_figure, offset_figure
from support import scored
from support.pictures import assert_readable, said


def test_the_best_head_of_each_relation():
    heads = scored.tag_rows(2, 4)
    best = best_heads(scored.everything(heads), "syntactic")
    assert best[["row", "direction", "name", "score"]].values.tolist() == [
        ["obj", "dependent \u2192 head", "1.3", pytest.approx(8 / 9)]
    ]  # punct was not tested
    assert best_heads(scored.everything(heads), "broad").empty
    assert best_heads(scored.everything(heads), "induction").empty


def test_a_proven_head_goes_before_one_with_a_larger_effect():
    heads = scored.tag_rows(1, 2)
    scores = scored.score_rows(
        heads, "syntactic", "csubj:dependent->head", lambda layer, head: 0.9 - head / 10
    )
    scores.loc[0, "tagged"] = False
    assert best_heads(scores, "syntactic")["name"].tolist() == ["0.1"]


def test_best_heads_are_drawn_with_interval_baseline_n_and_name():
    heads = scored.tag_rows(2, 4)
    scores = pd.concat(
        [
            scored.score_rows(heads, "syntactic", "obj:dependent->head", lambda layer, head: head / 4, n=321),
            scored.score_rows(heads, "syntactic", "$iob_j:head->dependent", lambda layer, head: 0.3),
        ]
    )
    figure = best_heads_figure(scores, "syntactic", "toy")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["obj", "$iob_j"]
    baseline, tagged, other = axes.lines
    assert baseline.get_xdata().tolist() == [0.25, 0.25]
    assert (tagged.get_xdata().tolist(), tagged.get_ydata().tolist()) == ([0.75], [0])
    assert (other.get_xdata().tolist(), other.get_ydata().tolist()) == ([0.3], [1])
    assert to_hex(tagged.get_markerfacecolor()) == style_of("syntactic").colour
    intervals, _ = axes.collections  # the other one holds links
    assert np.allclose(intervals.get_segments()[0], [[0.7, 0], [0.83, 0]])
    beside = [text.get_text() for text in axes.texts]
    assert beside == [
        "head", "0.3", "0.0", "direction", "dependent \u2192 head", "head \u2192 dependent",
        "score", "0.75", "0.30", "baseline", "0.25", "0.25", "n", "321", "1,234",
    ]  # fmt: skip
    assert axes.get_xlabel() == "share of dependents whose head is found (0 to 1)"
    assert said(figure).startswith(
        "toy: 1 of 2 relations has a syntactic head; the largest gain is obj: head 0.3 reaches 0.75 against "
        "0.25 of the baseline"
    )
    assert_readable(figure)


def test_best_heads_with_many_relations_and_several_stacks_are_readable():
    heads = scored.tag_rows(6, 12, ("encoder", "decoder", "cross"))
    parts = [
        scored.score_rows(heads, "syntactic", f"relation{i}:dependent->head", lambda layer, head, i=i: i / 40)
        for i in range(37)
    ]
    figure = best_heads_figure(pd.concat(parts), "syntactic")
    assert "encoder.0.0" in [text.get_text() for text in figure.axes[0].texts]
    assert_readable(figure)


@pytest.mark.parametrize(
    ("tag", "score", "finding"),
    [
        ("induction", 0.1, "none of 1 measure has an induction head; the largest gain"),
        ("delimiter", 0.9, "1 of 1 measure has a delimiter head; the largest gain"),
    ],
)
def test_one_measure_has_a_head(tag, score, finding):
    scores = scored.score_rows(scored.tag_rows(1, 2), tag, "one", lambda layer, head: score)
    assert said(best_heads_figure(scores, tag)).startswith(finding)


def test_scores_outside_0_to_1_stay_inside_the_picture():
    heads = scored.tag_rows(1, 2)
    scores = scored.score_rows(heads, "induction", "copying", lambda layer, head: -0.8, baseline=0.0)
    left, right = best_heads_figure(scores, "induction").axes[0].get_xlim()
    assert left < -0.85
    assert right > 1


@pytest.mark.parametrize(("layers", "heads"), scored.SIZES)
def test_attention_by_offset(layers, heads):
    scores = scored.everything(scored.tag_rows(layers, heads))
    figure = offset_figure(scores, "toy")
    assert len(figure.axes) == layers
    axes = figure.axes[-1]
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["mean of heads"].get_xdata().tolist() == [-1, 0]  # +1 was not measured
    assert lines["mean of heads"].get_ydata()[0] == pytest.approx((0.9 + 0.1 * (heads - 1)) / heads)
    assert lines["the layer's strongest head"].get_ydata().tolist() == [0.9, 0.2]
    assert lines["uniform attention"].get_ydata().tolist() == [0.25, 0.25]
    assert len(axes.lines) == heads + 3
    assert axes.get_title(loc="left") == f"layer {layers - 1}\n{layers - 1}.0: 0.90 at -1"
    assert said(figure).startswith(
        f"toy: {layers} of {layers * heads:,} heads are positional; most weight on one offset: heads "
        "0.0 (0.90 on -1), 1.0 (0.90 on -1) and 2.0 (0.90 on -1)"
    )
    assert_readable(figure)


@pytest.mark.parametrize(("layers", "heads"), [*scored.SIZES, (1, 1)])
def test_entropy_by_layer(layers, heads):
    figure = entropy_figure(scored.everything(scored.tag_rows(layers, heads)), "toy")
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    assert len(lines["head"].get_xdata()) + len(lines["broad head"].get_xdata()) == layers * heads
    assert lines["mean of heads"].get_xdata().tolist() == list(range(layers))
    names = [text.get_text() for text in axes.texts]
    assert names == [f"{layers - 1}.{heads - 1}", "0.0"]
    assert_readable(figure)
    assert f"broadest in layer {layers - 1} (mean" in said(figure)
    assert "narrowest in layer 0 (" in said(figure)


def test_what_was_not_measured_is_not_drawn():
    scores = scored.everything(scored.tag_rows(2, 3))
    scores = scores[scores["tag"] == "coreference"]
    with pytest.raises(InputError) as none:
        offset_figure(scores)
    assert str(none.value) == "The scores have no mass@k. Classify with the tag positional."
    with pytest.raises(InputError) as none:
        entropy_figure(scores)
    assert str(none.value) == "The scores have no entropy. Classify with the tag broad."
    with pytest.raises(InputError) as none:
        best_heads_figure(scores, "syntactic")
    assert str(none.value) == (
        "No measure of the tag 'syntactic' was tested against a baseline. Choose another tag, or classify on "
        "a larger corpus."
    )


def test_all_figures_are_written_with_the_same_bytes_every_time(tmp_path):
    tags = scored.mixed(2, 4, ("encoder", "decoder"))
    scores = scored.everything(tags)
    before = dict(matplotlib.rcParams)
    paths = save_drawn(draw_all(scores, tags, "folder/toy & <co>"), tmp_path / "one")
    assert [path.relative_to(tmp_path).as_posix() for path in paths] == [
        f"one/figures/{name}{ending}"
        for name in ("tags", "best-syntactic", "best-coreference", "offsets", "entropy")
        for ending in (".png", ".svg")
    ]
    again = save_drawn(draw_all(scores, tags, "folder/toy & <co>"), tmp_path / "two")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    svg = paths[1].read_text()
    assert "toy &amp; &lt;co&gt;: " in svg  # as text, without its folder
    assert "folder" not in svg
    assert dict(matplotlib.rcParams) == before
    assert not matplotlib._pylab_helpers.Gcf.figs  # pyplot holds no figure


def test_tables_without_offsets_or_entropy_give_fewer_figures(tmp_path):
    tags = scored.tag_rows(2, 3)
    scores = scored.everything(tags)
    some = scores[scores["tag"] == "coreference"]
    names = {path.stem for path in save_drawn(draw_all(some, tags), tmp_path)}
    assert names == {"tags", "best-coreference"}
