"""``[report]`` of an experiment file: the page that it ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headlens.errors import InputError
from headlens.experiment.sections import REPORTED, Section, check_key

KEYS = ("out", "runs")  # the option of headlens report, and what it is given


@dataclass(frozen=True, slots=True)
class Report:
    """A page about an experiment.

    Args:
        out: its name, in the directory of the results.
        runs: the sections that are in it, in order, below what was measured and published.
    """

    out: str
    runs: Sequence[str]


def read_report(told: Mapping[str, Any], sections: Sequence[Section], where: str) -> Report:
    """Check what a file says of its page.

    Args:
        told: what it says; nothing makes a page of all runs.
        sections: its other sections.
        where: the file and the section, for messages.

    Returns:
        The page.

    Raises:
        InputError: a key is no option of the page, or it names a run that no page can show.
    """
    for key in told:
        check_key(key, KEYS, where)
    out = str(told.get("out", "report.html"))
    if Path(out).name != out or Path(out).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{where} has out = {out!r}.", 'Write the name of a page, such as "report.html".')
    possible = [section.name for section in sections if section.command in REPORTED]
    runs = told.get("runs", possible)
    if not isinstance(runs, list):
        raise InputError(f"{where} has runs = {runs!r}.", "Write a list of names of other sections.")
    for run in runs:
        check_key(str(run), possible, f"runs in {where}")
    return Report(out, list(dict.fromkeys(map(str, runs))))
