"""The kinds of runs that a page can be made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headlens.report.page import ablate, classify, compare, experiment, similar
from headlens.report.page.parts import Section
from headlens.report.page.words import Place

KINDS: Mapping[str, Callable[[Path, Mapping[str, Any], Place], Section]] = {
    "classify": classify.section,
    "ablate": ablate.section,
    "compare": compare.section,
    "run": experiment.section,
    "similar": similar.section,
}
"""What puts the runs of each command into words, from their directory, their run.json and their place."""
