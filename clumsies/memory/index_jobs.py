"""Which projects' search indexes are behind, and when to try again.

| state | desired, building, completed | leaves it by |
| --- | --- | --- |
| queued | desired > completed, no building | `claim` |
| building | building is the sequence being built | `complete`, `fail`, `requeue_interrupted` |
| ready | desired = completed | `request_build` |
| failed | desired > completed, next retry set | `claim` when due, `request_build` |

Times are milliseconds that the caller's clock gives; the worker that builds is the daemon's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import apsw

from clumsies.storage.database import all_rows, first_row, only_row
from clumsies.storage.local_database import LocalDatabase

FIRST_RETRY_MS = 250
LAST_RETRY_MS = 30_000
_LAST_IN_QUEUE = "(SELECT ifnull(max(queue_order), 0) + 1 FROM index_jobs)"
"""A project whose builds are superseded again and again stands behind the others each time."""
JobState = Literal["queued", "building", "ready", "failed"]

_COLUMNS = (
    "project_id, desired_sequence, building_sequence, completed_sequence, state, attempt, "
    "next_retry_at_ms, last_error"
)


@dataclass(frozen=True, slots=True)
class IndexJob:
    """A project's job as it stands."""

    project_id: str
    desired_sequence: int
    building_sequence: int | None
    completed_sequence: int
    state: JobState
    attempt: int
    next_retry_at_ms: int | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A build to do: what the memory is at this moment satisfies `sequence`."""

    project_id: str
    sequence: int


def backoff_ms(attempt: int) -> int:
    """The pause after the n-th failure in a row, n from 1: 250 ms doubling to 30 s."""
    return int(min(LAST_RETRY_MS, FIRST_RETRY_MS << min(attempt - 1, 16)))


def request_build(connection: apsw.Connection, project_id: str) -> int:
    """Raise the desired sequence, in the transaction of the change itself; the new sequence.

    A job that failed is tried again at once: the change may be what it needed.
    """
    connection.execute(
        "INSERT INTO index_jobs(project_id, desired_sequence, state, queue_order) "
        f"VALUES (?, 1, 'queued', {_LAST_IN_QUEUE}) "
        "ON CONFLICT (project_id) DO UPDATE SET desired_sequence = desired_sequence + 1, "
        f"queue_order = CASE state WHEN 'ready' THEN {_LAST_IN_QUEUE} ELSE queue_order END, "
        "state = CASE state WHEN 'building' THEN state ELSE 'queued' END, next_retry_at_ms = NULL",
        (project_id,),
    )
    (sequence,) = only_row(
        connection, "SELECT desired_sequence FROM index_jobs WHERE project_id = ?", (project_id,)
    )
    return int(sequence)


def enqueue(database: LocalDatabase, project_id: str) -> int:
    """Ask for a build without a change: rebuild, models that became ready."""
    with database.writer() as connection:
        return request_build(connection, project_id)


def claim(database: LocalDatabase, now_ms: int) -> Claim | None:
    """Take the job that waits longest and is due, and mark it building; None where none is."""
    with database.reader() as connection:  # an idle poll writes nothing
        if _due(connection, now_ms) is None:
            return None
    with database.writer() as connection:
        due = _due(connection, now_ms)
        if due is None:
            return None
        connection.execute(
            "UPDATE index_jobs SET state = 'building', building_sequence = desired_sequence, "
            "next_retry_at_ms = NULL WHERE project_id = ?",
            (due.project_id,),
        )
    return due


def _due(connection: apsw.Connection, now_ms: int) -> Claim | None:
    row = first_row(
        connection,
        "SELECT project_id, desired_sequence FROM index_jobs WHERE state = 'queued' "
        "OR (state = 'failed' AND next_retry_at_ms <= ?) "
        "ORDER BY queue_order LIMIT 1",
        (now_ms,),
    )
    return None if row is None else Claim(row[0], row[1])


def complete(database: LocalDatabase, done: Claim) -> bool:
    """Record a build; False where it was superseded meanwhile and is queued again."""
    with database.writer() as connection:
        connection.execute(
            "UPDATE index_jobs SET completed_sequence = building_sequence, "
            "state = CASE WHEN desired_sequence > building_sequence THEN 'queued' ELSE 'ready' "
            f"END, queue_order = {_LAST_IN_QUEUE}, "
            "building_sequence = NULL, attempt = 0, last_error = NULL "
            "WHERE project_id = ? AND state = 'building' AND building_sequence = ?",
            (done.project_id, done.sequence),
        )
        job = read_job(connection, done.project_id)
    return job is not None and job.state == "ready"


def fail(database: LocalDatabase, failed: Claim, error_code: str, now_ms: int) -> int:
    """Record a failure by its code; the milliseconds until it is tried again."""
    with database.writer() as connection:
        job = read_job(connection, failed.project_id)
        if job is None or job.building_sequence != failed.sequence:
            return 0
        pause_ms = backoff_ms(job.attempt + 1)
        connection.execute(
            "UPDATE index_jobs SET state = 'failed', building_sequence = NULL, "
            "attempt = attempt + 1, next_retry_at_ms = ?, last_error = ? WHERE project_id = ?",
            (now_ms + pause_ms, error_code, failed.project_id),
        )
    return pause_ms


def requeue_interrupted(database: LocalDatabase) -> int:
    """At start: builds that the last process did not end are queued again; how many."""
    with database.writer() as connection:
        connection.execute(
            "UPDATE index_jobs SET state = 'queued', building_sequence = NULL "
            "WHERE state = 'building'"
        )
        return int(connection.changes())


def pause_until_due_ms(database: LocalDatabase, now_ms: int) -> int | None:
    """Milliseconds until some job is due, 0 where one is, None where nothing waits."""
    with database.reader() as connection:
        row = first_row(
            connection,
            "SELECT min(ifnull(next_retry_at_ms, 0)) FROM index_jobs "
            "WHERE state IN ('queued', 'failed')",
        )
    return None if row is None or row[0] is None else max(0, int(row[0]) - now_ms)


def read_job(connection: apsw.Connection, project_id: str) -> IndexJob | None:
    """A project's job in this transaction; None where nothing was ever asked for."""
    row = first_row(
        connection, f"SELECT {_COLUMNS} FROM index_jobs WHERE project_id = ?", (project_id,)
    )
    return None if row is None else IndexJob(*row)


def index_job(database: LocalDatabase, project_id: str) -> IndexJob | None:
    """A project's job; None where nothing was ever asked for."""
    with database.reader() as connection:
        return read_job(connection, project_id)


def index_jobs(database: LocalDatabase) -> list[IndexJob]:
    """Every job, in order of project."""
    with database.reader() as connection:
        rows = all_rows(connection, f"SELECT {_COLUMNS} FROM index_jobs ORDER BY project_id")
    return [IndexJob(*row) for row in rows]
