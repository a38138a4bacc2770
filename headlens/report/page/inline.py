"""A figure's SVG as a part of a page: only what draws is kept, and names do not meet those of others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from markupsafe import Markup, escape

from headlens.errors import RunError
from headlens.report.page.words import Place
from headlens.runs.read import AGAIN
from headlens.util.files import open_regular

_SVG, _XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_DRAWN = frozenset((
    "svg", "g", "defs", "path", "use", "clipPath", "rect", "circle", "ellipse", "line", "polyline", "polygon",
    "text", "tspan", "image", "a", "title", "desc", "linearGradient", "radialGradient", "stop", "pattern",
    "marker", "mask", "symbol",
))  # fmt: skip
_NOT_KEPT = frozenset({"class", "tabindex", "href", "target", "width", "height"})
_SIZED = frozenset({"rect", "image", "use", "pattern", "mask", "symbol", "svg"})
_POINT = 96 / 72  # CSS pixels
_URL = re.compile(r"url\(\s*['\"]?(.*?)['\"]?\s*\)")
_WRITING = frozenset({"text", "tspan", "title", "desc"})


def inline_svg(file: Path, place: Place, label: str) -> Markup:
    """Read a figure so that it can stand in a page, beside others.

    Args:
        file: an SVG.
        place: of its run in the page; links to heads mean this run.
        label: what it is called for those who do not see it.

    Returns:
        The ``<svg>``, as wide as it was drawn or as its column, whichever is less.

    Raises:
        RunError: it cannot be read.
    """
    try:
        with open_regular(file) as content:
            root = ElementTree.parse(content).getroot()  # entities of other files are not followed
    except (OSError, ValueError, LookupError, ElementTree.ParseError) as error:
        raise RunError(f"{file} cannot be read: {error}.", AGAIN) from error
    if root.tag != f"{_SVG}svg":
        raise RunError(f"Expected an SVG in {file}; it is something else.", AGAIN)
    width, height = (_pixels(root.get(side)) for side in ("width", "height"))
    box = root.get("viewBox") or f"0 0 {width or 1000:g} {height or 1000:g}"
    try:
        inside = "".join(_parts(root, place, f"{place.name}-{file.stem}"))
    except RecursionError as error:
        raise RunError(f"{file} cannot be read: it is nested too deeply.", AGAIN) from error
    return Markup('<svg viewBox="{}" style="width:{}px" role="group" aria-label="{}">{}</svg>').format(
        box, f"{width or 1000:.0f}", label, Markup(inside)
    )


def _pixels(length: str | None) -> float:
    found = re.fullmatch(r"([\d.]+)(pt|px)?", length or "")
    return float(found[1]) * (_POINT if found[2] == "pt" else 1) if found else 0.0


def _parts(parent: ElementTree.Element, place: Place, prefix: str) -> Iterator[str]:
    """What is drawn inside an element, as HTML takes it."""
    writes = parent.tag.removeprefix(_SVG) in _WRITING
    if writes and parent.text:
        yield str(escape(parent.text))
    for child in parent:
        name = child.tag.removeprefix(_SVG) if isinstance(child.tag, str) else ""
        if name in _DRAWN:
            attributes = "".join(f' {key}="{escape(value)}"' for key, value in _kept(child, place, prefix))
            yield f"<{name}{attributes}>"
            yield from _parts(child, place, prefix)
            yield f"</{name}>"
        if writes and child.tail:
            yield str(escape(child.tail))


def _kept(one: ElementTree.Element, place: Place, prefix: str) -> Iterator[tuple[str, str]]:
    """The attributes that draw; names and what points at them begin with the prefix."""
    name = one.tag.removeprefix(_SVG)
    for key, value in one.attrib.items():
        foreign = key.startswith("{") or key.lower().startswith("on")
        if foreign or (key in _NOT_KEPT and not (key in ("width", "height") and name in _SIZED)):
            continue
        if all(target.startswith("#") for target in _URL.findall(value)):
            clean = _URL.sub(lambda found: f"url(#{prefix}-{found[1][1:]})", " ".join(value.split()))
            yield key, f"{prefix}-{clean}" if key == "id" else clean
    target = one.get(_XLINK) or one.get("href") or ""
    if name == "a":
        head = re.fullmatch(r"#head=([\w.]+)", target)
        if head:
            yield "href", place.address(head[1])
            if "aria-label" not in one.attrib:
                yield "aria-label", f"Head {head[1]}"
    elif target.startswith("#"):
        yield "href", f"#{prefix}-{target[1:]}"
    elif name == "image" and re.match(r"data:image/(png|jpeg);base64,", target):
        yield "href", "".join(target.split())
