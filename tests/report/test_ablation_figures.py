"""How methods agree, and files of figures."""

from __future__ import annotations

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex

from headlens.errors import RunError
from headlens.report.ablation_figures import figures
from headlens.report.canvas import InchFigure, save_drawn
from support.pictures import assert_readable, reddish, said, ticks
from support.sweeps import with_methods


def test_methods_of_importance():
    sweep = with_methods(
        gradient=[1, 2, 3, 4], taylor=[4, 3, -2, 1], random=[1, 2, 3, 4], shapley=[1, 1, 1, 1]
    )
    names = [name for name, _ in figures(sweep)]
    assert names == ["importance-gradient", "importance-taylor", "importance-shapley", "methods"]
    figure = list(figures(sweep))[-1][1]
    axes = figure.axes[0]
    assert (ticks(axes.xaxis), ticks(axes.yaxis)) == (
        ["gradient", "taylor", "random"], ["taylor", "random", "shapley"],
    )  # fmt: skip
    written = {(int(t.get_position()[1]), int(t.get_position()[0])): t.get_text() for t in axes.texts}
    assert written == {
        (0, 0): "-0.80", (1, 0): "1.00", (1, 1): "-0.80", (2, 0): "n/a", (2, 1): "n/a", (2, 2): "n/a",
    }  # fmt: skip
    mesh = axes.collections[0]
    shades = [to_hex(shade) for shade in mesh.get_facecolors()]
    assert [reddish(shades[place]) for place in (0, 3)] == [1, -1]
    assert said(figure).startswith(
        "Methods of importance agree most for gradient and random (1.00) and least for gradient and taylor "
        "(-0.80)"
    )
    assert_readable(figure)
    two = list(figures(with_methods(gradient=[1, 2, 3, 4], each=[1, 2, 3, np.nan])))[-1][1]
    assert said(two).startswith("Importance by gradient and by each correlate by 1.00")
    assert "over 3 heads." in said(two)
    assert_readable(two)
    none = list(figures(with_methods(each=[1, 1, 1, 1], random=[1, 2, 3, 4])))
    assert [name for name, _ in none] == ["methods"]
    assert said(none[0][1]).startswith("It is not defined how")


def test_figures_are_written_with_the_same_bytes_every_time(tmp_path):
    sweep = with_methods(gradient=[1, 2, 3, 4], taylor=[4, 3, -2, 1])
    before = dict(matplotlib.rcParams)
    paths = save_drawn(figures(sweep), tmp_path / "one")
    assert [path.relative_to(tmp_path / "one").as_posix() for path in paths] == [
        f"figures/{name}{ending}"
        for name in ("importance-gradient", "importance-taylor", "methods")
        for ending in (".png", ".svg")
    ]
    again = save_drawn(figures(sweep), tmp_path / "two")
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    assert dict(matplotlib.rcParams) == before
    assert not matplotlib._pylab_helpers.Gcf.figs  # pyplot holds no figure
    (tmp_path / "file").touch()
    with pytest.raises(RunError) as refused:
        save_drawn(figures(sweep), tmp_path / "file")
    path = tmp_path / "file" / "figures" / "importance-gradient.png"
    assert str(refused.value) == (
        f"{path} cannot be written: Not a directory. Choose another place with --out, or make room."
    )


def test_what_an_earlier_run_drew_goes(tmp_path):
    """A report shows what is in the folder: figures of other numbers would pass for those of this run."""
    one, two = InchFigure(1, 1, ["DejaVu Sans"]), InchFigure(1, 1, ["DejaVu Sans"])
    save_drawn([("heads", one), ("layers", two)], tmp_path)
    own = tmp_path / "figures" / "mine.svg"  # no run writes an SVG alone
    own.write_text("<svg/>", encoding="utf-8")
    save_drawn([("heads", one)], tmp_path)
    assert sorted(path.name for path in own.parent.iterdir()) == ["heads.png", "heads.svg", "mine.svg"]
