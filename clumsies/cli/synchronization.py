"""`clumsies sync`: send what was stored and fetch what the team merged, now."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.connection import Connection, JsonOption, connected
from clumsies.errors import EXIT_FAILURE, EXIT_NOT_READY

WAIT_S = 120.0
_POLL_S = 0.1
_CHANNELS = (("draft_sync", "stored changes"), ("commit_sync", "memory"))
_STATES = {
    "idle": ("in step", "added"),
    "queued": ("waiting", "warning"),
    "syncing": ("under way", ""),
    "retrying": ("tried again soon", "warning"),
    "degraded": ("held up", "warning"),
    "failed": ("failed", "failure"),
}
_LATER = "nothing is lost, and it is tried again by itself; `clumsies whoami` asks now"
_REMEDIES = {
    "unauthorized": ("nobody is signed in, or the session has ended", "`clumsies login`"),
    "daemon_project_config_incomplete": ("nobody is signed in", "`clumsies login`"),
    "credential_store_failed": ("the keyring gives no session", "`clumsies whoami` says why"),
    "server_request_failed": ("the Server cannot be reached", _LATER),
    "draft_sync_retrying": ("the Server cannot be reached", _LATER),
    "draft_sync_failed": ("the Server refused a stored change", "`clumsies drafts` shows it"),
    "sync_session_changed": ("somebody signed in meanwhile", "`clumsies sync`"),
}
_OTHERWISE = ("it did not work", "`clumsies daemon logs` says where; the state before stays")
TOKEN_REMEDY = "set CLUMSIES_TOKEN to a token that is good, then `clumsies daemon restart`"


def sync(
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or only start it.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Send what was stored here and fetch what the team merged. What failed is tried again."""
    with output.failures(as_json), connected() as daemon:
        health = daemon.call("health")
        status = synchronized(daemon, health, WAIT_S if wait else 0.0)
        if as_json:
            output.write_json(status)
        else:
            print_sync(status, health)
        code = _exit_code(status) if wait else 0
        if code:
            raise typer.Exit(code)


def _exit_code(status: dict[str, Any]) -> int:
    states = {status[name]["state"] for name, _ in _CHANNELS}
    if "failed" in states:
        return EXIT_FAILURE
    kept = any(project["draft_count"] for project in status["unavailable_projects"])
    waits = states & {"queued", "syncing", "retrying", "degraded"}
    return EXIT_NOT_READY if kept or waits or errors_of(status) else 0


def synchronized(daemon: Connection, health: dict[str, Any], wait_s: float) -> dict[str, Any]:
    """The state after a whole attempt that began after this call, or after `wait_s`."""
    before = daemon.call("sync_status")
    started = daemon.call("retry_sync", {"channel": "all"})["started"]
    if not started:
        output.warn("this daemon sends and fetches nothing by itself (CLUMSIES_SYNC_ENABLED)")
    end = time.monotonic() + (wait_s if started else 0.0)
    while True:
        status = daemon.call("sync_status")
        # Without a Server there may be nothing to attempt.
        attempted = health["server_url"] == "local:" or _attempts(status) > _attempts(before)
        if (attempted and _is_settled(status)) or time.monotonic() >= end:
            return status
        time.sleep(_POLL_S)


def _attempts(status: dict[str, Any]) -> str:
    return max(str(status[name].get("last_attempt_at") or "") for name, _ in _CHANNELS)


def _is_settled(status: dict[str, Any]) -> bool:
    """Nothing is under way, and what is queued still waits because of an error."""
    states = {status[name]["state"] for name, _ in _CHANNELS}
    return "syncing" not in states and ("queued" not in states or bool(errors_of(status)))


def errors_of(status: dict[str, Any]) -> list[str]:
    """Codes of the channels' last errors, sorted."""
    found = {status[name].get("last_error") for name, _ in _CHANNELS}
    return sorted(str(code) for code in found - {None})


def explained(code: str, health: dict[str, Any]) -> tuple[str, str]:
    """What an error of synchronization means here, and what helps."""
    words, remedy = _REMEDIES.get(code, _OTHERWISE)
    if code == "unauthorized" and health.get("has_personal_token"):
        words, remedy = "the Server does not accept the token", TOKEN_REMEDY
    return f"{words} ({code})", remedy


def unavailable_words(project: dict[str, Any]) -> tuple[str, str]:
    """A project whose membership has ended: what is kept, and what helps."""
    name = project.get("name")
    shown = f"{name} ({project['project_id']})" if name else project["project_id"]
    count = project["draft_count"]
    kept = counted(count, "draft of it is", "drafts of it are") + " kept here" if count else ""
    words = f"{shown} is not available to you any more"
    return "; ".join(filter(None, (words, kept))), (
        "ask an owner or admin to let you in, then `clumsies sync`"
    )


def counted(count: int, one: str, several: str) -> str:
    """`1 draft`, `2 drafts`."""
    return f"{count} {one if count == 1 else several}"


def print_sync(status: dict[str, Any], health: dict[str, Any]) -> None:
    """Both channels and what waits, for a person."""
    console = output.stdout()
    for name, what in _CHANNELS:
        channel = status[name]
        words, style = _STATES.get(channel["state"], (channel["state"], ""))
        line = Text(f"{what:<15}").append(words, style=style)
        if channel.get("last_success_at"):
            when = channel["last_success_at"][:19].replace("T", " ")
            line.append(f"  last in step {when}", style="faint")
        console.print(line, soft_wrap=True)
    _print_lines(console, (explained(code, health) for code in errors_of(status)))
    _print_lines(console, ((words, "") for words in waiting(status)))
    _print_lines(console, map(unavailable_words, status["unavailable_projects"]))


def _print_lines(console: Console, lines: Iterable[tuple[str, str]]) -> None:
    for words, remedy in lines:
        console.print(Text(words, style="warning"), soft_wrap=True)
        if remedy:
            console.print(Text(f"  → {remedy}"), soft_wrap=True)


def waiting(status: dict[str, Any]) -> list[str]:
    """What waits or asks for somebody, each with the command that helps."""
    found = [
        (
            status["pending_operation_count"],
            "stored change waits to be sent",
            "stored changes wait to be sent",
        ),
        (
            status["failed_operation_count"],
            "stored change was refused; `clumsies drafts` shows it",
            "stored changes were refused; `clumsies drafts` shows them",
        ),
        (
            status["behind_draft_count"],
            "draft is behind the memory; `clumsies drafts` shows which",
            "drafts are behind the memory; `clumsies drafts` shows which",
        ),
        (
            status["reconciliation_conflict_count"],
            "draft has a conflict; `clumsies drafts rebase DRAFT` shows both sides",
            "drafts have conflicts; `clumsies drafts rebase DRAFT` shows both sides",
        ),
    ]
    return [counted(count, one, several) for count, one, several in found if count]
