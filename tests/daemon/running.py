"""Starting real daemons for tests, and waiting for what they do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from clumsies.config import DaemonPlaces, daemon_places
from clumsies.daemon.client import DaemonClient
from clumsies.daemon.wire import FrameBuffer, Response, decode_response, encode_frame

ROOT = Path(__file__).resolve().parents[2]
LONG_S = 60.0
"""Much longer than anything takes on the slowest machine: a bound, not an expectation."""


def wait_for(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


class Daemon:
    """A daemon of its own home; ready once the object is made."""

    def __init__(self, home: Path, **more: str):
        home.mkdir(exist_ok=True)
        self.environment = environment_of(home, more)
        self.places: DaemonPlaces = daemon_places(self.environment)
        self._ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify = home / "notify"
        notify.unlink(missing_ok=True)
        self._ready.bind(str(notify))
        self._ready.settimeout(LONG_S)
        self.process = self.launch({"NOTIFY_SOCKET": str(notify)})
        self._ended = False
        assert self.notified() == "READY=1"

    def launch(self, more: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        """One more daemon process of the same places."""
        return subprocess.Popen(
            [sys.executable, "-m", "tests.daemon.sample_daemon"],
            env={**self.environment, **(more or {})},
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )

    def notified(self) -> str:
        return self._ready.recv(4096).decode()

    def client(self, build_id: str = "test") -> DaemonClient:
        return DaemonClient(self.places.socket, build_id)

    def saw(self, name: str) -> bool:
        return (self.places.root / name).exists()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and wait; the exit status."""
        if not self._ended and self.process.poll() is None:
            self.process.send_signal(number)
        if not self._ended:
            self._ended = True
            self.process.communicate(timeout=LONG_S)
            self._ready.close()
        return self.process.returncode

    def logs(self) -> str:
        """Every log file's text."""
        return "".join(path.read_text("utf-8") for path in sorted(self.places.logs.iterdir()))


class Peer:
    """A raw socket to the daemon, for what the client would never send."""

    def __init__(self, path: Path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(LONG_S)
        self.socket.connect(str(path))
        self._frames = FrameBuffer()

    def send(self, body: bytes) -> None:
        self.socket.sendall(encode_frame(body))

    def answer(self) -> Response | None:
        """The next frame, or None where the daemon has closed."""
        while True:
            body = self._frames.pop()
            if body is not None:
                return decode_response(body)
            try:
                received = self.socket.recv(65536)
            except ConnectionResetError:
                return None
            if not received:
                return None
            self._frames.feed(received)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def environment_of(home: Path, more: Mapping[str, str]) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "CLUMSIES_HOME": str(home / "c"), "PYTHONWARNINGS": "error", **more}
