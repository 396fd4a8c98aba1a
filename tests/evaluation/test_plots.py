"""What is drawn of which results, and that it can be drawn again."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from clumsies.errors import InvalidRequest
from evaluation.metrics import Scores
from evaluation.plots import write_plots
from evaluation.results import SetResult
from evaluation.traces import VARIANTS
from tests.evaluation.test_comparison import make_result

needs_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed"
)


def rich_result(name: str, queries: int = 12) -> SetResult:
    """Times, and queries whose nDCG@10 differs between the variants."""
    details = {
        variant: {f"q{n}": Scores(1.0, ((n + place) % 11) / 10, 0.5) for n in range(queries)}
        for place, variant in enumerate(VARIANTS)
    }
    latency = {
        variant: {"p50_ms": 2.0 * 4**place, "p95_ms": 3.0 * 4**place}
        for place, variant in enumerate(VARIANTS)
    }
    return replace(make_result(name), details=details, latency=latency, latency_queries=5)


@needs_matplotlib
def test_each_plot_is_an_svg_and_a_png(tmp_path: Path) -> None:
    written = write_plots([rich_result("docs-qa"), rich_result("own")], tmp_path / "new" / "plots")
    assert [file.name for file in written] == [
        f"{name}.{ending}"
        for name in ("quality", "latency", "differences")
        for ending in ("svg", "png")
    ]
    for file in written:
        if file.suffix == ".png":
            assert file.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        else:
            assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@needs_matplotlib
def test_sets_are_labelled_and_each_variant_has_one_legend_entry(tmp_path: Path) -> None:
    write_plots([rich_result("docs-qa"), rich_result("own")], tmp_path)
    # matplotlib draws letters as paths and leaves the words in comments.
    quality = (tmp_path / "quality.svg").read_text(encoding="utf-8")
    for words in ("docs-qa", "own", "BM25", "vector", "RRF", "reranked"):
        assert quality.count(f"<!-- {words} -->") == 1
    differences = (tmp_path / "differences.svg").read_text(encoding="utf-8")
    assert "<!-- docs-qa -->" in differences
    assert "worse" in differences


@needs_matplotlib
def test_only_what_the_results_hold_is_drawn(tmp_path: Path) -> None:
    written = write_plots([make_result()], tmp_path)
    assert [file.name for file in written] == ["quality.svg", "quality.png"]
    with pytest.raises(InvalidRequest, match="no result to draw"):
        write_plots([], tmp_path)


@needs_matplotlib
def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    first = write_plots([rich_result("a")], tmp_path / "first")
    second = write_plots([rich_result("a")], tmp_path / "second")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_without_matplotlib_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InvalidRequest, match=r"clumsies\[plots\]"):
        write_plots([make_result()], tmp_path)
    assert list(tmp_path.iterdir()) == []
