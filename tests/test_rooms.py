"""The house: names that users meet, and rooms that do not stand in their way."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import pytest

import headlens


def test_no_room_hides_a_public_name():
    """A room that is imported becomes an attribute of the package: none may have the name of a function."""
    for found in pkgutil.walk_packages(headlens.__path__, "headlens."):
        if found.name != "headlens.__main__":
            importlib.import_module(found.name)
    modules = [name for name in headlens.__all__ if isinstance(getattr(headlens, name), ModuleType)]
    assert modules == []


@pytest.mark.parametrize("name", headlens.__all__)
def test_public_names_are_documented(name):
    assert (getattr(headlens, name).__doc__ or "").strip()
