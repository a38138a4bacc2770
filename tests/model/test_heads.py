"""Selectors: every form, one and several stacks, whole messages."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headlens.errors import SelectorError
from headlens.model.heads import Head, Site, head_name, number_ranges, select
from support import hostile


def sites(*shapes: tuple[str, int, int]) -> list[Site]:
    """One site per (stack, layer, heads)."""
    return [
        Site(index, stack, layer, f"m.{index}", heads, heads, 8, stack == "decoder")
        for index, (stack, layer, heads) in enumerate(shapes)
    ]


ONE = sites(*[("encoder", layer, 4) for layer in range(3)])
SEVERAL = sites(
    *[("encoder", layer, 2) for layer in range(2)],
    *[(stack, layer, 2) for layer in range(2) for stack in ("decoder", "cross")],
)
HYBRID = sites(*[("decoder", layer, 4) for layer in (3, 7, 8, 11)])


def names(selector, of=ONE) -> str:
    return " ".join(head_name(head, of) for head in select(selector, of))


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("2.3", "2.3"),
        ("1.*", "1.0 1.1 1.2 1.3"),
        ("*.3", "0.3 1.3 2.3"),
        ("1.0-2", "1.0 1.1 1.2"),
        ("0-1.3", "0.3 1.3"),
        ("1-2.2-3", "1.2 1.3 2.2 2.3"),
        ("encoder.1.2", "1.2"),
        ("encoder.*.0", "0.0 1.0 2.0"),
        ("*.*", " ".join(f"{layer}.{head}" for layer in range(3) for head in range(4))),
        ("1-1.0-0", "1.0"),
    ],
)
def test_each_form(selector, expected):
    assert names(selector) == expected


def test_a_list_comes_in_model_order_each_head_once():
    assert names(" 2.1, 0.3 ,2.0-1,0.3") == "0.3 2.0 2.1"


def test_stacks_are_told_apart():
    assert (
        names("cross.1.0,decoder.1.*,encoder.0.1", SEVERAL) == "encoder.0.1 decoder.1.0 decoder.1.1 cross.1.0"
    )
    assert names("cross.*.*", SEVERAL) == "cross.0.0 cross.0.1 cross.1.0 cross.1.1"


def test_heads_themselves():
    assert select(Head("encoder", 2, 3), ONE) == (Head("encoder", 2, 3),)
    assert select(iter([Head("encoder", 2, 3), Head("encoder", 0, 1)]), ONE) == (
        Head("encoder", 0, 1),
        Head("encoder", 2, 3),
    )
    assert select([], ONE) == ()


def test_layers_keep_the_models_own_numbers():
    assert names("*.0", HYBRID) == "3.0 7.0 8.0 11.0"
    assert names("3-8.1", HYBRID) == "3.1 7.1 8.1"


HERE = "It has encoder layers 0-2 with heads 0-3; write for example 0.0."
THERE = (
    "It has encoder layers 0-1 with heads 0-1 and decoder layers 0-1 with heads 0-1 and cross layers 0-1 "
    "with heads 0-1; write for example encoder.0.0."
)
FORM = (
    "Expected heads such as 4.11, 4.*, *.3 or 4.0-5 joined by commas, found {}. "
    "Layers and heads count from 0."
)


@pytest.mark.parametrize(
    ("selector", "of", "message"),
    [
        ("3.0", ONE, f"There is no head 3.0 in this model. {HERE}"),
        ("0.4", ONE, f"There is no head 0.4 in this model. {HERE}"),
        ("0.2-4", ONE, f"There is no head 0.4 in this model. {HERE}"),
        ("1-3.2", ONE, f"There is no head 3.2 in this model. {HERE}"),
        ("2.3-1", ONE, "The range 3-1 in '2.3-1' runs backwards. Write 1-3."),
        ("0.0,9.9", ONE, f"There is no head 9.9 in this model. {HERE}"),
        ("decoder.0.0", ONE, f"There is no head decoder.0.0 in this model. {HERE}"),
        ("encoder.0.7", ONE, f"There is no head encoder.0.7 in this model. {HERE}"),
        ("1.0", SEVERAL, f"'1.0' does not say which stack it means. {THERE}"),
        ("cross.5.*", SEVERAL, f"There is no head cross.5.* in this model. {THERE}"),
        ("", ONE, FORM.format("''")),
        ("2", ONE, FORM.format("'2'")),
        ("2.x", ONE, FORM.format("'2.x'")),
        ("1.0,,2.0", ONE, FORM.format("''")),
        ("-1.0", ONE, FORM.format("'-1.0'")),
        ("middle.1.0", ONE, FORM.format("'middle.1.0'")),
        (
            "4.0",
            HYBRID,
            "There is no head 4.0 in this model. It has decoder layers 3,7-8,11 with heads 0-3; "
            "write for example 3.0.",
        ),
    ],
)
def test_whole_messages(selector, of, message):
    with pytest.raises(SelectorError) as caught:
        select(selector, of)
    assert str(caught.value) == message


def test_the_first_unknown_head_of_a_list_is_named():
    given_heads = [Head("encoder", 0, 0), Head("cross", 7, 1), *(Head("encoder", 9, i) for i in range(20))]
    with pytest.raises(SelectorError) as caught:
        select(given_heads, ONE)
    assert str(caught.value) == f"There is no head cross.7.1 in this model. {HERE}"


def test_head_names():
    assert head_name(Head("encoder", 1, 2), ONE) == "1.2"
    assert head_name(Head("cross", 1, 1), SEVERAL) == "cross.1.1"
    assert str(Head("cross", 1, 1)) == "cross.1.1"
    assert str(SEVERAL[0]) == "encoder.0"


def test_number_ranges():
    assert number_ranges([]) == ""
    assert number_ranges([4]) == "4"
    assert number_ranges([0, 1, 2, 6, 8, 9]) == "0-2,6,8-9"


PIECES = st.sampled_from(
    ["0", "1", "2", "3", "11", ".", "*", "-", ",", " ", "encoder", "decoder", "cross", "\u0664", "=", "x"]
)


@given(
    st.one_of(st.text(), st.lists(PIECES, max_size=12).map("".join)), st.sampled_from([ONE, SEVERAL, HYBRID])
)
@example("9" * 5000 + ".0", ONE)
@example("0.0-" + "9" * 5000, ONE)
def test_any_text_gives_heads_in_order_or_a_selector_error(text, of):
    known = [head for site in of for head in site.heads]
    try:
        chosen = select(text, of)
    except SelectorError:
        return
    assert chosen
    assert list(chosen) == [head for head in known if head in set(chosen)]
    assert select(",".join(head_name(head, of) for head in chosen), of) == chosen


def test_long_lists_take_no_time():
    with hostile.within(5):
        assert len(select(",".join(["*.*"] * 200_000), ONE)) == 12
        with pytest.raises(SelectorError):
            select("0." + "1" * 1_000_000, ONE)
