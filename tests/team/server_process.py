"""`clumsies server run` over a database, with an owner, a member and a project of theirs."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.daemon.running import LONG_S, environment_of, wait_for
from tests.daemon.running import ROOT as CHECKOUT

ORGANIZATION = "Acme"


class ServerProcess:
    """A Server at one address for its whole life, however often its process is killed."""

    def __init__(self, home: Path, database_url: str):
        home.mkdir()
        more = {"CLUMSIES_DATABASE_URL": database_url, "PYTHONPATH": str(CHECKOUT)}
        self.environment = environment_of(home, more)
        self.directory = home
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        made = self.command("init", "--organization", ORGANIZATION, "--owner", "olga@acme.example")
        self.org_id: str = made["org_id"]
        self.owner = self._user("olga@acme.example", "Olga", "owner")
        self.member = self._user("ann@acme.example", "Ann", "member")
        self.start()
        self.project_id: str = self.ask(
            "POST", "/projects", {"name": "shop"}, {"idempotency-key": "first"}
        )["project_id"]
        self.let_in("ann")

    def command(self, *words: str) -> dict[str, Any]:
        """The object that `clumsies server WORDS` prints."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "clumsies", "server", *words, "--json"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        body: dict[str, Any] = json.loads(done.stdout)
        return body

    def _user(self, email: str, name: str, role: str) -> dict[str, str]:
        """(`user_id`, `token`)"""
        return self.command("create-user", email, "--name", name, "--role", role, "--token")

    def start(self) -> None:
        """Run the process; returns when it answers."""
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "clumsies", *f"server run --port {self.port}".split()],
                env=self.environment,
                stderr=log,
            )
        wait_for(self._answers, "the Server answers")

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log()
        try:
            return httpx.get(f"{self.url}/api/v1/admin/health").status_code == 200
        except httpx.TransportError:
            return False

    def end(self, number: int = signal.SIGTERM) -> None:
        """End the process; SIGKILL leaves it no time for anything."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(LONG_S)
            self._process = None

    def log(self) -> str:
        return (self.directory / "server.log").read_text("utf-8")

    def ask(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        token: str | None = None,
    ) -> dict[str, Any]:
        """The answer to a request, the owner's unless with `token`; it has to succeed."""
        bearer = {"authorization": f"Bearer {token or self.owner['token']}", **(headers or {})}
        answer = httpx.request(
            method, f"{self.url}/api/v1{path}", json=body, headers=bearer, timeout=LONG_S
        )
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def let_in(self, name: str) -> None:
        """Make the member a member of the project."""
        assert name == "ann"
        self.ask("PUT", self._membership, {"role": "member"})

    def keep_out(self) -> None:
        """Withdraw the member's membership of the project."""
        self.ask("DELETE", self._membership)

    @property
    def _membership(self) -> str:
        return f"/admin/projects/{self.project_id}/members/{self.member['user_id']}"

    def memories(self) -> list[str]:
        """Paths of the project's memory, sorted."""
        items = self.ask("GET", f"/projects/{self.project_id}/memories")["items"]
        return sorted(item["path"] for item in items)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port
