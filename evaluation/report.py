"""`RESULTS.md`: every set's variants beside the outsiders, and the mean of the English sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evaluation.metrics import Gain, Scores
from evaluation.outsiders import Outsider
from evaluation.results import Difference, SetResult, paired
from evaluation.significance import Interval, bootstrap_mean_of_means
from evaluation.traces import VARIANTS

ENGLISH = ("docs-qa", "chunkeval", "locomo", "scifact", "cranfield", "cacm", "xquad-en")
OUTSIDERS: tuple[Outsider, ...] = ("grep", "bm25s")
COLUMNS: tuple[str, ...] = (*OUTSIDERS, *VARIANTS)

HEADINGS: Mapping[str, str] = {
    "grep": "grep",
    "bm25s": "bm25s",
    "b1_bm25": "BM25",
    "b2_dense_vector": "vector",
    "b3_hybrid_rrf": "RRF",
    "b4_reranked": "reranked",
}
METRIC_HEADINGS: Mapping[str, str] = {
    "ndcg_at_10": "nDCG@10",
    "recall_at_20": "Recall@20",
    "mrr_at_10": "MRR@10",
}
# nDCG@10 of the design's prototypes on the whole sets: RRF of their tables, and their blend.
PROTOTYPES: Mapping[str, tuple[float, float]] = {
    "docs-qa": (0.787, 0.803),
    "xquad-en": (0.973, 0.988),
    "scifact": (0.667, 0.702),
    "cranfield": (0.419, 0.428),
    "locomo": (0.412, 0.492),
}
KEPT_MARK = "\n<!-- What follows is kept when the tables above are written anew. -->\n"
_GAIN_WORDS: Mapping[Gain, str] = {"exponential": "2^grade - 1", "linear": "the grade itself"}


@dataclass(frozen=True, slots=True)
class Row:
    """One set: the engine's result, and the outsiders' scores where they ran.

    `outsiders_empty` is each outsider's share of the queries without an answer that found nothing.
    """

    result: SetResult
    outsiders: Mapping[str, Scores]
    outsiders_empty: Mapping[str, float] = field(default_factory=dict)

    def value(self, column: str, metric: str) -> float | None:
        scores: Mapping[str, Scores] = {**self.outsiders, **self.result.variants}
        return float(getattr(scores[column], metric)) if column in scores else None

    def rightly_empty(self, column: str) -> float | None:
        """Share of the queries without an answer to which the column's method said nothing."""
        return {**self.outsiders_empty, **self.result.no_answer.variants}.get(column)


def markdown(rows: Sequence[Row], *, command: str) -> str:
    """The whole document; `command` is what makes it again. Sets stand in the given order."""
    if not rows:
        raise ValueError("there is no result to report")
    gain = rows[0].result.gain
    parts = [
        "# Ranking quality\n",
        f"Written by `{command}`. Means over the queries of each set; a document stands at the rank"
        " of its best unit. BM25, vector, RRF and reranked are read from one trace a query; grep"
        " (number of query words found) and bm25s (Snowball stems, stop words) rank the same"
        f" documents without the engine. The nDCG gain is {_GAIN_WORDS[gain]}. Profile"
        f" `{rows[0].result.profile}`.\n",
    ]
    parts += [_metric_table(rows, metric) for metric in ("ndcg_at_10", "recall_at_20", "mrr_at_10")]
    parts += [_no_answer_table(rows), _difference_table(rows)]
    parts += [_prototype_table(rows), _latency_table(rows)]
    return "\n".join(part for part in parts if part)


def write_results(path: Path, rows: Sequence[Row], *, command: str) -> None:
    """Write the document in place of the one that is there; what follows `KEPT_MARK` stays."""
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    _, mark, kept = before.partition(KEPT_MARK)
    path.write_text(markdown(rows, command=command) + mark + kept, encoding="utf-8")


def english_means(rows: Sequence[Row], metric: str) -> dict[str, float]:
    """The mean over the English sets that are there, of each column that all of them have."""
    english = [row for row in rows if row.result.set_name in ENGLISH]
    means: dict[str, float] = {}
    for column in COLUMNS:
        values = [row.value(column, metric) for row in english]
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            means[column] = sum(known) / len(known)
    return means


def differences(result: SetResult, first: str, second: str, metric: str) -> list[float]:
    """Second minus first, query by query; empty where the result holds no details."""
    if not result.details:
        return []
    before, after = paired(result.details, first, second, metric)
    return [later - earlier for earlier, later in zip(before, after, strict=True)]


def english_interval(rows: Sequence[Row]) -> Interval | None:
    """Reranked minus RRF on the mean nDCG@10 of the English sets, where all have details."""
    english = [row.result for row in rows if row.result.set_name in ENGLISH]
    samples = [differences(r, "b3_hybrid_rrf", "b4_reranked", "ndcg_at_10") for r in english]
    return bootstrap_mean_of_means(samples) if samples and all(samples) else None


def _metric_table(rows: Sequence[Row], metric: str) -> str:
    lines = [
        f"## {METRIC_HEADINGS[metric]}\n",
        "| Set | Documents | Queries | " + " | ".join(HEADINGS[name] for name in COLUMNS) + " |",
        "| --- | ---: | ---: |" + " ---: |" * len(COLUMNS),
    ]
    for row in rows:
        result = row.result
        values = [row.value(column, metric) for column in COLUMNS]
        lines.append(
            f"| {result.set_name} | {_count(result.documents)} | {result.queries:,}"
            f" | {_cells(values)} |"
        )
    means = english_means(rows, metric)
    if means:
        values = [means.get(column) for column in COLUMNS]
        lines.append(f"| **mean of the English sets** | | | {_cells(values, bold=True)} |")
    return "\n".join(lines) + "\n"


def _no_answer_table(rows: Sequence[Row]) -> str:
    asked = [row for row in rows if row.result.no_answer.queries]
    if not asked:
        return ""
    lines = [
        "## Queries without an answer\n",
        "Share of them that rightly got nothing: no document for grep and bm25s, no candidate for"
        " BM25, vector and RRF, no fragment above the relevance floor for reranked. Beside it the"
        " share of the answerable queries that did get a fragment, since silence alone is easy.\n",
        "| Set | Without answer | "
        + " | ".join(HEADINGS[name] for name in COLUMNS)
        + " | answerable that got a fragment |",
        "| --- | ---: |" + " ---: |" * (len(COLUMNS) + 1),
    ]
    for row in asked:
        values = [*(row.rightly_empty(column) for column in COLUMNS), row.result.answered]
        count = row.result.no_answer.queries
        lines.append(f"| {row.result.set_name} | {count:,} | {_cells(values)} |")
    return "\n".join(lines) + "\n"


def _difference_table(rows: Sequence[Row]) -> str:
    lines = [
        "## Reranked minus RRF\n",
        "nDCG@10, with the 95 % bootstrap interval over queries and the p-value of the paired"
        " randomisation test.\n",
        "| Set | Difference | 95 % interval | p |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in rows:
        difference = row.result.b4_minus_b3
        if difference is not None:
            lines.append(f"| {row.result.set_name} | {_difference_cells(difference)} |")
    english = english_interval(rows)
    if english is not None:
        lines.append(f"| **mean of the English sets** | {_interval_cells(english)} | |")
    return "\n".join(lines) + "\n"


def _prototype_table(rows: Sequence[Row]) -> str:
    known = [row for row in rows if row.result.set_name in PROTOTYPES]
    if not known:
        return ""
    lines = [
        "## Beside the prototypes\n",
        "nDCG@10 of the prototypes that the design was measured with (RRF k = 60 top 24, and its"
        " blend of four scores) on the whole sets; here on the queries at hand.\n",
        "| Set | prototype RRF | RRF | prototype blend | reranked |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in known:
        fused, blended = PROTOTYPES[row.result.set_name]
        values = [
            fused,
            row.value("b3_hybrid_rrf", "ndcg_at_10"),
            blended,
            row.value("b4_reranked", "ndcg_at_10"),
        ]
        lines.append(f"| {row.result.set_name} | {_cells(values)} |")
    return "\n".join(lines) + "\n"


def _latency_table(rows: Sequence[Row]) -> str:
    timed = [row.result for row in rows if row.result.latency]
    if not timed:
        return ""
    lines = [
        "## Latency\n",
        "Milliseconds of a warm activation, one at a time, p50 / p95, on whatever machine ran"
        " this: to be compared within this table only.\n",
        "| Set | Units | " + " | ".join(HEADINGS[name] for name in VARIANTS) + " | Skipped |",
        "| --- | ---: |" + " ---: |" * len(VARIANTS) + " --- |",
    ]
    for result in timed:
        cells = " | ".join(
            f"{result.latency[name]['p50_ms']:.1f} / {result.latency[name]['p95_ms']:.1f}"
            for name in VARIANTS
        )
        skipped = ", ".join(f"{name} {count}" for name, count in result.skipped.items())
        lines.append(f"| {result.set_name} | {_count(result.units)} | {cells} | {skipped} |")
    return "\n".join(lines) + "\n"


def _difference_cells(difference: Difference) -> str:
    interval = Interval(difference.mean, difference.low, difference.high)
    return f"{_interval_cells(interval)} | {difference.p:.4f}"


def _interval_cells(interval: Interval) -> str:
    return f"{interval.mean:+.4f} | [{interval.low:+.4f}, {interval.high:+.4f}]"


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _cells(values: Sequence[float | None], *, bold: bool = False) -> str:
    texts = ["" if value is None else f"{value:.3f}" for value in values]
    return " | ".join(f"**{text}**" if bold and text else text for text in texts)
