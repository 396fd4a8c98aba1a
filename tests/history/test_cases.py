"""Cases pin a run and its memory; judgments change as a whole, and only from the latest version."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from clumsies.errors import Conflict, InvalidRequest, NotFound, StoreFailed
from clumsies.history.cases import Grade, Labels
from clumsies.history.corpora import corpus_id_of, manifest_row
from clumsies.history.records import EXCERPT_CHARS
from clumsies.history.suggestions import suggestions
from clumsies.types import content_hash
from tests.history.samples import (
    PROJECT,
    QUERY,
    TEXTS,
    History,
    TextCorpus,
    candidate,
    candidates,
)

UNIT = Grade("mem_a", 3, "unit_mem_a")
MISSED = Grade("mem_c", 2, missed=True)


def test_a_run_makes_one_case_however_often_it_is_asked(history: History) -> None:
    run_id = history.record()
    first = history.cases.create(run_id, "case_1", Labels("howto", "From a user."))
    again = history.cases.create(run_id, "case_2", Labels("other"))
    assert again == first
    case = first.evaluation_case
    assert (case.case_id, case.source_run_id, case.judgment_version) == ("case_1", run_id, 1)
    assert (case.query, case.query_category, case.notes) == (QUERY, "howto", "From a user.")
    assert first.judgments == ()
    assert first.source_run.run_id == run_id
    assert history.runs.get(run_id).pinned


def test_the_corpus_id_is_the_hash_of_the_memory(history: History) -> None:
    detail = history.cases.create(history.record(), "case_1")
    rows = [manifest_row(resource) for resource in detail.resources]
    expected = corpus_id_of(TextCorpus(TEXTS).effective_hash, rows)
    assert detail.evaluation_case.corpus_id == expected
    assert rows[0][:7] == (0, "mem_a", "org", "memory", "mem_a.md", "Title of mem_a",
                           content_hash(TEXTS["mem_a"]))  # fmt: skip
    data = json.dumps([TextCorpus(TEXTS).effective_hash, rows], separators=(",", ":"))
    assert expected == "corpus_" + hashlib.sha256(data.encode()).hexdigest()


def test_runs_of_one_memory_share_a_corpus(history: History) -> None:
    one = history.cases.create(history.record(), "case_1")
    other = history.cases.create(history.record(), "case_2")
    assert one.evaluation_case.corpus_id == other.evaluation_case.corpus_id
    assert len(history.rows("SELECT * FROM evaluation_corpora")) == 1


def test_a_run_without_a_memory_makes_no_case(history: History) -> None:
    failed = history.begin()
    history.runs.failed(failed, "index_head", "search_index_preparing", "Later.")
    empty = history.record(TextCorpus({}), found=[])
    for run_id in (failed, history.begin(), empty):
        with pytest.raises(InvalidRequest):
            history.cases.create(run_id, "case_1")
    with pytest.raises(NotFound):
        history.cases.create("run_unknown", "case_1")
    assert history.cases.page(None).cases == ()


def test_a_case_is_not_made_of_damaged_bodies(history: History) -> None:
    run_id = history.record()
    history.runs.blobs.path(content_hash(TEXTS["mem_b"])).write_text("something else")
    with pytest.raises(StoreFailed):
        history.cases.create(run_id, "case_1")


def test_judgments_are_replaced_as_a_whole(history: History) -> None:
    case_id = history.case()
    first = history.cases.replace_judgments(case_id, 1, [UNIT, MISSED])
    assert first.evaluation_case.judgment_version == 2
    grades = [(j.resource_id, j.unit_key, j.relevance, j.missed) for j in first.judgments]
    assert grades == [("mem_a", "unit_mem_a", 3, False), ("mem_c", None, 2, True)]
    second = history.cases.replace_judgments(case_id, 2, [Grade("mem_b", 0, "unit_mem_b")])
    assert [j.resource_id for j in second.judgments] == ["mem_b"]
    assert second.evaluation_case.judgment_version == 3
    assert history.cases.get(case_id) == second
    assert history.cases.replace_judgments(case_id, 3, []).judgments == ()


def test_who_saw_an_older_version_overwrites_nothing(history: History) -> None:
    case_id = history.case()
    kept = history.cases.replace_judgments(case_id, 1, [UNIT])
    with pytest.raises(Conflict) as caught:
        history.cases.replace_judgments(case_id, 1, [MISSED], Labels(notes="lost?"))
    assert caught.value.code == "evaluation_judgment_conflict"
    assert caught.value.details == {"judgment_version": 2}
    assert history.cases.get(case_id) == kept


def test_a_removed_case_takes_its_judgments_and_lets_go_of_its_run(history: History) -> None:
    case_id = history.case(history.record())
    other = history.case(history.record())
    history.cases.replace_judgments(case_id, 1, [UNIT, MISSED])
    before = history.cases.get(other)
    removed = history.cases.remove(case_id, 2)
    assert (removed.case_id, removed.judgment_version) == (case_id, 2)
    with pytest.raises(NotFound):
        history.cases.get(case_id)
    assert history.rows("SELECT * FROM evaluation_judgments") == []
    assert not history.runs.get(removed.source_run_id).pinned
    assert history.cases.get(other) == before
    with pytest.raises(NotFound):
        history.cases.remove(case_id, 2)


def test_the_memory_of_the_last_case_goes_with_the_runs(history: History) -> None:
    case_id = history.case(history.record())
    history.cases.remove(case_id, 1)
    assert history.rows("SELECT * FROM evaluation_corpora") == []
    history.runs.clear(PROJECT)
    assert history.rows("SELECT * FROM retrieval_corpora") == []
    assert [f for f in history.runs.blobs.root.rglob("*") if f.is_file()] == []


def test_a_case_that_somebody_judged_meanwhile_is_not_removed(history: History) -> None:
    case_id = history.case(history.record())
    judged = history.cases.replace_judgments(case_id, 1, [UNIT])
    with pytest.raises(Conflict) as caught:
        history.cases.remove(case_id, 1)
    assert caught.value.code == "evaluation_judgment_conflict"
    assert history.cases.get(case_id) == judged


def test_a_removed_case_comes_back_with_its_fixture(history: History) -> None:
    case_id = history.case(history.record())
    judged = history.cases.replace_judgments(case_id, 1, [UNIT, MISSED])
    fixture = history.fixtures.export(None, [case_id])
    history.cases.remove(case_id, 2)
    assert history.fixtures.import_(fixture).imported == (case_id,)
    assert history.cases.get(case_id) == judged


def test_the_excerpt_is_what_was_recorded(history: History) -> None:
    judged = history.cases.replace_judgments(history.case(), 1, [UNIT, MISSED])
    unit, resource = judged.judgments
    assert unit.evidence_excerpt == TEXTS["mem_a"]
    assert resource.evidence_excerpt == TEXTS["mem_c"][:EXCERPT_CHARS] + "…"


def test_a_judgment_id_says_what_it_judges(history: History) -> None:
    case_id = history.case()
    judged = history.cases.replace_judgments(case_id, 1, [UNIT, MISSED])
    texts = (f"{case_id}\0mem_a\0unit_mem_a\0", f"{case_id}\0mem_c\0\0")
    expected = ["judgment_" + hashlib.sha256(text.encode()).hexdigest() for text in texts]
    assert [judgment.judgment_id for judgment in judged.judgments] == expected


@pytest.mark.parametrize(
    "grades",
    [
        [Grade("mem_x", 1, missed=True)],
        [Grade("mem_b", 1, "unit_mem_a")],
        [Grade("mem_a", 1, "unit_unknown")],
        [Grade("mem_a", 4, "unit_mem_a")],
        [Grade("mem_a", -1, "unit_mem_a")],
        [Grade("mem_a", 1, "unit_mem_a", missed=True)],
        [Grade("mem_a", 1)],
        [UNIT, UNIT],
        [MISSED, Grade("mem_c", 1, missed=True)],
    ],
    ids=["foreign resource", "other's unit", "unknown unit", "4", "-1", "missed unit", "neither",
         "unit twice", "resource twice"],
)  # fmt: skip
def test_judgments_of_what_the_run_did_not_have_are_refused(
    history: History, grades: list[Grade]
) -> None:
    case_id = history.case()
    before = history.cases.replace_judgments(case_id, 1, [UNIT])
    with pytest.raises(InvalidRequest):
        history.cases.replace_judgments(case_id, 2, grades)
    assert history.cases.get(case_id) == before


def test_labels_stay_unless_they_are_given(history: History) -> None:
    case_id = history.case()
    history.cases.replace_judgments(case_id, 1, [], Labels("howto", "Why it is here."))
    kept = history.cases.replace_judgments(case_id, 2, [UNIT]).evaluation_case
    assert (kept.query_category, kept.notes) == ("howto", "Why it is here.")
    cleared = history.cases.replace_judgments(case_id, 3, [], Labels(notes=None)).evaluation_case
    assert (cleared.query_category, cleared.notes) == ("howto", None)


def test_a_case_keeps_its_memory_when_the_memory_moves_on(tmp_path: Path) -> None:
    history = History(tmp_path, retained=1, collect_every=1)
    before = history.cases.create(history.record(), "case_1")
    for number in range(3):
        history.record(TextCorpus({"mem_a": f"version {number}"}), found=[])
    history.runs.clear(PROJECT)
    assert history.cases.get("case_1") == before
    fixture = history.fixtures.export(None, [])
    assert {r.metadata.resource_id: r.content for r in fixture.cases[0].resources} == TEXTS
    history.database.close()


def test_cases_are_listed_by_project_the_latest_first(history: History) -> None:
    made = [history.case(history.record()) for _ in range(3)]
    other = history.case(history.record(project_id="proj_2"))
    first = history.cases.page(PROJECT, limit=2)
    rest = history.cases.page(PROJECT, cursor=first.next_cursor, limit=2)
    listed = [case.case_id for page in (first, rest) for case in page.cases]
    assert listed == list(reversed(made))
    assert history.cases.page(None).cases[0].case_id == other
    assert rest.next_cursor is None


def test_suggestions_are_unreturned_candidates_by_how_far_they_came(history: History) -> None:
    found = suggestions(history.cases.create(history.record(), "case_1").candidates)
    assert [(s.resource_id, s.failure_stage) for s in found] == [
        ("mem_b", "reranking"),
        ("mem_c", "fusion"),
    ]


def test_at_most_five_suggestions_one_a_resource(history: History) -> None:
    texts = {f"mem_{n}": f"text {n}" for n in range(8)}
    made = [
        candidate(name, text, rrf_rank=n, reranker_rank=n, exclusion_reason="token_budget")
        for n, (name, text) in enumerate(texts.items(), 1)
    ]
    second = candidate("mem_0", "text 0", vector_rank=1)
    second.unit_key = type(second.unit_key)("unit_again")
    detail = history.runs.get(history.record(TextCorpus(texts), found=[second, *made]))
    found = suggestions(detail.candidates)
    assert [s.unit_key for s in found] == [f"unit_mem_{n}" for n in range(5)]
    assert {s.failure_stage for s in found} == {"assembly"}


def test_returned_candidates_are_no_suggestions(history: History) -> None:
    detail = history.runs.get(history.record(found=candidates()[:1]))
    assert suggestions(detail.candidates) == ()
