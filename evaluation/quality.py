"""What plots and pages draw: means with their intervals, in one order, by one palette."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluation.report import HEADINGS, differences
from evaluation.results import SetResult
from evaluation.significance import Interval, bootstrap_interval
from evaluation.traces import VARIANTS, Variant

COLOURS: Mapping[Variant, str] = {
    "b1_bm25": "#e69f00",
    "b2_dense_vector": "#56b4e9",
    "b3_hybrid_rrf": "#009e73",
    "b4_reranked": "#cc5500",
}
"""Told apart with any colour vision (after Okabe and Ito 2008); markers differ as well."""

_ROUNDS = 2_000


@dataclass(frozen=True, slots=True)
class Bar:
    """One variant's mean of a metric; `low` and `high` equal it where no query's value is kept."""

    variant: Variant
    heading: str
    mean: float
    low: float
    high: float


def bars(result: SetResult, metric: str) -> list[Bar]:
    """The variants of one set with 95 % bootstrap intervals over its queries."""
    return [_bar(result, variant, metric) for variant in VARIANTS if variant in result.variants]


def sorted_differences(result: SetResult) -> list[float]:
    """nDCG@10, reranked minus RRF, of each query, largest loss first; empty without details."""
    return sorted(differences(result, "b3_hybrid_rrf", "b4_reranked", "ndcg_at_10"))


def ranked_queries(result: SetResult, variant: Variant = "b4_reranked") -> list[tuple[str, float]]:
    """Query ids with their nDCG@10, worst first, ties by id; empty without details."""
    scores = result.details.get(variant, {})
    return sorted(
        ((query, one.ndcg_at_10) for query, one in scores.items()), key=lambda item: item[::-1]
    )


def interval_text(bar: Bar) -> str:
    """`0.812 [0.790, 0.834]`, without the brackets where there is no interval."""
    if bar.low == bar.high:
        return f"{bar.mean:.3f}"
    return f"{bar.mean:.3f} [{bar.low:.3f}, {bar.high:.3f}]"


def names_of(results: Sequence[SetResult]) -> list[str]:
    """A name for each result: its set, and its profile where several profiles are there."""
    several = len({result.profile for result in results}) > 1
    return [
        f"{result.set_name} ({result.profile})" if several else result.set_name
        for result in results
    ]


def _bar(result: SetResult, variant: Variant, metric: str) -> Bar:
    mean = float(getattr(result.variants[variant], metric))
    values = [float(getattr(one, metric)) for one in result.details.get(variant, {}).values()]
    found = bootstrap_interval(values, rounds=_ROUNDS) if values else Interval(mean, mean, mean)
    return Bar(variant, HEADINGS[variant], mean, found.low, found.high)
