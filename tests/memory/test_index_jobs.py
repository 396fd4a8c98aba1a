"""The job table: a state machine against a model, and its rules one by one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from clumsies.memory.index_jobs import (
    Claim,
    backoff_ms,
    claim,
    complete,
    enqueue,
    fail,
    index_job,
    index_jobs,
    pause_until_due_ms,
    requeue_interrupted,
)
from clumsies.storage.local_database import LocalDatabase
from tests.memory.local_memory import LocalMemory


def test_backoff_doubles_to_thirty_seconds() -> None:
    assert [backoff_ms(n) for n in range(1, 10)] == [
        250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000,
    ]  # fmt: skip
    assert backoff_ms(10_000) == 30_000


def test_a_build_and_what_comes_meanwhile(memory: LocalMemory) -> None:
    database = memory.database
    enqueue(database, "p")
    complete_all(database)
    assert enqueue(database, "p") == 2
    first = claim(database, 0)
    assert first == Claim("p", 2)
    assert claim(database, 0) is None
    enqueue(database, "p")
    assert not complete(database, first)  # superseded
    second = claim(database, 0)
    assert second == Claim("p", 3)
    assert complete(database, second)
    job = index_job(database, "p")
    assert job is not None
    assert (job.state, job.desired_sequence, job.completed_sequence) == ("ready", 3, 3)
    assert pause_until_due_ms(database, 0) is None


def complete_all(database: LocalDatabase) -> None:
    while (taken := claim(database, 10**12)) is not None:
        complete(database, taken)


def test_failures_back_off_and_a_change_tries_at_once(memory: LocalMemory) -> None:
    database = memory.database
    complete_all(database)
    enqueue(database, "p")
    for attempt, pause_ms in enumerate((250, 500, 1_000), 1):
        taken = claim(database, 10_000 * attempt)
        assert taken is not None
        assert fail(database, taken, "search_index_failed", 10_000 * attempt) == pause_ms
        due = 10_000 * attempt + pause_ms
        assert pause_until_due_ms(database, due - 7) == 7
        assert claim(database, due - 1) is None
    job = index_job(database, "p")
    assert job is not None
    assert (job.state, job.attempt, job.last_error) == ("failed", 3, "search_index_failed")
    enqueue(database, "p")
    taken = claim(database, 0)
    assert taken is not None
    assert fail(database, taken, "search_index_failed", 0) == 2_000
    taken = claim(database, 2_000)
    assert taken is not None
    assert complete(database, taken)
    job = index_job(database, "p")
    assert job is not None
    assert (job.attempt, job.last_error) == (0, None)


def test_an_interrupted_build_is_queued_again_at_start(memory: LocalMemory) -> None:
    complete_all(memory.database)
    enqueue(memory.database, "p")
    taken = claim(memory.database, 0)
    assert taken is not None
    assert requeue_interrupted(memory.database) == 1
    assert requeue_interrupted(memory.database) == 0
    assert not complete(memory.database, taken)  # the answer of a build that no longer counts
    assert fail(memory.database, taken, "search_index_failed", 0) == 0
    assert claim(memory.database, 0) == taken


def test_a_busy_project_does_not_starve_the_others(memory: LocalMemory) -> None:
    database = memory.database
    complete_all(database)
    enqueue(database, "a")
    enqueue(database, "b")
    first = claim(database, 0)
    assert first == Claim("a", 1)
    enqueue(database, "a")
    complete(database, first)
    assert claim(database, 0) == Claim("b", 1)


class Jobs(RuleBasedStateMachine):
    """No change is forgotten: what was asked for is built, being built, or waits to be."""

    directory: Path

    def __init__(self) -> None:
        super().__init__()
        Jobs.number = getattr(Jobs, "number", 0) + 1
        self.database = LocalDatabase(self.directory / str(Jobs.number))
        self.asked = {"a": 0, "b": 0}
        self.built = {"a": 0, "b": 0}
        self.running: Claim | None = None
        self.now_ms = 0

    @rule(project=st.sampled_from(["a", "b"]))
    def change(self, project: str) -> None:
        self.asked[project] += 1
        assert enqueue(self.database, project) == self.asked[project]

    @rule()
    def work(self) -> None:
        if self.running is None:
            waiting = [p for p in self.asked if self.built[p] < self.asked[p]]
            self.running = claim(self.database, self.now_ms)
            if self.running is not None:
                assert self.running.project_id in waiting
                assert self.running.sequence == self.asked[self.running.project_id]
            else:
                assert pause_until_due_ms(self.database, self.now_ms) != 0

    @rule(succeeds=st.booleans())
    def end(self, succeeds: bool) -> None:
        if self.running is None:
            return
        project = self.running.project_id
        if succeeds:
            self.built[project] = self.running.sequence
            ready = complete(self.database, self.running)
            assert ready == (self.built[project] == self.asked[project])
        else:
            fail(self.database, self.running, "search_index_failed", self.now_ms)
        self.running = None

    @rule()
    def die(self) -> None:
        assert requeue_interrupted(self.database) == (0 if self.running is None else 1)
        self.running = None

    @rule(passed_ms=st.integers(0, 40_000))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @invariant()
    def nothing_is_forgotten(self) -> None:
        for job in index_jobs(self.database):
            assert job.desired_sequence == self.asked[job.project_id]
            assert job.completed_sequence == self.built[job.project_id]
            behind = job.completed_sequence < job.desired_sequence
            assert behind == (job.state != "ready")

    def teardown(self) -> None:
        while self.built != self.asked:
            self.end(True)
            self.now_ms += 30_000
            self.work()
        self.end(True)
        self.database.close()


@pytest.fixture(autouse=True)
def _place(tmp_path: Path) -> None:
    Jobs.directory = tmp_path / "jobs"


TestJobs = Jobs.TestCase
TestJobs.settings = settings(max_examples=8, stateful_step_count=20)
