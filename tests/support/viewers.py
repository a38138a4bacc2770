"""The attention viewer in a browser: opened from maps, and read as a reader reads it."""

from __future__ import annotations

import base64
import io
from contextlib import contextmanager

import numpy as np
from PIL import Image

from headlens.report.viewer import viewer_data, viewer_page
from support.browser import open_page

TEXT = "Reinterpretings bewilder the uncountably many grumblers."
SETTLING = 400  # milliseconds after which the address says what is shown


@contextmanager
def viewing(browser, tmp_path, maps, marks=None, start=None, most_bytes=2**25, **options):
    """The page of maps, or of several (title, maps), once it shows a head."""
    texts = [(maps.text or " ".join(maps.words), maps)] if not isinstance(maps, list) else maps
    path = tmp_path / "viewer.html"
    path.write_text(viewer_page(viewer_data(texts, marks, start, most_bytes)), encoding="utf-8")
    with open_page(browser, path, **options) as page:
        shows(page)
        yield page


def shows(page, *heads):
    """Wait until these heads are shown, or any."""
    wanted = f'="{",".join(heads)}"' if heads else ""
    page.locator(f"#viewer[data-ready{wanted}]").wait_for()


def readout(page):
    """What the readout says, head by head: [token, place, number, how far it can be off]."""
    lists = page.evaluate(READ + "readOut()")
    return [[parsed(row) for row in rows] for rows in lists]


def parsed(row):
    token, place, number = row
    value, doubt = number.split(" ± ")
    return token, int(place), float(value), float(doubt)


def readouts_of_all(page):
    """The readout of every token of both columns: place such as q3, and rows of the first head."""
    found = page.evaluate(
        READ
        + """[...document.querySelectorAll(".hl-token")].map((token) => {
            token.dispatchEvent(new MouseEvent("mouseenter"));
            return [token.dataset.place, readOut()[0]];
        })"""
    )
    return {place: [parsed(row) for row in rows] for place, rows in found}


READ = """const readOut = () => [...document.querySelectorAll(".hl-list")].map((list) =>
    [...list.querySelectorAll("li")].map((row) =>
        ["bdi", ".hl-place", "b"].map((part) => row.querySelector(part).textContent)));
"""


def tokens(page, side):
    return page.locator(f".hl-{side} .hl-token").all_inner_texts()


def grid(page):
    """Names of the heads of the grid, in order."""
    return page.locator(".hl-cell").evaluate_all("cells => cells.map((cell) => cell.dataset.head)")


def chosen(page):
    return page.locator(".hl-cell[aria-pressed=true]").evaluate_all(
        "cells => cells.map((c) => c.dataset.head)"
    )


def controls(page):
    """What every control says, by name; None where it cannot be changed."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".hl-controls [name]")].map((field) =>
            [field.name, field.disabled ? null : field.type === "checkbox" ? field.checked : field.value]))"""
    )


def link(page):
    page.wait_for_timeout(SETTLING)
    return page.evaluate("location.hash")


def picture(page, selector):
    """The pixels of a canvas: [from the top, from the left, red green blue opacity]."""
    address = page.locator(selector).first.evaluate("canvas => canvas.toDataURL()")
    content = base64.b64decode(address.split(",")[1])
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGBA")).astype(int)


def map_box(page):
    """Where the heatmap's first cell begins within its canvas, and how large a cell is; needs #pin=q0."""
    cross = page.locator(".hl-cross")
    left, top, height = cross.evaluate("e => [e.style.left, e.style.top, e.style.height].map(parseFloat)")
    return left, top, height
