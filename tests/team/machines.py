"""A person's machine: a home, a directory bound to the team's project, and a real daemon."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clumsies.errors import ClumsiesError
from tests.daemon.resident import Project, Resident, write_files
from tests.daemon.running import LONG_S, wait_for
from tests.team.cut_network import Network
from tests.team.server_process import ServerProcess

INTERVAL_MS = 300
"""How soon a daemon tries again by itself; a team's waits much longer."""


class Machine:
    """It is bound to the Server's project once it is made, and reaches it over `network`."""

    def __init__(self, home: Path, server: ServerProcess, token: str):
        self.home = home
        self.network = Network(server.port)
        self.directory = home / "w"
        self.token = token
        self._server = server
        write_files(self.directory, {})
        self.start()
        self.login = self.run("login", self.network.url)
        self.bound = self.run("bind", server.project_id)
        assert (self.login.returncode, self.bound.returncode) == (0, 0), self.login.stderr

    def start(self) -> None:
        more = {"CLUMSIES_SYNC_INTERVAL_MS": str(INTERVAL_MS), "CLUMSIES_TOKEN": self.token}
        self.daemon = Resident(self.home, **more)
        self.project = Project(self.daemon.client(), self._server.project_id)

    def kill(self) -> None:
        """End the daemon with no time for anything."""
        assert self.daemon.end(signal.SIGKILL) == -signal.SIGKILL

    def stop(self) -> None:
        self.daemon.end()
        self.network.close()

    def run(self, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """A command in the bound directory."""
        return subprocess.run(
            [sys.executable, "-P", "-m", "clumsies", *words],
            cwd=self.directory,
            env=self.daemon.environment | {"NO_COLOR": "1"},
            input=text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            timeout=LONG_S * 2,
        )

    def json(self, *words: str, text: str = "") -> dict[str, Any]:
        """The object of a command that has to succeed."""
        done = self.run(*words, "--json", text=text)
        assert done.returncode == 0, done.stderr
        body: dict[str, Any] = json.loads(done.stdout)
        return body

    def status(self) -> dict[str, Any]:
        return self.project.call("project_sync_status")

    def in_step(self) -> bool:
        """Nothing waits, nothing failed, and both channels are at rest."""
        found = self.status()
        states = {found["draft_sync"]["state"], found["commit_sync"]["state"]}
        return states == {"idle"} and not found["pending_operation_count"]

    def converge(self) -> None:
        """Wait until the daemon, by itself, has nothing left to do."""
        wait_for(self.in_step, f"in step: {self.status()}")

    def sync(self) -> None:
        """One whole cycle, asked for."""
        self.project.call("project_retry_sync", channel="all")
        self.converge()

    def contents(self) -> dict[str, str]:
        """Path to text of everything in Effective Memory; none before the first commit."""
        try:
            return self.project.contents()
        except ClumsiesError as error:
            if error.code != "project_ref_not_synced":
                raise
            return {}

    def drafts(self, status: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.project.call("list_drafts", status=status)["drafts"]
        return found

    def files(self) -> Iterator[Path]:
        """Everything that the program made in this home."""
        return (self.home / "c").rglob("*")

    def open_to_others(self) -> list[str]:
        """What of it is not its owner's alone."""
        return [
            f"{path} {mode:04o}"
            for path in self.files()
            if not path.is_symlink()
            for mode in [stat.S_IMODE(path.lstat().st_mode)]
            if mode & 0o077
        ]
