"""A run holds the whole trace, the latest stay, and a crash leaves nothing running."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

import apsw
import msgspec
import pytest

from clumsies.errors import InvalidRequest, NotFound, StoreFailed
from clumsies.history.records import EXCERPT_CHARS
from clumsies.history.runs import INTERRUPTED, NOT_PERSISTED, Finished
from clumsies.types import content_hash
from tests.history.samples import PROJECT, QUERY, TEXTS, History, TextCorpus, candidates, trace_of

DIGITS = {content_hash(text).removeprefix("sha256:") for text in TEXTS.values()}


def test_a_run_has_every_rank_score_reason_and_delta_of_its_trace(history: History) -> None:
    detail = history.runs.get(history.record())
    names = {"relevance": "reranker_relevance", "text": None, "locator": None}
    for expected, kept in zip(candidates(), detail.candidates, strict=True):
        for name in expected.__slots__:
            field = names.get(name, name)
            if field is not None:
                assert getattr(kept, field) == getattr(expected, name), name
        assert (kept.start, kept.end) == (expected.locator.start, expected.locator.end)


def test_a_run_has_the_versions_times_and_counts_of_its_trace(history: History) -> None:
    run = history.runs.get(history.record()).run
    assert run.status == "succeeded"
    assert (run.query, run.project_id) == (QUERY, PROJECT)
    versions = (run.parser_version, run.chunker_version, run.terms_version, run.model_revision)
    assert versions == ("parser.v9", "chunker.v9", "terms.v9", "embedding.v9")
    assert (run.profile, run.ranking_profile) == ("compact", "ranking.v9")
    assert (run.index_revision, run.skipped) == ("search_1", "rerank:script")
    assert (run.resource_count, run.unit_count) == (3, 17)
    assert (run.returned_fragment_count, run.returned_token_count) == (1, 7)
    times = (run.effective_memory_us, run.index_ensure_us, run.bm25_us, run.embedding_us)
    assert times == (1000, 201, 20, 300)
    later = (run.vector_us, run.rrf_us, run.late_us, run.rerank_us, run.assembly_us)
    assert later == (40, 5, 6, 70, 8)
    assert run.total_us == 600 + 1000 + 200
    assert run.persistence_us > 0
    assert run.created_at < (run.completed_at or "")


def test_the_manifest_is_ordered_and_its_bodies_are_private_files(history: History) -> None:
    detail = history.runs.get(history.record())
    assert [r.resource_id for r in detail.resources] == ["mem_a", "mem_b", "mem_c"]
    assert [r.resource_order for r in detail.resources] == [0, 1, 2]
    assert detail.resources[0].title == "Title of mem_a"
    assert detail.resources[0].source_commit_id == "commit_1"
    assert history.files() == DIGITS
    for resource in detail.resources:
        place = history.runs.blobs.path(resource.content_hash)
        assert place.parent.name == place.name[:2]
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
        assert place.read_text("utf-8") == TEXTS[resource.resource_id]


def test_the_contracts_tables_show_the_manifest_of_each_run(history: History) -> None:
    run_id = history.record()
    history.case(run_id)
    expected = [(0, "mem_a"), (1, "mem_b"), (2, "mem_c")]
    assert (
        history.rows(
            "SELECT resource_order, resource_id FROM retrieval_run_resources "
            f"WHERE run_id = '{run_id}' ORDER BY 1"
        )
        == expected
    )
    assert (
        history.rows(
            "SELECT resource_order, resource_id FROM evaluation_corpus_resources ORDER BY 1"
        )
        == expected
    )


def test_long_texts_are_cut_with_an_ellipsis(history: History) -> None:
    detail = history.runs.get(history.record())
    for text in (detail.candidates[2].evidence_excerpt, detail.resources[2].content_preview):
        assert text == TEXTS["mem_c"][:EXCERPT_CHARS] + "…"
    assert detail.candidates[0].evidence_excerpt == TEXTS["mem_a"]


def test_a_memory_that_was_searched_before_is_not_read_again(history: History) -> None:
    corpus = TextCorpus(TEXTS)
    history.record(corpus)
    history.record(corpus)
    assert sorted(corpus.reads) == ["mem_a", "mem_b", "mem_c"]
    changed = TextCorpus({**TEXTS, "mem_b": "# Lunch\n\nSalad.\n"})
    history.record(changed)
    assert changed.reads == ["mem_b"]
    assert [count for (count,) in history.rows("SELECT count(*) FROM retrieval_corpora")] == [2]


def test_a_body_that_differs_from_its_name_is_written_again(tmp_path: Path) -> None:
    first = History(tmp_path)
    first.record()
    place = first.runs.blobs.path(content_hash(TEXTS["mem_a"]))
    place.write_text("something else")
    first.database.close()
    second = History(tmp_path)
    second.runs.new_activation(PROJECT, QUERY, None)  # ids go on where the first history ended
    second.record(TextCorpus(TEXTS))
    assert place.read_text("utf-8") == TEXTS["mem_a"]
    second.database.close()


def test_the_caller_state_is_kept_as_a_fingerprint(history: History) -> None:
    activation = history.runs.new_activation(PROJECT, QUERY, "state-token")
    history.runs.begin(activation)
    run = history.runs.get(activation.run_id).run
    assert run.activation_state_fingerprint == content_hash("state-token")
    assert run.status == "running"
    assert "state-token" not in repr(history.rows("SELECT * FROM retrieval_runs"))


def test_only_the_latest_unpinned_runs_of_a_project_stay(tmp_path: Path) -> None:
    history = History(tmp_path, retained=3)
    pinned = history.record()
    history.case(pinned)
    elsewhere = history.record(project_id="proj_2")
    made = [history.record() for _ in range(5)]
    assert history.run_ids() == [*reversed(made[-3:]), pinned]
    assert history.run_ids("proj_2") == [elsewhere]
    history.database.close()


def test_failed_runs_count_for_the_retention(tmp_path: Path) -> None:
    history = History(tmp_path, retained=2)
    for _ in range(4):
        history.runs.failed(history.begin(), "index_head", "search_index_preparing", "Later.")
    assert history.run_ids() == ["run_0004", "run_0003"]
    history.database.close()


def test_five_hundred_runs_are_kept(history: History) -> None:
    with history.database.writer() as connection:
        for number in range(501):
            connection.execute(
                "INSERT INTO retrieval_runs(run_id, project_id, query, "
                "activation_state_fingerprint, status, created_at) "
                "VALUES (?, ?, 'q', 'f', 'failed', ?)",
                (f"old_{number:03d}", PROJECT, f"2020-01-01T00:00:00.{number:06d}Z"),
            )
    newest = history.record()
    ids = history.run_ids()
    assert len(ids) == 500
    assert ids[0] == newest
    assert ids[-1] == "old_002"


def test_bodies_go_when_no_run_and_no_case_names_them(tmp_path: Path) -> None:
    history = History(tmp_path, retained=1, collect_every=1)
    history.record(TextCorpus({"mem_a": TEXTS["mem_a"]}), found=[])
    judged = history.record(TextCorpus({"mem_b": TEXTS["mem_b"]}), found=candidates()[1:2])
    history.case(judged)
    history.record(TextCorpus({"mem_c": TEXTS["mem_c"]}), found=candidates()[2:])
    history.record(TextCorpus({"mem_d": "new"}), found=[])
    expected = {content_hash(text).removeprefix("sha256:") for text in (TEXTS["mem_b"], "new")}
    assert history.files() == expected
    kept = history.rows("SELECT content_hash FROM retrieval_corpus_blobs")
    assert {name.removeprefix("sha256:") for (name,) in kept} == expected
    assert history.rows("SELECT evidence_excerpt FROM retrieval_excerpts") == [(TEXTS["mem_b"],)]
    history.record(TextCorpus(TEXTS))
    assert history.files() >= DIGITS
    history.database.close()


def test_clearing_leaves_what_cases_pin_and_what_still_runs(history: History) -> None:
    pinned, gone, running = history.record(), history.record(), history.begin()
    history.case(pinned)
    elsewhere = history.record(project_id="proj_2")
    cleared = history.runs.clear(PROJECT)
    assert (cleared.removed, cleared.pinned) == (1, 1)
    assert history.run_ids() == [running, pinned]
    assert history.run_ids("proj_2") == [elsewhere]
    with pytest.raises(NotFound):
        history.runs.get(gone)
    assert history.files() == DIGITS


def test_files_that_a_crash_left_are_swept(history: History) -> None:
    history.record()
    folder = history.runs.blobs.root / "ab"
    folder.mkdir()
    (folder / ("ab" + "0" * 62)).write_text("an orphan")
    (folder / f".{'ab' * 32}.1234.tmp").write_text("half")
    assert history.runs.sweep() == 2
    assert history.files() == DIGITS


def test_what_a_process_left_running_is_closed_by_the_next(tmp_path: Path) -> None:
    first = History(tmp_path)
    done, interrupted = first.record(), first.begin()
    first.database.close()
    second = History(tmp_path)
    assert second.runs.close_interrupted() == 1
    run = second.runs.get(interrupted).run
    assert (run.status, run.error_stage, run.error_code) == ("failed", "interrupted", INTERRUPTED)
    assert run.completed_at is not None
    assert second.runs.get(done).run.status == "succeeded"
    second.database.close()


def test_a_run_that_ended_is_not_written_again(history: History) -> None:
    run_id = history.begin()
    history.runs.fail(run_id, "embedding", "activation_deadline", "Too late.")
    corpus = TextCorpus(TEXTS)
    with pytest.raises(NotFound):
        history.runs.finish(run_id, Finished(trace_of(corpus), corpus))
    detail = history.runs.get(run_id)
    assert (detail.run.status, detail.run.error_code) == ("failed", "activation_deadline")
    assert detail.candidates == ()


def test_a_deadline_waits_neither_for_the_history_lock_nor_for_bodies(history: History) -> None:
    run_id = history.begin()

    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with history.runs.mutex:
            held.set()
            done.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(60)
    history.runs.failed(run_id, "rerank", "activation_deadline", "Too late.")
    done.set()
    thread.join()
    assert history.runs.get(run_id).run.error_stage == "rerank"
    assert not history.files()


class DamagedCorpus(TextCorpus):
    """A memory one of whose texts is not what its hash says."""

    def read(self, resource_id: str) -> tuple[str, str]:
        title, text = super().read(resource_id)
        return title, text + "!" if resource_id == "mem_b" else text


def test_a_run_that_cannot_be_written_whole_has_failed_in_persistence(history: History) -> None:
    run_id = history.begin()
    corpus = DamagedCorpus(TEXTS)
    with pytest.raises(StoreFailed):
        history.runs.finish(run_id, Finished(trace_of(corpus), corpus))
    detail = history.runs.get(run_id)
    assert (detail.run.error_stage, detail.run.error_code) == ("persistence", NOT_PERSISTED)
    assert (detail.candidates, detail.resources) == ((), ())


def test_pages_follow_each_other_without_a_gap(history: History) -> None:
    made = [history.begin() for _ in range(5)]
    first = history.runs.page(PROJECT, limit=2)
    second = history.runs.page(PROJECT, cursor=first.next_cursor, limit=2)
    third = history.runs.page(PROJECT, cursor=second.next_cursor, limit=2)
    seen = [run.run_id for page in (first, second, third) for run in page.runs]
    assert seen == list(reversed(made))
    assert third.next_cursor is None
    assert first.next_cursor is not None
    assert "=" not in first.next_cursor


@pytest.mark.parametrize("cursor", ["", "x", "eyJhIjoxfQ", "é", "e30"])
def test_a_foreign_cursor_is_refused(history: History, cursor: str) -> None:
    with pytest.raises(InvalidRequest):
        history.runs.page(PROJECT, cursor=cursor)


def test_records_survive_json(history: History) -> None:
    detail = history.runs.get(history.record())
    data = msgspec.json.encode(detail)
    assert msgspec.json.decode(data, type=type(detail)) == detail
    assert json.loads(data)["candidates"][2].get("exact_rank") is None


def test_the_database_stays_whole(history: History) -> None:
    history.case(history.record())
    history.runs.clear(PROJECT)
    assert history.database.problems() == []
    with history.database.reader() as connection:
        assert isinstance(connection, apsw.Connection)
        assert connection.pragma("integrity_check") == "ok"
