"""Encoder-decoder models: every stack is scored on its own words, against passes of one pair at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import headlens
from headlens.corpus.conllu import read_conllu
from headlens.errors import CorpusError, InputError
from headlens.scoring.classify import RunOptions, Sources
from support import planted
from support.families import build


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Sources, and targets with as many sentences that are not the same."""
    folder = tmp_path_factory.mktemp("pairs")
    paths = folder / "source.conllu", folder / "target.conllu"
    for seed, path in enumerate(paths):
        path.write_text(planted.corpus_text(seed, n_documents=10), encoding="utf-8")
    return paths


def lens_of(family):
    return headlens.load(build(family, "eager"), planted.tokenizer())


def measured(found, stack, measure):
    rows = found.scores[(found.scores["stack"] == stack) & (found.scores["measure"] == measure)]
    return rows["score"].to_numpy(float), rows["n"].to_numpy(int)


@torch.no_grad()
@pytest.mark.parametrize("family", ["t5", "bart", "marian"])
def test_against_one_pair_at_a_time(family, files):
    lens = lens_of(family)
    found = headlens.classify(
        lens, files[0], ["positional", "delimiter", "syntactic"], sources=Sources(targets=files[1])
    )
    sums = dict.fromkeys(("cross-mass", "cross-special", "decoder-first", "decoder-obj"), 0.0)
    counts = dict.fromkeys(sums, 0)
    sources, targets = ([s for _, s in read_conllu([path]).sentences] for path in files)
    for source, target in zip(sources, targets, strict=True):
        ids, labels = (
            torch.tensor([lens.tokenizer(s.forms, is_split_into_words=True)["input_ids"]])
            for s in (source, target)
        )
        written = lens.model.prepare_decoder_input_ids_from_labels(labels)
        maps = lens.model(input_ids=ids, decoder_input_ids=written, output_attentions=True)
        cross = torch.cat(maps.cross_attentions)  # [layer, head, target token, source token]
        own = torch.cat(maps.decoder_attentions)
        n_written, n_read = cross.shape[-2:]
        for query in range(1, n_written):
            if query - 1 < n_read:
                sums["cross-mass"] += cross[:, :, query, query - 1]
                counts["cross-mass"] += 1
        sums["cross-special"] += (cross[..., 0] + cross[..., -1]).sum(-1)  # [CLS] and [SEP] of the source
        counts["cross-special"] += n_written
        sums["decoder-first"] += own[..., 0].sum(-1)
        counts["decoder-first"] += n_written
        for dependent, word in enumerate(target.words):
            if word.deprel == "obj":
                # the start token and [CLS] stand before the words, which look at earlier words and themselves
                row = own[:, :, dependent + 2, 2 : 2 + len(target.words)].clone()
                row[..., dependent] = -1
                row[..., dependent + 1 :] = -1
                sums["decoder-obj"] += (row.argmax(-1) == word.head).float()
                counts["decoder-obj"] += 1
    for name, stack, measure in (
        ("cross-mass", "cross", "mass@-1"),
        ("cross-special", "cross", "special"),
        ("decoder-first", "decoder", "first-token"),
        ("decoder-obj", "decoder", "obj:dependent->head"),
    ):
        score, n = measured(found, stack, measure)
        assert set(n) == {counts[name]}, name
        np.testing.assert_allclose(score, (sums[name] / counts[name]).flatten(), atol=2e-5, err_msg=name)


@pytest.mark.parametrize("reading", [RunOptions(batch_size=1), RunOptions(batch_size=7, block_size=3)])
def test_how_it_is_run_changes_no_score(files, reading):
    lens, sources = lens_of("bart"), Sources(targets=files[1])
    expected = headlens.classify(lens, files[0], sources=sources).scores
    found = headlens.classify(lens, files[0], sources=sources, reading=reading).scores
    for column in ("score", "baseline", "n"):
        np.testing.assert_allclose(found[column].astype(float), expected[column].astype(float), atol=1e-5)


def test_what_makes_no_sense_is_empty(files):
    found = headlens.classify(lens_of("t5"), files[0], sources=Sources(targets=files[1])).scores
    scored = found[found["n"] > 0].groupby("stack")["tag"].agg(set)
    assert scored["cross"] == {"positional", "delimiter", "broad"}
    assert scored["decoder"] == set(found["tag"]) - {"coreference"}
    assert scored["encoder"] == set(found["tag"])
    assert found[found["n"] == 0][["score", "effect", "p_value", "q_value"]].isna().all().all()
    assert set(found["stack"]) == {"encoder", "decoder", "cross"}


def test_without_targets_only_the_encoder_reads_the_corpus(files):
    lens = lens_of("bart")
    alone = headlens.classify(lens, files[0], ["positional", "syntactic"]).scores
    paired = headlens.classify(
        lens, files[0], ["positional", "syntactic"], sources=Sources(targets=files[1])
    ).scores
    assert set(alone[alone["n"] > 0]["stack"]) == {"encoder"}
    one, two = (found.loc[found["stack"] == "encoder", "score"].astype(float) for found in (alone, paired))
    np.testing.assert_allclose(one, two, atol=1e-5)


def test_targets_by_lines(files, tmp_path):
    lens, path = lens_of("t5"), tmp_path / "targets.txt"
    sentences = [sentence for _, sentence in read_conllu([files[1]]).sentences]
    path.write_text("\n".join(" ".join(s.forms) for s in sentences) + "\n", encoding="utf-8")
    lines, trees = (
        headlens.classify(lens, files[0], ["positional"], sources=Sources(targets=targets)).scores
        for targets in (path, files[1])
    )
    assert lines.equals(trees)
    path.write_text("one\n\ntwo\n", encoding="utf-8")
    with pytest.raises(CorpusError) as error:
        headlens.classify(lens, files[0], ["positional"], sources=Sources(targets=path))
    assert str(error.value) == (
        f"Expected 70 targets, one for each sentence of the corpus, found 2 in {path}. Give as many targets "
        "as sentences, in the same order."
    )


def test_targets_are_for_encoder_decoders(files):
    lens = headlens.load(planted.bert({}), planted.tokenizer())
    with pytest.raises(InputError) as error:
        headlens.classify(lens, files[0], sources=Sources(targets=files[1]))
    assert str(error.value) == (
        "BertModel has no decoder that looks at an encoder, so nothing writes targets. Leave --targets out."
    )
