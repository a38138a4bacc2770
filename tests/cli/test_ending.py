"""However a command is ended, one line says so, nothing half-written stays, and it can be typed again."""

from __future__ import annotations

import errno
import os
import signal
import threading

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from headlens import cli as ending
from headlens.benchmarks.similarity import SimilarityBenchmark
from headlens.cli import main
from headlens.errors import is_out_of_memory
from headlens.lens import Lens
from support.toytext import store_bert, toy_pairs, write_pairs

GOES_ON = " What was finished is kept: type the same again, and it goes on."
WORDS = "w5 w6 w7 w8\n" * 8


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("ending")
    store_bert(place / "model")
    write_pairs(place / "p.tsv", toy_pairs())
    (place / "text.txt").write_text(WORDS)
    (place / "x.toml").write_text(
        f'[model]\nname = "{place / "model"}"\n[view]\ntext = "w5"\nout = "v.csv"\n'
    )
    return place


@pytest.fixture(autouse=True)
def listening():
    """Signals do what they do for a program in the foreground: shells have others ignore Ctrl-C."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


COMMANDS = {
    "classify": ["classify", "{model}", "--corpus", "{text}", "--tags", "positional", "--out", "{out}"],
    "ablate": ["ablate", "{model}", "--benchmark", "similarity:{pairs}", "--out", "{out}"],
    "similar": ["similar", "{model}", "--text", "{text}", "--out", "{out}"],
    "prune": ["prune", "{model}", "--heads", "0.1", "--form", "masked", "--out", "{out}"],
    "view": ["view", "{model}", "w5 w6", "--out", "{out}/v.png"],
    "contributions": ["contributions", "{model}", "w5 w6", "--out", "{out}/c.png"],
    "run": ["run", "{toml}", "--out", "{out}"],
}
WHERE = {  # what is interrupted: while the model loads, while it runs, while figures are drawn, while writing
    "loading": "headlens.model.load.load_tokenizer",
    "running": "torch.nn.LayerNorm.forward",
    "drawing": "matplotlib.figure.Figure.savefig",
    "writing": "pathlib.Path.replace",
}


def typed(place, out, name):
    places = {"model": place / "model", "text": place / "text.txt", "pairs": place / "p.tsv"}
    return [word.format(**places, toml=place / "x.toml", out=out) for word in COMMANDS[name]]


def left(out):
    """What is left that no reader takes for a result."""
    return [path.name for path in out.rglob("*") if path.name.startswith(".headlens")]


NOT_DRAWING = ("prune", "run")


@pytest.mark.parametrize(
    ("name", "where"),
    [(name, where) for name in COMMANDS for where in WHERE if where != "drawing" or name not in NOT_DRAWING],
)
def test_signals(place, tmp_path, monkeypatch, name, where):
    sent = signal.SIGTERM if where in ("running", "writing") else signal.SIGINT
    times = []

    def interrupt(*_, **__):
        times.append(1)
        os.kill(os.getpid(), sent)

    with monkeypatch.context() as patch:
        patch.setattr(WHERE[where], interrupt)
        done = CliRunner().invoke(main, typed(place, tmp_path / "out", name))
    assert times == [1]
    assert done.exit_code == 128 + sent
    line = f"Interrupted.{GOES_ON if name in ('ablate', 'run') else ''}"
    assert [one for one in done.stderr.splitlines() if one.startswith("Interrupted")] == [line]
    assert "Traceback" not in done.stderr
    assert left(tmp_path) == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if where == "writing":
        again = CliRunner().invoke(main, typed(place, tmp_path / "out", name))
        assert again.exit_code == 0, again.output


def test_an_interrupt_that_a_library_makes_another_error_of(place, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("KeyboardInterrupt: <EMPTY MESSAGE>") from None

    monkeypatch.setattr("headlens.model.load.load_tokenizer", interrupt)
    done = CliRunner().invoke(main, typed(place, tmp_path / "out", "view"))
    assert (done.exit_code, done.stderr) == (130, "Interrupted.\n")


def test_what_is_ignored_stays_ignored_and_threads_are_left_alone():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
    try:
        with ending.signals():
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            assert signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN)
    finally:
        signal.signal(signal.SIGHUP, before)
    found = []

    def run():
        found.append(CliRunner().invoke(main, ["--help"]).exit_code)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert found == [0]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        np._core._exceptions._ArrayMemoryError((10,), np.dtype(float)),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("unable to mmap 438 bytes from file <model>: Cannot allocate memory (12)"),
        RuntimeError("could not create a primitive"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
        RuntimeError("can't start new thread"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
    ],
    ids=str,
)
def test_memory_that_does_not_suffice(place, tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("sizes differ"))
    assert not is_out_of_memory(ValueError("out of memory"))
    monkeypatch.setattr("headlens.scoring.passes._ReadBatch.begin", fail)
    done = CliRunner().invoke(main, typed(place, tmp_path / "out", "classify"))
    assert done.exit_code == 1
    assert done.stderr.splitlines()[-1] == (
        "Error: Memory does not suffice. Type a smaller --batch-size, a smaller --max-length, "
        "--inputs sentences or --dtype bfloat16."
    )
    assert not (tmp_path / "out").exists()


def test_memory_that_does_not_suffice_for_the_model(place, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("transformers.BertModel.from_pretrained", fail)
    done = CliRunner().invoke(main, typed(place, tmp_path / "out", "classify"))
    assert done.stderr.splitlines()[-1] == (
        f"Error: Memory does not suffice for '{place / 'model'}'. Type --dtype bfloat16 or --device-map auto."
    )


def test_finished_ablations_are_kept_when_memory_runs_out(place, tmp_path, monkeypatch):
    calls = []
    measure = SimilarityBenchmark.measure

    def limited(self, lens: Lens):
        calls.append(1)
        if len(calls) > 4:
            raise MemoryError
        return measure(self, lens)

    with monkeypatch.context() as patch:
        patch.setattr(SimilarityBenchmark, "measure", limited)
        done = CliRunner().invoke(main, typed(place, tmp_path / "out", "ablate"))
    assert done.stderr.splitlines()[-1] == (
        "Error: Memory does not suffice. Type a smaller --batch-size, a smaller --max-length, "
        "--prefix-memory 0 or --dtype bfloat16. What was finished is kept."
    )
    done = CliRunner().invoke(main, typed(place, tmp_path / "out", "ablate"))
    assert "3 of 8 ablations were measured before; kept." in done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_takes_no_more(place, tmp_path, monkeypatch, name):
    """The file is begun, and the disk is full before it is whole; the first files still fit."""
    number, out = errno.ENOSPC, tmp_path / "out"
    opened, times = os.fdopen, []

    class Full:
        def __init__(self, handle, mode):
            self.file = opened(handle, mode)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()
            times.append(1)
            if len(times) > (0 if name in ("view", "contributions") else 1):
                raise OSError(number, os.strerror(number))

        def write(self, content):
            self.file.write(content)

    with monkeypatch.context() as patch:
        patch.setattr("headlens.util.files.os.fdopen", Full)
        done = CliRunner().invoke(main, typed(place, out, name))
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert lines[-1].startswith(f"Error: {out}")
    assert f" cannot be written: {os.strerror(number)}. " in lines[-1]
    assert lines[-1].endswith("Choose another place with --out, or make room.")
    assert left(tmp_path) == []
    again = CliRunner().invoke(main, typed(place, out, name))
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            OSError(errno.EMFILE, "Too many open files", "x"),
            "x cannot be read or written: Too many open files. Raise the limit (ulimit -n), and type the "
            "same again.",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device", "/tmp/y"),
            "/tmp/y cannot be read or written: No space left on device. "
            "Make room there, or choose another place with --out.",
        ),
        (
            OSError(errno.ESTALE, "Stale file handle"),
            "A file failed: Stale file handle. See that it is there and may be read and written, then type "
            "the same again.",
        ),
    ],
)
def test_what_the_system_refuses(place, tmp_path, monkeypatch, error, line):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("headlens.scoring.passes._ReadBatch.begin", fail)
    done = CliRunner().invoke(main, typed(place, tmp_path / "out", "classify"))
    assert done.stderr.splitlines()[-1] == f"Error: {line}"
