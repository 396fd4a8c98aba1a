"""A person at a shell: one home, one working directory, and every command a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clumsies.config import daemon_places
from clumsies.daemon.services import DaemonControl
from tests.daemon.resident import resident_environment, write_files
from tests.daemon.running import LONG_S


class Shell:
    """Its daemon starts with the first command that needs it; `stop` ends it."""

    def __init__(self, root: Path, files: Mapping[str, str], **more: str):
        self.environment = resident_environment(root) | {"NO_COLOR": "1"} | more
        self.places = daemon_places(self.environment)
        self.directory = root / "w"
        write_files(self.directory, files)

    def run(
        self, *arguments: str, text: str = "", directory: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-P", "-m", "clumsies", *arguments],
            cwd=directory or self.directory,
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=False,
            timeout=LONG_S * 2,
        )

    def json(self, *arguments: str, text: str = "") -> dict[str, Any]:
        """The one object of a command that has to succeed."""
        result = self.run(*arguments, "--json", text=text)
        assert result.returncode == 0, result.stderr
        body: dict[str, Any] = json.loads(result.stdout)
        return body

    def error(self, code: int, *arguments: str) -> dict[str, Any]:
        """The error object of a command that has to end with this exit code."""
        result = self.run(*arguments, "--json")
        assert result.returncode == code, (result.returncode, result.stderr)
        assert result.stdout == ""
        body: dict[str, Any] = json.loads(result.stderr)["error"]
        assert set(body) == {"code", "message", "details"}
        return body

    def stop(self) -> None:
        DaemonControl(self.places).stop()
