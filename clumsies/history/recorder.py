"""Writes history beside the answers: one thread, a bounded queue, nothing that can fail an answer.

A run's beginning goes before everything that waits, also between the bodies of a memory that is
being kept, so that an answer knows its run's id by the time it is made. What does not fit into the
queue is dropped and counted in the log. Only codes are logged, never a query.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from clumsies.errors import ClumsiesError
from clumsies.history.records import ErrorStage
from clumsies.history.runs import Activation, Finished, RunStore
from clumsies.logs import EventLog, WorkerLog

QUEUE_LIMIT = 64
"""Traces that wait: each holds the texts of a few hundred candidates."""
BEGIN_WAIT_S = 0.25
"""How long an answer waits for its run's row; it had the whole ranking's time before."""


class Recording:
    """One activation's way into history; every method returns at once but `run_id`."""

    def __init__(self, recorder: RunRecorder, activation: Activation):
        self._recorder = recorder
        self._activation = activation
        self._settled = threading.Event()
        self._began = False

    def run_id(self, wait_s: float = BEGIN_WAIT_S) -> str | None:
        """The id where the run's row stands; None where it could not be written in time."""
        self._settled.wait(wait_s)
        return self._activation.run_id if self._began else None

    def succeeded(self, finished: Finished) -> None:
        """Write what the activation did."""
        self._recorder.submit(lambda: self._succeed(finished))

    def failed(self, stage: ErrorStage, code: str, summary: str) -> None:
        """Write that the activation failed."""
        self._recorder.submit(lambda: self._fail(stage, code, summary))

    def begin(self) -> None:
        """Write the run's row; on the recorder's thread."""
        try:
            self._recorder.runs.begin(self._activation)
            self._began = True
        finally:
            self._settled.set()

    def dropped(self) -> None:
        """The row will not be written."""
        self._settled.set()

    def _succeed(self, finished: Finished) -> None:
        if self._began:
            self._recorder.runs.finish(
                self._activation.run_id, finished, self._recorder.begin_waiting
            )
            self._recorder.succeeded()

    def _fail(self, stage: ErrorStage, code: str, summary: str) -> None:
        if self._began:
            self._recorder.runs.failed(self._activation.run_id, stage, code, summary)


class RunRecorder:
    """The thread and its queue. Closes what an earlier process left running when it starts."""

    def __init__(self, runs: RunStore, log: EventLog, *, limit: int = QUEUE_LIMIT):
        self.runs = runs
        self._log = log
        self._failures = WorkerLog(log, "history")
        self._limit = limit
        self._begins: deque[Recording] = deque()
        self._ends: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._busy = False
        self._stopping = False
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="clumsiesd-history", daemon=True)

    def start(self) -> None:
        """Close interrupted runs now; sweep files and write what comes, on the thread."""
        self._guarded(lambda: _ignore(self.runs.close_interrupted()))
        self._ends.append(lambda: _ignore(self.runs.sweep(self.begin_waiting)))
        self._thread.start()

    def begin(self, project_id: str, query: str, state: str | None) -> Recording:
        """An activation begins; its row is written meanwhile."""
        recording = Recording(self, self.runs.new_activation(project_id, query, state))
        with self._changed:
            if self._admitted():
                self._begins.append(recording)
                self._changed.notify_all()
                return recording
        recording.dropped()
        return recording

    def submit(self, work: Callable[[], None]) -> None:
        """Queue the end of a run."""
        with self._changed:
            if self._admitted():
                self._ends.append(work)
                self._changed.notify_all()

    def _admitted(self) -> bool:
        """Called with the condition held."""
        if not self._stopping and len(self._begins) + len(self._ends) < self._limit:
            return True
        self._dropped += 1
        if self._dropped & (self._dropped - 1) == 0:
            self._log.emit("history_dropped", "warning", count=self._dropped)
        return False

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything submitted was written; whether that happened in time."""
        with self._changed:
            return self._changed.wait_for(self._idle, timeout_s)

    def _idle(self) -> bool:
        return not (self._busy or self._begins or self._ends)

    def close(self, timeout_s: float) -> None:
        """Take nothing more, and write what was taken for at most `timeout_s`."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def succeeded(self) -> None:
        """A whole run was written."""
        self._failures.recovered()

    def begin_waiting(self) -> None:
        """Write the rows of all activations that began; on the recorder's thread."""
        while True:
            with self._changed:
                if not self._begins:
                    return
                recording = self._begins.popleft()
            self._guarded(recording.begin)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._begins or self._ends or self._stopping)
                if not self._begins and not self._ends:
                    return
                self._busy = True
            self.begin_waiting()
            with self._changed:
                work = self._ends.popleft() if self._ends else None
            if work is not None:
                self._guarded(work)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do the work; a failure is logged by its code and goes no further."""
        try:
            work()
        except Exception as error:  # the loop's outermost turn: no answer depends on history
            self._failures.failed(error)


def error_stage(error: ClumsiesError) -> ErrorStage:
    """The stage that an activation's error belongs to.

    The engine says it in `details`; what comes from before the engine is told by its code.
    """
    named = _STAGES.get(str(error.details.get("stage")))
    if named is not None:
        return named
    if error.code == "invalid_activation_state":
        return "activation_state"
    return "embedding" if error.code.startswith("search_model") else "index_head"


_STAGES: dict[str, ErrorStage] = {
    "bm25": "bm25",
    "embedding": "embedding",
    "vector": "vector",
    "rrf": "rrf",
    "late": "rerank",
    "rerank": "rerank",
    "assembly": "assembly",
}


def _ignore(_value: object) -> None:
    return None


def elapsed_us(started_ns: int) -> int:
    """Microseconds since `started_ns` of `time.perf_counter_ns`."""
    return (time.perf_counter_ns() - started_ns) // 1000
