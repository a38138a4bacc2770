"""Times of works that take turns, as ratios."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch

Work = Callable[[], object]


class Row(NamedTuple):
    """One line of the table: what was measured, over what or in which unit."""

    part: str
    what: str
    value: float
    of: str


def clock() -> float:
    """Seconds of this process; of the wall where several threads or a GPU work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


def timed(work: Work) -> float:
    """Measure one call."""
    start = clock()
    work()
    return clock() - start


def least(works: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """Let works take turns, after one to warm up; the least time of each, which others disturbed least."""
    for work in works.values():
        work()
    times = [{name: timed(work) for name, work in works.items()} for _ in range(rounds)]
    return {name: min(turn[name] for turn in times) for name in works}


def against(part: str, ours: Mapping[str, Work], others: Mapping[str, Work], rounds: int) -> list[Row]:
    """Hold each of ours against each of the others: a row for every pair, below 1 where ours is faster."""
    times = least({**ours, **others}, rounds)
    return [Row(part, mine, times[mine] / times[other], other) for mine in ours for other in others]


def process(command: Sequence[str], rounds: int) -> float:
    """Least CPU seconds of a program, from its start to its end, with one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    found = []
    for _ in range(rounds):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=sys.stderr)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found)
