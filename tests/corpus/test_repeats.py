"""Random tokens are drawn from the ordinary ones, repeated, and framed as the tokenizer frames a text."""

from __future__ import annotations

import pytest

from headlens.corpus.inputs import BLOCK, N_INPUTS, REPEATS, frame, ordinary_tokens, repeated_inputs
from headlens.errors import InputError
from headlens.model.load import load_model
from headlens.model.source import find
from support import planted, real
from support.toytext import toy_tokenizer


class TestInputs:
    def check(self, tokenizer, before, after, longest=512):
        made = repeated_inputs(tokenizer, longest, 0)
        assert (len(made.items), made.n_units, made.unit) == (N_INPUTS, N_INPUTS, "input")
        assert [thing.unit for thing in made.items] == list(range(N_INPUTS))
        framed = tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
        assert (framed.index(0), framed[::-1].index(0)) == (len(before), len(after))
        for thing in made.items:
            ids, special = thing.encoded.inputs["input_ids"], thing.encoded.special
            text = ids[len(before) : len(ids) - len(after)]
            assert ids == [*before, *text, *after]
            assert special == tuple([True] * len(before) + [False] * len(text) + [True] * len(after))
            assert thing.encoded.tokens == tuple(tokenizer.convert_ids_to_tokens(ids))
            length = len(text) // REPEATS
            assert text == text[:length] * REPEATS
            assert len(set(text)) == length
            assert not set(text) & set(tokenizer.all_special_ids)
            assert len(ids) <= longest
        blocks = [thing.encoded.inputs["input_ids"] for thing in made.items]
        assert len(set(map(tuple, blocks))) == N_INPUTS
        return made, length

    def test_minilm(self):
        tokenizer = load_model(find(real.need_minilm()), "float32", "cpu").tokenizer
        made, length = self.check(tokenizer, [101], [102])
        assert length == BLOCK
        drawn = {t for thing in made.items for t in thing.encoded.tokens[1:-1]}
        assert not any(token.startswith("[unused") for token in drawn)
        assert len(drawn) > 700  # the whole vocabulary is drawn from
        again = repeated_inputs(tokenizer, 512, 0)
        assert again.items == made.items
        assert repeated_inputs(tokenizer, 512, 1).items != made.items

    @pytest.mark.parametrize(("longest", "length"), [(14, 4), (16, 4), (17, 5), (74, 24), (73, 23)])
    def test_blocks_are_shortened_to_fit(self, longest, length):
        tokenizer = planted.tokenizer()
        before, after = [planted.ID["[CLS]"]], [planted.ID["[SEP]"]]
        assert self.check(tokenizer, before, after, longest)[1] == length

    def test_without_special_tokens(self):
        assert self.check(planted.tokenizer(special=False), [], [], 12)[1] == 4

    def test_too_short(self):
        with pytest.raises(InputError) as error:
            repeated_inputs(planted.tokenizer(), 13, 0)
        assert str(error.value) == (
            "Random tokens cannot be repeated three times within 13 tokens. Type --max-length 14 or more."
        )

    def test_too_few_words(self):
        tokenizer = planted.tokenizer()
        tokenizer.add_special_tokens({"additional_special_tokens": planted.WORDS[6:]})
        with pytest.raises(InputError) as error:
            repeated_inputs(tokenizer, 512, 0)
        assert str(error.value) == (
            "The vocabulary has 2 tokens that stand for text, too few to repeat at random. "
            "Leave induction and duplicate-token out of --tags."
        )


def test_a_llama_begins_a_text_once():
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = [
        "<s>",
        "</s>",
        "<unk>",
        "<0x0A>",
        "<extra_id_3>",
        "[unused7]",
        *(f"w{i}" for i in range(9)),
        "<",
        "a",
    ]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    assert frame(tokenizer) == ([0], [])
    assert ordinary_tokens(tokenizer) == [*range(6, 15), 15, 16]
    _, length = TestInputs().check(tokenizer, [0], [], 512)
    assert length == 11
    for thing in repeated_inputs(tokenizer, 512, 0).items:
        assert thing.encoded.inputs["input_ids"].count(0) == 1


def test_tokens_without_embedding_are_not_drawn():
    tokenizer = toy_tokenizer()
    most = max(max(item.encoded.inputs["input_ids"]) for item in repeated_inputs(tokenizer, 64, 0).items)
    below = repeated_inputs(tokenizer, 64, 0, most).items
    assert max(max(item.encoded.inputs["input_ids"]) for item in below) < most
