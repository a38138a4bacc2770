"""The examples of a task of lm-evaluation-harness, and what `run.json` says about them."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from headlens.benchmarks.inputs import need_tokenizer
from headlens.model.lens import Lens

NEW_TOKENS = 256  # that a task lets a model write where it does not say how many; lm_eval's own default


@dataclass(frozen=True, slots=True)
class Document:
    """One example of a task.

    Args:
        task: name of the task.
        number: which of its examples, from 0.
        requests: lm_eval's requests, such as one for each choice.
        tokens: how many tokens they have together.
    """

    task: str
    number: int
    requests: tuple[Any, ...]
    tokens: int


def documents_of(lens: Lens, name: str, task: Any) -> list[Document]:
    """Gather a task's requests by example.

    Args:
        lens: the model that will answer them.
        name: of the task.
        task: lm_eval's, its requests built.

    Returns:
        The examples, in the task's order.
    """
    by_number: dict[int, list[Any]] = defaultdict(list)
    for request in task.instances:
        by_number[request.doc_id].append(request)
    return [
        Document(
            name,
            number,
            tuple(sorted(requests, key=lambda request: request.idx)),
            sum(_tokens(lens, request) for request in requests),
        )
        for number, requests in sorted(by_number.items())
    ]


def _tokens(lens: Lens, request: Any) -> int:
    texts = [part for part in request.args if isinstance(part, str)]
    settings = next((part for part in request.args if isinstance(part, dict)), None)
    new = 0 if settings is None else int(settings.get("max_gen_toks", NEW_TOKENS))
    return len(need_tokenizer(lens)("".join(texts))["input_ids"]) + new


def about(task: Any) -> dict[str, Any]:
    """Say what a task is, down to every word that a model reads.

    Args:
        task: lm_eval's, its requests built.

    Returns:
        Version, sizes, and hashes of its config and of its examples with their requests.
    """
    requests = [[request.request_type, request.args, request.doc] for request in task.instances]
    return {
        "version": task.VERSION,
        "examples": len({request.doc_id for request in task.instances}),
        "num_fewshot": task.get_config("num_fewshot"),
        "config_sha256": _digest(task.dump_config()),
        "data_sha256": _digest(requests),
    }


def _digest(thing: Any) -> str:
    text = json.dumps(thing, sort_keys=True, default=str, ensure_ascii=False)
    return hashlib.sha256(re.sub(" at 0x[0-9a-f]+", "", text).encode()).hexdigest()
