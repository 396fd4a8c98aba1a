"""The daemon as a systemd user service that its socket starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from clumsies.daemon.commands import Runner, required, succeeds
from clumsies.errors import InvalidRequest
from clumsies.files import write_private

SERVICE_UNIT = "clumsiesd.service"
SOCKET_UNIT = "clumsiesd.socket"
_SYSTEMCTL = ("systemctl", "--user")


def service_unit(command: list[str], settings: Mapping[str, str], error_log: Path) -> str:
    """The text of `clumsiesd.service`; stopping may take as long as the daemon's own bounds."""
    environment = "".join(f"Environment={_quoted(f'{n}={v}')}\n" for n, v in settings.items())
    return f"""[Unit]
Description=clumsies: team memory for coding agents
Requires={SOCKET_UNIT}
After={SOCKET_UNIT}
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=notify
NotifyAccess=main
ExecStart={" ".join(_quoted(word).replace("$", "$$") for word in command)}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
TimeoutStartSec=300
TimeoutStopSec=30
UMask=0077
NoNewPrivileges=yes
StandardOutput=null
StandardError=append:{_specifiers(str(error_log))}
{environment}
[Install]
WantedBy=default.target
"""


def socket_unit(path: Path) -> str:
    """The text of `clumsiesd.socket`."""
    return f"""[Unit]
Description=clumsies: the daemon's socket

[Socket]
ListenStream={_specifiers(str(path))}
SocketMode=0600
DirectoryMode=0700
RemoveOnStop=yes

[Install]
WantedBy=sockets.target
"""


class Systemd:
    """`systemctl --user` over the two units in `directory`."""

    name = "systemd"

    def __init__(self, directory: Path, run: Runner = succeeds):
        self.service = directory / SERVICE_UNIT
        self.socket = directory / SOCKET_UNIT
        self._run = run

    def available(self) -> bool:
        """Whether this user has a running manager; a plain container has none."""
        return self._run([*_SYSTEMCTL, "show", "--property=Version"])

    def installed(self) -> bool:
        return self.service.exists() and self.socket.exists()

    def install(
        self, command: list[str], settings: Mapping[str, str], error_log: Path, path: Path
    ) -> None:
        """Write the units and start listening; the first client starts the service."""
        self.service.parent.mkdir(parents=True, exist_ok=True)
        write_private(self.service, [service_unit(command, settings, error_log).encode("utf-8")])
        write_private(self.socket, [socket_unit(path).encode("utf-8")])
        required(self._run, [*_SYSTEMCTL, "daemon-reload"])
        required(self._run, [*_SYSTEMCTL, "enable", "--now", SOCKET_UNIT])

    def uninstall(self) -> None:
        """Stop and forget the units; files that are not there do no harm."""
        if self.installed() and self.available():
            required(self._run, [*_SYSTEMCTL, "disable", "--now", SOCKET_UNIT, SERVICE_UNIT])
        self.service.unlink(missing_ok=True)
        self.socket.unlink(missing_ok=True)
        if self.available():
            required(self._run, [*_SYSTEMCTL, "daemon-reload"])

    def start(self) -> None:
        required(self._run, [*_SYSTEMCTL, "start", SOCKET_UNIT, SERVICE_UNIT])

    def stop(self) -> None:
        """Stop the socket too: it would start the daemon again."""
        required(self._run, [*_SYSTEMCTL, "stop", SOCKET_UNIT, SERVICE_UNIT])


def _specifiers(text: str) -> str:
    """`%` begins a specifier in a unit, and a line break would begin another setting."""
    if any(ord(character) < 32 for character in text):
        raise InvalidRequest(
            "invalid_config", "A path or setting has a control character; rename it."
        )
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    escaped = _specifiers(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
