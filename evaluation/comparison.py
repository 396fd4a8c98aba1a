"""Two results side by side, with a verdict that a CI job can use.

Recall, nDCG and MRR are lost by falling, the faults (`scope_violation`, `stale_result`) by rising.
How much of a loss is allowed can differ by set, by metric, and by metric of a set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from clumsies.errors import InvalidRequest
from evaluation.metrics import FAULTS, METRICS
from evaluation.results import SetResult
from evaluation.significance import paired_randomisation

# Means printed with more digits than they carry must not fail a comparison with themselves.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The largest loss allowed: of a `set:metric`, else of the set, else of the metric, else any.

    `named` is keyed by set, by metric, or by both with a colon between.
    """

    default: float = 0.0
    named: Mapping[str, float] = field(default_factory=dict)

    def of(self, set_name: str, metric: str) -> float:
        for name in (f"{set_name}:{metric}", set_name, metric):
            if name in self.named:
                return self.named[name]
        return self.default


@dataclass(frozen=True, slots=True)
class Change:
    """One metric of one variant of one set, before and after; `p` where both files have details."""

    set_name: str
    variant: str
    metric: str
    before: float
    after: float
    p: float | None
    lost: bool

    @property
    def difference(self) -> float:
        return self.after - self.before

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "difference": self.difference}


def read_thresholds(default: float, named: Sequence[str]) -> Thresholds:
    """Thresholds from texts `name=loss`. Raises InvalidRequest naming the one that is none."""
    parsed: dict[str, float] = {}
    for text in named:
        name, _, value = text.rpartition("=")
        try:
            parsed[name] = float(value)
        except ValueError:
            parsed[name] = -1.0
        if not name or not parsed[name] >= 0.0:
            raise InvalidRequest(
                "invalid_request",
                f"{text!r} is no threshold: write a set, a metric or set:metric, then = and the"
                " largest loss allowed, as in docs-qa:ndcg_at_10=0.02.",
            )
    return Thresholds(default, parsed)


def compare(
    before: Sequence[SetResult], after: Sequence[SetResult], thresholds: Thresholds
) -> list[Change]:
    """Every change of the sets that both hold; `lost` where it is worse by more than is allowed.

    A set that only the second file holds is new and not compared. Raises InvalidRequest where a set
    of the first file is missing in the second, was scored with another nDCG gain or over another
    number of queries, or where a threshold names a set or metric that is not compared.
    """
    later = {result.set_name: result for result in after}
    changes: list[Change] = []
    for old in before:
        new = later.get(old.set_name)
        if new is None:
            raise InvalidRequest(
                "invalid_request", f"the second file has no set {old.set_name!r}. Run it as well."
            )
        _check_comparable(old, new)
        changes += _of_set(old, new, thresholds)
    _check_names(thresholds, changes)
    return changes


def _check_comparable(old: SetResult, new: SetResult) -> None:
    if new.gain != old.gain:
        raise InvalidRequest(
            "invalid_request",
            f"the set {old.set_name!r} was scored with {old.gain} and {new.gain} gain. Run"
            " both with the same --gain.",
        )
    if new.queries != old.queries:
        raise InvalidRequest(
            "invalid_request",
            f"the means of {old.set_name!r} are over {old.queries} and {new.queries} queries. Run"
            " both on the same queries.",
        )


def _check_names(thresholds: Thresholds, changes: Sequence[Change]) -> None:
    known = {name for change in changes for name in _names(change)}
    for name in thresholds.named:
        if name not in known:
            raise InvalidRequest(
                "invalid_request",
                f"the threshold of {name!r} fits nothing that is compared. Metrics are"
                f" {', '.join((*METRICS, *FAULTS))}.",
            )


def _names(change: Change) -> tuple[str, str, str]:
    return (change.set_name, change.metric, f"{change.set_name}:{change.metric}")


def _of_set(old: SetResult, new: SetResult, thresholds: Thresholds) -> Iterator[Change]:
    for variant in old.variants:
        if variant not in new.variants:
            raise InvalidRequest(
                "invalid_request",
                f"the second file has no variant {variant!r} of {old.set_name!r}. Run it again.",
            )
        for metric, first, second in _values(old, new, variant):
            loss = second - first if metric in FAULTS else first - second
            yield Change(
                set_name=old.set_name,
                variant=variant,
                metric=metric,
                before=first,
                after=second,
                p=_p_value(old, new, variant, metric),
                lost=loss > thresholds.of(old.set_name, metric) + _ROUNDING,
            )


def _values(old: SetResult, new: SetResult, variant: str) -> Iterator[tuple[str, float, float]]:
    """Metric, before, after; the faults only where both results know them."""
    for metric in METRICS:
        first, second = old.variants[variant], new.variants[variant]
        yield metric, float(getattr(first, metric)), float(getattr(second, metric))
    if variant in old.composition and variant in new.composition:
        for metric in FAULTS:
            mix, later = old.composition[variant], new.composition[variant]
            yield metric, float(getattr(mix, metric)), float(getattr(later, metric))


def _p_value(old: SetResult, new: SetResult, variant: str, metric: str) -> float | None:
    """None for the faults, of which no query's own value is kept."""
    one, other = old.details.get(variant, {}), new.details.get(variant, {})
    queries = [query for query in one if query in other]
    if metric in FAULTS or not queries:
        return None
    return paired_randomisation(
        [getattr(one[query], metric) for query in queries],
        [getattr(other[query], metric) for query in queries],
    )
