import functools

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headlens.model.load import find
from headlens.model.source import load_tokenizer
from headlens.util.formatting import readable_tokens, visible
from support import real, toys

JAPANESE = "「蒔絵師は硯箱にひびが入ったと気づき、それを棚へ戻した。」"


@functools.cache
def smollm():
    return load_tokenizer(find(real.smollm2()))


def readable(tokenizer, text):
    return readable_tokens(tokenizer, tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]))


def sentencepiece_like(pieces):
    made = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")


def test_wordpieces_stay():
    tokenizer = toys.minilm().tokenizer
    tokens = ("[CLS]", "rein", "##ter", "##pre", "##ting", "##s", "[SEP]")
    assert readable(tokenizer, "reinterpretings") == tokens
    assert readable_tokens(tokenizer, ["▁", "##▁x", "Ġ"]) == ("▁", "##▁x", "Ġ")


def test_wordpiece_japanese_is_what_the_tokenizer_made_of_it():
    tokens = readable(toys.minilm().tokenizer, JAPANESE)
    assert tokens[:3] == ("[CLS]", "「", "[UNK]")
    assert "##ひ" in tokens


@pytest.mark.slow
def test_byte_level_blanks_breaks_and_tabs():
    tokens = readable(smollm(), "The dog  ran\n\tnaïve café")
    assert tokens == ("The", "dog", "␣", "ran", "⏎", "⇥", "na", "ïve", "café")


def test_byte_level_half_characters_are_bytes():
    tokens = readable(smollm(), JAPANESE)
    assert tokens[:6] == ("<E3 80>", "<8C>", "<E8>", "<92>", "<94>", "<E7>")
    assert {"に", "入", "、", "。"} <= set(tokens)
    assert rebuilt(tokens) == JAPANESE


@pytest.mark.parametrize("text", ["👍", "👨‍👩‍👧", "שלום", "🇫🇷 ü"])
def test_byte_level_loses_nothing(text):
    assert rebuilt(readable(smollm(), text)) == text.replace(" ", "")


def rebuilt(tokens):
    """The text again, from characters and bytes; blanks before words are not shown."""
    content = b""
    for token in tokens:
        broken = token.startswith("<") and token.endswith(">")
        content += bytes.fromhex(token[1:-1]) if broken else token.encode()
    return content.decode()


def test_special_tokens_stay():
    assert readable_tokens(smollm(), ["<|im_start|>", "Ġ", "ĠĠ", "Ġ<", "Ġè", "âĢ"]) == (
        *("<|im_start|>", "␣", "␣␣", "<", "<E8>", "<E2 80>"),
    )


def test_sentencepiece():
    pieces = ["<unk>", "▁dog", "s", "▁", "▁▁", "a▁b", "<0xE8>", "<0x0A>", "<0x41>", "▁<0x41>"]
    expected = ("<unk>", "dog", "s", "␣", "␣␣", "a b", "<E8>", "⏎", "A", "<0x41>")
    assert readable_tokens(sentencepiece_like(pieces), pieces) == expected


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("", ""),
        ("  ", "␣␣"),
        ("a\nb\tc", "a⏎b⇥c"),
        ("\0\x1b\x7f", "<00><1B><7F>"),
        ("a\u202eb", "a<U+202E>b"),
        ("\u200b\ufeff", "<U+200B><U+FEFF>"),
        ("\u200d", "<U+200D>"),
        ("👨\u200d👩", "👨\u200d👩"),
        ("\ud800", "<U+D800>"),
        ("\uffff", "<U+FFFF>"),
        ("$x$ <b>", "$x$ <b>"),
    ],
)
def test_visible(text, shown):
    assert visible(text) == shown
