"""The way to a Ray cluster: one that runs, or one of this machine's own."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from typing import Any

from headlens.errors import RunError

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
