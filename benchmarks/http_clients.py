"""Clients of HTTP/1.1 that cost next to nothing, so that what is measured is the other end."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Record:
    """Milliseconds by kind of request, from when it was due, and what failed."""

    latencies_ms: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failures: list[str] = field(default_factory=list)

    def add(self, other: Record) -> None:
        for kind, found in other.latencies_ms.items():
            self.latencies_ms[kind] += found
        self.failures += other.failures


class Client:
    """One connection that stays open, with one bearer."""

    def __init__(self, host: str, port: int, token: str):
        self._address = host, port
        self._head = f"host: {host}:{port}\r\nauthorization: Bearer {token}\r\n"
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def request(
        self, method: str, path: str, body: Any = None, headers: str = ""
    ) -> tuple[int, bytes]:
        """(status, body); raises OSError and EOFError where the connection breaks."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._address)
        reader, writer = self._streams
        payload = b"" if body is None else json.dumps(body).encode("utf-8")
        head = (
            f"{method} {path} HTTP/1.1\r\n{self._head}{headers}content-length: {len(payload)}\r\n"
        )
        if body is not None:
            head += "content-type: application/json\r\n"
        writer.write(head.encode("ascii") + b"\r\n" + payload)
        answer = await reader.readuntil(b"\r\n\r\n")
        lines = answer.decode("latin-1").lower().split("\r\n")
        size = next(int(line[15:]) for line in lines if line.startswith("content-length:"))
        return int(lines[0].split(" ")[1]), await reader.readexactly(size)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


Step = Callable[[Client], Awaitable[tuple[str, int, bytes]]]
"""One request: (kind, status, body)."""


async def at_a_pace(
    client: Client, step: Step, first_s: float, period_s: float, until_s: float, record: Record
) -> None:
    """A request every `period_s` from `first_s` on, in seconds of the loop's clock. One that
    is due while another is under way follows it at once, and its time counts from when it was due.
    """
    due = first_s
    while due < until_s:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        try:
            kind, status, body = await step(client)
        except (OSError, EOFError, ValueError) as error:
            record.failures.append(repr(error))
            return
        record.latencies_ms[kind].append((time.monotonic() - due) * 1000)
        if status >= 300:
            record.failures.append(f"{kind}: {status} {body[:300]!r}")
            return
        due += period_s
