"""The engine that does units of work on Ray."""

from __future__ import annotations

import importlib.util
import pickle
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, TypeVar

import torch
from tqdm import tqdm

from headlens.ablation.units import fingerprint
from headlens.engine import Work
from headlens.errors import InputError, RunError, first_line
from headlens.model.lens import Lens
from headlens.on_ray.cluster import connect
from headlens.on_ray.room import Node, Room, room_for
from headlens.on_ray.worker import VERSIONS, Copy, Done, Worker, pack

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
        """See `headlens.engine.Engine.device`."""
        return "cuda" if self._gpus(lens) else lens.device.type.replace("cuda", "cpu")

    def _gpus(self, lens: Lens) -> float:
        """GPUs of each worker."""
        wanted = self._wanted[1]
        return float(lens.device.type == "cuda") if wanted is None else wanted

    @property
    def facts(self) -> dict[str, Any]:
        """See `headlens.engine.Engine.facts`."""
        room = self._room
        if room is None:
            return {"name": "ray"}
        return {
            "name": "ray", "workers": room.workers, "threads_per_worker": room.threads,
            "gpus_per_worker": room.gpus, "machines": len({machine for machine, _ in self._processes}),
        }  # fmt: skip

    def run(self, lens: Lens, work: Work[U, R], units: Iterable[U]) -> Iterator[tuple[int, R]]:
        """See `headlens.engine.Engine.run`.

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
