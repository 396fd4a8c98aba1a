"""The pool of a set: what each ranking puts first for a query, for a person to judge.

A ranking is only rewarded for documents that somebody graded. So the tops of rankings that differ
in kind are put together, and all of them are judged: pooling, as at TREC (Spärck Jones and van
Rijsbergen 1975).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from evaluation.datasets import EvaluationSet
from evaluation.outsiders import outsiders, rankings
from evaluation.traces import VARIANTS, KeptTrace


@dataclass(frozen=True, slots=True)
class PooledPair:
    """A query and a document; `ranks` has its rank, from 1, in each ranking that pooled it."""

    query_id: str
    document_id: str
    grade: int | None
    ranks: Mapping[str, int]

    def as_line(self) -> str:
        """Query, document, grade or nothing, and `ranking:rank` words; separated by tabs."""
        grade = "" if self.grade is None else str(self.grade)
        ranks = " ".join(f"{name}:{rank}" for name, rank in self.ranks.items())
        return "\t".join((self.query_id, self.document_id, grade, ranks))


def pool(
    evaluation_set: EvaluationSet, traces: Sequence[KeptTrace], depth: int
) -> Iterator[PooledPair]:
    """The pairs of each query in the set's order, those first that most rankings chose.

    Ties by best rank, then document id. `depth` documents are taken from each outsider and variant.
    """
    tops = _tops(evaluation_set, traces)
    for query in evaluation_set.queries:
        ranks: dict[str, dict[str, int]] = {}
        for name, ranking in tops[query.query_id].items():
            for rank, document in enumerate(ranking[:depth], start=1):
                ranks.setdefault(document, {})[name] = rank
        judged = evaluation_set.judgments.get(query.query_id, {})
        for document in sorted(
            ranks, key=lambda at: (-len(ranks[at]), min(ranks[at].values()), at)
        ):
            yield PooledPair(query.query_id, document, judged.get(document), ranks[document])


def _tops(
    evaluation_set: EvaluationSet, traces: Sequence[KeptTrace]
) -> dict[str, dict[str, list[str]]]:
    """By query id and name of the ranking, its documents, best first."""
    tops: dict[str, dict[str, list[str]]] = {query.query_id: {} for query in evaluation_set.queries}
    for name in outsiders():
        for query, ranking in rankings(evaluation_set, name):
            tops[query.query_id][name] = ranking
    for trace in traces:
        for variant in VARIANTS:
            tops[trace.query_id][variant] = trace.document_order(variant)
    return tops
