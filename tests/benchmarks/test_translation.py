from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import headlens
from headlens.ablation.sweep import sweep
from headlens.benchmarks.base import BenchmarkOptions
from headlens.benchmarks.registry import Differentiable, open_benchmark
from headlens.errors import InputError, ModelError, RunError
from support.families import build
from support.toytext import toy_text, toy_tokenizer

sacrebleu = pytest.importorskip("sacrebleu")
FAMILIES = ["bart", "marian", "t5"]


def lens_of(family: str, seed: int = 0):
    return headlens.load(build(family, seed=seed), toy_tokenizer())


def toy_rows(n: int = 12, longest: int = 14) -> list[tuple[str, str]]:
    return [(toy_text(2 + (5 * i) % (longest - 1), i), toy_text(2 + i % 5, 100 + i)) for i in range(n)]


def write(path: Path, rows: list[tuple[str, str]]) -> str:
    lines = ["source\treference", *("\t".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"translation:{path}"


@torch.no_grad()
def greedy(lens, text: str, limit: int) -> str:
    """The likeliest token after another, without batches or stored keys."""
    model, ids = lens.model, torch.tensor([lens.tokenizer(text)["input_ids"]])
    written = [model.config.decoder_start_token_id]
    end, last = model.generation_config.eos_token_id, model.generation_config.forced_eos_token_id
    while len(written) <= limit and end not in written[1:]:
        made = model(ids, decoder_input_ids=torch.tensor([written])).logits[0, -1].argmax()
        written.append(last if last is not None and len(written) == limit else int(made))
    return lens.tokenizer.decode(written, skip_special_tokens=True)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.slow
def test_one_beam_is_a_plain_greedy_loop_in_any_batch(tmp_path, family):
    lens, rows = lens_of(family), toy_rows(10)
    spec = write(tmp_path / "t.tsv", rows)
    out = [head for head in lens.anatomy.heads if head.layer == 1 and head.head in (0, 2)]
    limits = [-(-(2 * len(lens.tokenizer(row[0])["input_ids"]) + 10) // 32) * 32 for row in rows]
    found = []
    for heads in ((), out):
        with lens.ablate(heads):
            expected = {i: greedy(lens, rows[i][0], min(59, limits[i])) for i in (0, 4, 7)}
            made, *others = (
                open_benchmark(spec, lens, BenchmarkOptions(batch_size=size)).translate(lens)
                for size in (None, 3, 1)
            )
        assert {i: made[i] for i in expected} == expected
        assert others == [made, made]
        found.append(made)
    assert found[0] != found[1]
    assert len({limits[i] for i in expected}) > 1


@pytest.mark.parametrize("family", FAMILIES)
def test_beams_are_those_of_single_texts(tmp_path, family):
    lens, rows = lens_of(family), toy_rows(10)
    spec = write(tmp_path / "t.tsv", rows)
    expected = {}
    for i in (0, 4, 7):
        ids = torch.tensor([lens.tokenizer(rows[i][0])["input_ids"]])
        new = min(59, -(-(2 * ids.shape[1] + 10) // 32) * 32)
        made = lens.model.generate(
            ids, attention_mask=torch.ones_like(ids), num_beams=3, do_sample=False, max_new_tokens=new
        )
        expected[i] = lens.tokenizer.decode(made[0], skip_special_tokens=True)
    found = []
    for size in (3, None):
        benchmark = open_benchmark(spec, lens, BenchmarkOptions(batch_size=size, beams=3))
        found.append(benchmark.translate(lens))
        assert {i: found[-1][i] for i in expected} == expected
    assert found[0] == found[1]
    assert benchmark.facts["beams"] == 3
    assert open_benchmark(spec, lens).translate(lens) != found[0]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_models_own_translations_are_perfect_and_no_others(tmp_path, family):
    lens, rows = lens_of(family), toy_rows(10, 9)
    made = open_benchmark(write(tmp_path / "t.tsv", rows), lens).translate(lens)
    spec = write(tmp_path / "own.tsv", [(row[0], text) for row, text in zip(rows, made, strict=True)])
    found = sweep(lens, spec)
    assert found.run["baseline"] == {"bleu": pytest.approx(100), "chrf": pytest.approx(100)}
    assert found.run["benchmark"]["examples"] == 10
    bleu = found.table[found.table["metric"] == "bleu"]
    assert len(bleu) == len(lens.anatomy.heads)  # of all stacks
    assert (bleu["value"] <= 100 + 1e-9).all()
    assert (bleu["value"] < 99.9).mean() > 0.8
    changed = bleu.iloc[int(np.argmin(bleu["value"]))]
    with lens.ablate(changed["removed"]):
        texts = open_benchmark(spec, lens).translate(lens)
    assert changed["value"] == pytest.approx(sacrebleu.corpus_bleu(texts, [made], force=True).score)
    chrf = found.table[found.table["metric"] == "chrf"].iloc[int(np.argmin(bleu["value"]))]
    assert chrf["value"] == pytest.approx(sacrebleu.corpus_chrf(texts, [made]).score)


@pytest.mark.parametrize("family", FAMILIES)
def test_losses_are_those_of_single_references(tmp_path, family):
    lens, rows = lens_of(family), toy_rows()
    spec = write(tmp_path / "t.tsv", rows)
    sums, tokens = [], []
    for source, reference in rows:
        ids = torch.tensor([lens.tokenizer(source)["input_ids"]])
        labels = torch.tensor([lens.tokenizer(text_target=reference)["input_ids"]])
        with torch.no_grad():
            sums.append(float(lens.model(ids, labels=labels).loss) * labels.shape[1])
        tokens.append(labels.shape[1])
    for size in (1, 5, None):
        benchmark = open_benchmark(spec, lens, BenchmarkOptions(batch_size=size))
        assert isinstance(benchmark, Differentiable)
        found = torch.zeros(12)
        for lot in benchmark.losses(lens):
            assert lot.losses.requires_grad
            assert set(lot.examples.tolist()) == set(lot.owners.tolist())
            found.index_add_(0, lot.examples, lot.losses.detach())
        np.testing.assert_allclose(found, 12 * np.array(sums) / sum(tokens), rtol=1e-4)
    assert float(found.mean()) == pytest.approx(sum(sums) / sum(tokens), rel=1e-5)
    assert benchmark.facts["reference_tokens"] == sum(tokens)


def test_the_decoder_knows_its_padding(tmp_path):
    lens = lens_of("bart")
    given = []
    lens.model.register_forward_pre_hook(lambda _, __, named: given.append(named), with_kwargs=True)
    benchmark = open_benchmark(write(tmp_path / "t.tsv", toy_rows()), lens)
    list(benchmark.losses(lens))  # the first time it is found out what the head reads
    given.clear()
    (lot,) = benchmark.losses(lens)
    (inputs,) = given
    lengths = [len(benchmark.pairs[example].labels) for example in lot.owners]
    assert inputs["decoder_attention_mask"].sum(dim=1).tolist() == lengths
    assert inputs["decoder_input_ids"][:, 0].tolist() == [2] * 12


def test_some_examples_of_a_benchmark(tmp_path):
    lens = lens_of("marian")
    benchmark = open_benchmark(write(tmp_path / "t.tsv", toy_rows()), lens)
    some = benchmark.take([7, 2, 3])
    np.testing.assert_array_equal(some.measure(lens), benchmark.measure(lens)[[7, 2, 3]])
    tokens = sum(len(pair.labels) for pair in some.pairs)
    assert some.facts == {**benchmark.facts, "examples": 3, "reference_tokens": tokens}
    whole = torch.zeros(12)
    part = torch.zeros(3)
    for made, sums in ((benchmark, whole), (some, part)):
        for lot in made.losses(lens):
            sums.index_add_(0, lot.examples, lot.losses.detach() * made.facts["reference_tokens"])
    np.testing.assert_allclose(part / 3, whole[[7, 2, 3]] / 12, rtol=1e-5)


def test_a_checkpoints_own_settings_stay_but_chance(tmp_path, capfd):
    lens = lens_of("bart")
    own = lens.model.generation_config
    own.forced_bos_token_id, own.bad_words_ids = 7, [[37], [40]]
    own.do_sample, own.temperature, own.top_k, own.max_length, own.num_beams = True, 1.5, 5, 20, 4
    before = own.to_dict()
    benchmark = open_benchmark(write(tmp_path / "t.tsv", toy_rows()), lens)
    made = benchmark.translate(lens)
    words = {word for text in made for word in text.split()}
    assert {text.split()[0] for text in made} == {"w7"}
    assert not words & {"w37", "w40"}
    assert max(len(text.split()) for text in made) > 20
    assert all(benchmark.translate(lens) == made for _ in range(2))
    assert own.to_dict() == before
    assert capfd.readouterr() == ("", "")


def test_length_limits(tmp_path):
    lens = lens_of("t5")
    lens.tokenizer.model_max_length = 10**30  # and T5 has no positions to run out of
    torch.nn.init.zeros_(lens.model.lm_head.weight)
    with torch.no_grad():
        lens.model.lm_head.weight[9] = lens.model.decoder.final_layer_norm.weight  # hardly ever ends
    rows = [(toy_text(3, i), "w9") for i in range(10)] + [(toy_text(30, i), "w9") for i in range(2)]
    spec = write(tmp_path / "t.tsv", rows)
    limits = [open_benchmark(spec, lens)._limit(pair) for pair in open_benchmark(spec, lens).pairs]
    assert limits == [32] * 10 + [96] * 2  # 2 x 5 + 10 and 2 x 32 + 10, rounded up
    for longest in (None, 40):
        benchmark = open_benchmark(spec, lens, BenchmarkOptions(max_length=longest))
        lengths = [len(text.split()) for text in benchmark.translate(lens)]
        assert max(lengths[:10]) <= 32
        assert max(lengths[10:]) <= (96 if longest is None else 39)
    for column, row in (("source", (toy_text(40, 1), "w5")), ("reference", ("w5", toy_text(40, 1)))):
        spec = write(tmp_path / "t.tsv", [*rows, row])
        with pytest.raises(InputError) as caught:
            open_benchmark(spec, lens, BenchmarkOptions(max_length=40))
        assert str(caught.value) == (
            f"{tmp_path / 't.tsv'}, line 14: the {column} has 42 tokens, and texts may have 40. Shorten it; "
            "headlens cuts no text off."
        )


def test_bad_files_are_told_with_their_line(tmp_path):
    lens, path = lens_of("bart"), tmp_path / "t.tsv"
    faults = [
        (toy_rows(9), f"{path}: expected at least 10 texts, found 9. Give a longer file."),
        (
            [*toy_rows(10), ("w5", " ")],
            f"{path}, line 12: expected a text in the column reference, found nothing.",
        ),
        (
            [*toy_rows(10), (" ", "w5")],
            f"{path}, line 12: expected a text in the column source, found nothing.",
        ),
    ]
    for rows, message in faults:
        with pytest.raises(InputError) as caught:
            open_benchmark(write(path, rows), lens)
        assert str(caught.value) == message
    path.write_text("".join(f"{b}\tx\t{a}\n" for a, b in toy_rows()))
    numbered = open_benchmark(f"translation:{path}", lens, BenchmarkOptions(columns=("2", "0")))
    assert numbered.pairs == open_benchmark(write(path, toy_rows()), lens).pairs


def test_unfit_models_are_refused(tmp_path):
    spec = write(tmp_path / "t.tsv", toy_rows())
    for model, kind in (
        (build("gpt2"), "GPT2LMHeadModel"),
        (build("bart").model, "BartModel"),
        (build("bert"), "BertForMaskedLM"),
    ):
        with pytest.raises(ModelError) as caught:
            open_benchmark(spec, headlens.load(model, toy_tokenizer()))
        assert str(caught.value) == (
            "The benchmark translation needs an encoder-decoder model that writes text, but this is a "
            f"{kind}. Take a checkpoint whose class ends in ForConditionalGeneration or MTModel, or another "
            "benchmark: similarity:FILE.tsv works with every encoder."
        )
    with pytest.raises(InputError) as caught:
        open_benchmark(spec, lens_of("bart"), BenchmarkOptions(beams=0))
    assert str(caught.value) == "Expected 1 beam or more, found 0. Type --beams 1 for greedy decoding."


def test_a_head_that_was_never_trained_is_refused(tmp_path):
    spec = write(tmp_path / "t.tsv", toy_rows())
    config = build("bart").config
    config.tie_word_embeddings = False
    transformers.BartModel(config).save_pretrained(tmp_path / "m")
    toy_tokenizer().save_pretrained(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    stated = json.loads(path.read_text()) | {"architectures": ["BartForConditionalGeneration"]}
    path.write_text(json.dumps(stated))
    lens = headlens.load(str(tmp_path / "m"))
    assert "lm_head.weight" in lens.missing
    with pytest.raises(ModelError) as caught:
        open_benchmark(spec, lens)
    assert str(caught.value) == (
        "The checkpoint lacks weights of the language-model head of BartForConditionalGeneration: "
        f"{', '.join(lens.missing)}. Use a complete checkpoint, or --allow-random-weights to measure it all "
        "the same."
    )
    open_benchmark(spec, lens, BenchmarkOptions(allow_random_weights=True))


def test_a_run_goes_on_unless_the_beams_change(tmp_path):
    lens = lens_of("bart")
    spec = write(tmp_path / "t.tsv", toy_rows())
    first = open_benchmark(spec, lens, BenchmarkOptions(beams=1))
    heads = lens.anatomy.heads[:2]
    assert sweep(lens, first, heads=heads, out=tmp_path / "run").run["conditions_reused"] == 0
    assert sweep(lens, first, heads=heads, out=tmp_path / "run").run["conditions_reused"] == 2
    with pytest.raises(RunError, match="its benchmark beams is 1, and now it is 2"):
        sweep(lens, open_benchmark(spec, lens, BenchmarkOptions(beams=2)), heads=heads, out=tmp_path / "run")
