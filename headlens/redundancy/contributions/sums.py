"""The measures of the parts of one attention branch, one part at a time: no vectors are kept."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]
BY_TOKEN = ("output_norm", "written_norm", "branch_share", "cosine", "stream_share")


class Sums:
    """What has been added so far, and what it is of the whole.

    Args:
        branch: b, what W_O puts out, [token, model width].
        stream: r, the residual stream with the branch added, [token, model width]; None where it is not
            known.
        position: where what is written is kept as vectors; nowhere where it is None.
    """

    def __init__(self, branch: Tensor, stream: Tensor | None, position: int | None) -> None:
        self.branch, self.stream, self._position = branch, stream, position
        self.total = torch.zeros_like(branch)  # of all parts
        self.lengths = torch.zeros_like(branch[:, 0])  # of all parts, added up
        self._rows: dict[str, list[Tensor]] = {name: [] for name in BY_TOKEN}  # [token] each
        self._kept: list[Tensor] = []

    def add(self, written: Tensor, added: Tensor, before: Tensor) -> None:
        """Measure one part.

        Args:
            written: c, what it writes, [token, model width].
            added: what of it reaches the stream: c itself, or c through a norm behind W_O.
            before: length of what it puts out before W_O, [token].
        """
        own, length = written.norm(dim=-1), self.branch.norm(dim=-1)
        along = (written * self.branch).sum(-1)
        self.total += written
        self.lengths += own
        self._rows["output_norm"].append(before)
        self._rows["written_norm"].append(own)
        self._rows["branch_share"].append(along / length.square())  # 0 / 0 is NaN: nothing to share out
        self._rows["cosine"].append(along / (own * length))
        self._rows["stream_share"].append(
            torch.full_like(own, torch.nan)
            if self.stream is None
            else (added * self.stream).sum(-1) / self.stream.square().sum(-1)
        )
        if self._position is not None:
            self._kept.append(written[self._position].cpu())

    def arrays(self) -> dict[str, Array]:
        """Every measure in `BY_TOKEN`, [part, token]."""
        return {name: torch.stack(rows).cpu().numpy().astype(np.float64) for name, rows in self._rows.items()}

    def at_position(self) -> Tensor:
        """What each part writes at the position, [part, model width]; nothing where there is none."""
        return torch.stack(self._kept) if self._kept else torch.empty(0)
