"""A real PostgreSQL for one run: a cluster of its own, and an empty database for whoever asks.

The cluster listens on a socket in its own directory and nowhere else. Its locale sorts as people
do (`a B c`) where initdb can make such a one, so that an order which is left to the database
differs from SQLite's and shows. A shell holds the server and ends it when this process closes a
pipe or dies in any way; it also removes the directory.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.services import not_installed

USER = "clumsies"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
PLACES = ("/usr/lib/postgresql/*/bin", "/opt/homebrew/opt/postgresql@*/bin", "/usr/pgsql-*/bin")
SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_connections": "200",
}
DURABLE = SETTINGS | {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
"""As an installation has it: a commit is on the disk."""
HELD = """
directory=$1; shift
"$@" >"$directory/log" 2>&1 </dev/null &
server=$!
cat >/dev/null
kill -QUIT "$server" 2>/dev/null
wait "$server"
cd / && rm -rf "$directory"
"""
"""Runs `$2…` until its input ends. QUIT is PostgreSQL's immediate shutdown."""


@dataclass
class PostgresqlCluster:
    """A running server. Its databases are made and dropped by name; none is shared."""

    socket_directory: Path
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def url(self, database: str) -> str:
        """SQLAlchemy's URL of a database, for psycopg 3."""
        return f"postgresql+psycopg://{USER}@/{database}?host={self.socket_directory}"

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        """A connection of psycopg's own, in autocommit mode."""
        return psycopg.connect(
            host=str(self.socket_directory), user=USER, dbname=database, autocommit=True
        )

    @contextmanager
    def database(self) -> Iterator[str]:
        """URL of a new, empty database; it is dropped afterwards, whoever is still connected."""
        name = f"test_{next(self._numbers)}"
        with self.connect() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            yield self.url(name)
        finally:
            with self.connect() as connection:
                connection.execute(
                    sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
                )


def program_directory() -> Path | None:
    """The directory of `initdb` and `postgres`, of the newest version there is."""
    found = [
        path
        for pattern in PLACES
        for path in Path("/").glob(pattern.lstrip("/"))
        if (path / "initdb").exists() and (path / "postgres").exists()
    ]
    if found:
        return max(found, key=lambda path: int(re.findall(r"\d+", str(path))[-1]))
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


@contextmanager
def running_cluster(
    programs: Path, settings: Mapping[str, str] = SETTINGS
) -> Iterator[PostgresqlCluster]:
    """A cluster that is up; at the end its server is gone and so is its directory.

    As root it is run by another user, since PostgreSQL refuses root.
    """
    # A socket's path is short, so the directory is not below the run's own temporary one.
    root = Path(tempfile.mkdtemp(prefix="clumsies-pg-", dir="/tmp"))
    account = _other_account() if os.geteuid() == 0 else None
    if account is not None:
        os.chown(root, account.pw_uid, account.pw_gid)
    try:
        _make_cluster(programs, root / "data", account)
        server = _start(programs, root, account, settings)
    except BaseException:
        shutil.rmtree(root, ignore_errors=True)
        raise
    try:
        _wait_until_up(server, root)
        yield PostgresqlCluster(root)
    finally:
        assert server.stdin is not None
        server.stdin.close()
        try:
            server.wait(STOP_TIMEOUT_S)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, 9)
                server.wait()
            shutil.rmtree(root, ignore_errors=True)


def _other_account() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LookupError("no account `postgres` or `nobody` to run PostgreSQL with")


def _as_account(account: pwd.struct_passwd | None) -> dict[str, Any]:
    """What `subprocess` needs to run as the account, with nothing of this run's environment."""
    common: dict[str, Any] = {"cwd": "/", "env": {"PATH": os.defpath, "LC_ALL": "C"}}
    if account is None:
        return common
    return common | {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


def _make_cluster(programs: Path, data: Path, account: pwd.struct_passwd | None) -> None:
    command = [str(programs / "initdb"), "--pgdata", str(data), "--username", USER]
    command += ["--auth=trust", "--encoding=UTF8", "--no-sync", "--locale=C"]
    linguistic = ["--locale-provider=icu", "--icu-locale=en-US"]
    tried = []
    for order in (linguistic, []):  # Versions before 15, and some builds, have no ICU.
        done = subprocess.run(
            [*command, *order],
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
            **_as_account(account),
        )
        if done.returncode == 0:
            return
        tried.append(done.stderr.strip())
    raise RuntimeError("initdb: " + " / ".join(tried))


def _start(
    programs: Path,
    root: Path,
    account: pwd.struct_passwd | None,
    settings: Mapping[str, str],
) -> subprocess.Popen[bytes]:
    command = [str(programs / "postgres"), "-D", str(root / "data"), "-k", str(root)]
    for name, value in settings.items():
        command += ["-c", f"{name}={value}"]
    return subprocess.Popen(
        ["/bin/sh", "-c", HELD, "sh", str(root), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # An interrupt from the keyboard is for the tests alone.
        **_as_account(account),
    )


def _wait_until_up(server: subprocess.Popen[bytes], root: Path) -> None:
    until = time.monotonic() + START_TIMEOUT_S
    while True:
        try:
            PostgresqlCluster(root).connect().close()
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > until:
                log = root / "log"
                said = log.read_text("utf-8", "replace")[-2000:] if log.exists() else "nothing"
                raise RuntimeError(f"PostgreSQL did not start; it said: {said}") from None
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="session")
def postgresql_cluster() -> Iterator[PostgresqlCluster]:
    """One PostgreSQL for the run; for tests that need more than one database."""
    programs = program_directory()
    if programs is None:
        not_installed("PostgreSQL's server is not installed")
    with running_cluster(programs) as cluster:
        yield cluster


@pytest.fixture
def postgresql_url(postgresql_cluster: PostgresqlCluster) -> Iterator[str]:
    """SQLAlchemy's URL of an empty database that this test alone has."""
    with postgresql_cluster.database() as url:
        yield url
