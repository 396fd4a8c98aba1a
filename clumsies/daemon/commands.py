"""Running the platform's own tools, bounded and without a shell, and saying what failed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence

from clumsies.errors import DaemonFailed

COMMAND_TIMEOUT_S = 60.0
Runner = Callable[[Sequence[str]], bool]
"""Runs a command; whether it succeeded."""


def succeeds(command: Sequence[str]) -> bool:
    """Whether the command ends with status 0 in time; its output goes nowhere."""
    try:
        found = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return found.returncode == 0


def required(run: Runner, command: Sequence[str]) -> None:
    """Run a command that has to succeed; raises DaemonFailed("service_manager_failed")."""
    if not run(command):
        raise DaemonFailed(
            "service_manager_failed",
            f"`{' '.join(command)}` failed; run it by hand to see why.",
        )


def say(message: str) -> None:
    """One line for whoever started the daemon by hand, and for the service's error log."""
    if sys.stderr is not None:
        sys.stderr.write(f"clumsiesd: {message}\n")
        sys.stderr.flush()
