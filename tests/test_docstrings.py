"""Examples in docstrings come out as they say."""

from __future__ import annotations

import doctest
import importlib.util
import pkgutil

import pytest

import headlens
from support import real


def with_examples():
    for found in pkgutil.walk_packages(headlens.__path__, "headlens."):
        if found.name == "headlens.__main__":
            continue
        source = importlib.util.find_spec(found.name).loader.get_source(found.name)
        if ">>> " in source:
            yield found.name


@pytest.mark.parametrize("name", ["headlens", *with_examples()])
def test_examples(name):
    real.need_minilm()
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.attempted > 1
    assert found.failed == 0
