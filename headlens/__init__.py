"""headlens tells what every attention head of a transformer looks at, and whether it matters.

>>> import headlens
>>> lens = headlens.load("minilm")
>>> len(lens.anatomy.heads)
72
>>> maps = lens.attention("The children had lost its collar.").to_words().drop_special()
>>> rows = maps.select("2.0").to_frame().query("query_token == 'collar'")
>>> rows.loc[rows["weight"].idxmax(), "key_token"]  # the word that "collar" looks at most
'lost'
>>> with lens.ablate("2.0,3.*") as heads:  # their outputs are 0 in here, and nothing stays behind
...     len(heads)
13
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headlens.util import __version__ as __version__
from headlens.util.drawing import Artist, draw_with

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # read when the hub's client is imported

if TYPE_CHECKING:
    from headlens.ablation.result import Sweep as Sweep
    from headlens.ablation.sweep import sweep as sweep
    from headlens.checks.check import check as check
    from headlens.checks.inputs import Finding as Finding
    from headlens.engine.ray import Ray as Ray
    from headlens.errors import HeadlensError as HeadlensError
    from headlens.lens import Lens as Lens
    from headlens.lens import load as load
    from headlens.model.heads import Head as Head
    from headlens.model.heads import Site as Site
    from headlens.pruning.prune import prune as prune
    from headlens.report.artist import open as open
    from headlens.residual.contributions import Contributions as Contributions
    from headlens.residual.contributions import contributions as contributions
    from headlens.scoring.classify import Classification as Classification
    from headlens.scoring.classify import classify as classify
    from headlens.similarity.similar import Similarity as Similarity
    from headlens.similarity.similar import similar as similar
    from headlens.view.maps import AttentionMaps as AttentionMaps


def _artist() -> Artist:
    from headlens.report import artist

    return artist


draw_with(_artist)

_HOMES = {
    "AttentionMaps": "headlens.view.maps",
    "Classification": "headlens.scoring.classify",
    "Contributions": "headlens.residual.contributions",
    "Finding": "headlens.checks.inputs",
    "Head": "headlens.model.heads",
    "HeadlensError": "headlens.errors",
    "Lens": "headlens.lens",
    "Ray": "headlens.engine.ray",
    "Similarity": "headlens.similarity.similar",
    "Site": "headlens.model.heads",
    "Sweep": "headlens.ablation.result",
    "check": "headlens.checks.check",
    "classify": "headlens.scoring.classify",
    "contributions": "headlens.residual.contributions",
    "load": "headlens.lens",
    "open": "headlens.report.artist",
    "prune": "headlens.pruning.prune",
    "similar": "headlens.similarity.similar",
    "sweep": "headlens.ablation.sweep",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: ``headlens --help`` needs no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'headlens' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
