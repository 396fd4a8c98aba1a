"""Recall, nDCG and reciprocal rank of one ranking against graded judgments.

A ranking is a sequence of document ids, best first, without repeats. A document is relevant
from grade 1; one that nobody judged counts as grade 0. Every metric lies in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Literal

Gain = Literal["exponential", "linear"]
"""`exponential`: 2^grade - 1 (Burges et al. 2005). `linear`: the grade (Järvelin, Kekäläinen 2002;
trec_eval). They differ only where a set has grades above 1."""

RECALL_CUT = 20
NDCG_CUT = 10
MRR_CUT = 10


@dataclass(frozen=True, slots=True)
class Scores:
    """The three metrics of one query, or their means over many."""

    recall_at_20: float
    ndcg_at_10: float
    mrr_at_10: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


METRICS: tuple[str, ...] = tuple(field.name for field in fields(Scores))


def is_answerable(judgments: Mapping[str, int]) -> bool:
    """Whether any document is relevant; the metrics are not defined where none is."""
    return any(grade >= 1 for grade in judgments.values())


def recall_at(ranking: Sequence[str], judgments: Mapping[str, int], cut: int) -> float:
    """Share of the relevant documents that stand among the first `cut`."""
    relevant = {document for document, grade in judgments.items() if grade >= 1}
    return len(relevant.intersection(ranking[:cut])) / len(relevant)


def ndcg_at(
    ranking: Sequence[str], judgments: Mapping[str, int], cut: int, gain: Gain = "exponential"
) -> float:
    """Discounted gain of the first `cut`, discount log2(rank + 1), over that of an ideal order."""
    ideal = sorted(judgments.values(), reverse=True)
    found = [judgments.get(document, 0) for document in ranking[:cut]]
    return _discounted(found, gain) / _discounted(ideal[:cut], gain)


def mrr_at(ranking: Sequence[str], judgments: Mapping[str, int], cut: int) -> float:
    """One over the rank of the first relevant document; 0 where none is among the first `cut`."""
    for rank, document in enumerate(ranking[:cut], start=1):
        if judgments.get(document, 0) >= 1:
            return 1.0 / rank
    return 0.0


def score(
    ranking: Sequence[str], judgments: Mapping[str, int], gain: Gain = "exponential"
) -> Scores:
    """All metrics of one answerable query. Raises ValueError where no document is relevant."""
    if not is_answerable(judgments):
        raise ValueError("no document is relevant: the metrics are not defined")
    return Scores(
        recall_at_20=recall_at(ranking, judgments, RECALL_CUT),
        ndcg_at_10=ndcg_at(ranking, judgments, NDCG_CUT, gain),
        mrr_at_10=mrr_at(ranking, judgments, MRR_CUT),
    )


def mean(scores: Sequence[Scores]) -> Scores:
    """The mean over queries; zeros for none."""
    count = max(len(scores), 1)
    return Scores(
        **{name: math.fsum(getattr(item, name) for item in scores) / count for name in METRICS}
    )


def first_occurrences(items: Iterable[str]) -> list[str]:
    """The items without repeats, each where it stood first: units' order becomes documents'."""
    return list(dict.fromkeys(items))


def gain_of(grade: int, gain: Gain) -> float:
    """What a document of this grade adds before the discount."""
    return float(2**grade - 1) if gain == "exponential" else float(grade)


def _discounted(grades: Sequence[int], gain: Gain) -> float:
    return math.fsum(
        gain_of(grade, gain) / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1)
    )
