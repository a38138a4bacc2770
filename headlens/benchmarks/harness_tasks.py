"""Tasks of lm-evaluation-harness: loaded once, quietly and the same every time."""

from __future__ import annotations

import io
import logging
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headlens.errors import InputError, first_line
from headlens.util.files import from_home, is_there

YAML = (".yaml", ".yml")
FEWSHOT_SEED = 1234  # lm_eval's own default; 0 for `random`, 1234 for numpy and torch are, too


def load_tasks(target: str) -> dict[str, Any]:
    """Load tasks with their data.

    What is on this machine is taken first; the network is asked only for what is not.

    Args:
        target: names of tasks, groups or tags, or paths of YAML files, between commas.

    Returns:
        The tasks by name, their requests built.

    Raises:
        InputError: lm_eval is not installed, there is no such task, or its data cannot be had.
    """
    specs = [spec.strip() for spec in target.split(",") if spec.strip()]
    with quietly(), seeded():
        manager_of = _harness()
        paths = {spec: from_home(spec) for spec in specs if Path(spec).suffix in YAML}
        for path in paths.values():
            if not is_there(path):
                raise InputError(f"Expected a file at {path}, found nothing.", "Check the path.")
        manager = manager_of(include_defaults=len(paths) < len(specs))  # finding the names takes seconds
        tasks: dict[str, Any] = {}
        for spec in specs:
            if spec not in paths and spec not in manager.task_index:
                raise InputError(
                    f"lm-evaluation-harness has no task {spec!r}.",
                    "Name one of `lm_eval ls tasks`, or the path of a task's .yaml file.",
                )
            tasks |= _loaded(manager, spec, str(paths.get(spec, spec)))
        for name, task in tasks.items():
            _build(name, task)
    return tasks


def _harness() -> Any:
    try:
        import lm_eval.models.huggingface
        import lm_eval.tasks
    except ImportError as error:
        raise InputError(
            f"The benchmark harness needs the package lm_eval, which cannot be imported: {first_line(error)}",
            "Type: pip install 'headlens[harness]'",
        ) from None
    return lm_eval.tasks.TaskManager


def _loaded(manager: Any, spec: str, place: str) -> dict[str, Any]:
    """Load one task: first without network, and only if that does not do, with it."""
    try:
        with _offline():
            return dict(manager.load([place])["tasks"])
    except ConnectionError as error:
        problem: BaseException = error
    except Exception as error:  # a task's file can be wrong in any way, and can run code
        raise InputError(
            f"The task {spec} cannot be loaded: {first_line(error)}", "Correct its .yaml file and its data."
        ) from error
    try:
        if _hub_answers():
            return dict(manager.load([place])["tasks"])
    except Exception as error:  # as above, and everything that can happen on the way to the hub
        problem = error
    raise InputError(
        f"The task {spec} cannot be loaded: {first_line(problem)}",
        "Load it once with network, or name a .yaml file whose data are on this machine.",
    ) from problem


def _build(name: str, task: Any) -> None:
    """Make a task's requests, few-shot examples included, as lm_eval's `simple_evaluate` does."""
    if getattr(task, "MULTIMODAL", False) or getattr(task, "UNSAFE_CODE", False):
        raise InputError(
            f"The task {name} needs pictures or sound, or runs code that a model wrote.",
            "Choose a task of plain text.",
        )
    if task.get_config("num_fewshot") is None:
        task.set_config(key="num_fewshot", value=0)
    task.set_fewshot_seed(seed=FEWSHOT_SEED)
    task.build_all_requests(rank=0, world_size=1)


@contextmanager
def quietly() -> Iterator[None]:
    """Keep lm_eval and what it calls from writing to the log and drawing bars, while the block lasts."""
    loggers = [logging.getLogger(name) for name in ("lm_eval", "datasets", "transformers")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with redirect_stderr(io.StringIO()):  # some of lm_eval's bars cannot be switched off
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def seeded() -> Iterator[None]:
    """Seed what tasks draw at random as lm_eval does, and put the generators back afterwards."""
    plain, legacy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        random.seed(0)
        np.random.seed(FEWSHOT_SEED)
        torch.manual_seed(FEWSHOT_SEED)
        try:
            yield
        finally:
            random.setstate(plain)
            np.random.set_state(legacy)


@contextmanager
def _offline() -> Iterator[None]:
    """Have datasets look at this machine only, as with HF_HUB_OFFLINE=1, which is read at import."""
    import datasets.config
    from huggingface_hub import constants

    holders: Sequence[Any] = (datasets.config, constants)
    before = [holder.HF_HUB_OFFLINE for holder in holders]
    for holder in holders:
        holder.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for holder, value in zip(holders, before, strict=True):
            holder.HF_HUB_OFFLINE = value


def _hub_answers() -> bool:
    """Whether the hub may be asked and is there, found out within seconds (datasets tries much longer)."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        get_session().head(constants.ENDPOINT, timeout=5)
    except Exception:  # whatever the client raises: there is no way to the hub
        return False
    return True
