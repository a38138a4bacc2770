"""Draws results, writes their pages and opens them again; `KINDS` has a line for each kind of result."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup, escape
from matplotlib.figure import Figure as DrawnFigure

from headlens.ablation.result import Sweep
from headlens.corpus.corpus import Corpus
from headlens.errors import RunError
from headlens.report import ablation_figures, contribution_figures, similar_figures, tag_figures, viewer
from headlens.report.canvas import figure_bytes, save_drawn, style_of
from headlens.report.contribution_figures import draw as map_contributions
from headlens.report.contribution_figures import save as save_contributions
from headlens.report.heatmaps import draw as map_attention
from headlens.report.page import ablate, classify, compare, contributions, experiment, similar
from headlens.report.page.section import PageSection, inline_svg
from headlens.report.viewer import as_json, attention_page, in_frame, script_hash, template
from headlens.report.viewer import save_maps as save_attention
from headlens.report.words import COLUMNS, RunPlace, tag_definition, term_id
from headlens.residual.contributions import Contributions
from headlens.runs.read import AGAIN, File, marks_of, read_json, read_run
from headlens.runs.result import EXAMPLES, Result
from headlens.scoring.classify import Classification
from headlens.scoring.compare import Comparison
from headlens.similarity.similar import Similarity
from headlens.util import __version__
from headlens.util.files import is_there, write_text
from headlens.util.formatting import visible


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of result that has figures and a section on a page.

    Args:
        result: its class.
        figures: draws its figures, the most telling one first, with their names.
        section: puts it into words, for its place in the page.
    """

    result: type[Result]
    figures: Callable[[Any], Iterator[tuple[str, DrawnFigure]]]
    section: Callable[[Any, RunPlace], PageSection]


KINDS: Mapping[str, Kind] = {
    kind.result.command: kind
    for kind in (
        Kind(Classification, lambda it: tag_figures.draw_all(it.scores, it.tags, it.model), classify.section),
        Kind(Sweep, ablation_figures.figures, ablate.section),
        Kind(Comparison, tag_figures.draw_changes, compare.section),
        Kind(experiment.ExperimentResult, lambda it: iter(()), experiment.section),
        Kind(
            Similarity,
            lambda it: similar_figures.draw_all(it.distances, it.clusters, it.model),
            similar.section,
        ),
        Kind(Contributions, contribution_figures.draw_all, contributions.section),
    )
}
"""The kinds of results, by the commands that they are of."""

SHOWN = 15  # rows of a table that are shown at first


@dataclass(frozen=True, slots=True)
class _PageFigure:
    """A figure of a run.

    Args:
        caption: what it shows.
        svg: ready to stand in the page.
        file: as it is on disk.
    """

    caption: str
    svg: Markup
    file: File


@dataclass(frozen=True, slots=True)
class _Run:
    """A run with all that a page carries of it.

    Args:
        place: of the run in the page.
        title: of its section.
        section: what is said of it.
        figures: its figures.
        files: its CSV files and run.json.
        command: what was typed.
        record: run.json, to be read.
        examples: examples.json, ready to stand in the page; empty where there is none.
    """

    place: RunPlace
    title: str
    section: PageSection
    figures: Sequence[_PageFigure]
    files: Sequence[File]
    command: str
    record: str
    examples: str


def write_report(runs: Sequence[Path], out: Path) -> None:
    """Write one page about finished runs.

    Args:
        runs: their directories, in order.
        out: the file.

    Raises:
        RunError: a directory holds no finished run that a page can be made of, or the file cannot be written.
    """
    write_text(report_page(runs), out)


def report_page(runs: Sequence[Path]) -> str:
    """Make one page about finished runs.

    Args:
        runs: their directories, in order.

    Returns:
        HTML.

    Raises:
        RunError: a directory holds no finished run that a page can be made of.
    """
    read = [_read(Path(run), RunPlace(number, len(runs) == 1)) for number, run in enumerate(runs)]
    tags, terms = _tags(read), _terms(read)
    script = viewer.script("report.js")
    title = read[0].title if len(read) == 1 else f"{len(read)} runs of headlens"
    return template("report.html.j2").render(
        title=title,
        runs=read,
        shown=SHOWN,
        terms=terms,
        data=Markup(as_json(_told(read, tags, terms))),
        version=__version__,
        style=Markup(viewer.style("report.css", "viewer.css")),
        script=Markup(script),
        script_hash=script_hash(script),
    )


def _read(path: Path, place: RunPlace) -> _Run:
    result = open(path)
    section = KINDS[result.command].section(result, place)
    record = File.read(path / "run.json")
    title = section.title if place.alone else f"{section.title} ({path.resolve().name})"
    return _Run(
        place,
        visible(title),
        section,
        _figures(path, section.captions, place),
        [*(File.read(path / name) for name in section.files), record],
        visible(str(result.run.get("arguments") or "")),
        "\n".join(
            map(_shown, json.dumps(json.loads(record.content), indent=2, ensure_ascii=False).split("\n"))
        ),
        _examples(path / EXAMPLES),
    )


def _examples(file: Path) -> str:
    if not is_there(file):
        return ""
    try:
        return as_json(read_json(file))
    except ValueError as error:  # a number that JSON does not have
        raise RunError(f"{file} cannot be read: {error}.", AGAIN) from error


def _shown(line: str) -> str:
    return visible(line) if line.strip() else line


def _figures(path: Path, captions: Mapping[str, str], place: RunPlace) -> list[_PageFigure]:
    """The figures that there are, in the order of their captions; those without one last."""
    found = []
    order = list(captions)
    for file in sorted((path / "figures").glob("*.svg")):
        key = next(
            (key for key in order if file.stem == key or (key[-1] == "-" and file.stem.startswith(key))), ""
        )
        rest = file.stem.removeprefix(key) if key.endswith("-") else ""
        caption = visible(f"{captions.get(key, file.stem)}{f': {rest}' if rest else ''}")
        rank = order.index(key) if key else len(order)
        found.append((rank, _PageFigure(caption, inline_svg(file, place, caption), File.read(file))))
    return [figure for _, figure in sorted(found, key=lambda one: one[0])]


def _tags(runs: Sequence[_Run]) -> list[str]:
    """Every tag that the page names, in the order in which it comes up."""
    return list(dict.fromkeys(tag for tag in _named(runs) if tag))


def _named(runs: Iterable[_Run]) -> Iterator[str]:
    for run in runs:
        yield from run.section.speaks_of
        for tags in run.section.tags.values():
            yield from tags.split(";")
        for table in run.section.tables:
            for column in table.columns:
                if column.kind == "tags":
                    for cell in table.frame[column.name].unique():
                        yield from str(cell).split(";")


def _terms(runs: Sequence[_Run]) -> dict[str, dict[str, str]]:
    """Name, place and meaning of every tag and column that the page names, by their keys."""
    said = {f"tag {tag}": (tag, tag_definition(tag)) for tag in _tags(runs)}
    for run in runs:
        shown = [table.columns for table in run.section.tables]
        shown += [one.columns for one in run.section.evidence]
        for meaning in (column.meaning for columns in shown for column in columns if column.meaning):
            said[f"column {meaning}"] = (meaning, COLUMNS[meaning])
    return {
        visible(key): {"id": term_id(visible(key)), "name": visible(name), "meaning": visible(meaning)}
        for key, (name, meaning) in said.items()
    }


def _told(runs: Sequence[_Run], tags: Sequence[str], terms: Mapping[str, Any]) -> dict[str, Any]:
    """What the page's script is told."""
    looks = {tag: style_of(tag) for tag in tags}
    return {
        "terms": terms,
        "tags": {
            tag: {
                "name": visible(tag),
                "colour": look.colour,
                "ink": look.ink,
                "letter": visible(look.letter),
            }
            for tag, look in looks.items()
        },
        "runs": [
            {
                "title": run.title,
                "heads": list(run.section.heads),
                "stack": run.section.stack,
                "tags": {head: mine for head, mine in run.section.tags.items() if mine},
                "evidence": [one.plain() for one in run.section.evidence],
            }
            for run in runs
        ],
    }


# ---- What draws results and writes their pages, as `headlens.util.drawing.Artist` says


__all__ = [
    "attention_page",
    "figures",
    "html",
    "in_frame",
    "map_attention",
    "map_contributions",
    "open",
    "png",
    "save_attention",
    "save_contributions",
    "save_examples",
    "save_figures",
    "write_report",
]


def open(path: str | Path) -> Result:
    """Open a finished run of classify, ablate, similar, contributions, compare or run.

    Args:
        path: its directory, also one that the command line wrote.

    Returns:
        The result, equal to the one that was saved.

    Raises:
        RunError: it is not there, not whole, or was changed since it was written.
    """
    path = Path(path)
    return KINDS[read_run(path, list(KINDS))["command"]].result.read(path)


def figures(result: Result) -> Iterator[tuple[str, DrawnFigure]]:
    """Draw every figure that a result has the numbers for, the most telling one first, with their names."""
    yield from KINDS[result.command].figures(result)


def save_figures(result: Result, out: Path) -> None:
    """Write them into a run directory, and remove those of an earlier run."""
    save_drawn(figures(result), out)


def save_examples(result: Result, out: Path) -> None:
    """Write the attention on a few inputs into a run directory, where there are any."""
    shown = result.examples
    if shown is None:
        return
    if shown.text:
        write_text(shown.text, out / EXAMPLES)
        return
    look = viewer.of_corpus if isinstance(shown.source, Corpus) else viewer.of_benchmark
    viewer.save_examples(out, viewer.attempt(look, shown.lens, shown.source), marks_of(result.tables))


def png(figure: DrawnFigure) -> bytes:
    """Show a figure in a notebook."""
    return figure_bytes(figure, ".png", dpi=100)


def html(result: Result) -> str:
    """Show a result in a notebook: what was found in sentences, and the most telling figure."""
    section = KINDS[result.command].section(result, RunPlace(0, True))
    said = [Markup("<li>{}</li>").format(Markup(escape(one)).striptags()) for one in section.findings]
    parts = [Markup("<h3>{}</h3>").format(section.title), Markup("<ul>{}</ul>").format(Markup("").join(said))]
    for name, figure in figures(result):
        picture = base64.b64encode(png(figure)).decode()
        parts.append(Markup('<img alt="{}" src="data:image/png;base64,{}">').format(name, picture))
        break
    return Markup("").join(parts)
