"""A profile's files: whether they are there, and bringing them there.

A file stands under its final name only after its size and SHA-256 were those of the manifest;
one process at a time prepares a profile, and another that asks waits and then finds it done.

Layout under the root, which profiles share::

    <owner>--<name>/<revision>/<path>      a pinned file; `<path>.part` while it is fetched
    <profile>.lock                         held by the process that prepares the profile
    <profile>.failure.json                 what stopped its last attempt
    <profile>.verified.json                good verdicts on packaged files (see verification)

A machine without network is served by putting the files there by hand, or a hub cache's
`models--<owner>--<name>` directories into the root.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clumsies.config import HubSettings
from clumsies.errors import ClumsiesError, IoFailed, ModelFailed, NotReady
from clumsies.files import FileLock, ensure_private_directory, io_failed
from clumsies.models.acquisition import Acquisition, OnProgress
from clumsies.models.manifest import Profile, Role
from clumsies.models.placement import path_of, place, total_on_disk
from clumsies.models.status import (
    Failure,
    ModelStatus,
    Patience,
    Progress,
    TransferFailed,
    is_locked,
    read_failure,
    write_failure,
)
from clumsies.models.verification import Cancelled, Problem, Verdicts, size_problem

PACKAGED_ROOT = Path(__file__).parent / "data"
FIRST_RETRY_S = 5.0
LONGEST_RETRY_S = 60.0
LONGEST_RETRY_AFTER_S = 600.0
"""A server may ask for more patience than our own doubling, up to ten minutes."""
LOCK_POLL_S = 0.2
MEGABYTE = 1_000_000


def free_bytes(path: Path) -> int:
    """What the file system under `path` still takes from this user."""
    try:
        return shutil.disk_usage(path).free
    except OSError as error:
        raise io_failed(error, "measure", path) from error


def _ignore(progress: Progress) -> None:
    """The progress of a preparation that nobody watches."""


class ModelStore:
    """One profile's files below `root`; every method may be called from any thread.

    `directory` is where they are: `root`, or the package's own place for packaged files.

    `wait(cancel, seconds)` sleeps between attempts and is true when it was cancelled meanwhile;
    `wall_clock` gives seconds since 1970; `free_space` the free bytes under a path.
    """

    def __init__(
        self,
        root: Path,
        profile: Profile,
        hub: HubSettings,
        *,
        packaged_root: Path = PACKAGED_ROOT,
        patience: Patience | None = None,
        wall_clock: Callable[[], float] = time.time,
        wait: Callable[[threading.Event, float], bool] = threading.Event.wait,
        free_space: Callable[[Path], int] = free_bytes,
    ):
        self.root = root
        self.profile = profile
        self._hub = hub
        self._patience = patience or Patience()
        self._wall_clock = wall_clock
        self._wait = wait
        self._free_space = free_space
        self.directory = packaged_root if profile.packaged else root
        self._placed = place(profile, self.directory)
        stamps = root / f"{profile.name}.verified.json" if profile.packaged else None
        self._verdicts = Verdicts(stamps)
        self._lock_path = root / f"{profile.name}.lock"
        self._failure_path = root / f"{profile.name}.failure.json"
        self._failure: Failure | None = None

    @property
    def remedy(self) -> str:
        """The command that mends a missing, truncated or foreign file."""
        if self.profile.packaged:
            return "python -m pip install --force-reinstall clumsies"
        return f"clumsies models prepare {self.profile.name}"

    def path(self, role: Role, filename: str) -> Path:
        """Where that file of the manifest belongs, whether it is there or not.

        Raises KeyError for a role or file that the profile does not have.
        """
        artifact = self.profile.artifact(role)
        file = artifact.file(filename)
        return path_of(self.directory, artifact, file, packaged=self.profile.packaged)

    def status(self) -> ModelStatus:
        """The state as sizes and the lock tell it; cheap, and the same from every process.

        `ready` says that every file has its size and none was found wrong by this process;
        `require_ready` is what looks at the bytes.
        """
        have, total = total_on_disk(self._placed), self.profile.total_bytes
        problems = self._size_problems() or self._known_foreign()
        if not problems:
            return ModelStatus("ready", total, total)
        preparing = is_locked(self._lock_path)
        failure = read_failure(self._failure_path) or self._failure
        if failure is not None:
            retry_at = failure.retry_at if preparing else None
            return ModelStatus("failed", have, total, failure.code, failure.reason, retry_at)
        if preparing:
            return ModelStatus("preparing", have, total)
        wrong = self._wrong_among(problems)
        if wrong:
            reason = wrong[0].describe()
            return ModelStatus("failed", have, total, "search_model_invalid", reason)
        return ModelStatus("missing", have, total)

    def verify(self, *, again: bool = True) -> list[Problem]:
        """What is wrong with each file that is not the pinned one; empty where all are right.

        `again` hashes every file; otherwise a verdict on unchanged files is believed.
        """
        found = (self._verdicts.examine(e.path, e.file, again=again) for e in self._placed)
        return [problem for problem in found if problem is not None]

    def require_ready(self) -> None:
        """Nothing, once every file verifies; called before a session is made from them.

        Raises NotReady (`search_model_preparing` with the bytes, `search_model_unavailable`
        with what to do) or ModelFailed (`search_model_invalid`) for a truncated or foreign file.
        """
        problems = self._size_problems() or self.verify(again=False)
        if not problems:
            return
        wrong = self._wrong_among(problems)
        if self.profile.packaged:
            raise _invalid(wrong, f"run `{self.remedy}` to install clumsies again")
        status = self.status()
        if status.state == "preparing":
            raise self._preparing(status)
        if wrong:
            raise _invalid(wrong, f"run `{self.remedy}` to fetch it again")
        raise self._unavailable(status)

    def prepare(
        self,
        on_progress: OnProgress | None = None,
        cancel: threading.Event | None = None,
        *,
        attempts: int | None = None,
    ) -> ModelStatus:
        """Bring every file to its place, and return the state that was reached.

        Blocks, trying again after 5 s doubling to 60 s, until it is done, `cancel` is set or
        `attempts` have failed (None: for ever); the last one's TransferFailed or IoFailed is
        then raised. Settings that cannot be used are InvalidRequest at once. Nothing is fetched,
        and the network not touched, where every file verifies.
        """
        cancel = cancel or threading.Event()
        report = on_progress or _ignore
        if self.profile.packaged:
            self.require_ready()
            return self.status()
        with suppress(Cancelled):
            if self.verify(again=False):
                ensure_private_directory(self.root)
                with self._sole_preparer(report, cancel):
                    self._attempt(report, cancel, attempts)
            self._clear_failure()
        return self.status()

    def _size_problems(self) -> list[Problem]:
        found = (size_problem(each.path, each.file) for each in self._placed)
        return [problem for problem in found if problem is not None]

    def _known_foreign(self) -> list[Problem]:
        return [
            Problem(each.path, "foreign", each.file.size_bytes, each.file.size_bytes)
            for each in self._placed
            if self._verdicts.known_foreign(each.path, each.file)
        ]

    def _wrong_among(self, problems: list[Problem]) -> list[Problem]:
        """The problems that are no mere absence; of a package nothing may be absent."""
        return [p for p in problems if p.kind != "missing" or self.profile.packaged]

    @contextmanager
    def _sole_preparer(self, report: OnProgress, cancel: threading.Event) -> Iterator[None]:
        """The profile's lock, waited for as long as another process prepares the profile."""
        lock = FileLock(self._lock_path)
        total = self.profile.total_bytes
        while not lock.try_acquire():
            report(Progress(None, 0, 0, total_on_disk(self._placed), total))
            if cancel.wait(LOCK_POLL_S):
                raise Cancelled
        with lock:
            yield

    def _attempt(self, report: OnProgress, cancel: threading.Event, attempts: int | None) -> None:
        acquisition = Acquisition(
            root=self.root,
            placed=self._placed,
            hub=self._hub,
            verdicts=self._verdicts,
            patience=self._patience,
            free_space=self._free_space,
            wall_clock=self._wall_clock,
            on_progress=report,
            cancel=cancel,
        )
        delay_s = FIRST_RETRY_S
        made = 0
        while True:
            self._clear_failure()
            before = total_on_disk(self._placed)
            try:
                acquisition.run()
            except ClumsiesError as error:
                made += 1
                may_help = isinstance(error, TransferFailed | IoFailed)
                if not may_help or made == attempts:
                    self._record(error, None)
                    raise
                if total_on_disk(self._placed) > before:
                    delay_s = FIRST_RETRY_S
                wait_s = max(delay_s, _asked_patience_s(error))
                delay_s = min(2 * delay_s, LONGEST_RETRY_S)
                self._record(error, self._wall_clock() + wait_s)
                if self._wait(cancel, wait_s):
                    raise Cancelled from None
            else:
                return

    def _record(self, error: ClumsiesError, retry_at: float | None) -> None:
        code = error.cause if isinstance(error, TransferFailed) else error.code
        self._failure = Failure(code, error.message, retry_at)
        with suppress(IoFailed):  # The disk may be what failed.
            write_failure(self._failure_path, self._failure)

    def _clear_failure(self) -> None:
        self._failure = None
        with suppress(OSError):  # A root that only others may write holds no failure of ours.
            self._failure_path.unlink(missing_ok=True)

    def _preparing(self, status: ModelStatus) -> NotReady:
        return NotReady(
            "search_model_preparing",
            f"The `{self.profile.name}` models are being prepared ({_amount(status)}); "
            f"run it again when `clumsies models status {self.profile.name}` says ready.",
            self._details(status),
        )

    def _unavailable(self, status: ModelStatus) -> NotReady:
        why = f"; the last attempt ended: {status.reason}" if status.reason else ""
        return NotReady(
            "search_model_unavailable",
            f"The `{self.profile.name}` models are not here ({_amount(status)}){why}. "
            f"Run `{self.remedy}`; where the hub cannot be reached, set HF_ENDPOINT to a mirror or "
            f"put the files under {self.root}.",
            self._details(status),
        )

    def _details(self, status: ModelStatus) -> dict[str, object]:
        details: dict[str, object] = {
            "profile": self.profile.name,
            "downloaded_bytes": status.downloaded_bytes,
            "total_bytes": status.total_bytes,
        }
        if status.code is not None:
            details |= {"cause": status.code, "retry_at": status.retry_at}
        return details


def _asked_patience_s(error: ClumsiesError) -> float:
    """The server's Retry-After within our bound; zero where it did not ask."""
    asked_s = error.retry_after_s if isinstance(error, TransferFailed) else None
    return min(asked_s or 0.0, LONGEST_RETRY_AFTER_S)


def _amount(status: ModelStatus) -> str:
    total = status.total_bytes / MEGABYTE
    return f"{status.downloaded_bytes / MEGABYTE:.1f} of {total:.1f} MB"


def _invalid(wrong: list[Problem], remedy: str) -> ModelFailed:
    files = [
        {
            "path": str(problem.path),
            "kind": problem.kind,
            "expected_size": problem.expected_size,
            "actual_size": problem.actual_size,
        }
        for problem in wrong
    ]
    return ModelFailed(
        "search_model_invalid", f"{wrong[0].describe()}; {remedy}.", {"files": files}
    )
