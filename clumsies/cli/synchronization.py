"""`clumsies sync`: send what was stored and fetch what the team merged, now."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.connection import Connection, JsonOption, connected
from clumsies.errors import EXIT_FAILURE, EXIT_NOT_READY

WAIT_S = 120.0
_POLL_S = 0.1
_BUSY = frozenset({"queued", "syncing"})
_STYLES = {"idle": "added", "failed": "failure", "retrying": "warning", "degraded": "warning"}


def sync(
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or only start it.")
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Send what was stored here and fetch what the team merged. What failed is tried again."""
    with output.failures(as_json), connected() as daemon:
        daemon.call("retry_sync", {"channel": "all"})
        status = _settled(daemon) if wait else daemon.call("sync_status")
        if as_json:
            output.write_json(status)
        else:
            print_sync(status)
        states = {status["draft_sync"]["state"], status["commit_sync"]["state"]}
        if "failed" in states:
            raise typer.Exit(EXIT_FAILURE)
        if wait and states & {"retrying", "degraded"}:
            raise typer.Exit(EXIT_NOT_READY)


def _settled(daemon: Connection) -> dict[str, Any]:
    end = time.monotonic() + WAIT_S
    while True:
        status = daemon.call("sync_status")
        busy = {status["draft_sync"]["state"], status["commit_sync"]["state"]} & _BUSY
        if not busy or time.monotonic() >= end:
            return status
        time.sleep(_POLL_S)


def print_sync(status: dict[str, Any]) -> None:
    """Both channels and what waits, for a person."""
    console = output.stdout()
    for name, what in (("draft_sync", "stored changes"), ("commit_sync", "team's memory")):
        channel = status[name]
        line = Text(f"{what:<15}")
        line.append(channel["state"], style=_STYLES.get(channel["state"], ""))
        if channel.get("last_success_at"):
            when = channel["last_success_at"][:19].replace("T", " ")
            line.append(f"  last in step {when}", style="faint")
        if channel.get("last_error"):
            line.append(f"  {channel['last_error']}", style="warning")
        console.print(line, soft_wrap=True)
    for count, words in _counts(status):
        if count:
            console.print(Text(f"{count} {words}", style="warning"))
    for project in status["unavailable_projects"]:
        console.print(
            Text(
                f"{project['project_id']} is not available to you any more; "
                f"{project['draft_count']} drafts of it are kept here.",
                style="warning",
            ),
            soft_wrap=True,
        )


def _counts(status: dict[str, Any]) -> list[tuple[int, str]]:
    return [
        (status["pending_operation_count"], "stored changes wait to be sent"),
        (status["failed_operation_count"], "stored changes were refused; `clumsies drafts` shows"),
        (status["behind_draft_count"], "drafts are behind; `clumsies drafts rebase`"),
        (status["reconciliation_conflict_count"], "drafts have conflicts"),
    ]
