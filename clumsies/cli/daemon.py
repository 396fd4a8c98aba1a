"""`clumsies daemon`: the resident process."""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from clumsies.cli import output
from clumsies.cli.connection import JsonOption
from clumsies.errors import EXIT_NOT_READY, EXIT_OK, NotFound

LineCount = Annotated[int, typer.Option("--lines", "-n", min=1, max=10_000)]


def run() -> None:
    """Run the daemon in the foreground."""
    from clumsies.daemon.services import daemon_command

    os.execv(sys.executable, daemon_command())


def start(as_json: JsonOption = False) -> None:
    """Start the daemon, through its service where one is installed."""
    from clumsies.daemon.services import DaemonControl

    with output.failures(as_json):
        _show(DaemonControl().start(), "The daemon runs.", as_json)


def stop(as_json: JsonOption = False) -> None:
    """End the daemon; what it acknowledged is kept."""
    from clumsies.daemon.services import DaemonControl

    with output.failures(as_json):
        was_running = DaemonControl().stop()
        words = "The daemon has ended." if was_running else "The daemon was not running."
        _show({"was_running": was_running}, words, as_json)


def restart(as_json: JsonOption = False) -> None:
    """Stop and start the daemon."""
    from clumsies.daemon.services import DaemonControl

    with output.failures(as_json):
        _show(DaemonControl().restart(), "The daemon runs.", as_json)


def status(as_json: JsonOption = False) -> None:
    """Say whether the daemon runs and answers; exit code 3 where it does not."""
    from clumsies.daemon.services import DaemonControl

    with output.failures(as_json):
        found = DaemonControl().status()
        if as_json:
            output.write_json(asdict(found) | {"socket": str(found.socket)})
        else:
            console = output.stdout()
            if found.answers:
                console.print(f"running, process {found.pid} ({found.manager})")
            elif found.pid is not None:
                console.print(f"process {found.pid} does not answer: {found.problem}")
            else:
                console.print("not running; `clumsies daemon start` starts it")
            console.print(f"socket {found.socket}")
            console.print(f"service {'installed' if found.installed else 'not installed'}")
    raise typer.Exit(EXIT_OK if found.answers else EXIT_NOT_READY)


def logs(lines: LineCount = 50, as_json: JsonOption = False) -> None:
    """Print the end of the daemon's log: one JSON object a line, without any memory text."""
    from clumsies.config import daemon_places
    from clumsies.logs import DAEMON_LOG

    with output.failures(as_json):
        file = daemon_places().logs / DAEMON_LOG
        try:
            text = file.read_text("ascii", errors="replace")
        except FileNotFoundError as error:
            raise NotFound(
                "not_found", f"There is no log {file} yet; `clumsies daemon start` begins one."
            ) from error
        for line in text.splitlines()[-lines:]:
            sys.stdout.write(line + "\n")


def install(as_json: JsonOption = False) -> None:
    """Install the daemon as a service of this user: systemd on Linux, launchd on macOS."""
    from clumsies.daemon.services import DaemonControl

    with output.failures(as_json):
        manager = DaemonControl().install()
        words = (
            f"Installed in {manager}; it starts with your session."
            if manager != "background"
            else "No service manager answers here; the daemon runs in the background."
        )
        _show({"manager": manager}, words, as_json)


def uninstall(as_json: JsonOption = False) -> None:
    """End the daemon and remove its service; data, drafts and logs stay."""
    from clumsies.daemon.services import DaemonControl

    with output.failures(as_json):
        DaemonControl().uninstall()
        _show({"installed": False}, "The service is removed; data, drafts and logs stay.", as_json)


def _show(facts: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        output.write_json(facts)
    else:
        output.stdout().print(words)
