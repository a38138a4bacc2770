"""One process at a time writes into a run directory, and one that was killed keeps nobody out."""

from __future__ import annotations

import errno
import json
import os
import socket
import subprocess
import sys
import threading

import pytest
from click.testing import CliRunner

from headlens.cli import main
from headlens.errors import RunError
from headlens.pruning.prune import STAGE, check_place
from headlens.scoring.classify import Classification
from headlens.util.files import HOLDER, LOCK, PART, locked
from support.finishedruns import classify_run

HOLD = """
import sys
from pathlib import Path
from headlens.util.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(out):
    """Another process that has a directory."""
    typed = [sys.executable, "-c", HOLD, str(out)]
    other = subprocess.Popen(typed, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "held\n"
    return other


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    out = tmp_path_factory.mktemp("held") / "run"
    other = hold(out)
    yield out, other
    other.kill()
    other.communicate()


def test_a_second_process_is_refused_at_once_until_the_first_is_killed(tmp_path):
    out = tmp_path / "run"
    other = hold(out)
    with pytest.raises(RunError) as refused, locked(out):
        pass
    since = json.loads((out / HOLDER).read_text())["since"]
    assert str(refused.value) == (
        f"{out} is being written by process {other.pid} on {socket.gethostname()}, since {since}. "
        f"Wait until it is done, end it there (kill {other.pid}), or choose another --out."
    )
    other.kill()
    other.communicate()
    assert {LOCK, HOLDER} <= {path.name for path in out.iterdir()}
    with locked(out):
        assert json.loads((out / HOLDER).read_text())["process"] == os.getpid()
    assert list(out.iterdir()) == []


def test_a_link_to_the_directory_is_the_directory(held):
    out, _ = held
    (out.parent / "link").symlink_to(out)
    with pytest.raises(RunError, match="is being written by process"), locked(out.parent / "link"):
        pass


@pytest.mark.parametrize("holder", [None, "", "[]", '{"process": "x"}', '{"process": 1}'])
def test_a_holder_that_cannot_be_read(held, monkeypatch, holder):
    out, _ = held
    if holder is not None:
        monkeypatch.setattr("headlens.util.files.load_json", lambda path: json.loads(holder))
    else:
        monkeypatch.setattr("headlens.util.files.HOLDER", "missing")
    with pytest.raises(RunError) as refused, locked(out):
        pass
    assert str(refused.value) == (
        f"{out} is being written by another process. Wait until it is done, or choose another --out."
    )


def test_the_same_thread_may_ask_again_and_another_may_not(tmp_path):
    caught = []

    def ask():
        try:
            with locked(tmp_path):
                pass
        except RunError as error:
            caught.append(error.problem)

    with locked(tmp_path):
        with locked(tmp_path):
            pass
        assert (tmp_path / LOCK).exists()
        other = threading.Thread(target=ask)
        other.start()
        other.join()
    assert caught[0].startswith(f"{tmp_path} is being written by process {os.getpid()} on ")
    assert list(tmp_path.iterdir()) == []


def test_it_is_let_go_after_an_exception(tmp_path):
    with pytest.raises(KeyboardInterrupt), locked(tmp_path):
        raise KeyboardInterrupt
    with locked(tmp_path):
        pass


def test_links_are_not_followed(tmp_path):
    (tmp_path / "mine").write_text("mine")
    out = tmp_path / "run"
    out.mkdir()
    (out / LOCK).symlink_to(tmp_path / "mine")
    with pytest.raises(RunError) as refused, locked(out):
        pass
    assert str(refused.value) == (
        f"{out / LOCK} cannot be locked: it is a link. "
        "Remove it if no other headlens writes there, or choose another --out."
    )
    (out / LOCK).unlink()
    (out / HOLDER).symlink_to(tmp_path / "mine")
    with locked(out):
        pass
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("code", ["ENOSYS", "ENOLCK", "ENOTSUP"])
def test_a_file_system_without_locks_is_written_all_the_same(tmp_path, monkeypatch, capsys, code):
    def refuse(*_):
        raise OSError(getattr(errno, code), os.strerror(getattr(errno, code)))

    monkeypatch.setattr("fcntl.flock", refuse)
    with locked(tmp_path):
        assert (tmp_path / HOLDER).exists()
    assert capsys.readouterr().err == (
        f"The file system of {tmp_path} has no locks: let no other headlens write there.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_had_begun_to_write_is_removed(tmp_path):
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "run"
    name = "x".join(PART)
    for folder in (elsewhere, out / "units"):
        folder.mkdir(parents=True)
        (folder / name).write_text("half")
    (out / name).write_text("half")
    (out / "units" / "head 0.1.npy").write_text("mine")
    (out / "figures").symlink_to(elsewhere)
    with locked(out):
        pass
    assert sorted(path.name for path in out.rglob("*")) == ["figures", "head 0.1.npy", "units"]
    assert (elsewhere / name).exists()


def test_a_directory_that_is_taken_away_meanwhile(tmp_path):
    with locked(tmp_path / "run") as out:
        for path in out.iterdir():
            path.unlink()
        out.rmdir()
    assert list(tmp_path.iterdir()) == []


def test_a_prune_that_was_killed_keeps_nobody_out(tmp_path):
    for name, ours in (("mine.txt", False), (STAGE, True), (HOLDER, True), (LOCK, True)):
        out = tmp_path / name
        out.mkdir()
        (out / name).write_text("")
        if ours:
            check_place(out)
        else:
            with pytest.raises(RunError, match="is not empty"):
                check_place(out)


COMMANDS = {
    "classify": ["classify", "nothing"],
    "ablate": ["ablate", "nothing"],
    "similar": ["similar", "nothing"],
    "prune": ["prune", "nothing", "--heads", "0.1"],
    "compare": ["compare", "nothing", "nothing"],
    "demo": ["demo"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_writes_a_directory_asks_before_any_work(held, name):
    out, other = held
    done = CliRunner().invoke(main, [*COMMANDS[name], "--out", str(out)])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {out} is being written by process {other.pid} on ")
    assert done.stderr.count("\n") == 1


def test_an_experiment_asks_too(held):
    out, other = held
    (out.parent / "x.toml").write_text('[model]\nname = "nothing"\n[classify]\n')
    done = CliRunner().invoke(main, ["run", str(out.parent / "x.toml"), "--out", str(out)])
    assert done.stderr.startswith(f"Error: {out} is being written by process {other.pid} on ")


def test_reading_is_not_kept_out(held):
    out, _ = held
    classify_run(out)
    assert not Classification.read(out).scores.empty
    done = CliRunner().invoke(main, ["compare", str(out), str(out)])
    assert done.exit_code == 0, done.output


def test_a_directory_that_may_not_be_written(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("headlens.util.files.FileLock.acquire", refuse)
    with pytest.raises(RunError) as refused, locked(tmp_path):
        pass
    assert str(refused.value) == (
        f"{tmp_path} cannot be written: Read-only file system. Choose another place with --out, or make room."
    )
