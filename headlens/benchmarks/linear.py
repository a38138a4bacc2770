"""A linear classifier on frozen features: fitted by scikit-learn, applied in torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from headlens.benchmarks.metrics import Array
from headlens.errors import InputError

MOST_STEPS = 10_000  # of the solver; it stops by itself long before


@dataclass(frozen=True, eq=False)
class Linear:
    """A multinomial logistic regression on standardised features.

    Args:
        mean: of each feature, [feature].
        scale: its standard deviation, 1 for a constant one, [feature].
        weight: [class, feature].
        bias: [class].
    """

    mean: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor

    def log_probabilities(self, features: Tensor) -> Tensor:
        """Classify; differentiable.

        Args:
            features: [example, feature].

        Returns:
            Log-probability of each class, [example, class].
        """
        mean, scale, weight, bias = (x.to(features) for x in (self.mean, self.scale, self.weight, self.bias))
        return log_softmax((features - mean) / scale @ weight.T + bias, dim=1)


def fit(features: Array, classes: Sequence[int]) -> Linear:
    """Fit a classifier: L2 penalty with C = 1, nothing drawn at random.

    Args:
        features: float64 [example, feature].
        classes: of each example, every number from 0 to the largest, two of them at least.

    Returns:
        The classifier.
    """
    scaler, regression = pipeline(features, classes)
    coefficients, intercept = regression.coef_, regression.intercept_
    if len(coefficients) == 1:  # of two classes scikit-learn keeps the second one's
        coefficients = np.concatenate([np.zeros_like(coefficients), coefficients])
        intercept = np.concatenate([np.zeros_like(intercept), intercept])
    return Linear(*(torch.from_numpy(x) for x in (scaler.mean_, scaler.scale_, coefficients, intercept)))


def pipeline(features: Array, classes: Sequence[int]) -> Any:
    """Fit scikit-learn's own pipeline, which `fit` takes apart.

    Args:
        features: see `fit`.
        classes: see `fit`.

    Returns:
        A scaler and a logistic regression, one after the other.
    """
    parts = [import_module(f"sklearn.{name}") for name in ("preprocessing", "linear_model", "pipeline")]
    scaler, regression = parts[0].StandardScaler(), parts[1].LogisticRegression(max_iter=MOST_STEPS)
    return parts[2].make_pipeline(scaler, regression).fit(features, classes)


def need_sklearn() -> None:
    """Make sure that scikit-learn is installed; it is slow to import, so only `fit` does.

    Raises:
        InputError: it is not.
    """
    if find_spec("sklearn") is None:
        raise InputError(
            "The benchmark probe needs the package scikit-learn.", "Type: pip install scikit-learn"
        )
