"""The daemon as a LaunchAgent of the logged-in user on macOS; it binds its socket itself."""

from __future__ import annotations

import os
import plistlib
from collections.abc import Mapping
from pathlib import Path

from clumsies.daemon.commands import Runner, required, succeeds
from clumsies.files import write_private

LABEL = "ai.clumsies.daemon"
_THROTTLE_S = 10


def launch_agent(
    command: list[str], settings: Mapping[str, str], error_log: Path, output_log: Path
) -> bytes:
    """The property list; launchd starts the daemon again unless it ended well."""
    return plistlib.dumps(
        {
            "Label": LABEL,
            "ProgramArguments": command,
            "EnvironmentVariables": dict(settings),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ProcessType": "Background",
            "ThrottleInterval": _THROTTLE_S,
            "ExitTimeOut": 30,
            "Umask": 0o077,
            "StandardErrorPath": str(error_log),
            "StandardOutPath": str(output_log),
        }
    )


class Launchd:
    """`launchctl` over the property list in `directory`."""

    name = "launchd"

    def __init__(self, directory: Path, run: Runner = succeeds):
        self.agent = directory / f"{LABEL}.plist"
        self._run = run
        self._domain = f"gui/{os.getuid()}"
        self._target = f"{self._domain}/{LABEL}"

    def available(self) -> bool:
        """Whether the user has a session that launchd serves."""
        return self._run(["launchctl", "print", self._domain])

    def installed(self) -> bool:
        return self.agent.exists()

    def install(
        self, command: list[str], settings: Mapping[str, str], error_log: Path, _socket: Path
    ) -> None:
        """Write the property list and load it, which starts the daemon."""
        self.agent.parent.mkdir(parents=True, exist_ok=True)
        output_log = error_log.with_name("clumsiesd.out.log")
        write_private(self.agent, [launch_agent(command, settings, error_log, output_log)])
        if self._loaded():
            required(self._run, ["launchctl", "bootout", self._target])
        required(self._run, ["launchctl", "bootstrap", self._domain, str(self.agent)])

    def uninstall(self) -> None:
        if self._loaded():
            required(self._run, ["launchctl", "bootout", self._target])
        self.agent.unlink(missing_ok=True)

    def start(self) -> None:
        if not self._loaded():
            required(self._run, ["launchctl", "bootstrap", self._domain, str(self.agent)])
        required(self._run, ["launchctl", "kickstart", self._target])

    def stop(self) -> None:
        """Unload it: a loaded agent would be started at the next login all the same."""
        if self._loaded():
            required(self._run, ["launchctl", "bootout", self._target])

    def _loaded(self) -> bool:
        return self._run(["launchctl", "print", self._target])
