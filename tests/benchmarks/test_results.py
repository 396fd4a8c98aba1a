"""The table of ratios says what the run said, and keeps what was written by hand."""

from __future__ import annotations

from typing import Any

from benchmarks.results import Demand, Run, demands, document


def run_of(**medians: float) -> Run:
    """A run with these medians in seconds; `__` in a name stands before its parameter."""
    found: list[dict[str, Any]] = []
    for name, seconds in medians.items():
        base, _, parameter = name.partition("__")
        full = f"bench_{base}[{parameter}]" if parameter else f"bench_{base}"
        extra = {"build_s": seconds, "bytes": 1_000} if base == "build" else {}
        stats = {"median": seconds, "min": seconds / 2}
        found.append({"name": full, "stats": stats, "extra_info": extra})
    machine = {
        "processors": 2,
        "machine": "x86_64",
        "system": "Linux",
        "python": "CPython 3.11.7",
        "sqlite": "3.50.0",
        "numpy": "2.0.0",
    }
    return Run({"machine_info": machine, "benchmarks": found})


def rows(run: Run) -> dict[str, tuple[str, str]]:
    """(measured, verdict) of each demand."""
    return {row[0]: (row[2], row[3]) for row in (demand.row() for demand in demands(run))}


def test_a_demand_holds_on_the_right_side_of_its_bound() -> None:
    assert Demand("faster", 50.0, 50, at_least=True).row()[3] == "holds"
    assert Demand("faster", 49.0, 50, at_least=True).row()[3] == "does not hold"
    assert Demand("cheaper", 4.0, 4).row()[3] == "holds"
    assert Demand("cheaper", 4.1, 4).row()[3] == "does not hold"


def test_ratios_are_of_the_medians_of_one_run() -> None:
    run = run_of(
        scan__sample=0.001,
        markdown_it__sample=0.25,
        non_model__10000=0.02,
        non_model__100000=0.1,
        model_time__10000=0.4,
        build__10000=10.0,
        update__10000=0.05,
    )
    found = rows(run)
    assert found["block scan over markdown-it-py, sample"] == ("250", "holds")
    assert found["non-model time over model time, 10,000 units"] == ("0.05", "holds")
    assert found["non-model time, 100,000 units over 10,000, exact scan"] == (
        "5.00",
        "does not hold",
    )
    assert found["one resource's update over the full build, 10,000 units"] == ("0.005", "holds")


def test_what_was_not_run_is_neither_held_nor_broken() -> None:
    found = rows(run_of(scan__sample=0.001))
    assert found["block scan over markdown-it-py, sample"] == ("not in this run", "")
    assert found["non-model time over model time, 10,000 units"] == ("not in this run", "")


def test_the_document_ends_with_the_notes() -> None:
    run = run_of(fusion=0.001, fusion_numpy=0.003, lexical__1000=0.002, lexical_bm25s__1000=0.001)
    text = document(run, "## By hand\n\nKept.\n")
    assert text.endswith("\n\n## By hand\n\nKept.\n")
    assert "| rank fusion of 2 x 60, beside NumPy | 3.00 x |" in text
    assert "| BM25 through SQLite, beside bm25s in memory | 0.5 x |" in text
