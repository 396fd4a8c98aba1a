"""The runs of every project: written from traces, kept to the latest, closed after a crash.

A run is `running` from its insertion until one transaction finishes or fails it. Nothing here is
on the way of an answer: `clumsies.history.recorder` calls it from a thread of its own.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw

from clumsies.engine.trace import Trace
from clumsies.errors import ClumsiesError, NotFound
from clumsies.history.blobs import BlobStore
from clumsies.history.corpora import Corpus, CorpusStore, read_corpus
from clumsies.history.cursors import Cursor, decode_cursor, encode_cursor
from clumsies.history.records import ErrorStage, Run, RunDetail, RunPage
from clumsies.history.run_rows import (
    candidates_of,
    insert_candidates,
    insert_run,
    list_runs,
    read_candidates,
    read_run,
    trace_columns,
    update_run,
)
from clumsies.storage.database import SqlValue, all_rows, first_row
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.timestamps import row_time
from clumsies.types import content_hash

RETAINED_RUNS = 500
"""Runs of a project that are kept beside those that cases pin."""
COLLECT_EVERY = 32
"""Removed runs after which manifests, excerpts and bodies that nothing names are removed."""
BLOB_FOLDER = Path("evaluation-corpora", "blobs")
SUMMARY_CHARS = 400
INTERRUPTED = "retrieval_interrupted"
NOT_PERSISTED = "retrieval_history_persistence_failed"
_UNPINNED = "run_id NOT IN (SELECT source_run_id FROM evaluation_cases)"


@dataclass(frozen=True, slots=True)
class Activation:
    """What is known of an activation before it begins. `state` is the caller's token."""

    run_id: str
    project_id: str
    query: str
    state: str | None
    created_at: str


@dataclass(frozen=True, slots=True)
class Finished:
    """An answered activation; `corpus` is None where the searched memory is no longer known.

    The times are what the caller spent before the engine, microseconds.
    """

    trace: Trace
    corpus: Corpus | None
    effective_memory_us: int = 0
    index_ensure_us: int = 0


@dataclass(frozen=True, slots=True)
class Cleared:
    """How many runs were removed, and how many stayed because cases pin them."""

    removed: int
    pinned: int


class RunStore:
    """Thread-safe. `mutex` is the history lock: bodies and rows that name them change under it."""

    def __init__(
        self,
        database: LocalDatabase,
        *,
        retained: int = RETAINED_RUNS,
        collect_every: int = COLLECT_EVERY,
        clock_ns: Callable[[], int] = time.time_ns,
        new_id: Callable[[], str] = lambda: secrets.token_hex(16),
    ):
        self.database = database
        self.blobs = BlobStore(database.directory / BLOB_FOLDER)
        self.corpora = CorpusStore(self.blobs)
        self.mutex = threading.RLock()
        self._retained = retained
        self._collect_every = collect_every
        self._removed = 0
        self._clock_ns = clock_ns
        self._new_id = new_id

    def now(self) -> str:
        """The time as rows carry it."""
        return row_time(self._clock_ns())

    def new_activation(self, project_id: str, query: str, state: str | None) -> Activation:
        """An activation that begins now; nothing is written yet."""
        return Activation(f"run_{self._new_id()}", project_id, query, state, self.now())

    def begin(self, activation: Activation) -> None:
        """Write the run as running."""
        run = Run(
            run_id=activation.run_id,
            project_id=activation.project_id,
            query=activation.query,
            activation_state_fingerprint=content_hash(activation.state or ""),
            status="running",
            created_at=activation.created_at,
        )
        with self.database.writer() as connection:
            insert_run(connection, run)

    def finish(
        self, run_id: str, finished: Finished, between: Callable[[], None] = lambda: None
    ) -> None:
        """Write what the activation did, in one transaction, and remove runs beyond the latest.

        `between` runs after each body that had to be written. A failure marks the run as failed
        in persistence, where that can still be written, and is raised.
        """
        started = time.perf_counter_ns()
        try:
            with self.mutex:
                self._finish(run_id, finished, started, between)
        except (ClumsiesError, OSError):
            with self.mutex:
                self.corpora.forget()
            self.fail(run_id, "persistence", NOT_PERSISTED, "The run could not be written whole.")
            raise
        self._prune_of(run_id)

    def _finish(
        self, run_id: str, finished: Finished, started: int, between: Callable[[], None]
    ) -> None:
        corpus = finished.corpus
        write = self.corpora.prepare(corpus, self.now(), between) if corpus is not None else None
        candidates = candidates_of(finished.trace)
        values = trace_columns(finished.trace)
        early = finished.effective_memory_us + finished.index_ensure_us
        with self.database.writer() as connection:
            corpus_id = write(connection) if write is not None else None
            insert_candidates(connection, run_id, candidates)
            values |= {
                "status": "succeeded",
                "corpus_id": corpus_id,
                "effective_memory_us": finished.effective_memory_us,
                "index_ensure_us": finished.trace.times.index_ensure_us + finished.index_ensure_us,
                "total_us": finished.trace.times.total_us + early,
                "completed_at": self.now(),
                "persistence_us": (time.perf_counter_ns() - started) // 1000,
            }
            if not update_run(connection, run_id, values):
                raise NotFound("not_found", f"There is no running run {run_id} to finish.")
        if corpus is not None and corpus_id is not None:
            self.corpora.written(corpus.effective_hash, corpus_id)

    def fail(self, run_id: str, stage: ErrorStage, code: str, summary: str) -> None:
        """Close a run as failed; takes no history lock and writes no body."""
        values: dict[str, SqlValue] = {
            "status": "failed",
            "error_stage": stage,
            "error_code": code,
            "error_summary": summary[:SUMMARY_CHARS],
            "completed_at": self.now(),
        }
        with self.database.writer() as connection:
            update_run(connection, run_id, values)

    def failed(self, run_id: str, stage: ErrorStage, code: str, summary: str) -> None:
        """Close a run as failed and remove runs beyond the latest."""
        self.fail(run_id, stage, code, summary)
        if code != "activation_deadline":
            self._prune_of(run_id)

    def close_interrupted(self) -> int:
        """Fail every run that a process left running when it ended; how many."""
        with self.database.writer() as connection:
            connection.execute(
                "UPDATE retrieval_runs SET status = 'failed', "
                "error_stage = ifnull(error_stage, 'interrupted'), error_code = ?, "
                "error_summary = 'The daemon ended before the run did.', completed_at = ? "
                "WHERE status = 'running'",
                (INTERRUPTED, self.now()),
            )
            return connection.changes()

    def page(self, project_id: str, *, cursor: str | None = None, limit: int = 50) -> RunPage:
        """A page of the project's runs, the latest first."""
        place = None if cursor is None else decode_cursor(cursor)
        after = None if place is None else (place.created_at, place.run_id)
        with self.database.reader() as connection:
            runs = list_runs(connection, project_id, after, limit + 1)
        more = len(runs) > limit
        last = runs[min(limit, len(runs)) - 1] if runs else None
        following = encode_cursor(Cursor(last.created_at, last.run_id)) if more and last else None
        return RunPage(tuple(runs[:limit]), following)

    def get(self, run_id: str) -> RunDetail:
        """A run with its candidates and manifest; raises NotFound."""
        with self.database.reader() as connection:
            run, corpus_id = require_run(connection, run_id)
            pinned = first_row(
                connection, "SELECT 1 FROM evaluation_cases WHERE source_run_id = ?", (run_id,)
            )
            return RunDetail(
                run,
                pinned is not None,
                read_candidates(connection, run_id),
                read_corpus(connection, corpus_id),
            )

    def clear(self, project_id: str) -> Cleared:
        """Remove every run of the project that is finished and that no case pins."""
        with self.mutex:
            with self.database.writer() as connection:
                connection.execute(
                    "DELETE FROM retrieval_runs "
                    f"WHERE project_id = ? AND status <> 'running' AND {_UNPINNED}",
                    (project_id,),
                )
                removed = connection.changes()
                row = first_row(
                    connection,
                    "SELECT count(*) FROM retrieval_runs WHERE project_id = ? "
                    f"AND NOT ({_UNPINNED})",
                    (project_id,),
                )
            self.collect()
        return Cleared(removed, int(row[0]) if row else 0)

    def _prune_of(self, run_id: str) -> None:
        with self.mutex:
            with self.database.writer() as connection:
                connection.execute(
                    "DELETE FROM retrieval_runs WHERE run_id IN (SELECT run_id FROM retrieval_runs "
                    "WHERE project_id = (SELECT project_id FROM retrieval_runs WHERE run_id = ?) "
                    f"AND status <> 'running' AND {_UNPINNED} "
                    "ORDER BY created_at DESC, run_id DESC LIMIT -1 OFFSET ?)",
                    (run_id, self._retained),
                )
                self._removed += connection.changes()
            if self._removed >= self._collect_every:
                self.collect()

    def collect(self) -> None:
        """Remove manifests, excerpts and bodies that no run and no case names."""
        with self.mutex:
            self._removed = 0
            with self.database.writer() as connection:
                connection.execute(
                    "DELETE FROM retrieval_corpora WHERE corpus_id NOT IN "
                    "(SELECT corpus_id FROM retrieval_runs WHERE corpus_id IS NOT NULL) "
                    "AND corpus_id NOT IN (SELECT corpus_id FROM evaluation_corpora)"
                )
                connection.execute(
                    "DELETE FROM retrieval_excerpts WHERE content_hash NOT IN "
                    "(SELECT content_hash FROM retrieval_run_candidates)"
                )
                removed = all_rows(
                    connection,
                    "DELETE FROM retrieval_corpus_blobs WHERE content_hash NOT IN "
                    "(SELECT content_hash FROM retrieval_corpus_resources) RETURNING content_hash",
                )
            self.corpora.forget()
            self.blobs.remove([str(row[0]) for row in removed])

    def sweep(self, between: Callable[[], None] = lambda: None) -> int:
        """Collect, then delete files that no row names: what a crash left; how many files.

        `between` runs after each directory.
        """
        with self.mutex:
            self.collect()
            with self.database.reader() as connection:
                rows = all_rows(connection, "SELECT content_hash FROM retrieval_corpus_blobs")
            return self.blobs.sweep([str(row[0]) for row in rows], between)


def require_run(connection: apsw.Connection, run_id: str) -> tuple[Run, str | None]:
    """A run and the id of its manifest; raises NotFound("not_found")."""
    found = read_run(connection, run_id)
    if found is None:
        raise NotFound(
            "not_found",
            f"There is no run {run_id!a}; `clumsies history list` shows the runs there are.",
        )
    return found
