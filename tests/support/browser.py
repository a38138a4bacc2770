"""A real browser for the pages that headlens writes: off the network, and strict about errors."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.real import CI

TIMEOUT = 60_000  # milliseconds that the browser waits for anything


def _missing(reason: str) -> None:
    if CI:
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def launched():
    """Chromium as long as the block lasts; without it the test skips, but never in CI."""
    try:
        from playwright.sync_api import expect, sync_playwright
    except ImportError:
        _missing("playwright is not installed: pip install -e '.[test]'")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        _missing("chromium is not installed: apt-get install chromium")
    expect.set_options(timeout=TIMEOUT)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(browser, path, *, dark=False, width=1200, height=900, fragment="", prepare=None):
    """A page of a file, without network; at the end nothing may have complained or asked for anything.

    Args:
        browser: of the fixture ``chromium``.
        path: of the file.
        dark: whether the reader's system is dark.
        width: of the window, in CSS pixels.
        height: of the window.
        fragment: of the address, such as ``#head=2.8``.
        prepare: called with the page before the file is opened.

    Yields:
        The page. A dialogue of the page's own making (``alert``) counts as a complaint.
    """
    options = {"color_scheme": "dark" if dark else "light", "viewport": {"width": width, "height": height}}
    context = browser.new_context(accept_downloads=True, offline=True, **options)
    context.set_default_timeout(TIMEOUT)
    try:
        page = context.new_page()
        complaints, asked = [], []
        page.on("console", lambda said: complaints.append(said.text) if said.type != "log" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda box: (complaints.append(f"{box.type}: {box.message}"), box.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        if prepare is not None:
            prepare(page)
        address = Path(path).resolve().as_uri()
        page.goto(address + fragment)
        yield page
        assert not complaints, complaints
        outside = [url for url in asked if not url.startswith((address, "data:", "blob:"))]
        assert not outside, outside
    finally:
        context.close()
