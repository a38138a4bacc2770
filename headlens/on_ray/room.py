"""How many workers a Ray cluster has room for, and how much of it each gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headlens.errors import InputError


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
