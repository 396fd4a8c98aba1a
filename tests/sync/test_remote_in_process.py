"""The same client over an application in this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from clumsies.errors import ClumsiesError
from clumsies.sync.answers import retryable
from clumsies.sync.remote import Patience, RemoteClient, in_process_transport
from clumsies.sync.sessions import FixedSession
from tests.sync.fault_server import (
    AsgiAnswers,
    FaultTransport,
    network_faults,
    reset,
    serving,
    status,
)


class App:
    """Echoes what was asked; `/api/v1/fail` raises, `/api/v1/wait` waits for `release`."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.entered = threading.Event()
        self.asked = 0
        self.threads: set[str] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        self.asked += 1
        self.threads.add(threading.current_thread().name)
        body = b""
        more = True
        while more:
            part = await receive()
            body, more = body + part["body"], part["more_body"]
        if scope["path"] == "/api/v1/fail":
            raise RuntimeError("a fault of the application")
        if scope["path"] == "/api/v1/wait":
            self.entered.set()
            while not self.release.is_set():
                await asyncio.sleep(0.01)
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        text = b"%d %s" % (len(body), headers["authorization"].encode())
        found = [(b"content-type", b"application/json"), (b"etag", b'"one"')]
        await send({"type": "http.response.start", "status": 200, "headers": found})
        await send({"type": "http.response.body", "body": b'{"told": "', "more_body": True})
        await send({"type": "http.response.body", "body": text + b'"}'})


@pytest.fixture
def app() -> Iterator[App]:
    app = App()
    yield app
    app.release.set()


@pytest.fixture
def client(app: App) -> Iterator[RemoteClient]:
    with RemoteClient(
        FixedSession("local:", "local-token"), transport=in_process_transport(app)
    ) as client:
        yield client


def test_an_application_answers_as_a_server_would(client: RemoteClient) -> None:
    value, response = client.exchange("POST", "/api/v1/drafts", dict, content=b"x" * 200_000)
    assert value == {"told": "200000 Bearer local-token"}
    assert response.headers["etag"] == '"one"'


def test_its_exception_is_a_500(client: RemoteClient) -> None:
    with pytest.raises(ClumsiesError) as caught:
        client.call("GET", "/api/v1/fail", dict)
    assert caught.value.details == {"status": 500}
    assert retryable(caught.value)


def test_many_threads_ask_at_once_on_one_loop(client: RemoteClient, app: App) -> None:
    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(lambda _: client.request("GET", "/api/v1/me").status, range(200)))
    assert found == [200] * 200
    assert app.threads == {"local-authority"}


def test_an_application_that_waits_is_given_up(app: App) -> None:
    with (
        RemoteClient(
            FixedSession("local:", "t"),
            transport=in_process_transport(app),
            patience=Patience(1.0, 0.3),
        ) as client,
        pytest.raises(ClumsiesError) as caught,
    ):
        client.request("GET", "/api/v1/wait")
    assert caught.value.details["reason"] == "timeout"


def test_closing_ends_what_runs_and_the_thread(app: App) -> None:
    client = RemoteClient(FixedSession("local:", "t"), transport=in_process_transport(app))
    caught: list[ClumsiesError] = []

    def ask() -> None:
        with pytest.raises(ClumsiesError) as failed:
            client.request("GET", "/api/v1/wait")
        caught.append(failed.value)

    thread = threading.Thread(target=ask)
    thread.start()
    assert app.entered.wait(10)
    client.close()
    thread.join(10)
    assert retryable(caught[0])
    assert "local-authority" not in {each.name for each in threading.enumerate()}
    with pytest.raises(ClumsiesError):
        client.request("GET", "/api/v1/me")


def test_faults_before_an_application_asks_it_nothing_and_after_it_was_asked(app: App) -> None:
    answer = AsgiAnswers(app)
    transport = FaultTransport(answer)
    with RemoteClient(FixedSession("local:", "t"), transport=transport) as client:
        for fault in [*network_faults(), status(503), status(503, after=True)]:
            transport.plan(fault, method="POST", path="/api/v1/dr*")
            asked = app.asked
            with pytest.raises(ClumsiesError) as caught:
                client.call("POST", "/api/v1/drafts", dict, json={})
            assert retryable(caught.value)
            assert app.asked - asked == int(fault.after), str(fault)
        assert client.call("POST", "/api/v1/drafts", dict, json={})
    answer.close()


def test_an_application_behind_a_real_server_that_fails(app: App) -> None:
    with serving(app) as server, RemoteClient(FixedSession(server.url, "t")) as client:
        server.plan(reset(after=True), method="GET")
        with pytest.raises(ClumsiesError):
            client.call("GET", "/api/v1/me", dict)
        assert app.asked == 1
        assert client.call("GET", "/api/v1/me", dict) == {"told": "0 Bearer t"}
