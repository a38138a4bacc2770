"""Times of works that take turns, as ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple

import torch


class Row(NamedTuple):
    """One line of the table: a ratio to `of`, or megabytes."""

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


def timed(work: Callable[[], object]) -> float:
    """Measure one call."""
    start = clock()
    work()
    return clock() - start


def compare(part: str, works: Mapping[str, Callable[[], object]], rounds: int) -> list[Row]:
    """Let works take turns; each row is the median of a work over the first one in the same round."""
    first = next(iter(works))
    for work in works.values():
        work()  # warm up
    times = [{name: timed(work) for name, work in works.items()} for _ in range(rounds)]
    return [Row(part, name, median(turn[name] / turn[first] for turn in times), first) for name in works]
