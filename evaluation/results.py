"""The outcome of a run as numbers: what `run` prints as JSON, and what `compare` reads.

| Field | Value |
| --- | --- |
| `set`, `profile`, `gain` | what was run, and which nDCG gain |
| `documents`, `units` | size of the corpus before and after splitting; null from stored traces |
| `queries` | number of answerable queries, over which the means are taken |
| `variants` | by name: `recall_at_20`, `ndcg_at_10`, `mrr_at_10` |
| `composition` | by variant, of the first 20 candidates over all queries: `resource_diversity`, |
| | `scope_violation`, `stale_result`; empty from traces that do not say |
| `outsiders` | the same metrics of grep and bm25s, where they ran beside |
| `b4_minus_b3` | nDCG@10: mean difference, 95 % interval, p-value of the randomisation test |
| `answered` | share of the answerable queries that got any fragment |
| `no_answer` | number of queries without an answer, the share that rightly got nothing, and |
| | that share by variant: no candidate, and for the last no fragment |
| `latency` | warm p50 and p95 of each variant, ms; `queries` is how many were timed |
| `skipped` | number of queries by `stage:reason` |
| `details` | optional: by variant and query id, the three metrics in the order above |
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from clumsies.errors import InvalidRequest, NotFound
from evaluation.harness import SetRun, latency
from evaluation.metrics import (
    METRICS,
    Composition,
    Gain,
    Scores,
    mean,
    mean_composition,
    score,
)
from evaluation.significance import bootstrap_interval, paired_randomisation
from evaluation.traces import VARIANTS, KeptTrace, Variant

Details = dict[str, dict[str, Scores]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A mean paired difference with its 95 % interval and p-value."""

    mean: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Queries that nothing in the corpus answers, and the share that got no fragment.

    `variants` has the share for which the variant found no candidate at all, the only way in which
    those before the last can say nothing; the last is `rightly_empty`.
    """

    queries: int = 0
    rightly_empty: float | None = None
    variants: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SetResult:
    """Numbers of one set under one profile; `details[variant][query id]` for paired tests."""

    set_name: str
    profile: str
    gain: Gain
    documents: int | None
    units: int | None
    queries: int
    variants: dict[str, Scores]
    b4_minus_b3: Difference | None
    answered: float | None
    no_answer: NoAnswer
    latency: dict[str, dict[str, float]]
    latency_queries: int
    skipped: dict[str, int]
    details: Details = field(default_factory=dict)
    composition: dict[str, Composition] = field(default_factory=dict)
    outsiders: dict[str, Scores] = field(default_factory=dict)

    def as_dict(self, *, details: bool = False) -> dict[str, object]:
        """The JSON object of the module's table."""
        record: dict[str, object] = {
            "set": self.set_name,
            "profile": self.profile,
            "gain": self.gain,
            "documents": self.documents,
            "units": self.units,
            "queries": self.queries,
            "variants": {name: scores.as_dict() for name, scores in self.variants.items()},
            "outsiders": {name: scores.as_dict() for name, scores in self.outsiders.items()},
            "composition": {name: mix.as_dict() for name, mix in self.composition.items()},
            "b4_minus_b3": None if self.b4_minus_b3 is None else asdict(self.b4_minus_b3),
            "answered": self.answered,
            "no_answer": asdict(self.no_answer),
            "latency": {"queries": self.latency_queries, **self.latency},
            "skipped": self.skipped,
        }
        if details:
            record["details"] = {
                variant: {
                    query: [getattr(scores, name) for name in METRICS]
                    for query, scores in by_query.items()
                }
                for variant, by_query in self.details.items()
            }
        return record


def result_of(run: SetRun, gain: Gain = "exponential") -> SetResult:
    """Score a finished run."""
    answerable = [trace for trace in run.traces if trace.answerable]
    details = score_traces(answerable, gain)
    return SetResult(
        set_name=run.set_name,
        profile=run.profile,
        gain=gain,
        documents=run.documents,
        units=run.units,
        queries=len(answerable),
        variants={variant: mean(list(scores.values())) for variant, scores in details.items()},
        b4_minus_b3=_difference(details) if answerable else None,
        answered=_share([trace.answered for trace in answerable]),
        no_answer=_no_answer(run.traces),
        latency=latency(run.warm),
        latency_queries=len(run.warm),
        skipped=dict(sorted(Counter(name for t in run.traces for name in t.skipped).items())),
        details=details,
        composition=_composition(run.traces),
    )


def score_traces(traces: Sequence[KeptTrace], gain: Gain) -> Details:
    """The metrics of each variant and answerable query."""
    return {
        variant: {
            trace.query_id: score(trace.document_order(variant), trace.judgments, gain)
            for trace in traces
        }
        for variant in VARIANTS
    }


def read_results(file: Path) -> list[SetResult]:
    """Results of a JSON file: one object or a list. Raises NotFound, InvalidRequest."""
    if not file.is_file():
        raise NotFound("not_found", f"{file} is missing; `run --json` or `all --json` writes it.")
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
        return [_result(record) for record in (loaded if isinstance(loaded, list) else [loaded])]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRequest(
            "invalid_request",
            f"{file} is not a result of this program ({error!r}). Give a file that `run --json` or"
            " `all --json` wrote.",
        ) from error


def paired(details: Details, first: str, second: str, metric: str) -> tuple[list[float], ...]:
    """Scores of two variants for the same queries, in the same order."""
    queries = [query for query in details[first] if query in details[second]]
    return (
        [float(getattr(details[first][query], metric)) for query in queries],
        [float(getattr(details[second][query], metric)) for query in queries],
    )


def _difference(details: Details) -> Difference:
    hybrid, reranked = paired(details, "b3_hybrid_rrf", "b4_reranked", "ndcg_at_10")
    interval = bootstrap_interval([b - a for a, b in zip(hybrid, reranked, strict=True)])
    p = paired_randomisation(hybrid, reranked)
    return Difference(interval.mean, interval.low, interval.high, p)


def _composition(traces: Sequence[KeptTrace]) -> dict[str, Composition]:
    found = {
        variant: mean_composition(
            [mix for trace in traces if (mix := trace.composition(variant)) is not None]
        )
        for variant in VARIANTS
    }
    return {variant: mix for variant, mix in found.items() if mix is not None}


def _no_answer(traces: Sequence[KeptTrace]) -> NoAnswer:
    unanswerable = [trace for trace in traces if not trace.answerable]
    if not unanswerable:
        return NoAnswer()
    shares: dict[str, float] = {
        variant: sum(_says_nothing(trace, variant) for trace in unanswerable) / len(unanswerable)
        for variant in VARIANTS
    }
    return NoAnswer(len(unanswerable), shares["b4_reranked"], shares)


def _says_nothing(trace: KeptTrace, variant: Variant) -> bool:
    return not (trace.answered if variant == "b4_reranked" else trace.unit_order(variant))


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _result(record: Mapping[str, object]) -> SetResult:
    difference = cast("dict[str, float] | None", record["b4_minus_b3"])
    times = dict(cast("dict[str, object]", record["latency"]))
    timed = int(cast("int", times.pop("queries")))
    variants = cast("dict[str, dict[str, float]]", record["variants"])
    details = cast("dict[str, dict[str, list[float]]]", record.get("details", {}))
    no_answer = cast("dict[str, Any]", record["no_answer"])
    return SetResult(
        set_name=str(record["set"]),
        profile=str(record["profile"]),
        gain=cast("Gain", record["gain"]),
        documents=cast("int | None", record["documents"]),
        units=cast("int | None", record["units"]),
        queries=int(cast("int", record["queries"])),
        variants={name: Scores(**scores) for name, scores in variants.items()},
        b4_minus_b3=None if difference is None else Difference(**difference),
        answered=cast("float | None", record["answered"]),
        no_answer=NoAnswer(
            int(no_answer["queries"]), no_answer["rightly_empty"], no_answer.get("variants", {})
        ),
        latency=cast("dict[str, dict[str, float]]", times),
        latency_queries=timed,
        skipped=cast("dict[str, int]", record["skipped"]),
        details={
            variant: {query: Scores(*values) for query, values in by_query.items()}
            for variant, by_query in details.items()
        },
        outsiders={
            name: Scores(**scores)
            for name, scores in cast(
                "dict[str, dict[str, float]]", record.get("outsiders", {})
            ).items()
        },
        composition={
            name: Composition(**mix)
            for name, mix in cast(
                "dict[str, dict[str, float]]", record.get("composition", {})
            ).items()
        },
    )
