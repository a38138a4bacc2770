"""A large matrix that is a product of two thin ones, as every head's W_Q W_K^T and W_V W_O is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headlens.devices import exactly


@dataclass(frozen=True, eq=False)
class Factored:
    """The product of a tall and a wide matrix, kept as its factors.

    Args:
        left: [rows, inner].
        right: [inner, columns]; `inner` is a head's width, much less than rows and columns.
    """

    left: Tensor
    right: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the product."""
        return self.left.shape[0], self.right.shape[1]

    def matrix(self) -> Tensor:
        """Multiply out.

        Returns:
            [rows, columns]: large where these are a vocabulary.
        """
        return self.left @ self.right

    def singular_values(self) -> Tensor:
        """Compute the singular values that can differ from 0.

        Returns:
            Falling, [inner], in float64.
        """
        tall, wide = exactly(self.left), exactly(self.right)
        # QR turns both factors into squares of the inner size, without changing singular values
        inner = torch.linalg.qr(tall).R @ torch.linalg.qr(wide.T).R.T
        values: Tensor = torch.linalg.svdvals(inner)
        return values

    def eigenvalues(self) -> Tensor:
        """Compute the eigenvalues that can differ from 0: those of right @ left, which is small.

        Returns:
            Complex, by falling modulus, [inner], in double precision.

        Raises:
            ValueError: the product is not square.
        """
        if self.shape[0] != self.shape[1]:
            raise ValueError(f"Only a square matrix has eigenvalues, this one has the shape {self.shape}.")
        found: Tensor = torch.linalg.eigvals(exactly(self.right) @ exactly(self.left))
        return found[found.abs().argsort(descending=True, stable=True)]

    def copying_score(self) -> float:
        """Measure whether the map makes more of what it is given, or less.

        Elhage et al. 2021: the real part of the sum of the eigenvalues over the sum of their moduli. It
        misleads where few directions count: all eigenvalues count by their size alone, and a map that only
        scales one direction up has 1.

        Returns:
            1 where all eigenvalues are positive (it copies), -1 where all are negative, about 0 where they
            lie all around; NaN for a map to nothing.
        """
        found = self.eigenvalues()
        total = float(found.abs().sum())
        return float(found.real.sum()) / total if total > 0 else math.nan
