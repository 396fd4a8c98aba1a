"""From raw stage scores to the chance that the top candidate is relevant.

A logistic regression on the top candidates of answerable queries (relevant or not, by the
judgments) and of no-answer queries (never relevant). Those are the queries of one set asked of
another set's documents, which are far from any answer, and answerable queries whose answers were
taken out of the candidates, which leaves what is near and no answer. Scores are taken raw, not
standardised over a query's candidates: standardised scores cannot tell a good best candidate from
the best of a bad lot.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clumsies.errors import InvalidRequest
from evaluation.traces import KeptTrace

Floats = NDArray[np.float64]

FEATURES = ("reranker_logit", "late_score", "vector_score", "coverage")
"""In the order in which a profile pins its `relevance_calibration`, behind the intercept."""

KNOWN_FEATURES = (*FEATURES, "bm25_score")
FLOORS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

_RIDGE = 1e-3
_MOST_STEPS = 100
_TOLERANCE = 1e-9
_FOLDS = 5


@dataclass(frozen=True, slots=True)
class Examples:
    """Top candidates as rows: `features` float64 (n, features), `relevant` and `answerable` bool.

    `pools[i]` float64 (candidates, features) holds all candidates of query i that the engine gave
    a relevance: a floor lets a query go unanswered only where none of them reaches it.
    """

    names: tuple[str, ...]
    features: Floats
    relevant: NDArray[np.bool_]
    answerable: NDArray[np.bool_]
    pools: tuple[Floats, ...]

    def chosen(self, rows: NDArray[np.bool_]) -> Examples:
        """The examples of some queries, bool (n,)."""
        kept = tuple(pool for pool, keep in zip(self.pools, rows, strict=True) if keep)
        return Examples(
            self.names, self.features[rows], self.relevant[rows], self.answerable[rows], kept
        )

    def only(self, names: Sequence[str]) -> Examples:
        """The same examples with some of the features."""
        columns = [self.names.index(name) for name in names]
        pools = tuple(pool[:, columns] for pool in self.pools)
        features = self.features[:, columns]
        return Examples(tuple(names), features, self.relevant, self.answerable, pools)


@dataclass(frozen=True, slots=True)
class Calibration:
    """`sigmoid(intercept + weights . raw features)`; `weights` in the order of `names`."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    intercept: float

    def relevance(self, features: Floats) -> Floats:
        """The chance of relevance, float64 (n,), of raw features, float64 (n, features)."""
        logits: Floats = self.intercept + features @ np.array(self.weights)
        # By the half-angle: no overflow at either end, unlike exp.
        halves: Floats = np.tanh(0.5 * logits)
        return 0.5 * (1.0 + halves)


@dataclass(frozen=True, slots=True)
class Floor:
    """What a relevance floor does.

    `precision`: share of relevant among the top candidates kept. `recall`: share of the relevant
    top candidates that are kept. `answered`: share of the answerable queries that keep a
    candidate. `rightly_empty`: share of the no-answer queries that keep none.
    """

    floor: float
    precision: float
    recall: float
    answered: float
    rightly_empty: float


def without_answers(trace: KeptTrace) -> KeptTrace:
    """The trace as of a query without an answer: its relevant candidates have no relevance."""
    relevant = [trace.judgments.get(document, 0) >= 1 for document in trace.documents]
    columns = dict(trace.columns)
    columns["relevance"] = np.where(relevant, np.nan, columns["relevance"])
    return replace(trace, judgments={}, columns=columns)


def examples_of(traces: Iterable[KeptTrace], names: tuple[str, ...] = FEATURES) -> Examples:
    """The examples of all traces in which every feature's stage ran.

    Raises InvalidRequest where no trace has them, or where all or none of the top candidates are
    relevant: nothing can be fitted then.
    """
    features, relevant, answerable, pools = [], [], [], []
    for trace in traces:
        columns = np.column_stack([trace.filled(name) for name in names])
        inside = ~np.isnan(trace.columns["relevance"])
        order = [at for at in trace.unit_order("b4_reranked") if inside[at]]
        if not order or np.isnan(columns[order]).any():
            continue
        features.append(columns[order[0]])
        relevant.append(trace.judgments.get(trace.documents[order[0]], 0) >= 1)
        answerable.append(trace.answerable)
        pools.append(columns[order])
    if len(set(relevant)) < 2:
        raise InvalidRequest(
            "invalid_request",
            "these traces do not hold both queries whose top candidate is relevant and queries"
            " where it is not. Give traces of `run` and of `cross` together.",
        )
    return Examples(
        names, np.array(features), np.array(relevant), np.array(answerable), tuple(pools)
    )


def fit(examples: Examples, ridge: float = _RIDGE) -> Calibration:
    """The maximum-likelihood weights, by Newton's method (iteratively reweighted least squares).

    A slight ridge on the standardised weights (never the intercept) keeps separable data finite.
    Deterministic.
    """
    centre = examples.features.mean(axis=0)
    spread = examples.features.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    scaled = (examples.features - centre) / spread
    design = np.column_stack([np.ones(len(scaled)), scaled])
    weights = _newton(design, examples.relevant.astype(np.float64), ridge)
    raw = weights[1:] / spread
    intercept = float(weights[0] - raw @ centre)
    return Calibration(examples.names, tuple(float(value) for value in raw), intercept)


def cross_validated(examples: Examples, folds: int = _FOLDS, seed: int = 0) -> Floats:
    """Relevance of each top candidate, float64 (n,), from a fit that did not see its query."""
    fold_of = np.random.default_rng(seed).permutation(len(examples.pools)) % folds
    relevance = np.zeros(len(examples.pools))
    for fold in range(folds):
        unseen = fold_of == fold
        if unseen.any():
            fitted = fit(examples.chosen(~unseen))
            relevance[unseen] = fitted.relevance(examples.features[unseen])
    return relevance


def area_under_curve(values: Floats, relevant: NDArray[np.bool_]) -> float:
    """Chance that a relevant example's value exceeds an irrelevant one's, ties half (ROC AUC)."""
    positives, negatives = np.sort(values[relevant]), np.sort(values[~relevant])
    below = np.searchsorted(negatives, positives, side="left")
    not_above = np.searchsorted(negatives, positives, side="right")
    return float((below + not_above).sum() / (2.0 * len(positives) * len(negatives)))


def log_loss(relevance: Floats, relevant: NDArray[np.bool_]) -> float:
    """Mean negative log likelihood, natural logarithm."""
    right = np.where(relevant, relevance, 1.0 - relevance)
    return float(-np.log(np.maximum(right, 1e-15)).mean())


def floors(
    examples: Examples, calibration: Calibration, values: Sequence[float] = FLOORS
) -> list[Floor]:
    """What each floor does to these examples."""
    top = calibration.relevance(examples.features)
    best = np.array([calibration.relevance(pool).max() for pool in examples.pools])
    return [_floor(examples, top, best, value) for value in values]


def _floor(examples: Examples, top: Floats, best: Floats, floor: float) -> Floor:
    kept = top >= floor
    right = kept & examples.relevant
    return Floor(
        floor=floor,
        precision=_share(right, kept),
        recall=_share(right, examples.relevant),
        answered=_share((best >= floor) & examples.answerable, examples.answerable),
        rightly_empty=_share((best < floor) & ~examples.answerable, ~examples.answerable),
    )


def _share(part: NDArray[np.bool_], whole: NDArray[np.bool_]) -> float:
    count = int(np.count_nonzero(whole))
    return int(np.count_nonzero(part)) / count if count else float("nan")


def _newton(design: Floats, targets: Floats, ridge: float) -> Floats:
    """Weights that minimise the ridged log loss; `design` float64 (n, 1 + features)."""
    penalty = np.full(design.shape[1], ridge * len(targets))
    penalty[0] = 0.0
    weights = np.zeros(design.shape[1])
    for _ in range(_MOST_STEPS):
        chance = 0.5 * (1.0 + np.tanh(0.5 * (design @ weights)))
        gradient = design.T @ (chance - targets) + penalty * weights
        curvature = (design.T * (chance * (1.0 - chance))) @ design + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        weights -= step
        if float(np.abs(step).max()) < _TOLERANCE:
            break
    return weights
