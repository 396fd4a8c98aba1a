"""The task-cue set is whole: what is judged exists, and what it promises is in it. No model."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from evaluation.datasets import EvaluationSet, find_all, find_set, read_set, resources_of
from evaluation.metrics import is_answerable

CATEGORIES = {
    "paraphrase",
    "identifier",
    "superseded",
    "near-duplicate",
    "multi",
    "chinese",
    "procedure",
    "no-answer",
}
HAN = re.compile(r"[\u4e00-\u9fff]")
LINK = re.compile(r"\]\(([^)]+\.md)\)")


@pytest.fixture(scope="module")
def taskcue() -> EvaluationSet:
    return read_set(find_set("taskcue"))


@pytest.fixture(scope="module")
def categories() -> dict[str, str]:
    lines = (find_set("taskcue") / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["id"]: record["category"] for record in map(json.loads, lines)}


def test_it_is_found_by_name_without_any_data_beside_the_checkout(tmp_path: Path) -> None:
    folder = find_set("taskcue", tmp_path)
    assert folder.parent == Path(__file__).resolve().parents[2] / "evaluation" / "sets"
    assert folder in find_all()


def test_it_is_as_large_as_promised(taskcue: EvaluationSet, categories: dict[str, str]) -> None:
    assert len(taskcue.documents) >= 150
    assert len(taskcue.queries) >= 130
    counts = Counter(categories.values())
    assert set(counts) == CATEGORIES
    assert min(counts.values()) >= 12
    assert counts["no-answer"] * 4 >= len(taskcue.queries)


def test_resources_are_in_two_languages_and_of_the_sizes_of_a_memory(
    taskcue: EvaluationSet,
) -> None:
    chinese = [d for d in taskcue.documents if len(HAN.findall(d.text)) > len(d.text) * 0.2]
    assert 12 <= len(chinese) <= 20
    lengths = [document.text.count("\n") for document in taskcue.documents]
    assert sum(20 <= lines <= 60 for lines in lengths) > len(lengths) * 0.8
    assert sum(120 <= lines <= 250 for lines in lengths) >= 10
    assert max(lengths) <= 250


def test_resources_keep_their_path_and_text(taskcue: EvaluationSet) -> None:
    mapped = list(resources_of(taskcue.documents).values())
    assert [resource.path for resource, _ in mapped] == [document for _, document in mapped]
    memory = find_set("taskcue") / "memory"
    for resource, _ in mapped:
        assert resource.content.encode() == (memory / resource.path).read_bytes()


def test_every_link_of_the_memory_leads_somewhere(taskcue: EvaluationSet) -> None:
    memory = find_set("taskcue") / "memory"
    for document in taskcue.documents:
        for target in LINK.findall(document.text):
            linked = (memory / document.document_id).parent / target
            assert linked.is_file(), (document.document_id, target)


def test_what_is_superseded_says_since_when(taskcue: EvaluationSet) -> None:
    superseded = [d for d in taskcue.documents if re.search(r"^status: superseded$", d.text, re.M)]
    assert len(superseded) >= 7
    for document in superseded:
        assert re.search(r"superseded on .*20\d\d", document.text, re.IGNORECASE)


def test_no_answer_is_exactly_what_no_resource_answers(
    taskcue: EvaluationSet, categories: dict[str, str]
) -> None:
    for query in taskcue.queries:
        answerable = is_answerable(taskcue.judgments.get(query.query_id, {}))
        assert answerable == (categories[query.query_id] != "no-answer"), query.query_id


def test_every_answerable_cue_has_a_first_choice_and_grades_end_at_three(
    taskcue: EvaluationSet, categories: dict[str, str]
) -> None:
    grades = {grade for judged in taskcue.judgments.values() for grade in judged.values()}
    assert grades == {0, 1, 2, 3}
    for query, judged in taskcue.judgments.items():
        if categories[query] != "no-answer":
            assert 3 in judged.values(), query


def test_every_cue_was_judged_to_the_depth_of_its_pool(taskcue: EvaluationSet) -> None:
    assert set(taskcue.judgments) == {query.query_id for query in taskcue.queries}
    depths = [len(judged) for judged in taskcue.judgments.values()]
    assert min(depths) >= 2
    assert sum(depths) / len(depths) >= 10


def test_near_duplicates_and_old_versions_are_judged_explicitly(
    taskcue: EvaluationSet, categories: dict[str, str]
) -> None:
    for query, category in categories.items():
        if category == "near-duplicate":
            assert 0 in taskcue.judgments[query].values(), query
    assert taskcue.judgments["t045"]["rules/freeze-season.md"] == 3
    assert taskcue.judgments["t045"]["rules/freeze-season-2025.md"] == 0


def test_several_fragments_are_wanted_where_the_category_says_so(
    taskcue: EvaluationSet, categories: dict[str, str]
) -> None:
    for query, category in categories.items():
        if category == "multi":
            useful = [grade for grade in taskcue.judgments[query].values() if grade >= 2]
            assert len(useful) >= 2, query


def test_no_cue_is_asked_twice_or_stands_in_a_resource(taskcue: EvaluationSet) -> None:
    folded = [query.text.casefold() for query in taskcue.queries]
    assert len(set(folded)) == len(folded)
    texts = [document.text.casefold() for document in taskcue.documents]
    for text in folded:
        assert not any(text in resource for resource in texts), text


def test_cues_are_in_two_languages(taskcue: EvaluationSet) -> None:
    assert sum(bool(HAN.search(query.text)) for query in taskcue.queries) >= 12
