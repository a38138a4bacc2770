import dataclasses

import pandas as pd
import pytest
import torch
from torch.testing import assert_close

import headlens
from headlens.corpus.batches import read
from headlens.errors import InputError, SelectorError
from headlens.model.heads import Head
from headlens.view.maps import AttentionMaps, attention_maps
from support import families, toys

A, B1, B2, C = [0.4, 0.3, 0.2, 0.1], [0.4, 0.3, 0.2, 0.1], [0.25] * 4, [0.1, 0.2, 0.3, 0.4]
PIECES = toys.axis(["a", "b", "##b", "c"], [0, 1, 1, 2])


def maps_of(pattern, along):
    site = toys.site(0, 1)
    tensor = torch.tensor([pattern])
    return AttentionMaps("toy", (site,), {site: tensor}, {site: (0,)}, {"encoder": (along, along)})


def only(maps):
    (pattern,) = maps.patterns.values()
    return pattern[0]


def test_words_case_of_scores_md():
    merged = maps_of([A, B1, B2, C], PIECES).to_words()
    assert_close(only(merged), torch.tensor([[0.4, 0.5, 0.1], [0.325, 0.5, 0.175], [0.1, 0.5, 0.4]]))
    assert merged.tokens == ("w0", "w1", "w2")
    assert merged.by_words


def test_words_equal_a_second_computation():
    maps = toys.minilm().attention(
        "Reinterpretings bewilder the uncountably many grumblers.", "They grumble."
    )
    merged = maps.to_words()
    queries = maps.axes["encoder"][0]
    names = [("w", w) if w is not None else ("t", i) for i, w in enumerate(queries.words)]
    assert len(merged.tokens) == len(dict.fromkeys(names)) < len(names)
    for site, pattern in maps.patterns.items():
        for head, table in enumerate(pattern):
            frame = pd.DataFrame(table.numpy().astype(float), index=names, columns=names)
            summed = frame.T.groupby(level=0, sort=False).sum().T
            expected = summed.groupby(level=0, sort=False).mean()
            assert_close(merged.patterns[site][head], torch.tensor(expected.to_numpy()).float())
        assert_close(merged.patterns[site].sum(-1), torch.ones(12, len(merged.tokens)))


def test_special_tokens_keep_their_own_place_and_words_again_change_nothing():
    maps = toys.minilm().attention("Unrecognizably grumbling", pair="cats")
    merged = maps.to_words()
    assert merged.tokens == ("[CLS]", "Unrecognizably", "grumbling", "[SEP]", "cats", "[SEP]")
    assert merged.words == maps.words == ("Unrecognizably", "grumbling", "cats")
    again = merged.to_words()
    assert again.tokens == merged.tokens
    assert_close(only_first(again), only_first(merged))


def only_first(maps):
    return next(iter(maps.patterns.values()))


def test_a_sign_that_shares_a_piece_is_shown_with_it():
    along = dataclasses.replace(toys.axis(["no", '."', "x"], [0, 1, 3]), forms=("no", ".", '"', "x"))
    assert maps_of(torch.eye(3).tolist(), along).to_words().tokens == ("no", '."', "x")
    dropped = dataclasses.replace(toys.axis(["no", ".", "x"], [0, 1, 3]), forms=("no", ".", '"', "x"))
    assert maps_of(torch.eye(3).tolist(), dropped).to_words().tokens == ("no", ".", "x")


def test_drop_special_does_not_renormalise():
    along = toys.axis(["[CLS]", "a", "b", "[SEP]"], [None, 0, 1, None])
    maps = maps_of([A, B1, B2, C], along)
    dropped = maps.drop_special()
    assert torch.equal(only(dropped), torch.tensor([[0.3, 0.2], [0.25, 0.25]]))
    assert dropped.tokens == ("a", "b")
    assert not dropped.specials
    assert maps.tokens == ("[CLS]", "a", "b", "[SEP]")  # nothing is edited in place
    assert only(maps).shape == (4, 4)


def test_drop_special_and_to_words_in_either_order():
    maps = toys.minilm().attention("Unrecognizably grumbling cats")
    one, other = maps.to_words().drop_special(), maps.drop_special().to_words()
    assert one.tokens == other.tokens == ("Unrecognizably", "grumbling", "cats")
    assert_close(only_first(one), only_first(other))


def test_nothing_left():
    maps = maps_of([[1.0]], toys.axis(["[CLS]"], [None]))
    with pytest.raises(InputError) as error:
        maps.drop_special()
    assert str(error.value) == "Every token is a special token: nothing is left without them. Keep them."


SOME = ("albert", "deberta_v2", "gpt2", "mistral", "t5", "marian")


@pytest.mark.parametrize("name", SOME)
def test_weights_are_those_of_the_model(name):
    lens = toys.family(name)
    target = toys.TARGET if lens.model.config.is_encoder_decoder else None
    maps = lens.attention(toys.SOURCE, target=target)
    expected = lens.patterns(**read(lens, toys.SOURCE, target=target).inputs)
    assert list(maps.patterns) == list(expected) == list(lens.anatomy.sites)
    for site, pattern in expected.items():
        assert torch.equal(maps.patterns[site], pattern[0])
        queries, keys = maps.axes[site.stack]
        assert pattern.shape[1:] == (site.n_heads, len(queries), len(keys))


def test_weights_are_those_of_transformers_on_minilm():
    lens = toys.minilm()
    maps = lens.attention("The dog chased its tail.", "It was happy.")
    inputs = lens.tokenizer("The dog chased its tail.", "It was happy.", return_tensors="pt")
    lens.model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = lens.model(**inputs, output_attentions=True).attentions
    lens.model.set_attn_implementation("sdpa")
    for pattern, reference in zip(maps.patterns.values(), expected, strict=True):
        assert_close(pattern, reference[0], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["t5", "bart", "marian"])
def test_encoder_decoder_is_given_what_training_gives_it(name):
    lens = toys.family(name)
    seen = {}
    hook = lens.model.get_decoder().register_forward_pre_hook(
        lambda _, args, kwargs: seen.update(kwargs), with_kwargs=True
    )
    maps = lens.attention(toys.SOURCE, target=toys.TARGET)
    given = seen["input_ids"]
    labels = torch.tensor([lens.tokenizer(text_target=toys.TARGET)["input_ids"]])
    seen.clear()
    lens.model(input_ids=torch.tensor([[3, 4, 2]]), labels=labels)
    assert torch.equal(given, seen["input_ids"])
    hook.remove()
    start = {"t5": "<pad>", "bart": "</s>", "marian": "</s>"}[name]
    source, target = (*toys.SOURCE.split(), "</s>"), (start, *toys.TARGET.split())
    shown = {stack: (queries.tokens, keys.tokens) for stack, (queries, keys) in maps.axes.items()}
    assert shown == {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    assert maps.select("cross.*.*").to_words().drop_special().axes["cross"][0].tokens == target[1:]


def test_encoder_decoder_without_a_function_for_labels():
    model = families.build("bart")
    lens = headlens.load(model.model, toys.word_tokenizer())
    assert read(lens, toys.SOURCE, target=toys.TARGET).inputs["decoder_input_ids"].tolist() == [[2, 8, 9, 10]]
    model.model.config.decoder_start_token_id = None
    assert error_of(lens, toys.SOURCE, target=toys.TARGET) == (
        "The config of this BartModel states no decoder_start_token_id, so its decoder has nothing to begin "
        "with. Set model.config.decoder_start_token_id."
    )


def error_of(lens, *args, **options):
    with pytest.raises(InputError) as error:
        attention_maps(lens, *args, **options)
    return str(error.value)


def test_target_missing():
    assert error_of(toys.family("marian"), "the dog") == (
        "MarianMTModel is an encoder-decoder model: beside the text that it reads it needs the text that it "
        "writes, and none came. Give it with --target TEXT (in Python: target=...)."
    )


def test_target_too_much():
    assert error_of(toys.family("bert"), "the dog", target="der Hund") == (
        "A target is for encoder-decoder models, but BertForMaskedLM has no decoder that looks at an "
        "encoder. Leave --target out; a second text to read is given with --pair TEXT."
    )


def test_no_tokenizer():
    assert error_of(headlens.load(families.build("bert")), "the dog") == (
        "The BertForMaskedLM came without a tokenizer, so there is nothing that turns a text into its "
        "tokens. Load it as headlens.load(model, tokenizer=...), or from a directory that holds its "
        "tokenizer."
    )


def test_empty_text():
    assert error_of(toys.family("bert"), " \n") == "The text is empty. Give at least one word."
    assert error_of(toys.family("bert"), "the", "") == "The second text is empty. Give at least one word."


@pytest.mark.parametrize(("name", "longest"), [("bert", 64), ("roberta", 62), ("opt", 64), ("gpt2", 64)])
def test_too_long_is_refused_and_the_longest_runs(name, longest):
    lens = toys.family(name)
    text = " ".join(["dog"] * (longest - 1))  # and </s>
    assert len(lens.attention(text).tokens) == longest
    assert error_of(lens, f"{text} dog") == (
        f"The text has {longest + 1} tokens, but {type(lens.model).__name__} takes at most {longest}. "
        "Shorten it, or look at it in parts; headlens never cuts a text silently."
    )


def test_target_too_long():
    assert error_of(toys.family("bart"), "the dog", target="Hund " * 80) == (
        "The target has 81 tokens, but BartForConditionalGeneration takes at most 64. Shorten it, or look at "
        "it in parts; headlens never cuts a text silently."
    )


def test_max_length():
    assert error_of(toys.family("bert"), "the dog chased", max_length=3) == (
        "The text has 4 tokens, but --max-length allows 3. Shorten it or allow more; headlens never cuts a "
        "text silently."
    )


def test_a_tokenizer_of_another_model():
    lens = headlens.load(families.build("bert"), toys.minilm().tokenizer)
    assert error_of(lens, "dog") == (
        "The tokenizer made the token id 3899, but the model knows only ids below 61. Give the tokenizer "
        "that belongs to this model."
    )


def test_maps_that_would_not_fit_are_refused_before_the_model_runs(monkeypatch):
    lens = toys.family("bert")
    assert len(lens.anatomy.heads) == 8
    monkeypatch.setattr("headlens.view.maps.MAX_BYTES", 2**10)
    monkeypatch.setattr(lens, "run", lambda inputs: pytest.fail("it ran"))
    assert error_of(lens, toys.SOURCE) == (
        "The weights of 8 heads for 6 tokens take 0.0 GiB, more than the 9.53674e-07 GiB that are kept at "
        "once. Choose fewer heads with --heads, or give a shorter text."
    )


def test_only_the_chosen_heads_are_kept():
    lens = toys.family("llama")
    everything = lens.attention(toys.SOURCE)
    chosen = attention_maps(lens, toys.SOURCE, heads="1.3,0.1-2")
    assert chosen.heads == (Head("decoder", 0, 1), Head("decoder", 0, 2), Head("decoder", 1, 3))
    assert chosen.heads == everything.select("1.3,0.1-2").heads
    for head in chosen.heads:
        assert torch.equal(chosen.pattern(head), everything.pattern(head))
    assert chosen.name(chosen.heads[-1]) == "1.3"


def test_select_keeps_numbers_and_says_what_is_gone():
    maps = toys.random_maps(["a", "b"], layers=3, heads=4).select("2.1,0.*")
    assert [str(head) for head in maps.select("2.1").heads] == ["encoder.2.1"]
    with pytest.raises(SelectorError) as error:
        maps.select("2.*")
    assert str(error.value) == (
        "These maps do not hold 2.0, 2.2, 2.3: they were made for 5 chosen heads. Select from the maps of "
        "all heads."
    )
    with pytest.raises(SelectorError, match=r"These maps do not hold 1\.0"):
        maps.pattern(Head("encoder", 1, 0))


def test_frame_and_csv_hold_every_weight(tmp_path):
    lens = toys.minilm()
    maps = lens.attention("=1+1 is -2, said the dog.").select("0.*,5.11")
    frame = maps.to_frame()
    assert list(frame) == ["stack", "layer", "head", "query", "key", "query_token", "key_token", "weight"]
    patterns = lens.patterns(**lens.tokenizer("=1+1 is -2, said the dog.", return_tensors="pt"))
    by_layer = {site.layer: pattern[0] for site, pattern in patterns.items()}
    n = len(maps.tokens)
    assert len(frame) == 13 * n * n
    for row in frame.itertuples():
        assert row.weight == by_layer[row.layer][row.head, row.query, row.key].item()
        assert (row.query_token, row.key_token) == (maps.tokens[row.query], maps.tokens[row.key])
    maps.save(tmp_path / "a.csv")
    maps.save(tmp_path / "b.CSV", heads="0.*,5.11")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.CSV").read_bytes()
    back = pd.read_csv(tmp_path / "a.csv", dtype={"weight": "float32"}, keep_default_na=False)
    assert (back["weight"] == frame["weight"]).all()
    assert (back["key_token"].iloc[:2] == ["[CLS]", "'="]).all()  # no cell that a spreadsheet would run


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "a.jpg",
            "The ending chooses the format; expected one that headlens writes, found the ending .jpg.",
        ),
        (
            "a",
            "The ending chooses the format; expected one that headlens writes, "
            "found a file name without ending.",
        ),
    ],
)
def test_unknown_ending(tmp_path, name, message):
    with pytest.raises(InputError) as error:
        toys.random_maps(["a", "b"]).save(tmp_path / name)
    works = "Endings that work: .png .svg .pdf for heatmaps, .html for an interactive page, .csv for a table."
    assert str(error.value) == f"{message} {works}"
    assert not list(tmp_path.iterdir())


def test_shows_itself_in_a_notebook_as_a_page_in_a_frame():
    maps = toys.random_maps(["a", "b"], 2, 2)
    assert maps._repr_html_().startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert maps._repr_png_() is None
    norms = dataclasses.replace(maps, measure="norms")
    assert norms._repr_html_() is None
    assert norms._repr_png_().startswith(b"\x89PNG")


def test_maps_are_frozen():
    maps = toys.random_maps(["a"])
    with pytest.raises(dataclasses.FrozenInstanceError):
        maps.model = "x"


@pytest.mark.parametrize(("text", "shown"), [("a\ud800b", "a\ufffdb"), ("caf\udce9", "caf\ufffd")])
def test_what_is_no_character_is_replaced_with_one_warning(text, shown):
    with pytest.warns(UserWarning, match=r"1 sign that is no character .* replaced by U\+FFFD") as warned:
        maps = toys.minilm().attention(text)
    assert len(warned) == 1
    assert maps.text == shown
    with pytest.warns(UserWarning, match="3 signs that are no characters") as warned:
        maps = toys.minilm().attention(f"a {text}", f"{text} \udcff")
    assert len(warned) == 1
    assert maps.text == f"a {shown} | {shown} \ufffd"
    assert "" not in maps.tokens


def test_a_target_that_is_no_text_and_the_halves_of_a_character():
    lens = toys.family("t5")
    with pytest.warns(UserWarning, match="1 sign that is no character"):
        assert lens.attention(toys.SOURCE, target="der\ud800").text.endswith("der\ufffd")
    assert toys.minilm().attention("\ud83d\ude00 \ufffd").text == "\U0001f600 \ufffd"


def test_a_reference_text_that_is_no_text():
    lens = toys.minilm()
    with (
        pytest.warns(UserWarning, match="1 sign that is no character"),
        lens.ablate("0.0", "mean", ["a\ud800"]),
    ):
        pass
