"""Final orders from stage scores: standardised sums, and relevance as a calibrated probability."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from clumsies.models.manifest import BlendStage

IDENTITY_BONUS = 10.0
"""Added to the final score of an identity-equal match. Larger than any blend: the mean of
standardised scores of n candidates is at most sqrt(n - 1), which is 7.7 for 60."""

Scores = npt.NDArray[np.float64]


def standardised(scores: Sequence[float]) -> Scores:
    """float64 (n,): scores less their mean, over their standard deviation; zeros if all alike."""
    values = np.asarray(scores, dtype=np.float64)
    if not len(values):
        return values
    spread = values.std()
    if spread < 1e-9:
        return np.zeros_like(values)
    centred: Scores = (values - values.mean()) / spread
    return centred


def blended(
    stages: Mapping[BlendStage, Sequence[float]], weights: Sequence[tuple[BlendStage, float]]
) -> Scores:
    """float64 (n,): weighted mean of the standardised scores of the stages that ran."""
    used = [(stages[stage], weight) for stage, weight in weights if stage in stages]
    total = sum(weight for _, weight in used)
    if not used or total <= 0:
        raise ValueError("a blend needs at least one stage with a positive weight")
    summed = sum(weight * standardised(scores) for scores, weight in used)
    result: Scores = np.asarray(summed / total, dtype=np.float64)
    return result


def sigmoid(value: float) -> float:
    """1 / (1 + e^-value), without overflow."""
    if value >= 0:
        return 1.0 / (1.0 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1.0 + grown)
