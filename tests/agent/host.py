"""An agent host as the proxy sees one: a process, its pipes, one message a line."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RUN_PROXY = "import sys; from clumsies.agent.proxy import main; main(sys.argv[1:])"
PATIENCE_S = 60.0
VERSION = "2025-11-25"
STATELESS = "2026-07-28"
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}


def command(*options: str, program: str | None = None) -> list[str]:
    """The proxy as hosts start it, or a program that runs it in a changed form."""
    run = ["-m", "clumsies.daemon.main", "mcp", "serve"] if program is None else ["-c", program]
    return [sys.executable, "-P", *run, *options]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


class Host:
    """Sends and receives; everything that came on standard output is kept in `raw`."""

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ):
        self.process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment() if env is None else env,
            cwd=directory,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin, self.stdout, self.stderr = (
            self.process.stdin,
            self.process.stdout,
            self.process.stderr,
        )
        self.raw = bytearray()
        self._read = 0
        self._next_id = 0

    def write(self, data: bytes) -> None:
        self.stdin.write(data)
        self.stdin.flush()

    def send(self, message: object) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next line, which has to be JSON."""
        end = time.monotonic() + PATIENCE_S
        while (found := self.raw.find(b"\n", self._read)) < 0:
            left = end - time.monotonic()
            ready, _, _ = select.select([self.stdout], [], [], max(0.0, left))
            assert ready, "the proxy did not answer"
            received = os.read(self.stdout.fileno(), 65536)
            assert received, f"the proxy ended: {self.stderr.read()!r}"
            self.raw += received
        line = bytes(self.raw[self._read : found])
        self._read = found + 1
        message = json.loads(line)
        assert isinstance(message, dict)
        assert message["jsonrpc"] == "2.0"
        return message

    def ask(self, method: str, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The whole answer to a request; notifications before it are passed over."""
        request_id = self.begin(method, params)
        while True:
            message = self.receive()
            if message.get("id") == request_id:
                return message

    def begin(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        self._next_id += 1
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": self._next_id, "method": method}
        if params is not None:
            message["params"] = params
        self.send(message)
        return self._next_id

    def shake_hands(self, version: str = VERSION) -> dict[str, Any]:
        answer = self.ask(
            "initialize",
            {
                "protocolVersion": version,
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        )
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        result = answer["result"]
        assert isinstance(result, dict)
        return result

    def call(self, name: str, arguments: object, **meta: Any) -> dict[str, Any]:
        """The whole answer to a tool call."""
        params: dict[str, Any] = {"name": name, "arguments": arguments}
        if meta:
            params["_meta"] = meta
        return self.ask("tools/call", params)

    def tool(self, name: str, arguments: object, **meta: Any) -> dict[str, Any]:
        """The result of a tool call, its two forms seen to be one."""
        answer = self.call(name, arguments, **meta)
        assert "result" in answer, answer
        result = answer["result"]
        assert isinstance(result, dict)
        [block] = result["content"]
        assert block["type"] == "text"
        as_written = json.dumps(
            result["structuredContent"], ensure_ascii=False, separators=(",", ":")
        )
        assert block["text"] == as_written
        return result

    def end(self, patience_s: float = PATIENCE_S) -> int:
        """Close the input and give the exit code; the rest of the output is in `raw`."""
        self.stdin.close()
        self.raw += self.stdout.read()
        code = self.process.wait(patience_s)
        self.close()
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            if not stream.closed:
                stream.close()


@contextmanager
def host(arguments: Sequence[str], **more: Any) -> Iterator[Host]:
    started = Host(arguments, **more)
    try:
        yield started
    finally:
        started.close()
