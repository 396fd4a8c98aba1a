"""Recall, nDCG and reciprocal rank of one ranking, and what its first candidates are made of.

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


@dataclass(frozen=True, slots=True)
class Composition:
    """What the first 20 candidates of one query are, judged or not, or the means over many.

    `resource_diversity`: distinct documents over candidates. `scope_violation`: share whose
    document is not in the corpus that was searched. `stale_result`: share whose document is, but
    with another text than the one found. The last two are faults: 0 is right.
    """

    resource_diversity: float
    scope_violation: float
    stale_result: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


FAULTS = ("scope_violation", "stale_result")
COMPOSITION: tuple[str, ...] = tuple(field.name for field in fields(Composition))


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


def composition(
    documents: Sequence[str], outside: Sequence[bool], stale: Sequence[bool]
) -> Composition:
    """Of one query's candidates (units, best first): document, not in the corpus, out of date.

    Raises ValueError where there is no candidate.
    """
    found = documents[:RECALL_CUT]
    if not found:
        raise ValueError("there is no candidate: its composition is not defined")
    strangers = list(outside[:RECALL_CUT])
    old = [s and not o for s, o in zip(stale[:RECALL_CUT], strangers, strict=True)]
    return Composition(
        resource_diversity=len(set(found)) / len(found),
        scope_violation=sum(strangers) / len(found),
        stale_result=sum(old) / len(found),
    )


def mean_composition(compositions: Sequence[Composition]) -> Composition | None:
    """The mean over queries; None for none."""
    if not compositions:
        return None
    count = len(compositions)
    return Composition(
        **{
            name: math.fsum(getattr(item, name) for item in compositions) / count
            for name in COMPOSITION
        }
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
