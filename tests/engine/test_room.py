"""How many workers a cluster has room for."""

from __future__ import annotations

import pytest

from headlens.engine.ray import Node, Room, room_for
from headlens.errors import InputError

EIGHT = Node(cpus=8, gpus=0)


@pytest.mark.parametrize(
    ("nodes", "workers", "threads", "expected"),
    [
        ([EIGHT], None, 4, Room(2, 4, 0, 4)),  # as many as have this process' threads
        ([EIGHT], 1, 4, Room(1, 4, 0, 4)),
        ([EIGHT], 4, 4, Room(4, 2, 0, 2)),  # more: they share
        ([EIGHT], 16, 4, Room(16, 0.5, 0, 1)),
        ([EIGHT, EIGHT], None, 8, Room(2, 8, 0, 8)),
        ([EIGHT, Node(3, 0)], None, 4, Room(2, 4, 0, 4)),  # the small machine has none with 4
        ([EIGHT, Node(3, 0)], 4, 4, Room(4, 2, 0, 2)),  # 11 / 4 is 2 each, and 2 fits 4 + 1 times
        ([Node(2, 0)], None, 16, Room(1, 2, 0, 2)),  # a smaller machine than this one
        ([Node(1, 0)], 3, 1, Room(3, 0.3333, 0, 1)),
    ],
)
def test_cpus_are_shared_out(nodes, workers, threads, expected):
    found = room_for(nodes, workers, 0, threads)
    assert found == expected
    assert sum(int(node.cpus / found.cpus) for node in nodes) >= found.workers  # all of them find room


@pytest.mark.parametrize(
    ("nodes", "workers", "gpus", "expected"),
    [
        ([Node(8, 4)], None, 1, Room(4, 1, 1, 6)),
        ([Node(8, 4), Node(8, 1)], None, 2, Room(2, 1, 2, 6)),
        ([Node(8, 1)], None, 0.5, Room(2, 1, 0.5, 6)),
        ([Node(8, 1)], None, 0.1, Room(10, 1, 0.1, 6)),
        ([Node(8, 4)], 3, 1, Room(3, 1, 1, 6)),
    ],
)
def test_gpus_are_shared_out(nodes, workers, gpus, expected):
    assert room_for(nodes, workers, gpus, threads=6) == expected


@pytest.mark.parametrize(
    ("nodes", "workers", "gpus", "message"),
    [
        ([EIGHT], None, 1, "1 workers with 1 GPUs each were asked for; the Ray cluster has 0 GPUs, which is "
         "room for 0. Type fewer --workers, or other --gpus-per-worker; 0 runs them on CPUs."),
        ([Node(8, 4)], 5, 1, "5 workers with 1 GPUs each were asked for; the Ray cluster has 4 GPUs, which "
         "is room for 4. Type fewer --workers, or other --gpus-per-worker; 0 runs them on CPUs."),
        ([Node(0, 0)], None, 0, "The Ray cluster has no CPUs to give away. Start it with CPUs: --num-cpus."),
    ],
)  # fmt: skip
def test_no_room(nodes, workers, gpus, message):
    with pytest.raises(InputError) as error:
        room_for(nodes, workers, gpus, threads=4)
    assert str(error.value) == message
