"""Resampling tests against exact enumeration and known distributions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.significance import (
    bootstrap_interval,
    bootstrap_mean_of_means,
    paired_randomisation,
)


def _exact_p(differences: list[float]) -> float:
    """Every assignment of signs, not a sample of them."""
    observed = abs(sum(differences)) * (1 - 1e-12)
    signs = itertools.product((1, -1), repeat=len(differences))
    sums = [abs(sum(s * d for s, d in zip(row, differences, strict=True))) for row in signs]
    return sum(value >= observed for value in sums) / len(sums)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(-8, 8), min_size=1, max_size=9))
def test_randomisation_comes_near_the_exact_test(eighths: list[int]) -> None:
    differences = [value / 8 for value in eighths]
    sampled = paired_randomisation([0.0] * len(differences), differences, rounds=20_000)
    assert sampled == pytest.approx(_exact_p(differences), abs=0.02)


def test_randomisation_tells_a_steady_gain_from_none() -> None:
    scores = np.random.default_rng(5).random(60)
    assert paired_randomisation(scores, scores + 0.05) < 0.001
    assert paired_randomisation(scores, scores) == 1.0


def test_randomisation_is_repeatable_and_pairs() -> None:
    generator = np.random.default_rng(6)
    first, second = generator.random(30), generator.random(30)
    assert paired_randomisation(first, second) == paired_randomisation(first, second)
    assert paired_randomisation(first, second) == paired_randomisation(second, first)
    with pytest.raises(ValueError, match="30 and 29"):
        paired_randomisation(first, second[1:])
    with pytest.raises(ValueError, match="at least one"):
        paired_randomisation([], [])


def test_bootstrap_comes_near_the_normal_interval() -> None:
    values = np.random.default_rng(7).normal(0.3, 0.2, size=400)
    interval = bootstrap_interval(values)
    error = values.std() / np.sqrt(values.size)
    assert interval.mean == pytest.approx(values.mean())
    assert interval.low == pytest.approx(values.mean() - 1.96 * error, abs=0.2 * error)
    assert interval.high == pytest.approx(values.mean() + 1.96 * error, abs=0.2 * error)


def test_every_set_weighs_the_same_in_a_mean_of_means() -> None:
    interval = bootstrap_mean_of_means([[1.0] * 1000, [0.0] * 10])
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="nothing"):
        bootstrap_mean_of_means([])
