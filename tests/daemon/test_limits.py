"""Bounds of the dispatcher and the server, with small numbers: deadlines, pools, slow peers."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clumsies.daemon import messages as m
from clumsies.daemon.connections import SocketServer
from clumsies.daemon.context import CancelToken, Handlers, RequestContext
from clumsies.daemon.contract import METHODS
from clumsies.daemon.dispatcher import Dispatcher
from clumsies.daemon.sockets import bind
from clumsies.daemon.wire import Request, Response, decode_response
from clumsies.errors import NotReady, StoreFailed
from clumsies.logs import EventLog, LogFile
from tests.daemon.running import LONG_S, Peer

SHORT_S = 0.2
METHODS_WITH_SHORT_DEADLINES = {
    name: replace(method, deadline_s=SHORT_S, needs_marker=False)
    for name, method in METHODS.items()
}


class Gate:
    """Handlers that wait until the test lets them go on."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.contexts: list[RequestContext] = []
        self.started = threading.Semaphore(0)

    def projects(self, _request: m.Nothing, context: RequestContext) -> m.ProjectList:
        self.contexts.append(context)
        self.started.release()
        assert self.opened.wait(LONG_S)
        if context.cancel.cancelled:
            raise StoreFailed("local_db_error", "An error that nobody waits for.")
        return m.ProjectList([])

    @property
    def handlers(self) -> Handlers:
        return {"list_projects": self.projects}


def dispatcher(gate: Gate, log: EventLog, **more: Any) -> Dispatcher:
    return Dispatcher(gate.handlers, log, **more)


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog(LogFile(tmp_path / "daemon.log"))


def code_of(frame: bytes) -> str | None:
    response: Response = decode_response(frame[4:])
    return None if response.error is None else response.error.code


def request(number: int = 1) -> Request:
    return Request(id=number, method="list_projects")


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run with every complaint of the event loop as a failure."""
    complaints: list[dict[str, Any]] = []

    async def watched() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, found: complaints.append(found))
        await work()
        gc.collect()

    asyncio.run(watched())
    assert complaints == []


@pytest.mark.parametrize(
    ("code", "wanted"),
    [("request_deadline", "request_deadline"), ("activation_deadline", "activation_deadline")],
)
def test_a_deadline_answers_cancels_and_leaves_the_late_error(
    log: EventLog, code: str, wanted: str
) -> None:
    gate = Gate()
    methods = {
        "list_projects": replace(METHODS_WITH_SHORT_DEADLINES["list_projects"], deadline_code=code)
    }

    async def work() -> None:
        made = dispatcher(gate, log, methods=methods)
        assert code_of(await made.answer(request())) == wanted
        assert gate.contexts[0].cancel.cancelled
        assert made.active == 1
        gate.opened.set()
        assert await made.wait_idle(LONG_S)
        made.close()

    run(work)
    assert wanted in Path(log.file.path).read_text()


def test_a_pool_that_is_full_is_busy_at_once(log: EventLog) -> None:
    gate = Gate()

    async def work() -> None:
        made = dispatcher(gate, log, quick_workers=1, max_waiting=2)
        waiting = [asyncio.create_task(made.answer(request(n))) for n in range(2)]
        await asyncio.sleep(0)
        assert code_of(await made.answer(request(3))) == "daemon_busy"
        gate.opened.set()
        assert [code_of(await task) for task in waiting] == [None, None]
        assert code_of(await made.answer(request(4))) is None
        made.close()

    run(work)


def test_a_call_that_is_given_up_while_it_waits_never_runs(log: EventLog) -> None:
    gate = Gate()

    async def work() -> None:
        made = dispatcher(gate, log, quick_workers=1)
        first = asyncio.create_task(made.answer(request(1)))
        await asyncio.to_thread(gate.started.acquire)
        second = asyncio.create_task(made.answer(request(2)))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        gate.opened.set()
        assert code_of(await first) is None
        assert await made.wait_idle(LONG_S)
        made.close()

    run(work)
    assert len(gate.contexts) == 1
    lines = [json.loads(line) for line in Path(log.file.path).read_text().splitlines()]
    assert [line["event"] for line in lines] == ["ipc_cancelled"]


def serving(
    log: EventLog, path: Path, work: Callable[[], None], gate: Gate | None = None, **more: Any
) -> None:
    """Run blocking `work` against a server in this process."""

    async def both() -> None:
        made = dispatcher(gate or Gate(), log)
        server = SocketServer(made, log, **more)
        await server.start(bind(path))
        try:
            await asyncio.to_thread(work)
        finally:
            await server.stop(LONG_S)
            made.close()
        assert server.statistics().connections == 0

    run(both)


@pytest.mark.parametrize("part", [b"\x00", b"\x00\x00\x00\x20", b'\x00\x00\x00\x20{"id":1'])
def test_a_peer_that_stops_inside_a_frame_is_let_go(
    log: EventLog, tmp_path: Path, part: bytes
) -> None:
    path = tmp_path / "s"

    def work() -> None:
        with Peer(path) as idle, Peer(path) as peer:
            peer.socket.sendall(part)
            answer = peer.answer()
            assert answer is not None
            assert answer.error is not None
            assert answer.error.code == "daemon_ipc_failed"
            assert peer.answer() is None
            idle.send(b'{"id":1,"method":"no_such"}')  # Idle is no fault.
            assert idle.answer() is not None

    serving(log, path, work, frame_timeout_s=SHORT_S)


def test_connections_are_bounded(log: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "s"

    def work() -> None:
        with Peer(path) as first, Peer(path) as second:
            for peer in (first, second):
                peer.send(b'{"id":1,"method":"no_such"}')
                assert peer.answer() is not None
            with Peer(path) as third:
                answer = third.answer()
                assert answer is not None
                assert answer.error is not None
                assert (answer.id, answer.error.code) == (None, "daemon_busy")
                assert third.answer() is None

    serving(log, path, work, max_connections=2)


def test_a_peer_of_another_user_gets_nothing(log: EventLog, tmp_path: Path) -> None:
    path = tmp_path / "s"

    def work() -> None:
        with Peer(path) as peer:
            answer = peer.answer()
            assert answer is not None
            assert answer.error is not None
            assert answer.error.code == "peer_refused"
            assert peer.answer() is None

    serving(log, path, work, owner=2**31 - 7)


def test_a_token_runs_its_callbacks_once_and_late_ones_at_once() -> None:
    token = CancelToken()
    ran: list[int] = []
    token.on_cancel(lambda: ran.append(1))
    token.raise_if_cancelled()
    assert not token.wait(0.0)
    token.cancel()
    token.cancel()
    token.on_cancel(lambda: ran.append(2))
    assert ran == [1, 2]
    assert token.wait(LONG_S)
    with pytest.raises(NotReady):
        token.raise_if_cancelled()
