"""The page of what heads write for one input."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten

from headlens.report.contribution_figures import sentences
from headlens.report.page.section import CARRIED, Column, Evidence, PageSection, Table, is_carried
from headlens.report.words import RunPlace, only_stack
from headlens.residual.contributions import CONTRIBUTIONS, MEASURES, Contributions, heads_in
from headlens.runs.read import at
from headlens.util.formatting import visible

FILES = tuple(form.file for form in Contributions.forms)
LONGEST = 300  # characters of a text that a page shows
CAPTIONS: Mapping[str, str] = {
    "branch_share": "Each head's share of what its layer's attention writes",
    "stream_share": "Each head's share of the residual stream",
    "logit": "Each head's direct effect on the logit",
    "tokens": "What the heads write, token by token",
}
_KINDS = {"output_norm": "number", "written_norm": "number", "logit": "change"}
_MEASURES = [Column(name, name, _KINDS.get(name, "share"), name) for name in MEASURES]  # type: ignore[arg-type]
_TOKEN = [Column("position", "position", "number"), Column("token", "token")]


def section(found: Contributions, place: RunPlace) -> PageSection:
    """Put what heads write into words, for its place in the page."""
    heads = found.table.dropna(subset=["head"])
    heads = heads.assign(name=[found.name(head) for head in heads_in(heads)])
    carried = is_carried(found.per_token, CONTRIBUTIONS, CARRIED)
    by_token = Evidence("What it writes, token by token", FILES[1], "head", [*_TOKEN, *_MEASURES])
    note = "Means over tokens; those that write most come first. W_O's biases belong to no head and are in "
    text = shorten(str(at(found.run, "text", default="")), LONGEST, placeholder=" ...")
    return PageSection(
        title=visible(f"What the heads of {found.model or 'a model'} write"),
        findings=[visible(said) for said in (f"Read: {text}", *sentences(found))],
        tables=[
            Table(
                "Every head and what it writes",
                [Column("name", "head", "head", "head"), *_MEASURES],
                heads.sort_values("written_norm", ascending=False, kind="stable"),
                FILES[0],
                f"{note}{FILES[0]}.",
            )
        ],
        heads=heads["name"].tolist(),
        evidence=[Evidence("What it writes", FILES[0], "head", _MEASURES), *([by_token] if carried else [])],
        notes=[visible(note) for note in found.notes],
        unmeasured=[
            "What would be lost without a head: what it writes may be undone, or done by another. headlens "
            "ablate measures that.",
            "Other texts: all of this is about one input.",
        ],
        files=FILES if carried else FILES[:1],
        captions=CAPTIONS,
        stack=only_stack(heads["stack"]),
    )
