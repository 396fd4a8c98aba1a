"""Reports of evaluation cases: from a file, and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.table import Table

from clumsies.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from clumsies.history.report import Report

_METRICS = (
    ("recall_at_20", "Recall@20"),
    ("ndcg_at_10", "nDCG@10"),
    ("mrr", "MRR@10"),
    ("resource_diversity", "diversity"),
    ("scope_violation", "foreign"),
    ("stale_result", "stale"),
)


def report_table(report: Mapping[str, Any], title: str) -> Table:
    """The four variants of a report: means, and the times of the runs."""
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    table.add_column("variant")
    for _, heading in _METRICS:
        table.add_column(heading, justify="right")
    for heading in ("p50 ms", "p95 ms"):
        table.add_column(heading, justify="right")
    for variant, scores in report["mean"].items():
        times = report["latency"].get(variant, {})
        table.add_row(
            variant,
            *(number(scores[name]) for name, _ in _METRICS),
            *(f"{times[name] / 1000:.1f}" for name in ("p50_us", "p95_us") if times),
        )
    return table


def number(value: float | None) -> str:
    """Three decimals; a dash where a metric is not defined."""
    return "–" if value is None else f"{value:.3f}"


def read_report(file: Path) -> Report:
    """The report of a file; raises NotFound, InvalidRequest."""
    from clumsies.history.report import Report

    try:
        body = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        return msgspec.convert(body.get("report"), Report)
    except FileNotFoundError as error:
        raise NotFound("not_found", f"There is no file {file}; check the path.") from error
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidRequest(
            "invalid_request",
            f"{file} holds no report; give a fixture, or what `eval run --json` printed.",
        ) from error
