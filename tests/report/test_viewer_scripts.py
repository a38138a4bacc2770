"""Any script, in any direction."""

import pytest

import headlens
from support import families, toys
from support.viewers import tokens, viewing

JAPANESE = "蒔絵師は硯箱にひびが入ったと気づき、それを棚へ戻した。"
ARABIC = ["الكلب", "الذي", "نبح", ".", "123", "dog"]
HINDI = ["कुत्ता", "भौंकता", "है"]
EMOJI = ["👩‍👩‍👧", "🏳️‍🌈", "❤️", "\U0001d518"]


@pytest.mark.parametrize("words", [list(JAPANESE), ARABIC, HINDI, EMOJI], ids=["ja", "ar", "hi", "emoji"])
def test_tokens_are_there_as_they_are(chromium, tmp_path, words):
    maps = toys.random_maps(words)
    with viewing(chromium, tmp_path, maps) as page:
        assert tokens(page, "q") == tokens(page, "k") == words
        assert page.locator("header p").text_content() == " ".join(words)
        page.keyboard.press("j")
        assert page.locator(".hl-own").text_content() == words[0]
        assert set(page.locator(".hl-list li bdi").all_text_contents()) <= set(words)


@pytest.mark.parametrize("text", [JAPANESE, " ".join(ARABIC), " ".join(HINDI), " ".join(EMOJI)])
def test_pieces_of_a_real_tokenizer(chromium, tmp_path, text):
    maps = toys.minilm().attention(text).select("0.*")
    with viewing(chromium, tmp_path, maps) as page:
        assert tokens(page, "k") == list(maps.tokens)
        page.keyboard.press("w")
        assert tokens(page, "k") == list(maps.to_words().tokens)


def test_pieces_of_bytes(chromium, tmp_path):
    lens = headlens.load(families.build("gpt2"), byte_tokenizer())
    maps = lens.attention("蒔 dog")
    with viewing(chromium, tmp_path, maps) as page:
        assert tokens(page, "q") == list(maps.tokens)
        assert tokens(page, "q")[:3] == ["<E8>", "<92>", "<94>"]


def byte_tokenizer():
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    signs = sorted(set(pre_tokenizers.ByteLevel().pre_tokenize_str("蒔 dog")[0][0]) | set("Ġdog"))
    made = Tokenizer(models.BPE({sign: index for index, sign in enumerate(signs)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=made)


def test_right_to_left_tokens_read_right_and_turn_nothing_around(chromium, tmp_path):
    with viewing(chromium, tmp_path, toys.random_maps(ARABIC)) as page:
        directions = page.locator(".hl-q .hl-text").evaluate_all(
            "all => all.map((e) => getComputedStyle(e).direction)"
        )
        assert directions == ["rtl", "rtl", "rtl", "ltr", "ltr", "ltr"]
        columns = [page.locator(f".hl-{side}").bounding_box()["x"] for side in ("q", "lines-canvas", "k")]
        assert columns == sorted(columns)
        assert page.locator("header bdi").evaluate("e => getComputedStyle(e).direction") == "rtl"
        boxes = [page.locator(".hl-q .hl-token").nth(i).bounding_box() for i in range(len(ARABIC))]
        assert len({round(box["x"] + box["width"]) for box in boxes}) == 1  # all end at the lines
        page.keyboard.press("j")
        page.keyboard.press("v")
        page.locator(".hl-map").hover()
        order = page.locator(".hl-readout > p").evaluate(
            """p => {
                const range = document.createRange();
                range.selectNode(p.lastChild);
                return [p.firstChild.getBoundingClientRect().right, range.getBoundingClientRect().left];
            }"""
        )
        assert order[0] <= order[1] + 1  # the token first, then what is said of it
