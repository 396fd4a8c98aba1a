"""Whether a difference between two methods is more than chance: paired, without assumptions.

Both tests resample with a generator seeded by the caller, so a report can be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

ROUNDS = 10_000
# Rounds resampled at once: bounds the working memory to this times the number of queries.
_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the percentile interval around it."""

    mean: float
    low: float
    high: float


def paired_randomisation(
    first: ArrayLike, second: ArrayLike, *, rounds: int = ROUNDS, seed: int = 0
) -> float:
    """Two-sided p-value that the means of paired scores differ by chance alone.

    Under the null hypothesis the sign of each query's difference is a coin toss (Fisher's
    randomisation test; Smucker, Allan, Carterette 2007). The observed assignment is counted
    among the tossed ones, so the value is never 0. `first`, `second`: float (n,), same queries.
    """
    differences = _paired(first, second)
    # Sums of the same numbers in another order differ in their last bits: they must count as equal.
    observed = abs(differences.sum()) * (1.0 - 1e-12)
    generator = np.random.default_rng(seed)
    extreme = 0
    for count in _chunks(rounds):
        signs = generator.integers(0, 2, size=(count, differences.size)) * 2 - 1
        extreme += int(np.count_nonzero(np.abs(signs @ differences) >= observed))
    return (extreme + 1) / (rounds + 1)


def bootstrap_interval(
    values: ArrayLike, *, level: float = 0.95, rounds: int = ROUNDS, seed: int = 0
) -> Interval:
    """Percentile bootstrap interval of the mean of `values`, float (n,) (Efron 1979)."""
    return bootstrap_mean_of_means([values], level=level, rounds=rounds, seed=seed)


def bootstrap_mean_of_means(
    samples: Sequence[ArrayLike], *, level: float = 0.95, rounds: int = ROUNDS, seed: int = 0
) -> Interval:
    """Interval of the mean of several samples' means, each sample resampled on its own.

    For a mean over sets: every set weighs the same, whatever its number of queries.
    """
    arrays = [_vector(sample) for sample in samples]
    if not arrays:
        raise ValueError("there is nothing to resample")
    generator = np.random.default_rng(seed)
    means = np.zeros(rounds, dtype=np.float64)
    for array in arrays:
        start = 0
        for count in _chunks(rounds):
            picks = generator.integers(0, array.size, size=(count, array.size))
            means[start : start + count] += array[picks].mean(axis=1)
            start += count
    means /= len(arrays)
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(means, (tail, 1.0 - tail))
    centre = float(np.mean([array.mean() for array in arrays]))
    return Interval(centre, float(low), float(high))


def _paired(first: ArrayLike, second: ArrayLike) -> Floats:
    one, other = _vector(first), _vector(second)
    if one.shape != other.shape:
        raise ValueError(f"paired scores of {one.size} and {other.size} queries")
    return other - one


def _vector(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError("expected the scores of at least one query, shape (n,)")
    return array


def _chunks(rounds: int) -> Iterator[int]:
    for start in range(0, rounds, _CHUNK):
        yield min(_CHUNK, rounds - start)
