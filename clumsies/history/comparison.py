"""Two reports side by side, with a verdict: which means got worse by more than a threshold."""

from __future__ import annotations

import msgspec

from clumsies.errors import InvalidRequest
from clumsies.history.report import LOSSES, METRICS, VARIANTS, Report

# Means printed with more digits than they carry must not fail a comparison with themselves.
_ROUNDING = 1e-9


class MetricChange(msgspec.Struct, frozen=True):
    """One metric of one variant before and after; `lost` where it got worse than allowed."""

    variant: str
    metric: str
    before: float | None
    after: float | None
    lost: bool


def compare_reports(before: Report, after: Report, threshold: float) -> list[MetricChange]:
    """Every variant and metric. Raises InvalidRequest where the reports are of other cases."""
    ids = [sorted(case.case_id for case in report.cases) for report in (before, after)]
    if ids[0] != ids[1]:
        raise InvalidRequest(
            "invalid_request", "The two reports are of different cases; run the same fixture twice."
        )
    return [_change(before, after, v, m, threshold) for v in VARIANTS for m in METRICS]


def _change(
    before: Report, after: Report, variant: str, metric: str, threshold: float
) -> MetricChange:
    old = getattr(before.mean[variant], metric)
    new = getattr(after.mean[variant], metric)
    lost = False
    if old is not None and new is not None:
        worse = new - old if metric in LOSSES else old - new
        lost = worse > threshold + _ROUNDING
    return MetricChange(variant, metric, old, new, lost)
