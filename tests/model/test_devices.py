"""Where tensors are: copies between devices, and all of headlens on a device that is not there."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from headlens.model import devices
from headlens.model.devices import HostTransfer, exact, exactly, input_device, moved

TESTS = Path(__file__).parents[1]


@pytest.mark.slow
def test_on_a_device_that_is_not_there(tmp_path):
    pytest.importorskip("accelerate")
    pytest.importorskip("torch.utils.backend_registration")
    if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
        pytest.skip("this PyTorch cannot pretend a device")
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(TESTS / "support" / "pretend_checks.py"), str(tmp_path)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found) > 35
    assert {name: told[-1500:] for name, told in found.items() if told != "ok"} == {}


def test_a_carrier_uses_what_is_here_at_once():
    carrier, got = HostTransfer(), []
    carrier.bring(torch.tensor([1.0]), got.append)
    assert len(got) == 1
    carrier.arrive()
    assert len(got) == 1


def test_a_carrier_keeps_shapes_types_and_order(monkeypatch):
    class Elsewhere(torch.Tensor):
        device = torch.device("cuda")

    carrier, got, copies = HostTransfer(), [], []
    monkeypatch.setattr(Elsewhere, "cpu", lambda self: copies.append(1) or self.as_subclass(torch.Tensor))
    parts = [torch.arange(6.0).reshape(2, 3), torch.tensor([True]), torch.ones(0, 2), torch.full((1,), 7.0)]
    for number, part in enumerate(parts):
        carrier.bring(part.as_subclass(Elsewhere), lambda here, number=number: got.append((number, here)))
    assert got == []
    carrier.arrive()
    assert [number for number, _ in got] == [0, 1, 2, 3]
    for (_, here), part in zip(got, parts, strict=True):
        assert here.dtype == part.dtype
        assert torch.equal(here, part)
    assert len(copies) == 2  # one for each type
    carrier.bring(parts[0].as_subclass(Elsewhere), got.append)
    carrier.forget()
    carrier.arrive()
    assert len(got) == 4
    monkeypatch.setattr(devices, "CARRIED", 20)  # bytes
    carrier.bring(parts[0].as_subclass(Elsewhere), got.append)
    assert len(got) == 5  # too much waited


@dataclass(frozen=True, slots=True)
class Two:
    one: torch.Tensor
    name: str


def test_moving():
    tensor = torch.ones(2)
    assert moved(tensor, torch.device("cpu")) is tensor
    there = moved((tensor, Two(tensor, "x"), 3), torch.device("meta"))
    assert (there[0].device.type, there[1].one.device.type, there[1].name, there[2]) == (
        "meta",
        "meta",
        "x",
        3,
    )


def test_copies_to_cuda_are_pinned_and_not_waited_for(monkeypatch):
    asked = []
    monkeypatch.setattr(devices, "PINNED", ("meta",))
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: asked.append("pinned") or self)
    own = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *a, **k: asked.append(k) or own(self, *a, **k))
    moved(torch.ones(2), torch.device("meta"))
    assert asked == ["pinned", {"non_blocking": True}]


def test_how_exactly_devices_add_up():
    assert exact(torch.device("cuda:1")) == exact(torch.device("cpu")) == torch.float64
    assert exact(torch.device("mps")) == torch.float32
    assert exactly(torch.ones(2)).dtype == torch.float64


def test_where_inputs_go():
    from headlens.corpus.batches import Batch

    model = torch.nn.Linear(2, 2)
    assert input_device(model) == torch.device("cpu")

    class Hook:
        execution_device = 1

    model.get_input_embeddings = lambda: embeddings
    embeddings = torch.nn.Embedding(2, 2, device="meta")
    embeddings._hf_hook = Hook()
    if torch.accelerator.is_available():
        assert input_device(model).index == 1
    Hook.execution_device = "cpu"
    assert input_device(model) == torch.device("cpu")
    batch = Batch((), {"attention_mask": torch.ones(1, 2)})
    assert batch.on(torch.device("cpu"), "real").tolist() == [[True, True]]
    assert batch.on(torch.device("meta"), "real").device.type == "meta"
    assert batch.on(torch.device("meta"), "real") is batch.on(torch.device("meta"), "real")
