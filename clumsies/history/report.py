"""The numbers of judged cases: four variants read from the ranks that each run recorded.

A judgment of a unit matches that unit, one of a missed resource any unit of it; every judgment is
matched once, and a unit matches at most one, its own before its resource's. Relevant is a grade
from 1; the gain of a grade is 2^grade - 1 and its discount log2(rank + 1) (Järvelin, Kekäläinen
2002; Burges et al. 2005). Recall, nDCG and MRR are not defined, and null, where nothing is
relevant; means are over the cases where a number is defined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from clumsies.history.records import CaseDetail, Judgment, Run, RunCandidate

VARIANTS = ("b1_bm25", "b2_dense_vector", "b3_hybrid_rrf", "b4_reranked")
METRICS = (
    "recall_at_20",
    "ndcg_at_10",
    "mrr",
    "resource_diversity",
    "scope_violation",
    "stale_result",
)
LOSSES = frozenset({"scope_violation", "stale_result"})
"""Metrics of which less is better."""
TOP = 20
NDCG_CUT = 10
MRR_CUT = 10


class VariantScores(msgspec.Struct, frozen=True):
    """One variant's numbers for one case, or their means."""

    recall_at_20: float | None
    ndcg_at_10: float | None
    mrr: float | None
    resource_diversity: float | None
    scope_violation: float | None
    stale_result: float | None


class CaseReport(msgspec.Struct, frozen=True):
    """One case: its numbers and the time of its run, by variant."""

    case_id: str
    variants: dict[str, VariantScores]
    latency_us: dict[str, int]


class Latency(msgspec.Struct, frozen=True):
    """Microseconds over the cases' runs; not warm, and of the machine that ran them."""

    p50_us: int
    p95_us: int


class Report(msgspec.Struct, frozen=True):
    """Numbers of each case, the means over cases, and the time of each variant."""

    cases: tuple[CaseReport, ...]
    mean: dict[str, VariantScores]
    latency: dict[str, Latency]


def report_of(cases: Sequence[CaseDetail]) -> Report:
    """The report over cases as they were recorded."""
    return summarised([case_report(case, case.candidates, case.source_run) for case in cases])


def case_report(case: CaseDetail, candidates: Sequence[RunCandidate], run: Run) -> CaseReport:
    """The numbers of a case for these candidates: its own, or those of a run anew."""
    hashes = {resource.resource_id: resource.content_hash for resource in case.resources}
    return CaseReport(
        case.evaluation_case.case_id,
        {name: _scores(ranked(candidates, name), case.judgments, hashes) for name in VARIANTS},
        variant_times(run),
    )


def summarised(cases: Sequence[CaseReport]) -> Report:
    """Means and percentiles over case reports."""
    latency = {}
    for name in VARIANTS if cases else ():
        times = [case.latency_us[name] for case in cases]
        latency[name] = Latency(percentile(times, 0.50), percentile(times, 0.95))
    mean = {name: _mean([case.variants[name] for case in cases]) for name in VARIANTS}
    return Report(tuple(cases), mean, latency)


def ranked(candidates: Sequence[RunCandidate], variant: str) -> list[RunCandidate]:
    """The candidates that the variant ranks, best first, ties by unit key."""
    placed = [
        (_rank(candidate, variant), candidate.unit_key, candidate) for candidate in candidates
    ]
    found = [(rank, key, candidate) for rank, key, candidate in placed if rank is not None]
    return [candidate for _, _, candidate in sorted(found, key=lambda item: item[:2])]


def _rank(candidate: RunCandidate, variant: str) -> int | None:
    if variant == "b1_bm25":
        exact = candidate.exact_rank
        return exact if exact is not None else candidate.bm25_rank
    if variant == "b2_dense_vector":
        return candidate.vector_rank
    return candidate.rrf_rank if variant == "b3_hybrid_rrf" else candidate.final_rank


def matched(
    ranking: Sequence[RunCandidate], judgments: Sequence[Judgment]
) -> list[Judgment | None]:
    """For each unit of the ranking the judgment that it matches, each judgment at most once."""
    of_unit = {j.unit_key: j for j in judgments if j.unit_key is not None}
    of_resource = {j.resource_id: j for j in judgments if j.unit_key is None}
    found: list[Judgment | None] = []
    for candidate in ranking:
        own = of_unit.pop(candidate.unit_key, None)
        found.append(own if own is not None else of_resource.pop(candidate.resource_id, None))
    return found


def _scores(
    ranking: Sequence[RunCandidate], judgments: Sequence[Judgment], hashes: Mapping[str, str]
) -> VariantScores:
    top = ranking[:TOP]
    grades = [j.relevance if j is not None else 0 for j in matched(top, judgments)]
    relevant = sum(judgment.relevance >= 1 for judgment in judgments)
    stale = sum(
        c.resource_id in hashes and hashes[c.resource_id] != c.resource_content_hash for c in top
    )
    foreign = sum(candidate.resource_id not in hashes for candidate in top)
    size = max(len(top), 1)
    return VariantScores(
        sum(grade >= 1 for grade in grades) / relevant if relevant else None,
        _ndcg(grades, judgments) if relevant else None,
        _reciprocal_rank(grades) if relevant else None,
        len({candidate.resource_id for candidate in top}) / size,
        foreign / size,
        stale / size,
    )


def _ndcg(grades: Sequence[int], judgments: Sequence[Judgment]) -> float:
    ideal = sorted((judgment.relevance for judgment in judgments), reverse=True)
    return _discounted(grades[:NDCG_CUT]) / _discounted(ideal[:NDCG_CUT])


def _discounted(grades: Sequence[int]) -> float:
    return math.fsum((2**g - 1) / math.log2(rank + 1) for rank, g in enumerate(grades, 1))


def _reciprocal_rank(grades: Sequence[int]) -> float:
    return next((1.0 / rank for rank, g in enumerate(grades[:MRR_CUT], 1) if g >= 1), 0.0)


def _mean(scores: Sequence[VariantScores]) -> VariantScores:
    means: list[float | None] = []
    for name in METRICS:
        known = [value for item in scores if (value := getattr(item, name)) is not None]
        means.append(math.fsum(known) / len(known) if known else None)
    return VariantScores(*means)


def variant_times(run: Run) -> dict[str, int]:
    """Microseconds that each variant needed in a run: the stages on its way, the last the whole."""
    common = run.effective_memory_us + run.index_ensure_us
    vector = run.embedding_us + run.vector_us
    return {
        "b1_bm25": common + run.bm25_us,
        "b2_dense_vector": common + vector,
        "b3_hybrid_rrf": common + run.bm25_us + vector + run.rrf_us,
        "b4_reranked": run.total_us,
    }


def percentile(values: Sequence[int], share: float) -> int:
    """The value at index ceil((n - 1) * share) of the sorted values."""
    return sorted(values)[math.ceil((len(values) - 1) * share)]
