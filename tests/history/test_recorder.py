"""Recording beside the answers: never in their way, bounded, silent about what was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clumsies.errors import InvalidRequest, NotReady
from clumsies.history.recorder import RunRecorder, error_stage
from clumsies.history.runs import INTERRUPTED, NOT_PERSISTED, Finished
from clumsies.logs import EventLog, LogFile
from tests.history.samples import PROJECT, TEXTS, History, TextCorpus, trace_of

SECRET = "zanzibar quarterly figures"
LONG_S = 60.0


class Recorded:
    """A recorder over a history, and what it logged."""

    def __init__(self, directory: Path, limit: int = 64):
        self.history = History(directory / "data")
        self.file = directory / "daemon.log"
        self.log = LogFile(self.file)
        self.recorder = RunRecorder(self.history.runs, EventLog(self.log), limit=limit)
        self.recorder.start()

    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.file.read_text("utf-8").splitlines()]

    def close(self) -> None:
        self.recorder.close(LONG_S)
        self.history.database.close()
        self.log.close()


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    made = Recorded(tmp_path)
    yield made
    made.close()


@contextmanager
def no_writes(recorded: Recorded) -> Iterator[None]:
    """SQLite refuses every write meanwhile, as on a file system that became read-only."""
    database = recorded.history.database
    with database._writer_mutex:
        database._writer.pragma("query_only", True)
    yield
    with database._writer_mutex:
        database._writer.pragma("query_only", False)


def finished(corpus: TextCorpus | None = None) -> Finished:
    corpus = corpus or TextCorpus(TEXTS)
    return Finished(trace_of(corpus), corpus)


def test_an_answer_knows_its_run_before_the_run_is_written(recorded: Recorded) -> None:
    recording = recorded.recorder.begin(PROJECT, SECRET, None)
    run_id = recording.run_id(LONG_S)
    assert run_id is not None
    assert recorded.history.runs.get(run_id).run.status == "running"
    recording.succeeded(finished())
    assert recorded.recorder.flush(LONG_S)
    assert recorded.history.runs.get(run_id).run.status == "succeeded"
    assert len(recorded.history.runs.get(run_id).candidates) == 3


def test_a_failure_is_a_run_with_stage_and_code(recorded: Recorded) -> None:
    recording = recorded.recorder.begin(PROJECT, SECRET, None)
    recording.failed("rerank", "activation_deadline", "Too late.")
    assert recorded.recorder.flush(LONG_S)
    run = recorded.history.runs.get(recording.run_id(LONG_S) or "").run
    assert (run.status, run.error_stage, run.error_code) == (
        "failed",
        "rerank",
        "activation_deadline",
    )
    assert run.error_summary == "Too late."


def test_a_run_that_cannot_begin_has_no_id_and_its_end_is_not_written(recorded: Recorded) -> None:
    assert recorded.recorder.flush(LONG_S)
    with no_writes(recorded):
        recording = recorded.recorder.begin(PROJECT, SECRET, None)
        assert recording.run_id(LONG_S) is None
        recording.succeeded(finished())
        assert recorded.recorder.flush(LONG_S)
    assert recorded.history.run_ids() == []
    assert [event["event"] for event in recorded.events()] == ["worker_failed"]
    assert recorded.events()[0]["error_code"] == "permission_required"
    assert SECRET not in recorded.file.read_text("utf-8")


class UnreadableCorpus(TextCorpus):
    def read(self, resource_id: str) -> tuple[str, str]:
        raise NotReady("memory_content_unavailable", f"{SECRET} {TEXTS['mem_a']}")


def test_a_memory_that_cannot_be_kept_fails_the_run_and_logs_its_code(recorded: Recorded) -> None:
    recording = recorded.recorder.begin(PROJECT, SECRET, None)
    recording.succeeded(finished(UnreadableCorpus(TEXTS)))
    assert recorded.recorder.flush(LONG_S)
    run = recorded.history.runs.get(recording.run_id(LONG_S) or "").run
    assert (run.error_stage, run.error_code) == ("persistence", NOT_PERSISTED)
    assert [event["error_code"] for event in recorded.events()] == ["memory_content_unavailable"]
    text = recorded.file.read_text("utf-8")
    assert SECRET not in text
    assert TEXTS["mem_a"] not in text
    again = recorded.recorder.begin(PROJECT, SECRET, None)
    again.succeeded(finished())
    assert recorded.recorder.flush(LONG_S)
    assert recorded.events()[-1]["event"] == "worker_recovered"


class BlockingCorpus(TextCorpus):
    """Its first text is given when it is allowed to be."""

    def __init__(self) -> None:
        super().__init__(TEXTS)
        self.asked = threading.Event()
        self.allowed = threading.Event()

    def read(self, resource_id: str) -> tuple[str, str]:
        self.asked.set()
        assert self.allowed.wait(LONG_S)
        return super().read(resource_id)


def test_what_does_not_fit_the_queue_is_dropped_and_counted(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path, limit=2)
    assert recorded.recorder.flush(LONG_S)
    slow = BlockingCorpus()
    first = recorded.recorder.begin(PROJECT, SECRET, None)
    first.succeeded(finished(slow))
    assert slow.asked.wait(LONG_S)
    waiting = [recorded.recorder.begin(PROJECT, SECRET, None) for _ in range(5)]
    assert [recording.run_id(0.0) for recording in waiting[2:]] == [None, None, None]
    slow.allowed.set()
    assert recorded.recorder.flush(LONG_S)
    assert len(recorded.history.run_ids()) == 3
    dropped = [event for event in recorded.events() if event["event"] == "history_dropped"]
    assert [event["count"] for event in dropped] == [1, 2]
    recorded.close()


def test_a_beginning_does_not_wait_for_a_whole_memory(recorded: Recorded) -> None:
    """Between two bodies of a memory that is being kept, other runs get their rows."""
    rows: list[int] = []

    class CountingCorpus(TextCorpus):
        def read(self, resource_id: str) -> tuple[str, str]:
            rows.append(len(recorded.history.run_ids()))
            if len(rows) == 1:
                others.append(recorded.recorder.begin(PROJECT, SECRET, None))
            return super().read(resource_id)

    others: list[object] = []
    recording = recorded.recorder.begin(PROJECT, SECRET, None)
    recording.succeeded(finished(CountingCorpus(TEXTS)))
    assert recorded.recorder.flush(LONG_S)
    assert rows == [1, 2, 2]


def test_closing_writes_what_was_taken_and_takes_no_more(tmp_path: Path) -> None:
    recorded = Recorded(tmp_path)
    recording = recorded.recorder.begin(PROJECT, SECRET, None)
    recording.succeeded(finished())
    recorded.recorder.close(LONG_S)
    assert recorded.recorder.begin(PROJECT, SECRET, None).run_id(0.0) is None
    assert [run.status for run in recorded.history.runs.page(PROJECT).runs] == ["succeeded"]
    recorded.close()


def test_the_start_closes_interrupted_runs_and_sweeps_files(tmp_path: Path) -> None:
    before = History(tmp_path / "data")
    run_id = before.begin()
    orphan = before.runs.blobs.root / "ab" / ("ab" + "0" * 62)
    orphan.parent.mkdir(parents=True)
    orphan.write_text("left behind")
    before.database.close()
    recorded = Recorded(tmp_path)
    assert recorded.history.runs.get(run_id).run.error_code == INTERRUPTED
    assert recorded.recorder.flush(LONG_S)
    assert not orphan.exists()
    recorded.close()


@pytest.mark.parametrize(
    ("make", "stage"),
    [
        (lambda: InvalidRequest("invalid_activation_state", ""), "activation_state"),
        (lambda: NotReady("search_index_preparing", ""), "index_head"),
        (lambda: NotReady("project_ref_not_synced", ""), "index_head"),
        (lambda: NotReady("search_model_unavailable", ""), "embedding"),
        (lambda: NotReady("activation_deadline", "", {"stage": "late"}), "rerank"),
        (lambda: NotReady("activation_deadline", "", {"stage": "vector"}), "vector"),
    ],
)
def test_every_error_belongs_to_a_stage(
    make: Callable[[], NotReady | InvalidRequest], stage: str
) -> None:
    assert error_stage(make()) == stage
