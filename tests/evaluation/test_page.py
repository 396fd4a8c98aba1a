"""The HTML page: whole, escaped, alone, and with the numbers where they belong."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from clumsies.errors import NotFound
from evaluation.cases import Cases, Source, cases_of
from evaluation.commands import app
from evaluation.datasets import read_set
from evaluation.harness import OpenEngine, SetRun, Settings, run_set
from evaluation.metrics import Composition, Scores
from evaluation.page import page
from evaluation.quality import bars, interval_text, ranked_queries
from evaluation.results import result_of
from evaluation.svg import bar_chart, difference_chart
from evaluation.traces import VARIANTS, write_traces
from tests.evaluation.conftest import WriteSet
from tests.evaluation.test_comparison import make_result
from tests.evaluation.test_plots import rich_result

_VOID = {"meta", "line", "rect", "br"}
HOSTILE = '<script>alert("x")</script><img src=http://evil.example/x>&amp;'


class Reader(HTMLParser):
    """Tables as rows of cells, every tag and address, and whether the tags nest."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src")]
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data


@pytest.fixture
def run(write_set: WriteSet, tmp_path: Path, open_tiny: OpenEngine) -> tuple[Path, SetRun]:
    folder = write_set(
        "small",
        documents=[
            {"id": "deploy", "title": HOSTILE, "text": "Push the tag.\n\nWait for the build."},
            {"id": HOSTILE, "text": "A failed upload waits."},
            {"id": "quiet", "text": "zzz"},
        ],
        queries=[{"id": "q1", "text": f"tag {HOSTILE}"}, {"id": "q2", "text": "failed upload"}],
        judgments=[("q1", "deploy", 2), ("q1", "quiet", 1), ("q2", HOSTILE, 1)],
    )
    return folder, run_set(read_set(folder), Settings(cache=tmp_path, warm=1), opener=open_tiny)


def test_a_page_stands_alone_and_nests() -> None:
    results = [rich_result("docs-qa"), rich_result("own")]
    found = Reader(page(results, [cases_of(result, Source(), 2) for result in results]))
    assert set(found.addresses) == {"#set-docs-qa", "#set-own"}
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    text = page(results, [Cases(), Cases()])
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme: dark" in text
    assert "default-src 'none'" in text


def test_what_comes_from_a_set_is_escaped(run: tuple[Path, SetRun]) -> None:
    folder, finished = run
    result = replace(result_of(finished), set_name=HOSTILE)
    cases = cases_of(result, Source(read_set(folder), finished.traces), 5)
    text = page([result], [cases])
    found = Reader(text)
    assert "<script" not in text
    assert "<img" not in text
    assert f"tag {HOSTILE}" in found.text
    assert [row[1] for table in found.tables for row in table if HOSTILE in row[1]]


def test_the_table_of_a_set_holds_metrics_faults_and_times() -> None:
    mix = Composition(0.7, 0.01, 0.02)
    result = replace(rich_result("own"), composition=dict.fromkeys(VARIANTS, mix))
    (table,) = Reader(page([result], [Cases()])).tables
    assert table[0] == [
        *("variant", "nDCG@10", "Recall@20", "MRR@10"),
        *("diversity", "scope violation", "stale", "p50 ms", "p95 ms"),
    ]
    (bar,) = [bar for bar in bars(result, "ndcg_at_10") if bar.variant == "b4_reranked"]
    assert table[4] == [
        *("reranked", interval_text(bar), "0.900", "0.400"),
        *("0.700", "0.010", "0.020", "128.0", "192.0"),
    ]
    assert bar.low < bar.mean < bar.high


def test_an_overview_has_a_row_a_set_and_one_set_has_none() -> None:
    results = [rich_result("docs-qa"), make_result("own", ndcg=0.25)]
    overview = Reader(page(results, [Cases(), Cases()])).tables[0]
    assert overview[2] == ["own", "20", *["0.250"] * 4]
    two_profiles = [make_result("own"), replace(make_result("own"), profile="multilingual")]
    rows = Reader(page(two_profiles, [Cases(), Cases()])).tables[0]
    assert [row[0] for row in rows[1:]] == ["own (compact)", "own (multilingual)"]
    with pytest.raises(ValueError, match="no result"):
        page([], [])


def test_outsiders_stand_before_the_variants_where_they_ran() -> None:
    beside = replace(rich_result("own"), outsiders={"grep": Scores(0.3, 0.2, 0.1)})
    overview, table, _ = Reader(page([beside, make_result()], [Cases(), Cases()])).tables
    assert overview[0] == ["set", "queries", "grep", "BM25", "vector", "RRF", "reranked"]
    assert [row[2] for row in overview[1:]] == ["0.200", ""]
    assert table[1] == ["grep", "0.200", "0.300", "0.100", "", ""]


def test_worst_and_best_queries_are_the_ends_of_the_reranked_order() -> None:
    result = rich_result("own")
    order = [query for query, _ in ranked_queries(result)]
    cases = cases_of(result, Source(), 3)
    assert [case.query_id for case in cases.worst] == order[:3]
    assert [case.query_id for case in cases.best] == order[:-4:-1]
    assert cases_of(make_result(), Source(), 3) == Cases()
    few = cases_of(rich_result("own", queries=3), Source(), 3)
    assert not {case.query_id for case in few.worst} & {case.query_id for case in few.best}


def test_a_perfect_query_is_never_among_the_worst(run: tuple[Path, SetRun]) -> None:
    cases = cases_of(result_of(run[1]), Source(), 5)
    assert [case.query_id for case in cases.worst] == ["q1"]
    assert [case.query_id for case in cases.best] == ["q2"]


def test_candidates_stand_in_final_order_with_grades_and_ranks(run: tuple[Path, SetRun]) -> None:
    folder, finished = run
    (case,) = cases_of(result_of(finished), Source(read_set(folder), finished.traces), 5).worst
    assert case.text == f"tag {HOSTILE}"
    first = case.candidates[0]
    assert (first.rank, first.document, first.title, first.grade) == (1, "deploy", HOSTILE, 2)
    assert first.ranks["bm25_rank"] is None or first.ranks["bm25_rank"] >= 1
    assert [row.grade for row in case.candidates if row.document == HOSTILE] == [None]
    assert case.missed == ()
    gone = replace(finished.traces[0], judgments={"deploy": 2, "gone": 1, "away": 3, "no": 0})
    (case,) = cases_of(result_of(finished), Source(None, [gone]), 5).worst
    assert case.missed == (("away", 3), ("gone", 1))
    assert case.text is None


def test_bars_are_as_long_as_their_values_and_whiskers_as_their_intervals() -> None:
    found = bars(rich_result("own"), "ndcg_at_10")
    root = ElementTree.fromstring(bar_chart(found, ["<"] * 4, "a & b"))
    widths = [float(rect.get("width", "")) for rect in root.iter("rect")]
    scale = widths[0] / found[0].mean
    assert widths == pytest.approx([bar.mean * scale for bar in found], abs=0.2)
    whiskers = [line for line in root.iter("line") if line.get("class") == "whisker"]
    spans = [float(line.get("x2", "")) - float(line.get("x1", "")) for line in whiskers[::3]]
    assert spans == pytest.approx([(bar.high - bar.low) * scale for bar in found], abs=0.3)
    plain = bar_chart(bars(make_result(), "ndcg_at_10"), [""] * 4, "")
    assert "whisker" not in plain


def test_differences_go_up_and_down() -> None:
    root = ElementTree.fromstring(difference_chart([-0.5, 0.0, 0.25], "x"))
    kinds = [(rect.get("class"), float(rect.get("height", ""))) for rect in root.iter("rect")]
    assert [kind for kind, _ in kinds] == ["loss", "gain"]
    assert kinds[0][1] == pytest.approx(2 * kinds[1][1])
    assert difference_chart([], "x") == ""


def test_the_command_joins_results_traces_and_sets(
    run: tuple[Path, SetRun], tmp_path: Path
) -> None:
    folder, finished = run
    results, traces, out = tmp_path / "r.json", tmp_path / "t.jsonl", tmp_path / "report.html"
    record = result_of(finished).as_dict(details=True)
    results.write_text(json.dumps(record), encoding="utf-8")
    write_traces(traces, finished.traces)
    arguments = ["html", str(results), "--out", str(out), "--traces", str(traces)]
    done = CliRunner().invoke(app, [*arguments, "--data", str(folder.parent)])
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(out)
    text = out.read_text(encoding="utf-8")
    assert len(re.findall("<details", text)) == 2
    assert "failed upload" in text
    # Without the set the ids stand for the texts.
    CliRunner().invoke(app, [*arguments, "--data", str(tmp_path / "none")])
    assert "failed upload" not in out.read_text(encoding="utf-8")
    gone = CliRunner().invoke(app, ["html", str(tmp_path / "gone"), "--out", str(out)])
    assert isinstance(gone.exception, NotFound)
