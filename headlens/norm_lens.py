"""Norms instead of weights while a corpus is read: what each key adds, not how much it is looked at."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from headlens.errors import InputError
from headlens.model.heads import Site
from headlens.model.lens import Lens
from headlens.model.seam import Block
from headlens.model.weights import handed_over


class NormLens:
    """Puts shares of norms in the place of weights.

    A row of weights A_ij becomes |A_ij f(x_j)|, divided by its sum over the keys, where
    f(x) = (x W_V + b_V) W_O of the head (Kobayashi et al. 2020). Rows add up to 1 as those of weights do, so
    that every score keeps its range and its baseline; a row that hands over nothing is 0 throughout. It
    misleads where large parts cancel: lengths say nothing about directions.

    Args:
        lens: the model.

    Raises:
        InputError: the model does not show the values that its attention reads, or has no W_O.
    """

    def __init__(self, lens: Lens) -> None:
        outputs = {part.site: part.projections.output for part in lens.anatomy.parts}
        if not lens.anatomy.by_interface or not all(outputs.values()):
            raise InputError(
                f"The norms of {lens.anatomy.architecture} cannot be told: its attention does not show the "
                "values that it reads.",
                "Leave --lens norms out.",
            )
        self._outputs = {site: lens.model.get_submodule(path) for site, path in outputs.items()}

    def __call__(self, site: Site, block: Block) -> Block:
        """Turn a block of weights into one of shares of norms.

        Args:
            site: where.
            block: weights, with values.

        Returns:
            The same block with another pattern.
        """
        assert block.values is not None  # interface families show them
        lengths = self._lengths(site, block.values).to(block.pattern)
        norms = block.pattern * lengths[:, :, None]  # [input, head, query, key]
        total = norms.sum(-1, keepdim=True)
        return replace(block, pattern=norms / total.where(total > 0, 1))

    def _lengths(self, site: Site, values: Tensor) -> Tensor:
        n_inputs, n_groups, n_keys, width = values.shape
        rows = values.transpose(0, 1).reshape(n_groups, n_inputs * n_keys, width)
        lengths = handed_over(self._outputs[site], rows, site.n_heads)  # [head, input x key]
        return lengths.reshape(site.n_heads, n_inputs, n_keys).transpose(0, 1)
