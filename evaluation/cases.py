"""The queries that a page shows one by one: worst and best, with the candidates of their traces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evaluation.datasets import EvaluationSet
from evaluation.quality import ranked_queries
from evaluation.results import SetResult
from evaluation.traces import VARIANTS, KeptTrace, Variant

RANK_COLUMNS: Mapping[str, str] = {
    "exact_rank": "exact",
    "bm25_rank": "BM25",
    "vector_rank": "vector",
    "rrf_rank": "RRF",
    "late_rank": "late",
    "reranker_rank": "reranker",
}
_SHOWN_CANDIDATES = 15


@dataclass(frozen=True, slots=True)
class CandidateRow:
    """One unit in the final order; `grade` None where nobody judged its document."""

    rank: int
    document: str
    title: str
    grade: int | None
    ranks: Mapping[str, int | None]
    relevance: float | None
    selected: bool


@dataclass(frozen=True, slots=True)
class Case:
    """A query with its nDCG@10 by variant; `text` None where its set is not at hand.

    `missed` are relevant documents that no stage found, best grade first.
    """

    query_id: str
    text: str | None
    scores: Mapping[Variant, float]
    candidates: tuple[CandidateRow, ...] = ()
    missed: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Cases:
    """The ends of one set's queries, by nDCG@10 of the reranked order."""

    worst: tuple[Case, ...] = ()
    best: tuple[Case, ...] = ()


@dataclass(frozen=True, slots=True)
class Source:
    """Where a result's texts and candidates come from, as far as they are at hand."""

    evaluation_set: EvaluationSet | None = None
    traces: Sequence[KeptTrace] = field(default_factory=tuple)


def cases_of(result: SetResult, source: Source, count: int) -> Cases:
    """At most `count` queries of either end, none of them twice; nothing without details.

    What could not be better is not among the worst.
    """
    ranked = ranked_queries(result)
    worst = [query for query, ndcg in ranked[:count] if ndcg < 1.0]
    best = [query for query, _ in ranked[len(worst) :][::-1][:count]]
    make = _Maker(result, source)
    return Cases(tuple(make.all_of(worst)), tuple(make.all_of(best)))


class _Maker:
    def __init__(self, result: SetResult, source: Source):
        self._details = result.details
        self._traces = {trace.query_id: trace for trace in source.traces}
        known = source.evaluation_set
        self._texts = {query.query_id: query.text for query in known.queries} if known else {}
        self._titles = (
            {document.document_id: document.title for document in known.documents} if known else {}
        )

    def all_of(self, queries: Iterable[str]) -> Iterable[Case]:
        for query in queries:
            scores = {
                variant: self._details[variant][query].ndcg_at_10
                for variant in VARIANTS
                if query in self._details.get(variant, {})
            }
            trace = self._traces.get(query)
            yield Case(
                query_id=query,
                text=self._texts.get(query),
                scores=scores,
                candidates=tuple(self._candidates(trace)) if trace else (),
                missed=_missed(trace) if trace else (),
            )

    def _candidates(self, trace: KeptTrace) -> Iterable[CandidateRow]:
        order = trace.unit_order("b4_reranked")[:_SHOWN_CANDIDATES]
        for rank, at in enumerate(order, start=1):
            document = trace.documents[at]
            relevance = float(trace.columns["relevance"][at])
            yield CandidateRow(
                rank=rank,
                document=document,
                title=self._titles.get(document, ""),
                grade=trace.judgments.get(document),
                ranks={name: _rank(trace.columns[name][at]) for name in RANK_COLUMNS},
                relevance=None if math.isnan(relevance) else relevance,
                selected=bool(trace.columns["selected"][at] > 0),
            )


def _rank(value: float) -> int | None:
    return None if math.isnan(value) else int(value)


def _missed(trace: KeptTrace) -> tuple[tuple[str, int], ...]:
    found = set(trace.documents)
    missed = [
        (document, grade)
        for document, grade in trace.judgments.items()
        if grade >= 1 and document not in found
    ]
    return tuple(sorted(missed, key=lambda item: (-item[1], item[0])))
