"""Runs parts of headlens on a device that is not there, and holds the results against the CPU's.

`python pretend_checks.py FOLDER [NAME]` prints one JSON object: by name of a check "ok" or what went wrong.
"""

import copy
import json
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import headlens
from headlens.ablation.gates import Fit, learn_gates
from headlens.ablation.sweep import open_for
from headlens.ablation.sweep import sweep as run_sweep
from headlens.benchmarks.base import BenchmarkOptions
from headlens.model import devices
from headlens.scoring.base import Context
from headlens.scoring.classify import Sources, classify
from headlens.scoring.passes import RunOptions, run_passes
from headlens.scoring.scorers import SCORERS
from headlens.similarity.similar import similar
from support import families, pretend, toytext

TAGS = ("NOUN", "VERB", "ADJ")


def write_corpus(path):
    """Trees and mentions of toy words, in a dozen documents."""
    lines = ["# global.Entity = eid-etype-head-other"]
    for document in range(12):
        lines.append(f"# newdoc id = d{document}")
        for sentence in range(2):
            for i, word in enumerate(toytext.toy_text(7, 100 * document + sentence).split(), 1):
                mark = f"Entity=(e{i % 2}-person-1-)" if i in (1, 3, 5) else "_"
                arc = "0\troot" if i == 1 else f"1\t{('obj', 'dep')[i % 2]}"
                lines.append(f"{i}\t{word}\t{word}\t{TAGS[i % 3]}\t_\t_\t{arc}\t_\t{mark}")
            lines.append("")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


class Jobs:
    """What is run, on either device."""

    def __init__(self, folder):
        self.corpus = write_corpus(folder / "corpus.conllu")
        self.targets = folder / "targets.txt"
        self.targets.write_text("\n".join(toytext.toy_text(5, seed) for seed in range(24)))
        self.pairs = toytext.write_pairs(folder / "pairs.tsv", toytext.toy_pairs())
        self.lines = toytext.write_lines(folder / "lines.txt", 120)

    def patterns(self, lens):
        return {str(site): one.cpu() for site, one in lens.patterns(**families.batch(lens.model)).items()}

    def classify(self, lens):
        seq2seq = lens.model.config.is_encoder_decoder
        return classify(lens, self.corpus, sources=Sources(targets=self.targets) if seq2seq else None).scores

    def norms(self, lens):
        return classify(lens, self.corpus, ["delimiter"], reading=RunOptions(norms=True)).scores

    def ablate(self, lens):
        texts = [toytext.toy_text(5, seed) for seed in range(4)]
        modes = ("zero", "mean", "resample") + (("uniform",) if lens.anatomy.by_interface else ())
        found = []
        for mode in modes:
            with torch.no_grad(), lens.ablate("*.0", mode, texts):
                found.append(lens.run(families.batch(lens.model)).last_hidden_state.cpu())
        return found

    def sweep(self, lens):
        made = run_sweep(lens, self.pairs, "each", heads="1.*", order="gradient")
        return [made.table, made.importance]

    def loss(self, lens):
        return run_sweep(lens, self.lines, "layer", order="taylor").importance

    def gates(self, lens):
        benchmark = open_for(lens, self.lines, BenchmarkOptions())
        learned = learn_gates(lens, benchmark, lens.anatomy.heads, Fit(steps=3))
        return torch.from_numpy(learned.open_closing)

    def similar(self, lens):
        return similar(lens, self.corpus).distances

    def contributions(self, lens):
        seq2seq = lens.model.config.is_encoder_decoder
        text, target = toytext.toy_text(5, 1), toytext.toy_text(4, 2) if seq2seq else None
        return lens.contributions(text, target=target).table

    def weights(self, lens):
        some = [lens.weights(head) for head in lens.anatomy.heads[:3]]
        return [one.qk.singular_values().cpu() for one in some] + [one.copying_score for one in some]

    def view(self, lens):
        seq2seq = lens.model.config.is_encoder_decoder
        target = toytext.toy_text(4, 2) if seq2seq else None
        return lens.attention(toytext.toy_text(5, 1), target=target).to_frame()


EVERY = [name for name in vars(Jobs) if not name.startswith("_")]
SOME = ["patterns", "classify", "ablate", "sweep", "similar", "contributions", "weights"]
SEQ2SEQ = ["patterns", "classify", "contributions", "view"]
PLANS = [  # name, family, how it is placed, has the device float64, jobs
    ("llama", "llama", pretend.placed, True, EVERY),
    ("bert", "bert", pretend.placed, True, ["classify", "sweep", "contributions"]),
    ("t5", "t5", pretend.placed, True, SEQ2SEQ),
    ("deberta", "deberta_v2", pretend.placed, True, ["classify", "ablate", "similar", "contributions"]),
    ("llama spread", "llama", pretend.spread, True, EVERY),
    ("deberta spread", "deberta_v2", pretend.spread, True, SOME),
    ("llama without float64", "llama", pretend.placed, False, [*SOME, "gates"]),
]


def same(one, two):
    """Assert that two results are equal to rounding."""
    if isinstance(one, pd.DataFrame):
        one, two = (pd.DataFrame(x).reset_index(drop=True) for x in (one, two))
        pd.testing.assert_frame_equal(one, two, rtol=1e-4, atol=1e-5)
    elif isinstance(one, dict):
        assert one.keys() == two.keys()
        same(list(one.values()), list(two.values()))
    elif isinstance(one, list):
        for pair in zip(one, two, strict=True):
            same(*pair)
    elif isinstance(one, torch.Tensor):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
    else:
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def mixed():
    """What a real device would refuse is refused."""
    refused = []
    with pretend.far_rules(float64=False):
        far, near = torch.ones(3, device="far:0"), torch.ones(3)
        for work in (
            lambda: far + near,
            lambda: near[far.long()],
            lambda: torch.nn.functional.embedding(near.long(), far[:, None]),
            lambda: near.index_add_(0, near.long(), far),
            lambda: torch.rand(3, device="far:0", generator=torch.Generator()),
            lambda: far.double(),
            lambda: far.numpy(),
        ):
            try:
                work()
            except (RuntimeError, TypeError) as error:
                refused.append(str(error))
        assert far[torch.tensor([0, 2])].device.type == "far"
        assert (far * torch.tensor(2.0)).cpu().tolist() == [2, 2, 2]
    assert len(refused) == 7, refused


def waits(jobs, n_layers):
    """How often reading a corpus waits for the device, by what for."""
    kind = families.ALL["bert"]
    config = {**kind[2], "num_hidden_layers": n_layers}
    families.ALL["deeper"] = (*kind[:2], config)
    with pretend.far_rules() as rules:
        lens = headlens.load(pretend.placed(families.build("deeper")), toytext.toy_tokenizer())
        corpus = headlens.corpus.read.read_corpus(jobs.corpus)
        scorers = [scorer.make(Context(lens, corpus)) for scorer in SCORERS.values()]
        rules.waits.clear()
        run_passes(Context(lens, corpus), scorers, RunOptions(batch_size=8))
    return dict(rules.waits)


def checks(folder):
    """Run all of them."""
    jobs = Jobs(folder)
    yield "mixed", mixed
    yield "waits", lambda: same_waits(waits(jobs, 2), waits(jobs, 5))
    for plan, family, place, float64, names in PLANS:
        for name in names:
            yield f"{plan}: {name}", lambda p=(family, place, float64, name): held(jobs, *p)


def same_waits(two, five):
    """One copy of each type for each batch, however many layers there are."""
    assert two == five, (two, five)
    assert two["copies"] <= 2 * 9, two  # 3 batches of sentences, 3 of windows at most, 3 of repeats


def held(jobs, family, place, float64, name):
    """Hold one job on the far device against the CPU."""
    model = families.build(family)
    near = getattr(jobs, name)(headlens.load(copy.deepcopy(model), toytext.toy_tokenizer()))
    devices.WITHOUT_FLOAT64 = ("mps",) if float64 else ("mps", "far")
    with pretend.far_rules(float64):
        far = headlens.load(place(copy.deepcopy(model)), toytext.toy_tokenizer())
        same(near, getattr(jobs, name)(far))


def main(folder, part=""):
    """Run the checks whose names begin so, and print what came of them."""
    warnings.simplefilter("ignore")
    found = {}
    for name, check in checks(folder):
        if not name.startswith(part):
            continue
        try:
            check()
            found[name] = "ok"
        except Exception:
            found[name] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
