"""Running the files of `experiments` on what is at hand, and other ways to count what they measure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import nn
from transformers import AutoModel

from support import plantedrun

FOLDER = Path(__file__).parents[2] / "experiments"


def measured_by(name: str, place: Path, model: Path | str, corpus: str = "") -> pd.Series:
    """Run a file of `experiments` beside its stand-ins.

    Args:
        name: of the file.
        place: where the stand-ins are.
        model: that takes the place of the file's.
        corpus: a file that the experiment shall read instead of the bundled sample.

    Returns:
        What was measured, by what it is; every figure of the file could be.
    """
    text = (FOLDER / f"{name}.toml").read_text("utf-8")
    if corpus:
        text = text.replace("\n[model]", f'\n[corpus]\nfiles = ["{corpus}"]\n\n[model]')
    (place / f"{name}.toml").write_text(text, "utf-8")
    result = plantedrun.run(place / f"{name}.toml", "--model", model, "--out", place / "out", "--quiet")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(place / "out" / "published.csv", index_col="what")
    assert table["measured"].notna().all()
    assert (place / "out" / "report.html").stat().st_size > 100_000
    return table["measured"]


def attention(place: Path) -> Callable[[Sequence[int]], np.ndarray]:
    """What a model's own code says of its weights: of ids, [layer, head, query, key]."""
    model = AutoModel.from_pretrained(place, attn_implementation="eager").eval()

    @torch.no_grad()
    def weights(ids: Sequence[int]) -> np.ndarray:
        return torch.cat(model(torch.tensor([ids]), output_attentions=True).attentions).double().numpy()

    return weights


def without(removed: str, outputs: Sequence[nn.Linear], n_heads: int) -> None:
    """Zero the columns of W_O that read some heads, named ``encoder.1.2``, of each layer."""
    for name in removed.split():
        _, layer, head = name.split(".")
        output = outputs[int(layer)]
        width = output.weight.shape[1] // n_heads
        output.weight.data[:, int(head) * width : (int(head) + 1) * width] = 0
