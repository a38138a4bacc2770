"""The page of the attention viewer: one file that needs no network."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from typing import Any

import jinja2

import headlens
from headlens.report import bundle

FRAME_HEIGHT = 860  # pixels, in a notebook


def viewer_page(data: Mapping[str, Any]) -> str:
    """Write the page of one or several inputs.

    Only the page's own script runs: a content security policy names its hash, and forbids the network.

    Args:
        data: from `headlens.report.viewer_data.viewer_data`.

    Returns:
        HTML.
    """
    script = bundle.script("viewer-page.js")
    texts = [text["title"] for text in data["texts"]]
    return template("viewer.html.j2").render(
        title=f"{data['model']}: attention of {_counted(data)}",
        text=texts[0] if len(texts) == 1 else f"{len(texts)} texts",
        version=headlens.__version__,
        style=bundle.style("page.css", "viewer.css"),
        maps=as_json(data),
        script=script,
        script_hash=script_hash(script),
    )


def template(name: str) -> jinja2.Template:
    """Open a template of ``headlens/report/assets``; what is put into it is escaped."""
    loader = jinja2.PackageLoader("headlens.report", "assets")
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template(
        name
    )


def as_json(data: Any) -> str:
    """Write data for a ``<script type="application/json">``: nothing in it can end the script."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def script_hash(script: str) -> str:
    """Name a script for a content security policy, by what it says."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def in_frame(page: str) -> str:
    """Put a page into a frame, as notebooks show it: its names and styles do not meet those of others."""
    return (
        f'<iframe srcdoc="{html.escape(page)}" title="Attention viewer" width="100%" '
        f'height="{FRAME_HEIGHT}" style="border: 0; width: 100%;"></iframe>'
    )


def _counted(data: Mapping[str, Any]) -> str:
    heads = data["heads"]
    return f"head {heads[0]['name']}" if len(heads) == 1 else f"{len(heads)} heads"
