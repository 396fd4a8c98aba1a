"""Installing, starting and stopping the daemon, whatever the platform has for it.

systemd's user manager on Linux, launchd on macOS; where neither answers, a plain process in the
background. `start`, `stop` and `restart` follow the installed service; they fall back to a process
only where no service is installed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clumsies.config import (
    DaemonPlaces,
    daemon_environment,
    daemon_places,
    service_directory,
    service_settings,
)
from clumsies.daemon.client import DaemonClient, ensure_running, said_refusal
from clumsies.daemon.commands import say
from clumsies.daemon.launchd import Launchd
from clumsies.daemon.lock import running_pid
from clumsies.daemon.systemd import Systemd
from clumsies.errors import EXIT_OK, ClumsiesError, DaemonFailed
from clumsies.files import ensure_private_directory
from clumsies.logs import SERVICE_ERROR_LOG
from clumsies.version import VERSION

STOP_TIMEOUT_S = 30.0
"""More than the daemon's own bounds for ending."""
START_TIMEOUT_S = 30.0
WATCH_S = 15.0
"""How long a start is watched for a refusal; one that takes longer goes on unwatched."""
STATUS_TIMEOUT_S = 10.0
_POLL_S = 0.05
_LOG_TAIL_BYTES = 4 * 1024 * 1024


class ServiceManager(Protocol):
    """One platform's way to keep a daemon."""

    @property
    def name(self) -> str: ...

    def available(self) -> bool: ...
    def installed(self) -> bool: ...
    def install(
        self, command: list[str], settings: Mapping[str, str], error_log: Path, path: Path, /
    ) -> None: ...
    def uninstall(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """How the daemon stands: `manager` is systemd, launchd or background.

    `pid` holds the lock; `answers` says whether it answered `health` (kept in `health`).
    """

    manager: str
    installed: bool
    pid: int | None
    socket: Path
    answers: bool
    health: dict[str, object] | None = None
    problem: str | None = None


def daemon_command() -> list[str]:
    """The resident process; `-P` keeps the working directory out of its module path."""
    return [sys.executable, "-P", "-m", "clumsies.daemon.main", "run"]


def platform_manager(directory: Path | None = None) -> ServiceManager:
    """The manager that this platform would have, available or not."""
    where = directory or service_directory()
    return Launchd(where) if sys.platform == "darwin" else Systemd(where)


class DaemonControl:
    """Start, stop and status of the daemon of `places`."""

    def __init__(
        self,
        places: DaemonPlaces | None = None,
        manager: ServiceManager | None = None,
        command: list[str] | None = None,
    ):
        self.places = places or daemon_places()
        self._manager = manager or platform_manager()
        self._command = command or daemon_command()

    def install(self) -> str:
        """Install and start the service; the manager's name, or `background` where there is none.

        A daemon that runs without the service is stopped first: both would want the lock.
        """
        self._prepare()
        if self._stable() and self._manager.available():
            if not self._manager.installed():
                self._stop_process()
            self._manager.install(
                self._command, service_settings(), self._error_log(), self.places.socket
            )
            return self._manager.name
        self.start()
        return "background"

    def uninstall(self) -> None:
        """Stop the daemon and remove the service; data, drafts and logs stay."""
        if self._stable():
            self._manager.uninstall()
        self._stop_process()

    def start(self, *, wait_s: float = START_TIMEOUT_S) -> dict[str, object]:
        """The health of the daemon once it answers; it is started where it does not run."""
        with self._client() as client:
            return ensure_running(client, wait_s=wait_s, start=self.begin)

    def begin(self) -> None:
        """Start the daemon and see it answer or end; one that runs is left alone.

        Raises what a daemon said that refused to start: why is known now, not after a timeout.
        """
        if running_pid(self.places) is not None:
            return
        self._prepare()
        if self._uses_service():
            self._manager.start()
            return
        process, said_before = self._spawn()
        with self._client() as client:
            end = time.monotonic() + WATCH_S
            while process.poll() is None and time.monotonic() < end:
                with suppress(ClumsiesError):
                    client.call("health", timeout_s=max(0.1, end - time.monotonic()))
                    return
                time.sleep(_POLL_S)
        if process.poll() is not None and running_pid(self.places) is None:
            raise self._refusal(said_before)

    def _refusal(self, said_before: int) -> ClumsiesError:
        """What the daemon's last line on its standard error says."""
        with self._error_log().open("rb") as log:
            log.seek(said_before)
            refusal = said_refusal(log.read(_LOG_TAIL_BYTES))
        if refusal is not None:
            return refusal
        return DaemonFailed(
            "service_manager_failed",
            f"The daemon ended while it started; {self._error_log()} says why.",
        )

    def stop(self) -> bool:
        """End the daemon; whether one was running.

        Raises DaemonFailed("service_manager_failed") when it does not end in time.
        """
        was_running = running_pid(self.places) is not None
        if self._uses_service():
            self._manager.stop()
        self._stop_process()
        return was_running

    def restart(self) -> dict[str, object]:
        """Stop and start; the new daemon's health."""
        self.stop()
        return self.start()

    def status(self, *, timeout_s: float = STATUS_TIMEOUT_S) -> DaemonStatus:
        """What is true now. Asking starts nothing: without a process no socket is touched."""
        pid = running_pid(self.places)
        health: dict[str, object] | None = None
        problem: str | None = None
        if pid is not None:
            try:
                with self._client() as client:
                    health = client.call("health", timeout_s=timeout_s)
            except ClumsiesError as error:
                problem = f"{error.message} ({error.code})"
        return DaemonStatus(
            manager=self._manager.name if self._uses_service() else "background",
            installed=self._stable() and self._manager.installed(),
            pid=pid,
            socket=self.places.socket,
            answers=health is not None,
            health=health,
            problem=problem,
        )

    def _client(self) -> DaemonClient:
        return DaemonClient(self.places.socket, f"clumsies-{VERSION}")

    def _stable(self) -> bool:
        """Only the stable instance has a service; development ones are plain processes."""
        return self.places.instance is None

    def _uses_service(self) -> bool:
        return self._stable() and self._manager.installed() and self._manager.available()

    def _error_log(self) -> Path:
        return self.places.logs / SERVICE_ERROR_LOG

    def _prepare(self) -> None:
        ensure_private_directory(self.places.logs)

    def _spawn(self) -> tuple[subprocess.Popen[bytes], int]:
        """A process of its own session, and how long its error log was before it.

        It inherits the private part of the environment only.
        """
        log = self._error_log()
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
        try:
            if os.fstat(descriptor).st_size > _LOG_TAIL_BYTES:
                os.ftruncate(descriptor, 0)
            said_before = os.fstat(descriptor).st_size
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=descriptor,
                env=daemon_environment(),
                cwd="/",
                start_new_session=True,
            )
            return process, said_before
        except OSError as error:
            raise DaemonFailed(
                "service_manager_failed",
                f"The daemon could not be started: {error.strerror}; run `clumsies daemon run`.",
            ) from error
        finally:
            os.close(descriptor)

    def _stop_process(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """SIGTERM to whoever holds the lock, and wait until it is free."""
        pid = running_pid(self.places)
        if pid is None:
            return
        end = clock() + STOP_TIMEOUT_S
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            return
        while running_pid(self.places) is not None:
            if clock() >= end:
                raise DaemonFailed(
                    "service_manager_failed",
                    f"The daemon (process {pid}) did not end within {STOP_TIMEOUT_S:g} s; "
                    f"look at {self._error_log().name}, or end it with `kill -9 {pid}`.",
                )
            sleep(_POLL_S)


def start_command() -> int:
    """`clumsiesd start`: the exit status, with a refusal to start said on stderr."""
    try:
        DaemonControl().begin()
    except ClumsiesError as error:
        say(f"{error.message} ({error.code})")
        return error.exit_code
    return EXIT_OK
