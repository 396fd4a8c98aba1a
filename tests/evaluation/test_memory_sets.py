"""Sets whose corpus is a folder of Markdown, and what is said about queries without an answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from clumsies.errors import InvalidRequest
from evaluation.datasets import EvaluationSet, read_set, resources_of
from evaluation.harness import OpenEngine, Settings, run_set
from evaluation.outsiders import empty_shares, outsiders, rankings, run_outsiders
from evaluation.pool import pool
from evaluation.report import Row, markdown
from evaluation.results import read_results, result_of

FILES = {
    "rules/naming.md": "# Names\n\nNames are nouns.\n",
    "context/deploy.md": "---\ntitle: Deploy\n---\n# Deploy\n\nPush the tag.\n",
    "context/发布.md": "# 发布\n\n先推送标签。\n",
}
QUERIES = (
    '{"id": "q1", "text": "push tag", "category": "paraphrase"}',
    '{"id": "q2", "text": "volcano", "category": "no-answer"}',
    '{"id": "q3", "text": "names volcano", "category": "no-answer"}',
)
JUDGMENTS = ("q1\tcontext/deploy.md\t3", "q1\trules/naming.md\t0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "sets" / "small"
    for path, text in FILES.items():
        file = root / "memory" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    (root / "memory" / "notes.txt").write_text("no resource", encoding="utf-8")
    for name, lines in (("queries.jsonl", QUERIES), ("qrels.tsv", JUDGMENTS)):
        (root / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return root


@pytest.fixture
def small(folder: Path) -> EvaluationSet:
    return read_set(folder)


def test_each_markdown_file_is_a_document_by_its_path(small: EvaluationSet) -> None:
    assert [document.document_id for document in small.documents] == sorted(FILES)
    assert small.judgments == {"q1": {"context/deploy.md": 3, "rules/naming.md": 0}}


@pytest.mark.parametrize("style", ["neutral", "id"])
def test_a_resource_has_the_files_path_and_content(small: EvaluationSet, style: str) -> None:
    mapped = resources_of(small.documents, "id" if style == "id" else "neutral")
    found = {resource.path: resource.content for resource, _ in mapped.values()}
    assert found == FILES


def test_an_empty_memory_two_corpora_and_wrong_bytes_are_refused(folder: Path) -> None:
    broken = folder / "memory" / "rules" / "naming.md"
    broken.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidRequest, match=r"naming\.md: is not UTF-8"):
        read_set(folder)
    (folder / "corpus.jsonl").write_text('{"id": "a", "text": "b"}\n', encoding="utf-8")
    with pytest.raises(InvalidRequest, match="holds both"):
        read_set(folder)
    (folder / "corpus.jsonl").unlink()
    for file in (folder / "memory").rglob("*.md"):
        file.unlink()
    with pytest.raises(InvalidRequest, match="holds no Markdown"):
        read_set(folder)


def test_a_judgment_of_a_file_that_is_not_there_is_refused(folder: Path) -> None:
    with (folder / "qrels.tsv").open("a", encoding="utf-8") as stream:
        stream.write("q2\trules/gone.md\t1\n")
    with pytest.raises(InvalidRequest, match=r"qrels\.tsv:3: .*gone\.md' is not in memory"):
        read_set(folder)


def test_outsiders_see_the_path_above_the_text(small: EvaluationSet) -> None:
    asked = small.asked_with(small)
    found = {query.query_id: ranking for query, ranking in rankings(asked, "grep")}
    assert found["q1"] == ["context/deploy.md"]
    assert found["q2"] == []
    assert found["q3"] == ["rules/naming.md"]


def test_outsiders_are_silent_where_no_word_matches(small: EvaluationSet) -> None:
    assert empty_shares(small) == dict.fromkeys(outsiders(), 0.5)
    assert empty_shares(small.first(1)) == {}


def test_variants_are_silent_without_candidates_and_the_last_without_fragments(
    small: EvaluationSet, open_tiny: Callable[..., object], tmp_path: Path
) -> None:
    opener = cast("OpenEngine", open_tiny)
    with_index = Settings(cache=tmp_path / "cache", warm=0, jobs=1)
    (tmp_path / "cache").mkdir()
    run = run_set(small, with_index, opener=opener)
    result = result_of(run)
    assert result.no_answer.queries == 2
    assert result.no_answer.variants == {
        "b1_bm25": 0.5,
        "b2_dense_vector": 0.0,
        "b3_hybrid_rrf": 0.0,
        "b4_reranked": 0.5,
    }
    assert result.no_answer.rightly_empty == 0.5
    row = Row(result, run_outsiders(small), empty_shares(small))
    section = markdown([row], command="x").split("## Queries without an answer")[1]
    line = next(line for line in section.splitlines() if line.startswith("| small"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["small", "2", "0.500"]
    assert cells[4:] == ["0.500", "0.000", "0.000", "0.500", "1.000"]


def test_results_kept_before_variants_had_shares_are_still_read(
    small: EvaluationSet, open_tiny: Callable[..., object], tmp_path: Path
) -> None:
    run = run_set(small, Settings(cache=tmp_path, warm=0), opener=cast("OpenEngine", open_tiny))
    record = result_of(run).as_dict()
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(record), encoding="utf-8")
    assert read_results(kept)[0].no_answer == result_of(run).no_answer
    record["no_answer"] = {"queries": 2, "rightly_empty": 0.5}
    kept.write_text(json.dumps(record), encoding="utf-8")
    assert read_results(kept)[0].no_answer.variants == {}


def test_the_pool_puts_the_tops_of_all_rankings_together(
    small: EvaluationSet, open_tiny: Callable[..., object], tmp_path: Path
) -> None:
    run = run_set(small, Settings(cache=tmp_path, warm=0), opener=cast("OpenEngine", open_tiny))
    pairs = list(pool(small, run.traces, depth=1))
    first = pairs[0]
    assert (first.query_id, first.document_id, first.grade) == ("q1", "context/deploy.md", 3)
    assert set(first.ranks) >= {*outsiders(), "b1_bm25", "b4_reranked"}
    assert set(first.ranks.values()) == {1}
    assert first.as_line().startswith("q1\tcontext/deploy.md\t3\tgrep:1 ")
    assert [pair.query_id for pair in pairs] == sorted(pair.query_id for pair in pairs)
    unjudged = [pair for pair in pairs if pair.query_id == "q3"]
    assert unjudged[0].as_line().split("\t")[2] == ""
