"""Tables and progress for people: results on stdout, progress on stderr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from evaluation.calibration import Calibration, Floor
from evaluation.comparison import Change
from evaluation.fusion_sweep import FusionSetting
from evaluation.harness import OnStep
from evaluation.report import COLUMNS, HEADINGS, METRIC_HEADINGS, Row, english_means
from evaluation.rerank_sweep import LimitSetting
from evaluation.results import SetResult
from evaluation.tuning import Blend

_FILE_WIDTH = 160
"""Columns of what is printed into a file or pipe, where no terminal says how many there are."""


def console() -> Console:
    """Stdout, wide enough that no table loses digits in a file."""
    found = Console()
    return found if found.is_terminal else Console(width=_FILE_WIDTH)


@contextmanager
def progress_of(name: str, *, quiet: bool = False) -> Iterator[OnStep]:
    """A progress line on stderr for one set; draws nothing where stderr is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    shown = console.is_terminal and not quiet
    with Progress(*columns, console=console, transient=True, disable=not shown) as progress:
        task = progress.add_task(name, total=None)

        def step(doing: str, done: int, total: int) -> None:
            known = total or None
            progress.update(task, description=f"{name}: {doing}", completed=done, total=known)

        yield step


def result_table(row: Row) -> Table:
    """One set: a row an outsider and variant; a column more where queries have no answer."""
    result = row.result
    table = Table(title=f"{result.set_name}, {result.queries:,} queries, {result.profile}")
    table.add_column("variant")
    empty = ("rightly empty",) if result.no_answer.queries else ()
    for heading in ("Recall@20", "nDCG@10", "MRR@10", *empty, "p50 ms", "p95 ms"):
        table.add_column(heading, justify="right")
    for name, scores in {**row.outsiders, **result.variants}.items():
        times = result.latency.get(name)
        table.add_row(
            name,
            f"{scores.recall_at_20:.3f}",
            f"{scores.ndcg_at_10:.3f}",
            f"{scores.mrr_at_10:.3f}",
            *(_number(row.rightly_empty(name)) for _ in empty),
            f"{times['p50_ms']:.1f}" if times else "",
            f"{times['p95_ms']:.1f}" if times else "",
        )
    return table


def result_notes(result: SetResult) -> list[str]:
    """What the table leaves out, a line each."""
    notes = []
    if result.documents is not None and result.units is not None:
        notes.append(f"{result.documents:,} documents, {result.units:,} units")
    if result.b4_minus_b3 is not None:
        change = result.b4_minus_b3
        notes.append(
            f"reranked - RRF, nDCG@10: {change.mean:+.4f}"
            f" [{change.low:+.4f}, {change.high:+.4f}], p = {change.p:.4f}"
        )
    if result.answered is not None:
        notes.append(f"answerable queries that got a fragment: {result.answered:.1%}")
    if result.no_answer.rightly_empty is not None:
        notes.append(
            f"queries without an answer: {result.no_answer.queries:,},"
            f" rightly empty {result.no_answer.rightly_empty:.1%}"
        )
    mix = result.composition.get("b4_reranked")
    if mix is not None:
        notes.append(
            f"first 20 candidates, reranked: resource diversity {mix.resource_diversity:.3f},"
            f" scope violation {mix.scope_violation:.1%}, stale result {mix.stale_result:.1%}"
        )
    notes += [f"skipped {name}: {count:,} queries" for name, count in result.skipped.items()]
    return notes


def overview_table(rows: Sequence[Row], metric: str = "ndcg_at_10") -> Table:
    """All sets: one metric, a column a method, and the mean of the English sets."""
    table = Table(title=METRIC_HEADINGS[metric])
    table.add_column("set")
    table.add_column("queries", justify="right")
    for column in COLUMNS:
        table.add_column(HEADINGS[column], justify="right")
    for row in rows:
        values = [row.value(column, metric) for column in COLUMNS]
        table.add_row(row.result.set_name, f"{row.result.queries:,}", *map(_number, values))
    means = english_means(rows, metric)
    if means:
        table.add_section()
        table.add_row("mean, English", "", *(_number(means.get(column)) for column in COLUMNS))
    return table


def change_table(changes: Sequence[Change]) -> Table:
    """A comparison: losses beyond the threshold in red."""
    table = Table(title="second file minus first")
    for heading in ("set", "variant", "metric"):
        table.add_column(heading)
    for heading in ("before", "after", "difference", "p", "verdict"):
        table.add_column(heading, justify="right")
    for change in changes:
        table.add_row(
            change.set_name,
            change.variant,
            METRIC_HEADINGS.get(change.metric, change.metric),
            _number(change.before),
            _number(change.after),
            f"{change.difference:+.4f}",
            "" if change.p is None else f"{change.p:.4f}",
            "lost" if change.lost else "ok",
            style="red" if change.lost else None,
        )
    return table


def blend_table(title: str, stages: Sequence[str], blends: Sequence[Blend]) -> Table:
    """Weightings with their score a set and the mean over the sets."""
    table = Table(title=title)
    names = [stage.removesuffix("_score").removesuffix("_logit") for stage in stages]
    for heading in (*names, *blends[0].by_set, "mean"):
        table.add_column(heading, justify="right", overflow="fold")
    for blend in blends:
        values = (*blend.by_set.values(), blend.mean)
        table.add_row(*(f"{weight:g}" for weight in blend.weights), *(f"{v:.4f}" for v in values))
    return table


def fusion_table(settings: Sequence[FusionSetting]) -> Table:
    """Settings of the rank fusion, in the given order."""
    table = Table(title="rank fusion, means over the sets")
    for heading in ("rrf_k", "vector weight", "nDCG@10", "Recall@20"):
        table.add_column(heading, justify="right")
    for one in settings:
        scores = (f"{one.ndcg_at_10:.4f}", f"{one.recall_at_20:.4f}")
        table.add_row(f"{one.rrf_k:g}", f"{one.vector_weight:g}", *scores)
    return table


def limit_table(settings: Sequence[LimitSetting]) -> Table:
    """How many candidates are reranked, the fewest first."""
    table = Table(title="candidates reranked, means over the sets")
    for heading in ("reranked", "nDCG@10", f"less that of {settings[-1].limit} (95 %)"):
        table.add_column(heading, justify="right")
    for one in settings:
        gap = one.difference
        interval = f"{gap.mean:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"
        table.add_row(str(one.limit), f"{one.ndcg_at_10:.4f}", interval)
    return table


def calibration_lines(calibration: Calibration) -> list[str]:
    """The fitted weights, and the tuple that a profile pins."""
    pairs = zip(calibration.names, calibration.weights, strict=True)
    pinned = ", ".join(f"{value:.6g}" for value in (calibration.intercept, *calibration.weights))
    return [
        f"intercept = {calibration.intercept:.6f}",
        *(f"{name} = {weight:.6f}" for name, weight in pairs),
        f"to pin: ({pinned})",
    ]


def floor_table(title: str, floors: Sequence[Floor]) -> Table:
    """What each relevance floor keeps and refuses."""
    table = Table(title=title)
    for heading in ("floor", "precision", "recall", "answered", "no-answer rightly empty"):
        table.add_column(heading, justify="right")
    for floor in floors:
        values = (floor.precision, floor.recall, floor.answered, floor.rightly_empty)
        table.add_row(f"{floor.floor:g}", *(f"{value:.3f}" for value in values))
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
