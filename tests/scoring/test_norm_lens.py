"""classify through the norm lens: shares of |A_ij f(x_j)| instead of weights."""

import json
from itertools import islice

import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from torch.testing import assert_close

import headlens
from headlens.cli import main
from headlens.cli.options import ModelOptions
from headlens.errors import InputError
from headlens.model.lens import takes_positions
from headlens.model.seam import Block
from headlens.scoring.classify import RunOptions, read_corpus
from headlens.scoring.passes import NormLens
from support import families, planted, toys


def test_by_hand_a_heavy_weight_on_what_hands_over_nothing():
    """0.9 on a key whose value is 0 counts for nothing; the rest shares the row."""
    lens = headlens.load(families.build("bert"))
    site = lens.anatomy.sites[0]
    values = torch.zeros(1, 4, 3, 8)
    values[0, :, 1:] = torch.randn(4, 1, 8)  # key 0 holds nothing, keys 1 and 2 hold the same
    pattern = torch.tensor([0.9, 0.06, 0.04]).expand(1, 4, 1, 3)
    seen = torch.ones(1, 1, 1, 3, dtype=torch.bool)
    found = NormLens(lens)(site, Block(pattern, seen, 0, 1, 1, 3, values)).pattern
    assert_close(found, torch.tensor([0.0, 0.6, 0.4]).expand(1, 4, 1, 3))
    nothing = NormLens(lens)(site, Block(pattern, seen, 0, 1, 1, 3, torch.zeros(1, 4, 3, 8))).pattern
    assert not nothing.any()


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2", "t5", "mistral", "gemma3"])
@pytest.mark.parametrize("left", [False, True])
def test_blocks_are_the_norms_of_view(family, left):
    """Batched, padded, block by block: what maps.to_norms has for each text alone."""
    lens = toys.family(family)
    model, site = lens.model, lens.anatomy.sites[-1]
    texts = ["the dog chased its tail", "the tail"]
    encoded = [lens.tokenizer(text).input_ids for text in texts]
    width = max(map(len, encoded))
    ids, mask = torch.zeros(2, width, dtype=torch.long), torch.zeros(2, width, dtype=torch.long)
    spans = [slice(width - len(one), width) if left else slice(0, len(one)) for one in encoded]
    for row, (one, span) in enumerate(zip(encoded, spans, strict=True)):
        ids[row, span], mask[row, span] = torch.tensor(one), 1
    inputs = {"input_ids": ids, "attention_mask": mask}
    if model.config.is_encoder_decoder:
        site = lens.anatomy.sites[0]
        inputs["decoder_input_ids"] = torch.zeros(2, 1, dtype=torch.long)
    elif left and takes_positions(lens):
        inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    shares, blocks = NormLens(lens), []
    with torch.no_grad(), lens.observe(lambda s, b: blocks.append(shares(s, b)), [site], block_size=2):
        lens.run(inputs)
    for row, (text, span) in enumerate(zip(texts, spans, strict=True)):
        target = "der" if model.config.is_encoder_decoder else None
        norms = lens.attention(text, target=target).to_norms().patterns[site]
        expected = norms / norms.sum(-1, keepdim=True)
        for block in blocks:
            for query in range(block.start, block.stop):
                if mask[row, query]:
                    got = block.pattern[row, :, query - block.start]
                    got = torch.nn.functional.pad(got, (0, width - got.shape[-1]))[:, span]
                    assert_close(got, expected[:, query - span.start], atol=1e-5, rtol=1e-4)


def test_a_head_that_rests_on_empty_values_is_no_delimiter_head():
    """A planted head gives all its weight to full stops, whose value is then made 0."""
    model = planted.bert({0: planted.looks_at(["."])})
    lens = headlens.load(model, planted.tokenizer())
    text = "dep0 top0 . dep1 top1 ."
    weights = lens.attention(text).select("0.0")
    dots = [i for i, token in enumerate(weights.tokens) if token == "."]
    assert weights.pattern(weights.heads[0])[:, dots].sum(-1).min() > 0.99
    value = model.encoder.layer[0].attention.self.value
    states = {}
    handle = value.register_forward_pre_hook(lambda module, arguments: states.update(x=arguments[0][0]))
    lens.attention(text)
    handle.remove()
    held = states["x"][dots].double()
    width = lens.anatomy.sites[0].head_width
    with torch.no_grad():  # make the head's values 0 wherever a full stop stands
        matrix = value.weight[:width].double()
        basis = torch.linalg.qr(held.T).Q
        value.weight[:width] = (matrix - matrix @ basis @ basis.T).float()
        value.bias[:width] = 0
    norms = lens.attention(text).to_norms().select("0.0")
    shares = norms.pattern(norms.heads[0])
    assert shares[:, dots].abs().max() < 1e-5


@pytest.mark.slow
def test_the_command(monkeypatch, tmp_path):
    monkeypatch.setattr(ModelOptions, "load", lambda self, model: toys.minilm())
    text = "\n\n".join(" ".join(sentence.forms) for _, sentence in islice(read_corpus(None).sentences, 40))
    (tmp_path / "text.txt").write_text(text)
    tables = {}
    for measure in ("weights", "norms"):
        out = tmp_path / measure
        arguments = ["classify", "minilm", "--tags", "delimiter,positional", "--lens", measure, "--quiet"]
        arguments += ["--corpus", str(tmp_path / "text.txt")]
        result = CliRunner().invoke(main, [*arguments, "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert ("Scores are shares of norms" in result.stdout) == (measure == "norms")
        assert json.loads((out / "run.json").read_text())["lens"] == measure
        assert ("shares of norms, not of weights" in (out / "report.html").read_text()) == (
            measure == "norms"
        )
        tables[measure] = pd.read_csv(out / "scores.csv")
    special = [table[table["measure"] == "special"] for table in tables.values()]
    assert special[0]["score"].between(0, 1).all()
    assert special[1]["score"].between(0, 1).all()
    assert special[1]["score"].mean() < special[0]["score"].mean()  # [CLS] and [SEP] hand over little
    assert (special[0]["baseline"] == special[1]["baseline"]).all()


def test_scores_are_those_of_the_shares(tmp_path):
    """An independent way: the special-token share of each head from the maps of single sentences."""
    lens = toys.minilm()
    texts = ["The dog chased its tail.", "A man sleeps.", "She found the letters in the garden."]
    sums = torch.zeros(72, dtype=torch.float64)
    n = 0
    for text in texts:
        maps = lens.attention(text).to_norms()
        special = torch.tensor(maps.axes["encoder"][1].special)
        shares = torch.cat([maps.patterns[site] for site in lens.anatomy.sites]).double()
        shares = shares / shares.sum(-1, keepdim=True)
        sums += shares[:, :, special].sum(-1).sum(-1)
        n += len(maps.tokens)
    (tmp_path / "text.txt").write_text("\n".join(texts))
    scores = headlens.classify(
        lens, tmp_path / "text.txt", ["delimiter"], reading=RunOptions(norms=True)
    ).scores
    found = scores[scores["measure"] == "special"]["score"].to_numpy(float)
    assert_close(torch.tensor(found), sums / n, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["bloom", "deberta_v2"])
def test_families_that_hide_their_values_are_refused(family, tmp_path):
    lens = toys.family(family)
    (tmp_path / "a.txt").write_text("the dog chased its tail\n")
    with pytest.raises(InputError, match=r"norms of \w+ cannot be told.* Leave --lens norms out"):
        headlens.classify(lens, tmp_path / "a.txt", ["delimiter"], reading=RunOptions(norms=True))
