"""Which candidates that were not returned a judge should look at, and where each fell."""

from __future__ import annotations

from collections.abc import Sequence

from clumsies.history.records import FailureStage, RunCandidate, Suggestion

MAX_SUGGESTIONS = 5
_LAST = 1 << 30


def suggestions(candidates: Sequence[RunCandidate]) -> tuple[Suggestion, ...]:
    """At most five unselected candidates, one a resource.

    Reranked ones come first by that rank, then by RRF, exact or BM25, and vector rank.
    """
    found: dict[str, RunCandidate] = {}
    for candidate in sorted(candidates, key=_order):
        if not candidate.selected:
            found.setdefault(candidate.resource_id, candidate)
    return tuple(map(_suggestion, list(found.values())[:MAX_SUGGESTIONS]))


def _order(candidate: RunCandidate) -> tuple[int, int, str]:
    lexical = candidate.exact_rank if candidate.exact_rank is not None else candidate.bm25_rank
    ranks = (candidate.reranker_rank, candidate.rrf_rank, lexical, candidate.vector_rank)
    for group, rank in enumerate(ranks):
        if rank is not None:
            return group, rank, candidate.unit_key
    return len(ranks), _LAST, candidate.unit_key


def _suggestion(candidate: RunCandidate) -> Suggestion:
    return Suggestion(
        candidate.unit_key,
        candidate.resource_id,
        candidate.path,
        candidate.heading_path,
        candidate.evidence_excerpt,
        _failure_stage(candidate),
    )


def _failure_stage(candidate: RunCandidate) -> FailureStage:
    """Fusion did not bring it to the reranker, that scored it too low, or no place was left."""
    if candidate.reranker_rank is None:
        return "fusion"
    return "reranking" if candidate.exclusion_reason == "below_relevance" else "assembly"
