"""Heads of whole models: planted twins, padding, batches, families."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.spatial.distance import jensenshannon

import headlens
from headlens.errors import InputError, RunError, SelectorError
from headlens.scoring.passes import RunOptions
from headlens.similarity.similar import CLUSTERS, DISTANCES, SimilarOptions, matrix_of, similar
from support import families, planted, scored, toys

WORDS = toys.SOURCE.split()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "toy.txt"
    lines = [" ".join(WORDS[(n + i) % len(WORDS)] for i in range(2 + n % 5)) for n in range(11)]
    path.write_text("\n\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def planted_text(tmp_path_factory):
    path = tmp_path_factory.mktemp("planted") / "toy.conllu"
    path.write_text(planted.corpus_text(n_documents=3))
    return path


def js(found, one, other):
    rows = found.distances
    (value,) = rows[
        (rows["layer_a"] == one[0])
        & (rows["head_a"] == one[1])
        & (rows["layer_b"] == other[0])
        & (rows["head_b"] == other[1])
    ]["js"]
    return value


def test_planted_twins_and_heads_with_nothing_in_common(planted_text):
    first, last = planted.first_position(), planted.looks_at(["[SEP]"])
    model = planted.bert({0: first, 1: last, 2: first}, uniform=True)
    found = similar(headlens.load(model, planted.tokenizer()), planted_text)
    assert js(found, (0, 0), (0, 2)) == 0
    assert js(found, (0, 0), (0, 1)) == pytest.approx(math.log(2), abs=1e-6)
    assert js(found, (0, 3), (1, 4)) == 0  # both uniform
    assert 0.1 < js(found, (0, 0), (0, 3)) < 0.6
    clusters = found.clusters.set_index(["layer", "head"])["cluster"]
    assert clusters[0, 0] == clusters[0, 2] == 0
    assert clusters[0, 1] == 1
    assert clusters[0, 3] == clusters[1, 5] == 2
    assert found.clusters["nearest"].tolist()[:4] == ["0.2", "0.3", "0.0", "0.4"]
    assert found.run["stacks"]["encoder"]["silhouette"] == pytest.approx(11 / 12)  # one stands alone


def test_a_model_without_twins(planted_text):
    looks = [planted.first_position(), planted.looks_at(["[SEP]"]), planted.previous_token()]
    model = planted.bert({0: looks[0], 1: looks[1], 2: looks[2]})
    found = similar(
        headlens.load(model, planted.tokenizer()), planted_text, options=SimilarOptions(heads="0.0-3")
    )
    assert found.distances["js"].min() > 0.1
    assert len(found.distances) == 6


def written_out(lens, text, smoothing=0.0):
    """Every sentence alone, unpadded, by scipy."""
    total, n = 0.0, 0
    for line in text.read_text().split("\n\n"):
        coded = lens.tokenizer(line.strip(), return_tensors="pt")
        patterns = lens.patterns(**coded)
        rows = torch.cat([pattern[0] for pattern in patterns.values()]).double().numpy()
        for query in range(rows.shape[1]):
            n_keys = query + 1 if next(iter(patterns)).causal else rows.shape[2]
            if n_keys > 1:
                mine = rows[:, query, :n_keys]
                mine = (1 - smoothing) * mine + smoothing / n_keys
                total = total + jensenshannon(mine[:, None], mine[None], axis=-1) ** 2
                n += 1
    return total / n


@pytest.mark.parametrize("smoothing", [0.0, 0.05])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "bloom", "falcon"])
def test_against_scipy_on_both_sides_and_all_batches(name, smoothing, text):
    lens = toys.family(name)
    expected = written_out(lens, text, smoothing)
    for left in (False, True):
        for size in (1, 3, 8):
            reading = RunOptions(batch_size=size, pad_left=left, block_size=2)
            found = similar(lens, text, options=SimilarOptions(smoothing=smoothing), reading=reading)
            matrix = matrix_of(found.distances, found.clusters)
            np.testing.assert_allclose(matrix, np.nan_to_num(expected), atol=2e-6)


@pytest.mark.parametrize("name", ["gpt_oss", "gemma3", "mistral", "modernbert", "deberta_v2"])
def test_sinks_and_windows_against_scipy(name, text):
    """Scipy scales rows to sum to 1, too: what a sink takes is not compared."""
    lens = toys.family(name)
    found = similar(lens, text, reading=RunOptions(batch_size=3))
    matrix = matrix_of(found.distances, found.clusters)
    np.testing.assert_allclose(matrix, np.nan_to_num(written_out(lens, text)), atol=2e-6)


def test_real_heads_against_scipy(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(
        "The dog chased its tail.\n\nShe said no.\n\nWhy would anyone read this, of all things?\n"
    )
    lens = toys.minilm()
    expected = written_out(lens, path)
    for left in (False, True):
        for size in (1, 3, 8):
            found = similar(lens, path, reading=RunOptions(batch_size=size, pad_left=left))
            matrix = matrix_of(found.distances, found.clusters)
            np.testing.assert_allclose(matrix, np.nan_to_num(expected), atol=1e-5)


@pytest.mark.parametrize("name", sorted(families.ALL))
def test_every_family(name, text):
    lens = toys.family(name)
    found = similar(lens, text)
    served = [h for h in lens.anatomy.heads if lens.anatomy.stacks == (h.stack,) or h.stack == "encoder"]
    n = len(served)
    assert len(found.distances) == n * (n - 1) // 2
    assert list(found.distances) == DISTANCES
    assert list(found.clusters) == CLUSTERS
    assert found.distances["js"].between(0, math.log(2)).all()
    assert found.distances["js"].max() > 1e-3
    assert found.distances["cka"].between(0, 1).all()
    notes = ["Not compared: the heads of decoder and cross."] if name in ("t5", "bart", "marian") else []
    assert found.run["notes"] == notes


def test_one_head_two_heads_and_equal_heads(text):
    lens = toys.family("gpt2")
    one = similar(lens, text, options=SimilarOptions(heads="1.2"))
    assert one.distances.empty
    assert one.clusters[["cluster", "nearest"]].to_numpy().tolist() == [[0, ""]]
    two = similar(lens, text, options=SimilarOptions(heads="0.1,1.2"))
    assert two.clusters["cluster"].tolist() == [0, 1]
    model = planted.bert({}, uniform=True)
    same = similar(headlens.load(model, planted.tokenizer()), text)
    assert same.distances["js"].eq(0).all()
    assert same.clusters["cluster"].eq(0).all()
    assert same.clusters["nearest"].tolist()[:3] == ["0.1", "0.0", "0.0"]


@pytest.mark.filterwarnings("ignore:.*does not say which model it is about")
def test_tags_of_a_run_stand_beside(text, tmp_path):
    tags = scored.tag_rows(2, 4, tags={("encoder", 1, 2): ("syntactic", "broad")})
    run = scored.write_run(tmp_path / "run", scored.everything(tags), tags)
    with pytest.warns(UserWarning, match="whether that is the model at hand cannot be told"):
        found = similar(toys.family("bert"), text, options=SimilarOptions(tags=run, heads="1.*"))
    assert found.clusters["tags"].tolist() == ["", "", "syntactic;broad", ""]
    (tmp_path / "weighed").mkdir()
    (tmp_path / "weighed" / "importance.csv").write_text("stack,layer,head,method,importance,rank\n")
    with pytest.raises(RunError) as refused:
        similar(toys.family("bert"), text, options=SimilarOptions(tags=tmp_path / "weighed"))
    assert str(refused.value).startswith(
        f"Expected the --out of a headlens classify; {tmp_path / 'weighed'} has no tags.csv. Type first: "
    )
    with pytest.raises(RunError, match="is about another model"):
        similar(toys.family("albert"), text, options=SimilarOptions(tags=run))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (SimilarOptions(smoothing=1.0), InputError, "Expected a smoothing from 0 to below 1, found 1. Clark"),
        (
            SimilarOptions(clusters=0),
            InputError,
            "Expected 1 cluster or more, found 0. Give a larger number.",
        ),
        (SimilarOptions(clusters=9), InputError, "8 heads do not make 9 clusters. Type --clusters 8."),
        (SimilarOptions(heads="5.0"), SelectorError, "There is no head 5.0 in this model."),
    ],
)
def test_options_that_cannot_be(options, error, message, text):
    with pytest.raises(error) as refused:
        similar(toys.family("bert"), text, options=options)
    assert str(refused.value).startswith(message)


def test_heads_of_a_decoder_that_reads_an_encoder(text):
    with pytest.raises(InputError) as refused:
        similar(toys.family("t5"), text, options=SimilarOptions(heads="cross.0.1"))
    assert str(refused.value) == (
        "Of encoder-decoder models only the encoder's heads are compared, not cross.0.1. Write for example "
        "--heads encoder.*.*"
    )
    names = similar(toys.family("t5"), text, options=SimilarOptions(heads="encoder.0.*")).clusters["nearest"]
    assert names.str.startswith("encoder.0.").all()


def test_the_same_tables_twice(text):
    one, two = (similar(toys.family("bert"), text) for _ in range(2))
    pd.testing.assert_frame_equal(one.distances, two.distances, check_exact=True)
    pd.testing.assert_frame_equal(one.clusters, two.clusters, check_exact=True)
