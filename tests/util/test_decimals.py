"""Numbers in data files: those that Python writes come back, all else is none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headlens.util.formatting import decimal
from support import hostile


@hostile.examples(100)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_come_back(number):
    assert decimal(repr(number)) == number


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("+1.", 1), ("-.5", -0.5), ("007", 7), ("1e3", 1000), ("2.5E-1", 0.25)]
)
def test_ways_to_write_them(text, value):
    assert decimal(text) == value


@pytest.mark.parametrize(
    "text", ["", ".", "e3", "1e", "1_0", "\u0661", "\uff11", "inf", "nan", "1e999", " 1", "1\n", "1,5", "0x1"]
)
def test_what_is_no_number(text):
    assert math.isnan(decimal(text))
