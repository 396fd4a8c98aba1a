"""The Markdown report: every number where it belongs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evaluation.metrics import Scores
from evaluation.report import (
    KEPT_MARK,
    Row,
    english_interval,
    english_means,
    markdown,
    write_results,
)
from evaluation.results import Difference
from tests.evaluation.test_comparison import make_result


def _row(name: str, ndcg: float, *, details: int = 0) -> Row:
    result = make_result(name, ndcg, details)
    latency = {variant: {"p50_ms": 1.25, "p95_ms": 9.0} for variant in result.variants}
    result = replace(
        result,
        b4_minus_b3=Difference(0.0312, 0.01, 0.05, 0.0004),
        latency=latency,
        latency_queries=5,
        skipped={"vector:script": 7},
    )
    return Row(result, {"grep": Scores(0.3, 0.2, 0.1)})


def _table(text: str, heading: str) -> list[list[str]]:
    section = text.split(f"## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_each_set_has_a_row_with_outsiders_first() -> None:
    text = markdown([_row("docs-qa", 0.8), _row("xquad-zh", 0.6)], command="make eval")
    assert "Written by `make eval`" in text
    header, _, first, second, mean = _table(text, "nDCG@10")
    assert header[3:] == ["grep", "bm25s", "BM25", "vector", "RRF", "reranked"]
    assert first == ["docs-qa", "10", "20", "0.200", "", "0.800", "0.800", "0.800", "0.800"]
    assert second[0] == "xquad-zh"
    assert mean[0] == "**mean of the English sets**"
    assert mean[3:5] == ["**0.200**", ""]
    assert mean[-1] == "**0.800**"
    assert _table(text, "Recall@20")[2][-1] == "0.900"


def test_differences_prototypes_and_times_have_their_tables() -> None:
    text = markdown([_row("docs-qa", 0.8, details=4), _row("xquad-zh", 0.6)], command="x")
    differences = _table(text, "Reranked minus RRF")
    assert differences[2] == ["docs-qa", "+0.0312", "[+0.0100, +0.0500]", "0.0004"]
    assert differences[-1][:3] == [
        "**mean of the English sets**",
        "+0.0000",
        "[+0.0000, +0.0000]",
    ]
    prototypes = _table(text, "Beside the prototypes")
    assert prototypes[2:] == [["docs-qa", "0.787", "0.800", "0.803", "0.800"]]
    latency = _table(text, "Latency")
    assert latency[3] == ["xquad-zh", "12", *["1.2 / 9.0"] * 4, "vector:script 7"]


def test_a_mean_is_over_the_english_sets_that_all_have_the_column() -> None:
    rows = [_row("docs-qa", 0.8), _row("scifact", 0.6), _row("xquad-zh", 0.1)]
    means = english_means(rows, "ndcg_at_10")
    assert means["b4_reranked"] == pytest.approx(0.7)
    assert "bm25s" not in means
    assert english_means([_row("xquad-zh", 0.1)], "ndcg_at_10") == {}


def test_the_english_interval_needs_every_sets_details() -> None:
    assert english_interval([_row("docs-qa", 0.8, details=3), _row("scifact", 0.6)]) is None
    interval = english_interval([_row("docs-qa", 0.8, details=3), _row("xquad-zh", 0.6)])
    assert interval is not None
    assert interval.mean == 0.0


def test_sets_without_prototypes_or_times_leave_those_tables_out() -> None:
    text = markdown([Row(make_result("own"), {})], command="x")
    assert "prototype" not in text
    assert "## Latency" not in text
    with pytest.raises(ValueError, match="no result"):
        markdown([], command="x")


def test_what_follows_the_mark_is_kept_when_tables_are_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "RESULTS.md"
    write_results(file, [_row("docs-qa", 0.8)], command="x")
    assert file.read_text(encoding="utf-8") == markdown([_row("docs-qa", 0.8)], command="x")
    noted = f"{KEPT_MARK}\n## By hand\n\nA sentence.\n"
    file.write_text(f"old tables\n{noted}", encoding="utf-8")
    for value in (0.7, 0.6):
        write_results(file, [_row("docs-qa", value)], command="x")
    expected = markdown([_row("docs-qa", 0.6)], command="x") + noted
    assert file.read_text(encoding="utf-8") == expected
