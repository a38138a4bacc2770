"""Long inputs: what is made grows with their length, not with its square."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

import headlens
from headlens.corpus.read import read_files
from headlens.errors import InputError
from headlens.model import attention_call as call
from headlens.model import seam as memory
from headlens.scoring.passes import RunOptions
from support.families import ALL
from support.toytext import toy_text, toy_tokenizer

TAGS = ["positional", "delimiter", "broad"]
LIMIT = 4096


class Largest(TorchDispatchMode):
    """A `with` block; afterwards `bytes` is the size of the largest tensor made in it, `what` made it."""

    def __init__(self):
        super().__init__()
        self.bytes, self.what = 0, ""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().nbytes() > self.bytes:
                self.bytes, self.what = tensor.untyped_storage().nbytes(), f"{function} {tuple(tensor.shape)}"
        return made


def long_model(family: str) -> transformers.PreTrainedModel:
    """A family's small model with one layer that takes long inputs."""
    config, kind, options = ALL[family]
    longer = {**options, "max_position_embeddings": LIMIT, "num_hidden_layers": 1}
    torch.manual_seed(0)
    return getattr(transformers, kind)(getattr(transformers, config)(**longer)).eval()


def long_lens(family: str) -> headlens.Lens:
    tokenizer = toy_tokenizer(())
    tokenizer.model_max_length = LIMIT
    return headlens.load(long_model(family), tokenizer)


def largest_observed(lens, length, tmp_path):
    ids = torch.randint(5, 60, (1, length))
    with Largest() as seen, torch.no_grad(), lens.observe(lambda site, block: None, block_size=16):
        lens.run({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    return seen


def largest_scored(lens, length, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text(toy_text(length, 0), encoding="utf-8")
    corpus = read_files(path)
    with Largest() as seen:
        headlens.classify(lens, corpus, TAGS, reading=RunOptions(block_size=16, documents=True))
    return seen


def largest_ablated(mode):
    def largest(lens, length, tmp_path):
        ids = torch.randint(5, 60, (1, length))
        with Largest() as seen, torch.no_grad(), lens.ablate("0.1", mode):
            lens.run({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
        return seen

    return largest


WORKS = {
    "observe": largest_observed,
    "classify": largest_scored,
    "zero": largest_ablated("zero"),
    "uniform": largest_ablated("uniform"),
}


@pytest.mark.parametrize("work", list(WORKS))
@pytest.mark.parametrize("family", ["llama", "mistral", "bert"])
def test_the_largest_tensor_grows_with_the_length(family, work, tmp_path, monkeypatch):
    if family == "mistral" and work in ("zero", "uniform"):
        pytest.skip("transformers itself gives sdpa a whole mask for a sliding window")
    monkeypatch.setattr(call, "UNIFORM_CELLS", 2**14)
    lens = long_lens(family)
    lens.anatomy  # noqa: B018 - found before anything is counted
    short, long = (WORKS[work](lens, length, tmp_path) for length in (512, 2048))
    assert long.bytes < 4.5 * short.bytes, long.what  # 16 times as much where anything is a map


def test_a_map_would_be_noticed(tmp_path):
    lens = long_lens("llama")
    ids = torch.ones(1, 2048, dtype=torch.long)
    with Largest() as seen, torch.no_grad(), lens.observe(lambda site, block: None, block_size=2048):
        lens.run({"input_ids": ids})
    assert seen.bytes == 4 * 2048**2 * 4


def test_blocks_stay_small_by_themselves(tmp_path):
    seen = largest_scored(long_lens("llama"), LIMIT, tmp_path)
    assert seen.bytes < 16 * 2**20, seen.what  # a map of 4 heads takes 256 MiB


CHILD = """
import resource, sys, torch, transformers, headlens
from headlens.scoring.passes import RunOptions
sys.path.insert(0, sys.argv[1])
from support.toytext import toy_tokenizer
torch.set_num_threads(1)
shape = dict(vocab_size=61, hidden_size=72, intermediate_size=96, num_hidden_layers=2)
heads = dict(num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192)
tokenizer = toy_tokenizer(())
tokenizer.model_max_length = 8192
lens = headlens.load(transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape, **heads)), tokenizer)
lens.anatomy
unit = 2**20 if sys.platform == "darwin" else 2**10
most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit
before = most()
found = headlens.classify(
    lens, sys.argv[2], ["positional", "delimiter", "broad"], reading=RunOptions(documents=True)
)
assert found.run["inputs"]["documents"]["read"] == 1
print(most() - before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell the memory of a process")
@pytest.mark.slow
def test_a_process_stays_small(tmp_path):
    path = tmp_path / "long.txt"
    path.write_text(toy_text(6144, 0), encoding="utf-8")
    tests = str(Path(__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", CHILD, tests, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 400  # MiB; one map of a layer takes 1,296


def test_nothing_is_kept_for_tokens_that_never_come():
    lens = long_lens("llama")
    with torch.no_grad():
        assert lens.run({"input_ids": torch.ones(1, 8, dtype=torch.long)}).past_key_values is None


def test_patterns_that_cannot_fit_are_refused(monkeypatch):
    monkeypatch.setattr(memory, "memory_of", lambda device: 2**20)
    lens = long_lens("llama")
    ids = torch.ones(1, 256, dtype=torch.long)
    assert len(lens.patterns(input_ids=ids)) == 1  # 4 heads x 256 x 256 x 4 bytes: as much as there is
    with pytest.raises(InputError) as error:
        lens.patterns(input_ids=torch.ones(1, 257, dtype=torch.long))
    assert str(error.value) == (
        "The patterns of 4 heads for 257 tokens take 0.0 GiB, more than the 0.0 GiB of this machine. Look at "
        "them block by block with lens.observe, which keeps nothing."
    )


@pytest.mark.skipif(not hasattr(__import__("os"), "sysconf"), reason="Windows does not tell")
def test_the_memory_of_this_machine_is_known():
    assert memory.memory_of(torch.device("cpu")) > 2**28
    assert memory.memory_of(torch.device("meta")) is None


def test_maps_of_too_many_words_are_refused_before_the_model_runs(tmp_path):
    path = tmp_path / "long.conllu"
    words = [
        f"{i}\tw{i % 50 + 5}\tw\tNOUN\t_\t_\t{max(i - 1, 0)}\t{'dep' if i > 1 else 'root'}\t_\t_"
        for i in range(1, 8300)
    ]
    path.write_text("\n".join(words) + "\n\n", encoding="utf-8")
    lens = long_lens("llama")
    lens.model.config.max_position_embeddings = lens.tokenizer.model_max_length = 2**15
    with (
        torch.no_grad(),
        lens.observe(lambda site, block: pytest.fail("the model ran")),
        pytest.raises(InputError) as error,
    ):
        headlens.classify(lens, path, ["syntactic", "semantic", "positional"])
    assert str(error.value) == (
        "The input that begins 'w6 w7 w8 w9 w10' has 8,299 words. Attention from each to each, which "
        "syntactic and semantic need, would take 1.0 GiB, more than the 1 GiB that are held at once. Leave "
        "it out with --max-length 8192, or these tags with --tags."
    )
