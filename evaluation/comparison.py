"""Two results side by side, with a verdict that a CI job can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from clumsies.errors import InvalidRequest
from evaluation.metrics import METRICS
from evaluation.results import SetResult
from evaluation.significance import paired_randomisation

# Means printed with more digits than they carry must not fail a comparison with themselves.
_ROUNDING = 1e-9


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


def compare(
    before: Sequence[SetResult], after: Sequence[SetResult], threshold: float
) -> list[Change]:
    """Every change of the sets that both hold; `lost` where a metric fell by more than `threshold`.

    A set that only the second file holds is new and not compared. Raises InvalidRequest where a set
    of the first file is missing in the second, or was scored with another nDCG gain.
    """
    later = {result.set_name: result for result in after}
    changes: list[Change] = []
    for old in before:
        new = later.get(old.set_name)
        if new is None:
            raise InvalidRequest(
                "invalid_request", f"the second file has no set {old.set_name!r}. Run it as well."
            )
        if new.gain != old.gain:
            raise InvalidRequest(
                "invalid_request",
                f"the set {old.set_name!r} was scored with {old.gain} and {new.gain} gain. Run"
                " both with the same --gain.",
            )
        changes += _of_set(old, new, threshold)
    return changes


def _of_set(old: SetResult, new: SetResult, threshold: float) -> list[Change]:
    changes = []
    for variant, scores in old.variants.items():
        if variant not in new.variants:
            raise InvalidRequest(
                "invalid_request",
                f"the second file has no variant {variant!r} of {old.set_name!r}. Run it again.",
            )
        for metric in METRICS:
            first = float(getattr(scores, metric))
            second = float(getattr(new.variants[variant], metric))
            changes.append(
                Change(
                    set_name=old.set_name,
                    variant=variant,
                    metric=metric,
                    before=first,
                    after=second,
                    p=_p_value(old, new, variant, metric),
                    lost=first - second > threshold + _ROUNDING,
                )
            )
    return changes


def _p_value(old: SetResult, new: SetResult, variant: str, metric: str) -> float | None:
    one, other = old.details.get(variant, {}), new.details.get(variant, {})
    queries = [query for query in one if query in other]
    if not queries:
        return None
    return paired_randomisation(
        [getattr(one[query], metric) for query in queries],
        [getattr(other[query], metric) for query in queries],
    )
