"""A preparation as a person watches it: bars on a terminal, a line a file elsewhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

from clumsies.models.status import Progress as ModelProgress

_T = TypeVar("_T")
_MEGABYTE = 1_000_000
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
GRACE_S = 2.0
_POLL_S = 0.1
_TOTAL = "all files"
_WAITING = "another process is preparing these models; waiting for it"


def megabytes(count: int) -> str:
    """Bytes in decimal megabytes, as download sizes are given."""
    return f"{count / _MEGABYTE:.1f} MB"


class PreparationView:
    """What is shown on `console`; methods may be called from any thread.

    `reason` says why an attempt ended; `wait` is how a pause is slept.
    """

    def __init__(
        self,
        console: Console,
        reason: Callable[[], str | None],
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
    ):
        self._console = console
        self._reason = reason
        self._wait = wait
        self._shown: tuple[str | None, int] | None = None
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._file: TaskID | None = None
        self._total: TaskID | None = None

    def __enter__(self) -> PreparationView:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def show(self, progress: ModelProgress) -> None:
        """Bring the bars to `progress`."""
        if (progress.path, progress.file_total) != self._shown:
            self._shown = (progress.path, progress.file_total)
            self._begin(progress)
        if self._file is not None and progress.path is not None:
            self._bars.update(self._file, completed=progress.file_bytes)
        if self._total is not None:
            self._bars.update(self._total, completed=progress.downloaded_bytes)

    def _begin(self, progress: ModelProgress) -> None:
        if progress.path is None:
            self._say(_WAITING)
            return
        if self._bars.disable:
            self._say(f"{progress.path} ({megabytes(progress.file_total)})")
            return
        if self._file is not None:
            self._bars.remove_task(self._file)
        if self._total is not None:
            self._bars.remove_task(self._total)
        self._file = self._bars.add_task(progress.path, total=progress.file_total)
        self._total = self._bars.add_task(_TOTAL, total=progress.total_bytes)

    def pause(self, cancel: threading.Event, seconds: float) -> bool:
        """Say why there is a pause and sleep it; True when it was cancelled meanwhile."""
        reason = self._reason() or "The attempt ended"
        self._say(f"{reason.rstrip('.')}; trying again in {seconds:.0f} s", style="warning")
        return self._wait(cancel, seconds)

    def _say(self, line: str, style: str = "") -> None:
        self._bars.console.print(Text(line, style=style), soft_wrap=True)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C (or SIGTERM) sets; a second one ends the process as ever.

    For the main thread, which must not wait on the event itself: a handler that sets an event
    which its own thread is about to wait for would wait for itself.
    """
    stop = threading.Event()
    before = {number: signal.getsignal(number) for number in _SIGNALS}

    def handle(number: int, _frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    for number in _SIGNALS:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def in_background(work: Callable[[], _T], stop: threading.Event) -> _T | None:
    """The result of `work`, done by a thread that does not keep the process alive.

    None where it did not end within GRACE_S after `stop`: a connection that is not answered cannot
    be interrupted, and a part on the disk may be left at any time.
    """
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="model-preparation", daemon=True).start()
    left_s = GRACE_S
    while left_s > 0:
        try:
            return outcome.result(_POLL_S)
        except FutureTimeout:
            if outcome.done():  # It is the work's own.
                raise
            left_s -= _POLL_S if stop.is_set() else 0.0
    return None
