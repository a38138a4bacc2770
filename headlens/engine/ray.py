"""Units of work on the workers of a Ray cluster."""

from __future__ import annotations

import importlib.util
import logging
import os
import pickle
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import torch
import transformers
from tqdm import tqdm

from headlens.engine.local import Work
from headlens.errors import InputError, ModelError, RunError, first_line
from headlens.model.devices import is_spread
from headlens.model.lens import Lens, fingerprint
from headlens.model.load import load_model
from headlens.model.source import Source
from headlens.util import __version__

U = TypeVar("U")
R = TypeVar("R")

AHEAD = 2  # units that a worker is given at once, so that it never waits for the next
WINDOW = 16  # units per worker that may be done before the first that is not
TRIES = 3  # how often a unit is begun again after its worker died
PATIENCE = 30  # seconds without a worker until the user is told


class Ray:
    """Does units on Ray: ``with Ray(workers=2) as engine: headlens.sweep(lens, engine=engine)``.

    Every worker loads the model once, from the same name or place as here (or is sent it, where it was not
    loaded by name), and must come to the same weights and versions. Units of a worker that dies are done
    again. Numbers are the same as without Ray on like machines with as many threads each.

    Without a token (``RAY_AUTH_MODE=token``) whoever reaches a Ray cluster can run code there.

    Args:
        address: of a cluster that runs: "auto" or "HOST:PORT"; by default one is started on this machine.
        workers: how many; by default as many as the cluster has room for.
        gpus_per_worker: 0.5 lets two share one; by default 1 where the model is on a GPU, else none.
    """

    def __init__(
        self, address: str | None = None, workers: int | None = None, gpus_per_worker: float | None = None
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise InputError("The engine ray needs the package ray.", "Type: pip install 'headlens[ray]'")
        if (workers is not None and workers < 1) or (gpus_per_worker is not None and gpus_per_worker < 0):
            raise InputError(
                f"Expected 1 worker or more with 0 GPUs or more, found {workers} and {gpus_per_worker}.",
                "Type for example --workers 2.",
            )
        self._address = address
        self._wanted = workers, gpus_per_worker
        self._ray: Any = None
        self._mine = False  # whether the connection was made here
        self._copied = 0, ""  # which model the workers have: its id, and the hash of its weights
        self._room: Room | None = None
        self._copy: list[Any] = []  # a reference to it
        self._starting: dict[Any, Any] = {}  # reference to what opening comes to -> worker
        self._ready: list[Any] = []
        self._processes: set[tuple[str, int]] = set()  # machine and process of every worker that was met
        self._works: dict[int, tuple[Any, int, Any]] = {}  # id -> work, its number, reference
        self._numbers = count()

    def __enter__(self) -> Ray:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, and the cluster where it was started here."""
        if self._ray is not None:
            self._dismiss()
            if self._mine:
                self._ray.shutdown()
        self._ray, self._mine = None, False

    def device(self, lens: Lens) -> str:
        """See `headlens.engine.local.Engine.device`."""
        return "cuda" if self._gpus(lens) else lens.device.type.replace("cuda", "cpu")

    def _gpus(self, lens: Lens) -> float:
        """GPUs of each worker."""
        wanted = self._wanted[1]
        return float(lens.device.type == "cuda") if wanted is None else wanted

    @property
    def facts(self) -> dict[str, Any]:
        """See `headlens.engine.local.Engine.facts`."""
        room = self._room
        if room is None:
            return {"name": "ray"}
        return {
            "name": "ray", "workers": room.workers, "threads_per_worker": room.threads,
            "gpus_per_worker": room.gpus, "machines": len({machine for machine, _ in self._processes}),
        }  # fmt: skip

    def run(self, lens: Lens, work: Work[U, R], units: Iterable[U]) -> Iterator[tuple[int, R]]:
        """See `headlens.engine.local.Engine.run`.

        Raises:
            InputError: the cluster has no room for the workers.
            RunError: the cluster cannot be reached, a worker has other versions, or workers died over a unit.
            HeadlensError: whatever the work raises.
        """
        waiting = enumerate(units)
        following = next(waiting, None)
        if following is None:
            return
        if id(work) not in self._works:
            self._start(lens)
            self._send(work)
        _, number, reference = self._works[id(work)]
        running: dict[Any, tuple[int, Any]] = {}
        while following is not None or running:
            load = [worker for _, worker in running.values()]
            oldest = min((place for place, _ in running.values()), default=following and following[0])
            for worker in self._ready * AHEAD:
                if following is None or following[0] - (oldest or 0) >= WINDOW * len(self._ready):
                    break
                if load.count(worker) < AHEAD:
                    running[worker.do.remote(self._copy, number, reference, following[1])] = (
                        following[0],
                        worker,
                    )
                    load.append(worker)
                    following = next(waiting, None)
            done = self._arrived([*running, *self._starting])
            if done in running:
                place, _ = running.pop(done)
                yield place, self._result(done)

    def _arrived(self, references: list[Any]) -> Any:
        """Wait for a result, or for a worker that is ready."""
        told = False
        while True:
            done, _ = self._ray.wait(references, num_returns=1, timeout=PATIENCE)
            if done:
                break
            if not self._ready and not told:
                tqdm.write("Waiting for workers: Ray has none ready yet.", file=sys.stderr)
                told = True
        if done[0] in self._starting:
            self._meet(self._get(done[0]))
            self._ready.append(self._starting.pop(done[0]))
        return done[0]

    def _result(self, reference: Any) -> Any:
        done: Done = self._get(reference)
        self._meet(done.by, anew=True)
        for message in done.warned:
            warnings.warn(message, stacklevel=2)
        return pickle.loads(done.result)

    def _meet(self, worker: dict[str, Any], anew: bool = False) -> None:
        """Get to know a worker's process; one that is there anew stands for one that died."""
        known = worker["machine"], worker["process"]
        if known not in self._processes:
            _check_versions(worker)
            self._processes.add(known)
            if anew:
                where = f"A worker on {worker['machine']} died"
                tqdm.write(f"{where}; another one does its work again.", file=sys.stderr)

    def _get(self, reference: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            raise error.cause from error
        except errors.RayError as error:  # the worker died, or its machine
            raise RunError(
                f"Workers of Ray died {TRIES + 1} times over the same work ({type(error).__name__}).",
                "Memory may not have sufficed: try fewer --workers or a smaller --batch-size. What was "
                "finished is kept.",
            ) from error

    def _send(self, work: Any) -> None:
        """Put a work where workers can fetch it."""
        try:
            reference = self._ray.put(pack(work))
        except Exception as error:  # whatever cannot be pickled
            raise InputError(
                f"{type(work).__name__} cannot be sent to workers: {first_line(error)}", "Leave --engine out."
            ) from error
        self._works[id(work)] = work, next(self._numbers), [reference]

    def _start(self, lens: Lens) -> None:
        """Start workers with a copy of the model, unless they have one."""
        if lens.seam.changes:
            raise InputError(
                "Heads are taken out or changed here, which workers would not know of.",
                "Leave the with block first, or the engine out.",
            )
        weights = fingerprint(lens.model)
        if self._copied == (id(lens.model), weights):
            return
        if self._ray is None:
            self._ray, self._mine = connect(self._address)
        self._dismiss()  # those with a copy of another model
        workers, gpus = self._wanted[0], self._gpus(lens)
        there = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        nodes = [Node(one.get("CPU", 0), one.get("GPU", 0)) for one in there]
        room = self._room = room_for(nodes, workers, gpus, torch.get_num_threads())
        self._copy = [self._ray.put(pack(Copy.of(lens, weights, self.device(lens), room.threads)))]
        kind = self._ray.remote(Worker).options(
            num_cpus=room.cpus, num_gpus=room.gpus, max_restarts=-1, max_task_retries=TRIES
        )
        for _ in range(room.workers):
            worker = kind.remote()
            self._starting[worker.open.remote(self._copy)] = worker
        self._copied = id(lens.model), weights

    def _dismiss(self) -> None:
        for worker in [*self._ready, *self._starting.values()]:
            self._ray.kill(worker)
        self._starting, self._ready, self._works, self._processes = {}, [], {}, set()
        self._copied = 0, ""


def _check_versions(about: dict[str, Any]) -> None:
    for name, mine in VERSIONS.items():
        if about[name] != mine:
            raise RunError(
                f"The Ray worker on {about['machine']} has {name} {about[name]}, and here it is {mine}.",
                "Install the same versions on every machine: numbers could differ.",
            )


# ---- A worker on Ray: it has a copy of the model, and does units of work with it


VERSIONS = {
    "headlens": __version__,
    "torch": torch.__version__.partition("+")[0],  # of the CPU and of CUDA alike
    "transformers": transformers.__version__,
}


@dataclass(frozen=True, slots=True)
class Done:
    """What came of a unit.

    Args:
        result: the result, packed.
        by: who did it, see `about`.
        warned: what was warned of on the way.
    """

    result: bytes
    by: dict[str, Any]
    warned: list[str]


def about() -> dict[str, Any]:
    """Tell what this process is: its machine's name, its id, and the versions of what computes in it."""
    return {"machine": socket.gethostname(), "process": os.getpid(), **VERSIONS}


@dataclass(frozen=True, eq=False)
class Copy:
    """How a worker gets the model that it copies.

    Args:
        source: where to load it from; None if it is sent along.
        dtype: of its weights.
        device: where it goes.
        threads: that the worker computes with on a CPU.
        weights: their hash, see `headlens.model.lens.fingerprint`.
        tokenizer: its tokenizer.
        missing: names of weights that its checkpoint lacked.
        model: the model itself, where it is sent along.
        device_map: "auto" for a model that each worker spreads over its own GPUs, as it is spread here.
    """

    source: Source | None
    dtype: str
    device: str
    threads: int
    weights: str
    tokenizer: Any = field(repr=False)
    missing: tuple[str, ...] = ()
    model: Any = field(default=None, repr=False)
    device_map: str | None = None

    @classmethod
    def of(cls, lens: Lens, weights: str, device: str, threads: int) -> Copy:
        """Say how to copy a model: from its checkpoint if that is the whole of it, else it is sent along.

        Raises:
            InputError: it would have to be sent, and is spread over devices.
        """
        dtype = str(lens.model.dtype).removeprefix("torch.")
        by_name = lens.source is not None and not lens.missing  # missing weights are random at every load
        spread = is_spread(lens.model)
        if spread and not by_name:
            raise InputError(
                "A model that is spread over devices cannot be sent to workers.",
                "Load it by name or place, from a checkpoint with all weights, or leave the engine out.",
            )
        return cls(
            lens.source if by_name else None, dtype, device, threads, weights,
            lens.tokenizer, lens.missing, None if by_name else deepcopy(lens.model).cpu(),
            "auto" if spread else None,
        )  # fmt: skip

    def open(self) -> Lens:
        """Get the copy.

        Raises:
            ModelError: the checkpoint is not there, or has other weights.
        """
        if self.source is None:
            return Lens(self.model.to(self.device).eval(), self.tokenizer, None, self.missing)
        device = "auto" if self.device_map else self.device
        loaded = load_model(self.source, self.dtype, device, self.device_map, self.tokenizer)
        if fingerprint(loaded.model) != self.weights:
            raise ModelError(
                f"{self.source.name!r} has other weights there than the model here.",
                "Put the same checkpoint on every machine; of a model that was changed after it was loaded, "
                "give the model itself: headlens.load(lens.model, lens.tokenizer).",
            )
        return Lens(loaded.model, self.tokenizer, self.source, loaded.missing, loaded.unused)


class Worker:
    """What runs in a process of its own. If it is killed, Ray starts it anew, and it opens its copy again.

    References come in lists: Ray would otherwise fetch what they stand for with every call.
    """

    def __init__(self) -> None:
        self._lens: Lens | None = None
        self._work = -1
        self._do: Callable[[Any], Any] | None = None

    def open(self, copy: list[Any]) -> dict[str, Any]:
        """Open the model.

        Args:
            copy: a reference to the `Copy`.

        Returns:
            What `about` says.

        Raises:
            ModelError: it cannot be opened; the message names the machine.
        """
        self._opened(copy)
        return about()

    def do(self, copy: list[Any], number: int, work: list[Any], unit: Any) -> Done:
        """Do a unit of work.

        Args:
            copy: a reference to the `Copy`.
            number: of the work: one number, one work.
            work: a reference to it.
            unit: the unit.

        Returns:
            What came of it.
        """
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", UserWarning)
            if self._do is None or self._work != number:
                self._do = None  # what the work before has kept is given back first
                self._do, self._work = _fetched(work).begin(self._opened(copy)), number
            done = self._do(unit)
        warned = [str(one.message) for one in noted if issubclass(one.category, UserWarning)]
        return Done(pack(done), about(), warned)

    def _opened(self, copy: list[Any]) -> Lens:
        if self._lens is None:
            told: Copy = _fetched(copy)
            torch.set_num_threads(told.threads)
            try:
                self._lens = told.open()
            except ModelError as error:
                where = f"On {socket.gethostname()}, a worker of Ray: {error.problem}"
                raise ModelError(where, error.remedy) from error
        return self._lens


def pack(thing: Any) -> bytes:
    """Pickle something by ourselves: what Ray pickles comes out with arrays that cannot be written to."""
    from ray import cloudpickle

    packed: bytes = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    return packed


def _fetched(reference: list[Any]) -> Any:
    import ray

    return pickle.loads(ray.get(reference[0]))


# ---- The way to a Ray cluster: one that runs, or one of this machine's own


KNOCK = 5  # seconds; Ray itself would try for minutes


def connect(address: str | None) -> tuple[Any, bool]:
    """Connect this process to a cluster, unless it is.

    Args:
        address: "auto" or "HOST:PORT" of a cluster that runs; None starts one on this machine.

    Returns:
        The module `ray`, and whether the connection was made here.

    Raises:
        RunError: the cluster cannot be reached or started.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # a worker without GPU sees none
    import ray

    if ray.is_initialized():
        return ray, False
    if address:
        knock(address)
    ends = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(
            address,
            include_dashboard=None if address else False,
            logging_level=logging.ERROR,
            log_to_driver=False,
        )
    except Exception as error:  # Ray raises ConnectionError, ValueError, RuntimeError, ...
        raise _unreachable(address, error) from error
    if threading.current_thread() is threading.main_thread():  # Ray's own way to end says nothing
        signal.signal(signal.SIGTERM, ends)
    if hasattr(ray._private.worker, "_worker_logs_enabled"):
        ray._private.worker._worker_logs_enabled = False  # of workers that died, on stdout among the results
    return ray, True


def knock(address: str) -> None:
    """Try whether anybody answers, in seconds.

    Args:
        address: "HOST:PORT"; of anything else Ray itself knows at once whether it can be reached.

    Raises:
        RunError: nobody does.
    """
    host, colon, port = address.rpartition("//")[2].rpartition(":")
    if not colon or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=KNOCK).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, error) from error


def _unreachable(address: str | None, error: Exception) -> RunError:
    where = f"at {address!r} cannot be reached" if address else "cannot be started on this machine"
    why = (str(error).strip().partition("\n")[0] or type(error).__name__).rstrip(".")
    remedy = (
        "Give the HOST:PORT that ray start --head printed; where it asks for a token, set "
        "RAY_AUTH_MODE=token (ray get-auth-token shows yours). Or leave --ray-address out: this machine then "
        "is the cluster."
    )
    return RunError(
        f"A Ray cluster {where}: {why}.", remedy if address else "Try it: python -c 'import ray; ray.init()'"
    )


# ---- How many workers a Ray cluster has room for, and how much of it each gets


@dataclass(frozen=True, slots=True)
class Node:
    """One machine of a cluster.

    Args:
        cpus: CPUs that Ray may give away there.
        gpus: GPUs.
    """

    cpus: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Room:
    """What workers get.

    Args:
        workers: how many there are.
        cpus: of the CPUs of its machine, for each.
        gpus: of the GPUs of its machine, for each.
        threads: threads that each computes with on the CPU.
    """

    workers: int
    cpus: float
    gpus: float
    threads: int


def room_for(nodes: Sequence[Node], workers: int | None, gpus: float, threads: int) -> Room:
    """Find room for workers.

    Without GPUs each computes with as many threads as this process, since another number of threads can
    change the last digits of what a CPU computes, and Ray sets as many CPUs aside for it. Where the cluster
    has not so many, or more workers are asked for, they share what there is.

    Args:
        nodes: the machines.
        workers: how many are wanted; as many as there is room for by default.
        gpus: GPUs that each needs, 0 or more; below 1 they share one.
        threads: threads of this process.

    Returns:
        What each gets.

    Raises:
        InputError: there is no room, or not for so many.
    """
    if gpus:
        most = sum(int(node.gpus / gpus + 1e-9) for node in nodes if node.cpus >= 1)
        if most < (workers or 1):
            there = sum(node.gpus for node in nodes)
            raise InputError(
                f"{workers or 1} workers with {gpus:g} GPUs each were asked for; the Ray cluster has "
                f"{there:g} GPUs, which is room for {most}.",
                "Type fewer --workers, or other --gpus-per-worker; 0 runs them on CPUs.",
            )
        return Room(workers or most, 1, gpus, threads)
    largest = max((node.cpus for node in nodes), default=0)
    if largest <= 0:
        raise InputError("The Ray cluster has no CPUs to give away.", "Start it with CPUs: --num-cpus.")
    own = max(1, min(threads, int(largest)))
    most = max(1, sum(int(node.cpus // own) for node in nodes))
    if workers is None or workers <= most:
        return Room(workers or most, min(own, largest), 0, own)
    share = min(largest, sum(node.cpus for node in nodes) / workers)
    while sum(int(node.cpus / share + 1e-9) for node in nodes) < workers:  # machines of unequal size
        share *= 0.9
    share = float(int(share)) if share >= 1 else int(share * 1e4) / 1e4  # Ray counts ten-thousandths
    return Room(workers, share, 0, max(1, int(share)))
