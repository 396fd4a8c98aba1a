"""What `clumsies doctor` looks at around the daemon: process, socket, database, Server, projects.

Nothing is started and nothing is changed by looking.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clumsies.cli.findings import Finding
from clumsies.cli.synchronization import counted, errors_of, explained, unavailable_words
from clumsies.config import daemon_places
from clumsies.daemon.client import DaemonClient
from clumsies.daemon.services import DaemonControl
from clumsies.daemon.wire import PROTOCOL_REVISION
from clumsies.errors import ClumsiesError
from clumsies.files import DIRECTORY_MODE
from clumsies.storage.project_storage import LOCAL_AUTHORITY
from clumsies.version import VERSION

AUTHORITY_DATABASE = "authority.db"
"""Where this machine's own projects are; there once the first is made."""
RESTART = "clumsies daemon restart"
_CHECK_TIMEOUT_S = 120.0
_QUICK_CHECK = """
import sys, apsw
connection = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
rows = connection.execute("PRAGMA quick_check(1)").fetchall()
broken = connection.execute("PRAGMA foreign_key_check").fetchall()
sys.exit(0 if rows == [("ok",)] and not broken else 3)
"""
"""Run in a child: whatever a damaged file does to SQLite, the doctor goes on."""


def check_daemon() -> Iterator[Finding]:
    """The process: there, answering, and of this installation's version."""
    found = DaemonControl().status()
    if found.pid is None:
        yield Finding("daemon", "ok", "not running (it starts when it is needed)")
        return
    if found.health is None:
        yield Finding(
            "daemon", "failure", f"process {found.pid} does not answer: {found.problem}", RESTART
        )
        return
    yield from version_findings(found.pid, found.health)


def version_findings(pid: int, health: dict[str, Any]) -> Iterator[Finding]:
    """Whether the running daemon and this installation belong together."""
    version, spoken = health["daemon_version"], health["agent_runtime"]["protocol_revision"]
    running = f"process {pid}, version {version}, protocol revision {spoken}"
    if spoken != PROTOCOL_REVISION:
        words = f"{running}; this installation speaks {PROTOCOL_REVISION}"
        yield Finding("daemon", "failure", words, RESTART)
    elif version != VERSION:
        yield Finding("daemon", "warning", f"{running}; this installation is {VERSION}", RESTART)
    else:
        yield Finding("daemon", "ok", running)


def check_socket() -> Iterator[Finding]:
    """The socket's directory: this user's alone, and no link."""
    place = daemon_places().socket
    directory = place.parent
    try:
        found = directory.lstat()
    except (FileNotFoundError, NotADirectoryError):
        yield Finding("socket", "ok", f"{place} (made when the daemon starts)")
        return
    mode = stat.S_IMODE(found.st_mode)
    if not stat.S_ISDIR(found.st_mode):
        yield Finding("socket", "failure", f"{directory} is no directory", f"mv {directory} away")
    elif found.st_uid != os.getuid():
        words = f"{directory} belongs to another user"
        yield Finding("socket", "failure", words, "set CLUMSIES_RUNTIME_DIR to a place of yours")
    elif mode & ~DIRECTORY_MODE:
        words = f"{directory} is open to others (mode {mode:04o}); no client connects"
        yield Finding("socket", "failure", words, f"chmod 700 {directory}")
    else:
        yield Finding("socket", "ok", str(place))


def check_database() -> Iterator[Finding]:
    """Both databases, by SQLite's own quick check; they may be in use meanwhile."""
    path = daemon_places().root / "local.db"
    if not path.exists():
        yield Finding("database", "ok", f"{path} (made when the daemon starts)")
        return
    backups = sorted((path.parent / "backups").glob("local-*.db"))
    yield _database_finding(path, backups[-1] if backups else None)
    authority = path.parent / AUTHORITY_DATABASE
    if authority.exists():
        yield _database_finding(authority, None)


def _database_finding(path: Path, backup: Path | None) -> Finding:
    child = subprocess.run(
        [sys.executable, "-P", "-c", _QUICK_CHECK, str(path)],
        check=False,
        capture_output=True,
        timeout=_CHECK_TIMEOUT_S,
    )
    if child.returncode == 0:
        return Finding("database", "ok", f"{path}, {path.stat().st_size / 1e6:.1f} MB, sound")
    remedy = (
        f"clumsies daemon stop; mv {path} {path}.damaged; cp {backup} {path}"
        if backup is not None
        else f"keep {path}: there is no backup, but what is readable in it can be recovered"
    )
    return Finding("database", "failure", f"{path} is damaged or unreadable", remedy)


def check_projects() -> Iterator[Finding]:
    """Bindings, installed generations and search indexes, as the running daemon knows them."""
    if not DaemonControl().status().answers:
        yield Finding("projects", "ok", "not looked at: only a running daemon can say")
        return
    with _asked() as client:
        projects = client.call("list_projects")["projects"]
        away = client.call("sync_status")["unavailable_projects"]
        known = {project["project_id"] for project in [*projects, *away]}
        for binding in client.call("list_project_bindings")["bindings"]:
            yield from binding_findings(binding, known)
        for project in projects:
            yield from _project_findings(client, project)


def check_server() -> Iterator[Finding]:
    """The team's Server, where one is used: does it answer, who is signed in, what waits."""
    if not DaemonControl().status().answers:
        yield Finding("server", "ok", "not looked at: only a running daemon can say")
        return
    with _asked() as client:
        health = client.call("health")
        if health["server_url"] == LOCAL_AUTHORITY:
            yield Finding("server", "ok", "none is used; projects are this machine's own")
        else:
            yield _sign_in_finding(client, health)
        yield from sync_findings(client.call("sync_status"), health)


def _sign_in_finding(client: DaemonClient, health: dict[str, Any]) -> Finding:
    """One request as whoever is signed in tells of network, Server, keyring and session."""
    url = health["server_url"]
    try:
        me = client.call("signed_in")
    except ClumsiesError as error:
        return sign_in_failure(url, error, health)
    with_token = " by CLUMSIES_TOKEN" if health.get("has_personal_token") else ""
    words = f"{url} answers; signed in{with_token} as {me['email']}, {me['role']}"
    return Finding("server", "ok", words)


def sign_in_failure(url: str, error: ClumsiesError, health: dict[str, Any]) -> Finding:
    """Why the Server did not say who is signed in; the keyring's own words name their remedy."""
    if error.code == "credential_store_failed":
        words = f"{url}: the keyring cannot be used: {error.message} ({error.code})"
        return Finding("server", "failure", words, "or set CLUMSIES_TOKEN and " + RESTART)
    if error.code == "unauthorized":
        words, remedy = explained(error.code, health)
        return Finding("server", "failure", f"{url}: {words}", remedy.replace("`", ""))
    return Finding("server", "warning", f"{url}: {error.message} ({error.code})")


def sync_findings(status: dict[str, Any], health: dict[str, Any]) -> Iterator[Finding]:
    """What keeps either channel from its work, what was refused, and what access has ended to."""
    for code in errors_of(status):
        words, remedy = explained(code, health)
        yield Finding("sync", "warning", words, remedy.replace("`", ""))
    if refused := status["failed_operation_count"]:
        words = counted(refused, "stored change was refused", "stored changes were refused")
        yield Finding("sync", "failure", words, "clumsies drafts")
    for project in status["unavailable_projects"]:
        words, remedy = unavailable_words(project)
        yield Finding("sync", "warning", words, remedy.replace("`", ""))
    if not (errors_of(status) or refused or status["unavailable_projects"]):
        count = status["pending_operation_count"]
        words = counted(count, "stored change waits", "stored changes wait") if count else "in step"
        yield Finding("sync", "ok", words)


def _asked() -> DaemonClient:
    return DaemonClient(daemon_places().socket, f"clumsies-{VERSION}")


def binding_findings(binding: dict[str, Any], known: set[str]) -> Iterator[Finding]:
    """A binding that binds nothing: its directory or its project is gone."""
    root = binding["workspace_root"]
    if not Path(root).is_dir():
        words = f"the bound directory {root} is gone"
        yield Finding("bindings", "warning", words, f"clumsies unbind {root}")
    elif binding["project_id"] not in known:
        words = f"{root} is bound to a project that is not here"
        yield Finding("bindings", "failure", words, f"clumsies unbind {root}")


def _project_findings(client: DaemonClient, project: dict[str, Any]) -> Iterator[Finding]:
    name, of_project = project["name"], {"project_id": project["project_id"]}
    cache = client.call("memory_cache", of_project)
    if cache["state"] == "ready":
        yield Finding("memory", "ok", f"{name}: ready")
    else:
        words = f"{name}: {cache['state'].replace('_', ' ')}"
        yield Finding("memory", "failure", words, RESTART)
    try:
        index = client.call("search_index_status", of_project)
    except ClumsiesError as error:
        yield Finding("index", "failure", f"{name}: {error.message} ({error.code})", RESTART)
        return
    yield index_finding(name, index)


def index_finding(name: str, index: dict[str, Any]) -> Finding:
    """How one project's search index stands."""
    if index["ready"]:
        return Finding("index", "ok", f"{name}: ready")
    if index["model_status"] != "ready":
        words = f"{name}: waits for the models ({index['model_status']})"
        return Finding("index", "warning", words, "clumsies models prepare")
    if index.get("last_error"):
        rebuild = f"clumsies rebuild --project {index['project_id']}"
        return Finding("index", "failure", f"{name}: failed ({index['last_error']})", rebuild)
    return Finding("index", "warning", f"{name}: behind; it is being built")
