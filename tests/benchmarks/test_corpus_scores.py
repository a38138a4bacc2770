from __future__ import annotations

import sys

import numpy as np
import pytest

from headlens.ablation.result import compare, paired_p
from headlens.benchmarks.metrics import BLEU, CHRF, Ngrams
from headlens.errors import InputError
from headlens.util.statistics import draws

sacrebleu = pytest.importorskip("sacrebleu")
SCORES = {
    "bleu": (BLEU, lambda hyps, refs: sacrebleu.corpus_bleu(hyps, [refs], force=True).score),
    "chrf": (CHRF, lambda hyps, refs: sacrebleu.corpus_chrf(hyps, [refs]).score),
}
WORDS = ["the", "dog", "sees", "a", "cat", "house,", "in", "(old)", "big", "trees."]


def corpus(n: int, wrong: float, seed: int = 0) -> tuple[list[str], list[str]]:
    """Translations and references; each word is wrong with some probability, some are left out."""
    generator = np.random.default_rng(seed)
    references = [" ".join(generator.choice(WORDS, generator.integers(3, 15))) for _ in range(n)]
    made = []
    for reference in references:
        words = [str(generator.choice(WORDS)) if generator.random() < wrong else w for w in reference.split()]
        made.append(" ".join(w for w in words if generator.random() > 0.1))
    return made, references


EDGES = {
    "same": (["a b c d e f", "g h"], ["a b c d e f", "g h"]),
    "nothing right": (["q q q q q", "z"], ["a b c d e", "g h"]),
    "nothing written": (["", ""], ["a b", "c"]),
    "one empty": (["", "a b c d e"], ["a b", "a b c d f"]),
    "too short for 4-grams": (["a b c", "a"], ["a b c", "a b"]),
    "no 4-gram right": (["a b x d e", "c d"], ["a b c d e", "c d"]),
    "no 2-gram right": (["a x b y c z d", "c"], ["a b c d", "c"]),
    "short": (["a b c d"], ["a b c d e f g h"]),
    "long": (["a b c d e f g h"], ["a b c d"]),
    "characters": (["äöü ß — “”", "日本語"], ['äöü ss - ""', "日本 語"]),
}


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("edge", EDGES)
def test_edges_are_sacrebleus(name, edge):
    metric, own = SCORES[name]
    made, references = EDGES[edge]
    values = Ngrams(references).count(made)
    assert values.shape == (len(made), 28)
    assert metric.value(values) == pytest.approx(own(made, references), rel=1e-12, abs=1e-12)
    if edge == "same" and name == "chrf":
        assert metric.value(values) == 100
    if edge.startswith("nothing"):
        assert metric.value(values) == 0


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.parametrize("wrong", [0.0, 0.3, 0.9])
def test_corpora_and_their_resamples_are_sacrebleus(name, wrong):
    metric, own = SCORES[name]
    made, references = corpus(40, wrong)
    values = Ngrams(references).count(made)
    assert metric.value(values) == pytest.approx(own(made, references), rel=1e-12)
    drawn = draws(40, seed=3, resamples=25)
    expected = []
    for counts in drawn:
        chosen = np.repeat(np.arange(40), counts.astype(int))
        expected.append(own([made[i] for i in chosen], [references[i] for i in chosen]))
    np.testing.assert_allclose(metric.resampled(values, drawn), expected, rtol=1e-12)


def test_by_hand():
    """2 of 3 words, 1 of 2 word pairs, 0 of 1 and 0 of 0 longer ones: BLEU 0; with longer ones smoothed."""
    values = Ngrams(["a b c", "a b c d e"]).count(["a b x", "a b c x e"])
    assert values[0, :10].tolist() == [3, 3, 2, 1, 0, 0, 3, 2, 1, 0]
    assert values[1, :10].tolist() == [5, 5, 4, 2, 1, 0, 5, 4, 3, 2]
    assert BLEU.value(values[:1]) == 0
    assert BLEU.value(values) == pytest.approx(100 * (6 / 8 * 3 / 6 * 1 / 4 * 1 / (2 * 2)) ** 0.25)
    # characters: "abx" against "abc": precisions and recalls 2/3, 1/2, 0
    assert CHRF.value(values[:1]) == pytest.approx(100 * (2 / 3 + 1 / 2) / 3)


@pytest.mark.parametrize("name", SCORES)
def test_linearised_scores_are_those_of_a_jackknife(name):
    metric, own = SCORES[name]
    made, references = corpus(300, 0.3)
    value, influence = metric.linearised(Ngrams(references).count(made))
    assert value == pytest.approx(own(made, references), rel=1e-12)
    assert influence.sum() == pytest.approx(0, abs=1e-12)
    left_out = np.array(
        [own(made[:i] + made[i + 1 :], references[:i] + references[i + 1 :]) for i in range(0, 300, 10)]
    )
    all_but = influence[::10] - influence[::10].mean()
    np.testing.assert_allclose(left_out.mean() - left_out, all_but, atol=0.03 * np.abs(influence).max())


@pytest.mark.parametrize("name", SCORES)
def test_errors_are_those_of_a_bootstrap(name):
    """The standard error of the linearised score is the spread of the score over resamples."""
    metric, _ = SCORES[name]
    made, references = corpus(200, 0.3)
    values = Ngrams(references).count(made)
    _, influence = metric.linearised(values)
    spread = metric.resampled(values, draws(200, resamples=2000)).std()
    assert np.sqrt((influence**2).sum()) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("name", SCORES)
def test_p_values_are_those_of_a_permutation_test(name):
    """Under "no effect" an example's translation with and without a head can change places."""
    metric, _ = SCORES[name]
    generator = np.random.default_rng(1)
    (made, references), (other, _) = corpus(80, 0.3), corpus(80, 0.34)
    ngrams = Ngrams(references)
    base, values = ngrams.count(made), ngrams.count(other)
    delta = metric.value(values) - metric.value(base)
    swap = generator.random((2000, 80, 1)) < 0.5
    permuted = [
        metric.value(np.where(s, base, values)) - metric.value(np.where(s, values, base)) for s in swap
    ]
    share = np.mean(np.abs(permuted) >= abs(delta))
    assert 0.001 < share < 0.5
    assert paired_p(metric, values, base) == pytest.approx(share, abs=0.03)


def test_many_conditions_are_compared():
    made, references = corpus(60, 0.2)
    ngrams = Ngrams(references)
    base = ngrams.count(made)
    others = [ngrams.count(corpus(60, wrong)[0]) for wrong in (0.2, 0.25, 0.6)]
    none = ngrams.count([""] * 60)
    for metric in (BLEU, CHRF):
        found = compare(metric, base, [*others, none], draws(60))
        assert (found.delta[0], found.p_value[0]) == (0, 1)
        assert found.delta[2] < found.delta[1] < 0
        assert found.value[3] == 0
        assert found.q_value[2:].max() < 1e-6
        assert (found.ci_low <= found.delta).all()
        assert (found.delta <= found.ci_high).all()


def test_signatures_are_sacrebleus():
    bleu, chrf = sacrebleu.BLEU(), sacrebleu.CHRF()
    for kind in (bleu, chrf):
        kind.corpus_score(["a"], [["a"]])
    assert Ngrams(["a", "b"]).signatures == {
        "bleu": str(bleu.get_signature()),
        "chrf": str(chrf.get_signature()),
    }


def test_without_sacrebleu_there_is_a_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(InputError) as caught:
        Ngrams(["a"])
    assert str(caught.value) == (
        "The benchmark translation needs the package sacrebleu, which is not installed. Type: pip install "
        "'headlens[translation]'"
    )
