"""Units of work on a Ray cluster of two workers: in any order, each once, and again where a worker dies."""

from __future__ import annotations

import os
import socket
import threading

import pandas as pd
import pytest
import torch

import headlens
from headlens.ablation.plan import SweepPlan
from headlens.ablation.sweep import run_key
from headlens.benchmarks.registry import open_benchmark
from headlens.engine.local import Here, in_order
from headlens.engine.ray import knock
from headlens.errors import HeadlensError, InputError, ModelError, RunError
from support.families import build
from support.rayworks import Doing, Unsendable
from support.toytext import toy_pairs, toy_text, toy_tokenizer, write_pairs

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def lens():
    """A model that was not loaded by name: it is sent."""
    return headlens.load(build("gpt2"), toy_tokenizer(()))


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    path = tmp_path_factory.mktemp("lines") / "lines.txt"
    path.write_text("\n\n".join(toy_text(50, seed) for seed in range(30)))
    return f"language:{path}"


@pytest.fixture(scope="module")
def engine(cluster):
    """Two workers for all tests here: starting them takes longer than what they do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headlens.engine.ray.TRIES", 1)
        with headlens.Ray(workers=2) as engine:
            yield engine


def run(engine, lens, work, n=40):
    return list(in_order(engine.run(lens, work, iter(range(n)))))


def test_results_are_those_of_this_process(tmp_path, engine, lens):
    arrived = []
    here = run(Here(), lens, Doing(tmp_path))
    there = list(in_order(engine.run(lens, Doing(tmp_path, "sleep"), range(40)), arrived.append))
    assert [one[:2] for one in there] == [one[:2] for one in here]
    assert [one[0] for one in there] == [unit * unit for unit in range(40)]
    assert [one[0] for one in arrived] != [one[0] for one in there]  # unit 3 came late
    pids = {one[3] for one in there}
    assert len(pids) == 2
    assert here[0][3] not in pids
    assert engine.facts == {
        "name": "ray", "workers": 2, "threads_per_worker": there[0][2], "gpus_per_worker": 0, "machines": 1
    }  # fmt: skip


def test_nobody_is_told_of_a_cluster(cluster):
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"


SWEEPS = [
    {"sweep": "cumulative", "order": "each", "step": 0.25, "draws": 2},
    {"sweep": "only", "mode": "resample"},
    {"sweep": "layer", "mode": "uniform", "prefix_memory": 0},
]


@pytest.mark.parametrize("options", SWEEPS, ids=lambda options: options["sweep"])
def test_every_way_to_sweep(engine, lens, spec, options):
    here = headlens.sweep(lens, spec, **options)
    there = headlens.sweep(lens, spec, **options, engine=engine)
    pd.testing.assert_frame_equal(there.table, here.table, check_exact=True)
    pd.testing.assert_frame_equal(there.importance, here.importance, check_exact=True)


def test_a_work_is_begun_once_by_each_worker(tmp_path, engine, lens):
    work = Doing(tmp_path)
    for _ in range(3):
        run(engine, lens, work)
    assert len(list(tmp_path.glob("begun *"))) == 2


def test_units_of_a_worker_that_dies_are_done_again(tmp_path, engine, lens, capfd):
    expected = run(Here(), lens, Doing(tmp_path))
    found = run(engine, lens, Doing(tmp_path, "die"))
    assert [one[:2] for one in found] == [one[:2] for one in expected]
    assert (tmp_path / "done").exists()
    assert len(list(tmp_path.glob("begun *"))) == 4  # this process, two workers, and one anew
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err == f"A worker on {socket.gethostname()} died; another one does its work again.\n"


def test_errors_and_warnings_come_here(tmp_path, engine, lens):
    with pytest.raises(ModelError, match=r"^The model has no tea\. Make some\.$"):
        run(engine, lens, Doing(tmp_path, "refuse"))
    (tmp_path / "done").unlink()
    with pytest.raises(ZeroDivisionError, match="tea by nothing"):
        run(engine, lens, Doing(tmp_path, "fail"))
    (tmp_path / "done").unlink()
    with pytest.warns(UserWarning, match=r"^The tea is cold\.$"):
        run(engine, lens, Doing(tmp_path, "warn"))

    with pytest.raises(InputError, match=r"^Unsendable cannot be sent to workers: .* Leave --engine out\.$"):
        run(engine, lens, Unsendable(threading.Lock()))


def test_changes_that_are_open_are_refused(tmp_path, engine, lens):
    with lens.ablate("0.0"), pytest.raises(InputError, match=r"^Heads are taken out or changed here"):
        run(engine, lens, Doing(tmp_path))


def test_nobody_at_the_address():
    with socket.socket() as held:  # a port that nobody listens on
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(RunError) as error:
            knock(address)
    assert str(error.value) == (
        f"A Ray cluster at '{address}' cannot be reached: [Errno 111] Connection refused. Give the HOST:PORT "
        "that ray start --head printed; where it asks for a token, set RAY_AUTH_MODE=token (ray "
        "get-auth-token shows yours). Or leave --ray-address out: this machine then is the cluster."
    )


@pytest.mark.parametrize("options", [{"workers": 0}, {"gpus_per_worker": -1}])
def test_unfit_numbers(options):
    with pytest.raises(HeadlensError, match=r"^Expected 1 worker or more with 0 GPUs or more"):
        headlens.Ray(**options)


@pytest.mark.parametrize(("gpus", "device"), [(None, "cpu"), (0, "cpu"), (0.5, "cuda")])
def test_what_computes_is_part_of_what_a_run_depends_on(tmp_path, gpus, device):
    lens = headlens.load(build("bert"), toy_tokenizer())
    benchmark = open_benchmark(write_pairs(tmp_path / "p.tsv", toy_pairs()), lens)
    plan = SweepPlan(engine=headlens.Ray(gpus_per_worker=gpus))
    assert run_key(lens, benchmark, lens.anatomy.heads, plan)["device"] == device


def test_without_the_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError) as error:
        headlens.Ray()
    assert str(error.value) == "The engine ray needs the package ray. Type: pip install 'headlens[ray]'"


@pytest.fixture(scope="module")
def changed(lens):
    """The model, with another first weight and a bias that is no number."""
    with torch.no_grad():
        next(lens.model.parameters()).flatten()[0] += 1
        lens.model.transformer.h[1].mlp.c_proj.bias[3] = float("inf")
    return lens


def test_a_model_that_was_changed_is_sent_anew(tmp_path, engine, changed):
    found = run(engine, changed, Doing(tmp_path), 4)
    assert {one[1] for one in found} == {float(next(changed.model.parameters()).detach().flatten()[0])}


def test_what_is_no_number_on_a_worker_is_told_as_here(engine, changed, spec):
    """The same error, by the head of the condition: it does not come home as a cell that is empty."""
    said = []
    for one in (Here(), engine):
        with pytest.raises(ModelError) as refused:
            headlens.sweep(changed, spec, "layer", engine=one)
        said.append(str(refused.value))
    assert said[0] == said[1]
    assert "The model's weight" in said[0]


def test_a_unit_that_kills_every_worker_is_told(tmp_path, engine, changed):
    with pytest.raises(RunError, match=r"^Workers of Ray died 2 times over the same work .* Memory may not"):
        run(engine, changed, Doing(tmp_path, "die always"))
