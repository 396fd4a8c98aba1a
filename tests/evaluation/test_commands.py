"""`python -m evaluation` with the real engine and models on small sets, in its own process."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evaluation.results import read_results
from evaluation.traces import VARIANTS, read_traces
from tests.evaluation.conftest import WriteSet

ROOT = Path(__file__).resolve().parents[2]


class Commands:
    """Runs the commands with one cache, so that later calls embed nothing again."""

    def __init__(self, cache: Path):
        self.cache = cache

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-m", "evaluation", *arguments]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
        )

    def on_engine(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.call(*arguments, "--cache", str(self.cache))


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path / "cache")


def test_run_prints_one_json_object_and_leaves_its_files(
    commands: Commands, write_set: WriteSet, tmp_path: Path
) -> None:
    folder = write_set()
    traces = tmp_path / "kept.jsonl.gz"
    done = commands.on_engine(
        "run",
        str(folder),
        "--json",
        "--details",
        *("--warm", "2"),
        *("--run-file", str(tmp_path / "run.trec")),
        *("--keep-traces", str(traces)),
    )
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["set"], record["queries"], record["profile"]) == ("small", 2, "compact")
    assert list(record["variants"]) == list(VARIANTS)
    for scores in record["variants"].values():
        assert set(scores) == {"recall_at_20", "ndcg_at_10", "mrr_at_10"}
    assert record["variants"]["b4_reranked"]["mrr_at_10"] == 1.0
    assert record["latency"]["queries"] == 2
    assert set(record["latency"]) == {"queries", *VARIANTS}
    assert set(record["details"]["b4_reranked"]) == {"q1", "q2"}
    lines = (tmp_path / "run.b4_reranked.trec").read_text(encoding="utf-8").splitlines()
    assert sorted(line.split()[2] for line in lines if line.startswith("q1 Q0 ")) == [
        *("deploy#1", "retry", "rollback", "style")
    ]
    kept = list(read_traces(traces))
    assert [trace.query_id for trace in kept] == ["q1", "q2", "q3"]
    assert all(0.0 <= share <= 1.0 + 1e-9 for trace in kept for share in trace.columns["coverage"])


def test_sets_are_found_by_name_in_the_data_folder(commands: Commands, write_set: WriteSet) -> None:
    data = write_set().parent
    done = commands.on_engine(
        *("run", "small", "--data", str(data), "--queries", "1", "--warm", "0")
    )
    assert done.returncode == 0, done.stderr
    assert "small, 1 queries, compact" in done.stdout
    assert "b4_reranked" in done.stdout


def test_all_writes_the_report_and_compare_reads_its_json(
    commands: Commands, write_set: WriteSet, tmp_path: Path
) -> None:
    data = write_set("docs-qa").parent
    write_set("other")
    report, results = tmp_path / "RESULTS.md", tmp_path / "results.json"
    done = commands.on_engine(
        *("all", "--data", str(data), "--warm", "1", "--json", "--write", str(report))
    )
    assert done.returncode == 0, done.stderr
    results.write_text(done.stdout, encoding="utf-8")
    assert [result.set_name for result in read_results(results)] == ["docs-qa", "other"]
    assert "| docs-qa | 4 | 2 |" in report.read_text(encoding="utf-8")
    again = tmp_path / "again.md"
    done = commands.call("report", str(results), "--write", str(again), "--data", str(data))
    assert done.returncode == 0, done.stderr
    tables = [text.read_text(encoding="utf-8").split("\n## ")[1:] for text in (report, again)]
    assert tables[0] == tables[1]
    assert commands.call("compare", str(results), str(results)).returncode == 0


def test_compare_fails_on_a_loss_beyond_the_threshold(
    commands: Commands, write_set: WriteSet, tmp_path: Path
) -> None:
    done = commands.on_engine("run", str(write_set()), "--json", "--warm", "0")
    record = json.loads(done.stdout)
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    before.write_text(json.dumps(record), encoding="utf-8")
    record["variants"]["b4_reranked"]["ndcg_at_10"] -= 0.05
    after.write_text(json.dumps(record), encoding="utf-8")
    lost = commands.call("compare", str(before), str(after), "--threshold", "0.04", "--json")
    assert lost.returncode == 1
    assert json.loads(lost.stdout)["verdict"] == "lost"
    kept = commands.call("compare", str(before), str(after), "--threshold", "0.06", "--json")
    assert kept.returncode == 0
    assert json.loads(kept.stdout)["verdict"] == "ok"
    allowed = ("--allow", "small:ndcg_at_10=0.06")
    assert commands.call("compare", str(before), str(after), *allowed).returncode == 0


def test_tuning_and_calibration_read_kept_traces(
    commands: Commands, write_set: WriteSet, tmp_path: Path
) -> None:
    asked = write_set("asked")
    other = write_set(
        "other",
        queries=[{"id": f"n{n}", "text": text} for n, text in enumerate(NOWHERE)],
        judgments=(),
    )
    answered, nothing = tmp_path / "answered.jsonl", tmp_path / "nothing.jsonl"
    first = commands.on_engine("run", str(asked), "--keep-traces", str(answered), "--warm", "0")
    assert first.returncode == 0, first.stderr
    second = commands.on_engine("cross", str(asked), str(other), "--keep-traces", str(nothing))
    assert second.returncode == 0, second.stderr
    assert not any(trace.answerable for trace in read_traces(nothing))
    scored = commands.call("score", str(answered), "--json")
    assert scored.returncode == 0, scored.stderr
    (record,) = json.loads(scored.stdout)
    assert (record["set"], record["profile"], record["queries"]) == ("asked", "compact", 2)
    tuned = commands.call("tune", str(answered), "--top", "3")
    assert tuned.returncode == 0, tuned.stderr
    assert "rank fusion" in tuned.stdout
    assert "final blend" in tuned.stdout
    assert "candidates reranked" in tuned.stdout
    fitted = commands.call("calibrate", str(answered), str(nothing))
    assert fitted.returncode == 0, fitted.stderr
    assert "to pin: (" in fitted.stdout
    assert "relevance floors" in fitted.stdout
    more = commands.call("calibrate", str(answered), str(nothing), "--left-out", str(answered))
    assert more.returncode == 0, more.stderr
    counts = [re.search(r"(\d+) answerable .* (\d+) without", f.stdout) for f in (fitted, more)]
    before, after = (tuple(map(int, found.groups())) for found in counts if found)
    assert before[0] == after[0]
    assert before[1] < after[1] <= before[1] + before[0]


NOWHERE = ("bake sourdough bread", "the orbit of a comet", "violin sonata in g minor")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("run", "no-such-set"), 5, "no-such-set"),
        (("run", "{set}", "--profile", "no-such-profile"), 2, "no-such-profile"),
        (("compare", "{set}/qrels.tsv", "{set}/qrels.tsv"), 2, "is not a result"),
        (("compare", "{set}/gone", "{set}/gone"), 5, "is missing"),
        (("tune", "{set}/queries.jsonl"), 2, "queries.jsonl:1: is not a kept trace"),
        (("calibrate", "{set}/queries.jsonl", "--feature", "luck"), 2, "unknown feature 'luck'"),
        (("run", "{set}", "--jobs", "0"), 2, "--jobs"),
    ],
)
def test_bad_input_ends_with_a_message_and_the_documented_code(
    commands: Commands, write_set: WriteSet, arguments: tuple[str, ...], code: int, message: str
) -> None:
    folder = str(write_set())
    done = commands.call(*(argument.replace("{set}", folder) for argument in arguments))
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
