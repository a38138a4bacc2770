"""What models compute as NaN or infinity becomes no score, map, distance, share or pruned model."""

from __future__ import annotations

import json
import math

import pytest
import torch
from click.testing import CliRunner

import headlens
from headlens.cli import main
from headlens.corpus.read import read_files
from headlens.errors import ModelError, NotNumbersError
from headlens.model.finite import check_numbers
from headlens.pruning.prune import prune
from headlens.scoring.classify import classify
from headlens.scoring.passes import Reader, RunOptions
from headlens.scoring.scorers import SCORERS
from headlens.scoring.scorers.delimiter import Delimiter
from headlens.similarity.similar import similar
from support import notnumbers
from support.families import build
from support.toys import site
from support.toytext import toy_text, toy_tokenizer

NAN, INF = math.nan, math.inf
SUFFIX = "NaN or an infinite number: the model's weights or activations are not numbers."


@pytest.fixture
def corpus(tmp_path):
    lines = ["# newdoc id = d", "# global.Entity = eid-etype-head-other"]
    for sentence in range(24):
        words = toy_text(7, sentence).split() + ["w33"] * (sentence == 20)
        for i, word in enumerate(words, 1):
            mark = "Entity=(e1-person-1-)" if i in (2, 6) else "_"
            arc = "0\troot" if i == 1 else f"1\t{('obj', 'nsubj')[i % 2]}"
            lines.append(f"{i}\t{word}\t{word}\t{('NOUN', 'VERB')[i % 2]}\t_\t_\t{arc}\t_\t{mark}")
        lines.append("")
    (tmp_path / "x.conllu").write_text("\n".join(lines) + "\n")
    return read_files(tmp_path / "x.conllu")


def lens_of(family="bert"):
    return headlens.load(build(family), toy_tokenizer())


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_any_weight_that_is_none_names_the_first_head(value):
    weights = torch.full((3, 4, 5, 5), 0.2)
    weights[1, 2, 3, 4] = weights[2, 3, 0, 0] = value
    with pytest.raises(NotNumbersError) as refused:
        check_numbers(site(1, 4), weights)
    assert refused.value.problem == f"The attention of head encoder.1.2 holds {SUFFIX}"
    rows = torch.ones(3, 5, dtype=torch.bool)
    rows[1, 3] = rows[2, 0] = False  # padding: what is there counts for nothing
    check_numbers(site(1, 4), weights, rows)


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("tag", SCORERS)
def test_every_scorer_refuses_a_word_that_is_no_number(corpus, tag, value):
    """One word of one sentence: no mean over the other sentences is given for it."""
    lens = lens_of("gpt2" if tag == "induction" else "bert")
    notnumbers.states(lens.model, value)
    with pytest.raises(NotNumbersError, match=r"The attention of head (encoder|decoder)\.0\.0 holds"):
        classify(lens, corpus, [tag])


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("family", ["bert", "gpt2", "marian"])
def test_states_behind_all_attention(corpus, family, norms):
    """All patterns are numbers; what the model makes of them is not, and the sentence is named."""
    lens = lens_of(family)
    if family == "marian":
        last = lens.model.model.encoder.layers[-1]
        last.final_layer_norm.register_forward_hook(lambda module, given, output: output * NAN)
    else:
        notnumbers.last(lens.model, INF)
    with pytest.raises(NotNumbersError, match=r"The last hidden states of the input that begins 'w\d+ w\d+"):
        classify(lens, corpus, ["delimiter"], reading=RunOptions(norms=norms))


def test_values_of_a_head_of_the_last_layer(corpus):
    """No pattern shows it; norms do, by the head, and weights by what the model puts out."""
    lens = lens_of()
    notnumbers.values_of_head(lens.model, 2)
    with pytest.raises(NotNumbersError, match=r"The attention of head encoder\.1\.2 holds NaN"):
        classify(lens, corpus, ["delimiter"], reading=RunOptions(norms=True))
    with pytest.raises(NotNumbersError, match="The last hidden states of the input"):
        classify(lens, corpus, ["delimiter"])


def test_a_scorer_whose_sums_are_none_is_refused(corpus, monkeypatch):
    """Also one of one's own: what it makes of sound attention is looked at."""
    lens, own = lens_of(), Delimiter.__call__

    def spoilt(self, view):
        counts = own(self, view)
        if view.site.layer == 1:
            counts.score[0, 1, 3] = NAN
        return counts

    monkeypatch.setattr(Delimiter, "__call__", spoilt)
    with pytest.raises(NotNumbersError) as refused:
        classify(lens, corpus, ["delimiter"])
    assert refused.value.problem == f"The score 'punctuation' of head encoder.1.3 holds {SUFFIX}"


def test_similar(corpus):
    """A head that writes NaN is not one that writes nothing, whose CKA is an empty cell."""
    lens = lens_of()
    notnumbers.values_of_head(lens.model, 2)
    with pytest.raises(NotNumbersError) as refused:
        similar(lens, corpus)
    assert refused.value.problem == f"The outputs of head encoder.1.2 hold {SUFFIX}"
    lens = lens_of()
    with torch.no_grad():
        lens.model.base_model.encoder.layer[1].attention.output.dense.weight[:, 8:16] = INF
    with pytest.raises(NotNumbersError) as refused:
        similar(lens, corpus)
    assert refused.value.problem == f"The W_O of head encoder.1.1 holds {SUFFIX}"
    lens = lens_of()
    notnumbers.states(lens.model, NAN)
    with pytest.raises(NotNumbersError, match=r"The attention of head encoder\.0\.0 holds NaN"):
        similar(lens, corpus)


def test_contributions():
    lens = lens_of("gpt2")
    notnumbers.logits(lens.model, NAN)
    with pytest.raises(NotNumbersError) as refused:
        lens.contributions("w5 w6 w7")
    assert refused.value.problem == f"The logits of position 4 hold {SUFFIX}"
    lens = lens_of("gpt2")
    notnumbers.states(lens.model, INF, word=6)
    with pytest.raises(
        NotNumbersError, match=r"The (output of head|residual stream behind) decoder\.0.* holds NaN"
    ):
        lens.contributions("w5 w6 w7")
    lens.contributions("w5 w7")  # an input without that word is sound
    lens = lens_of()
    notnumbers.values_of_head(lens.model, 3)
    with pytest.raises(NotNumbersError) as refused:
        lens.contributions("w5 w6 w7")
    assert refused.value.problem == f"The output of head encoder.1.3 holds {SUFFIX}"


def test_maps_of_half_precision_that_overflows():
    lens = lens_of()
    with torch.no_grad():
        lens.model.base_model.encoder.layer[0].output.dense.weight.fill_(1.0)
        lens.model.base_model.encoder.layer[0].intermediate.dense.bias += 3e4
    lens.attention("w5 w6 w7")
    lens.model.half()
    with pytest.raises(NotNumbersError, match=r"The attention of head encoder\.1\.0 holds NaN"):
        lens.attention("w5 w6 w7")


def test_a_pruned_model_is_held_against_numbers_only(tmp_path):
    lens = lens_of()
    notnumbers.values_of_head(lens.model, 3)
    with pytest.raises(ModelError, match="What the model puts out with these heads ablated holds NaN"):
        prune(lens, "0.1", tmp_path / "out")
    assert not list(tmp_path.glob("out/*.safetensors"))


def saved(tmp_path, lens):
    lens.model.save_pretrained(tmp_path / "m")
    lens.tokenizer.save_pretrained(tmp_path / "m")
    return str(tmp_path / "m")


def test_check_says_it_in_json_that_is_json(tmp_path):
    lens = lens_of()
    notnumbers.values_of_head(lens.model, 2)
    done = CliRunner().invoke(main, ["check", saved(tmp_path, lens), "--json"])
    assert done.exit_code == 1

    def refuse(name):
        raise AssertionError(name)

    found = json.loads(done.stdout, parse_constant=refuse)
    failed = {one["name"]: one["said"] for one in found["checks"] if one["passed"] is False}
    assert any("NaN" in said or "no number" in said for said in failed.values()), failed


@pytest.mark.parametrize("value", [NAN, INF])
def test_check_looks_at_logits(value):
    from headlens.checks.inputs import Subject
    from headlens.checks.of_attention import numbers

    lens = lens_of("gpt2")
    notnumbers.logits(lens.model, value)
    assert numbers.does(Subject(lens)).passed is False


def test_no_scorer_edits_what_it_is_shown(corpus, monkeypatch):
    """Patterns are shown to several scorers one after another: none changes them for the next."""
    shown, own = [], Reader.see

    def see(self, site, block, batch):
        before = block.pattern.clone()
        own(self, site, block, batch)
        shown.append(torch.equal(block.pattern, before))

    monkeypatch.setattr(Reader, "see", see)
    classify(lens_of("gpt2"), corpus, list(SCORERS))
    assert len(shown) > 4
    assert all(shown)


@pytest.mark.parametrize(("name", "what"), [("query", "W_Q"), ("key", "W_K"), ("value", "W_V")])
def test_weights_of_a_head(name, what):
    """A copying score of NaN is that of a head that writes nothing, or of BERT: not that of a broken one."""
    lens = lens_of()
    with torch.no_grad():
        getattr(lens.model.base_model.encoder.layer[1].attention.self, name).weight[8 * 2] = NAN
    with pytest.raises(NotNumbersError) as refused:
        lens.weights("1.2")
    assert refused.value.problem == f"The {what} of head encoder.1.2 holds {SUFFIX}"
    lens.weights("1.1")
