"""The Server as a process: started, asked over a socket, stopped while it works."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from clumsies.server.database import sqlite_url

RUNNING = re.compile(r"Uvicorn running on (http://[^ ]+)")
LONG_S = 60.0


class Shell:
    """The command line with a home and a database of its own."""

    def __init__(self, home: Path, database_url: str):
        self.environ = {
            **os.environ,
            "CLUMSIES_HOME": str(home),
            "CLUMSIES_DATABASE_URL": database_url,
        }

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=LONG_S,
            check=False,
        )

    def json(self, *words: str) -> Any:
        done = self(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "clumsies", "server", *words]

    @contextmanager
    def running(self, *words: str) -> Iterator[tuple[str, subprocess.Popen[str], list[str]]]:
        """(address, process, lines of its log)"""
        process = subprocess.Popen(
            self.command("run", "--port", "0", *words),
            env=self.environ,
            stderr=subprocess.PIPE,
            text=True,
        )
        lines: list[str] = []
        reader = threading.Thread(target=self._read, args=(process, lines))
        reader.start()
        try:
            yield self._address(process, lines), process, lines
        finally:
            process.terminate()
            process.wait(LONG_S)
            reader.join()

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
        assert process.stderr is not None
        with process.stderr as stream:
            for line in stream:
                lines.append(line)

    @staticmethod
    def _address(process: subprocess.Popen[str], lines: list[str]) -> str:
        until = time.monotonic() + LONG_S
        while time.monotonic() < until and process.poll() is None:
            found = RUNNING.search("".join(lines))
            if found is not None:
                return found[1]
            time.sleep(0.02)
        raise AssertionError("".join(lines))


@pytest.fixture
def shell(tmp_path: Path, database_url: str) -> Shell:
    return Shell(tmp_path / "home", database_url)


@pytest.fixture
def plain(tmp_path: Path) -> Shell:
    """On SQLite alone, where the database does not matter."""
    return Shell(tmp_path / "home", sqlite_url(tmp_path / "server" / "server.db"))


def answered(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """The answer, as soon as a worker listens."""
    until = time.monotonic() + LONG_S
    while True:
        try:
            return ask()
        except httpx.TransportError:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_from_an_empty_database_to_an_answer(shell: Shell) -> None:
    done = shell("run")
    assert done.returncode == 1
    assert "server migrate" in done.stderr
    assert shell("health").returncode == 3
    made = shell.json("init", "--organization", "Acme", "--owner", "owner@acme.example")
    assert made["created"] is True
    assert made["setup_code"].startswith("setup_")
    again = shell.json("init", "--organization", "Acme", "--owner", "owner@acme.example")
    assert (again["created"], again["org_id"]) == (False, made["org_id"])
    assert again["setup_code"] != made["setup_code"]
    user = shell.json("create-user", "bot@acme.example", "--role", "admin", "--token")
    assert shell.json("migrate")["before"] == shell.json("migrate")["version"]
    assert shell.json("health")["schema"]["status"] == "ok"
    with shell.running() as (address, process, lines):
        headers = {"authorization": f"Bearer {user['token']}"}
        answer = httpx.get(f"{address}/api/v1/me?secret=query", headers=headers)
        assert answer.json()["user"]["email"] == "bot@acme.example"
        opened = httpx.post(f"{address}/api/v1/setup/sessions", json={"code": again["setup_code"]})
        assert opened.status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONG_S) in (0, -signal.SIGTERM)
    log = "".join(lines)
    assert "GET /api/v1/me 200" in log
    for secret in (user["token"], again["setup_code"], "query"):
        assert secret not in log


def test_several_workers_share_the_database_alone(plain: Shell) -> None:
    plain.json("init", "--organization", "Acme", "--owner", "owner@acme.example")
    user = plain.json("create-user", "bot@acme.example", "--token")
    headers = {"authorization": f"Bearer {user['token']}"}
    with plain.running("--workers", "2") as (address, _, lines):
        for number in range(6):
            body = {"name": f"token {number}"}
            made = answered(
                lambda body=body: httpx.post(  # type: ignore[misc]
                    f"{address}/api/v1/me/tokens", json=body, headers=headers
                )
            ).json()
            other = {"authorization": f"Bearer {made['secret']}"}
            assert httpx.get(f"{address}/api/v1/me", headers=other).status_code == 200
            gone = httpx.delete(
                f"{address}/api/v1/me/tokens/{made['token']['token_id']}", headers=headers
            )
            assert gone.json()["revoked_at"] is not None
            assert httpx.get(f"{address}/api/v1/me", headers=other).status_code == 401
    assert "".join(lines).count("Started server process") == 2


def test_a_request_under_way_is_answered_before_the_end(plain: Shell) -> None:
    plain.json("init", "--organization", "Acme", "--owner", "owner@acme.example")
    user = plain.json("create-user", "bot@acme.example", "--token")
    body = json.dumps({"name": "late"}).encode()
    with plain.running() as (address, process, lines):
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            head = (
                "POST /api/v1/me/tokens HTTP/1.1\r\nhost: x\r\n"
                f"authorization: Bearer {user['token']}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            )
            connection.sendall(head.encode() + body[:-1])
            time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            while "Shutting down" not in "".join(lines):
                time.sleep(0.02)
            connection.sendall(body[-1:])
            answer = b""
            while part := connection.recv(65_536):
                answer += part
        assert answer.startswith(b"HTTP/1.1 201 ")
        assert b'"late"' in answer


def test_plain_http_stays_on_loopback(plain: Shell) -> None:
    done = plain("run", "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "--behind-tls-proxy" in done.stderr


def test_a_taken_port_is_told(plain: Shell) -> None:
    plain.json("init", "--organization", "Acme", "--owner", "owner@acme.example")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = plain("run", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "io_error" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("init", "--organization", "", "--owner", "owner@acme.example"),
        ("init", "--organization", "Acme", "--owner", "nobody"),
        ("create-user", "bot@acme.example"),
    ],
)
def test_what_cannot_be_meant_is_refused(plain: Shell, words: tuple[str, ...]) -> None:
    plain("migrate")
    done = plain(*words)
    assert done.returncode in (2, 5)
    assert done.stderr.startswith("error: ")
