"""The scripts and styles of headlens's pages: readable modules, joined into one text for the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w-]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=async |function |const |class )", re.MULTILINE)


def script(entry: str) -> str:
    """Join a script with all modules that it imports, each once and before those that need it.

    Modules share one scope in the page, so no two may give the same name to something at their top level.

    Args:
        entry: file name of the module that the page runs, in ``headlens/report/assets``.

    Returns:
        The text of a ``<script type="module">``.
    """
    found: dict[str, str] = {}
    _collect(entry, found)
    return "\n".join(found.values())


def style(*names: str) -> str:
    """Join style sheets.

    Args:
        names: file names in ``headlens/report/assets``.

    Returns:
        The text of a ``<style>``.
    """
    return "\n".join(map(_read, names))


def _collect(name: str, found: dict[str, str], above: Sequence[str] = ()) -> None:
    if name in found or name in above:
        return
    text = _read(name)
    for needed in _IMPORT.findall(text):
        _collect(needed, found, (*above, name))
    found[name] = f"// {name}\n" + _EXPORT.sub("", _IMPORT.sub("", text)).strip() + "\n"


def _read(name: str) -> str:
    return (resources.files("headlens.report") / "assets" / name).read_text(encoding="utf-8")
