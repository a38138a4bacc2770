"""Peak memory, each time of a process of its own."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from headlens.lens import load
from headlens.scoring.classify import classify, read_corpus
from measure.setting import Setting, forward, random_inputs
from measure.timing import Row

STATUS = Path("/proc/self/status")


def memory(setting: Setting) -> list[Row]:
    """Classify on more and more of a corpus, and one long input observed or kept."""
    rows = []
    for times in (0, 1) if setting.small else (0, 0.5, 1, 2):
        part = times / 20 if setting.small else times
        found = alone(setting, classified, setting.model, setting.path, part)
        rows.append(Row("memory: classify", f"the documents x {times:g}", found, "MB"))
    length = 64 if setting.small else 4096
    place = str(setting.llama(1 if setting.small else 4))
    for name, kept in (("observed", False), ("output_attentions=True", True)):
        found = alone(setting, one_pass, place, length, kept)
        rows.append(Row(f"memory: Llama shape, {length:,} tokens, above the weights", name, found, "MB"))
    return rows


def alone(setting: Setting, work: Callable[..., Any], *arguments: Any) -> Any:
    """Run a function in a process of its own; in this one where all is small."""
    if setting.small:
        return work(*arguments)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(single, work, arguments).result()


def single(work: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Run a function with one thread, without a word."""
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    return work(*arguments)


def classified(model: str, path: Path | None, times: float) -> float:
    """Peak of classify on a part of a corpus, or on all of it several times, in MB."""
    corpus, lens = read_corpus(path), load(model)
    documents = (corpus.documents * 2)[: round(times * len(corpus.documents))]
    if documents:
        classify(lens, replace(corpus, documents=documents))
    return peak()


def one_pass(place: str, length: int, kept: bool) -> float:
    """Peak of one pass above what there was before it, in MB: observed, or all patterns kept."""
    lens = load(place)
    inputs = random_inputs(lens, (1, length))
    sites, before = lens.anatomy.sites, peak()
    if kept:
        forward(lens, [inputs], output_attentions=True)
    else:
        with torch.inference_mode(), lens.observe(lambda site, block: None, sites):
            lens.run(inputs)
    return peak() - before


def peak() -> float:
    """Most memory that this process has had so far, in MB."""
    if STATUS.exists():  # getrusage tells a child the peak of its parent, too
        lines = STATUS.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)
