"""Requests of local clients: what passes, what returns, and what is shown without the Server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clumsies.api.common import MAX_BODY_BYTES
from clumsies.errors import ClumsiesError, InvalidRequest
from clumsies.logs import EventLog, LogFile
from clumsies.storage.local_database import LocalDatabase
from clumsies.sync.credentials import Session
from clumsies.sync.proxy import Proxied, server_request
from clumsies.sync.remote import RemoteClient
from clumsies.sync.response_cache import ResponseCache
from clumsies.sync.sessions import KeyringSession
from tests.sync.fault_server import (
    Break,
    Fault,
    FaultServer,
    Reply,
    answers,
    broken,
    html,
    json_reply,
    status,
)
from tests.sync.samples import Authority, Keyring

ME = "/api/v1/me"


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(Authority()) as server:
        yield server


@pytest.fixture
def sessions(server: FaultServer) -> KeyringSession:
    return KeyringSession(server.url, Keyring(Session(server.url, "access_1", "refresh_1")))


class Proxy:
    def __init__(self, sessions: KeyringSession, tmp_path: Path):
        self.database = LocalDatabase(tmp_path / "data")
        self.logged = tmp_path / "daemon.log"
        self.log = EventLog(LogFile(self.logged))
        self.client = RemoteClient(sessions)
        self.cache = ResponseCache(self.database, sessions)

    def __call__(self, method: str, path: str, body: str | None = None, **headers: str) -> Proxied:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return server_request(
            self.client, self.cache, method, path, headers=named, body=body, log=self.log
        )

    def close(self) -> None:
        self.client.close()
        self.cache.close()
        self.database.close()


@pytest.fixture
def proxy(sessions: KeyringSession, tmp_path: Path) -> Iterator[Proxy]:
    proxy = Proxy(sessions, tmp_path)
    yield proxy
    proxy.close()


def test_an_answer_returns_with_three_headers(proxy: Proxy) -> None:
    found = proxy("GET", ME)
    assert found.status == 200
    assert found.headers == {
        "content-type": "application/json",
        "etag": '"one"',
        "x-request-id": "req_server",
    }
    assert json.loads(found.body)["user"]["user_id"] == "user_1"


def test_the_servers_other_headers_stay_here(proxy: Proxy, server: FaultServer) -> None:
    server.plan(answers(json_reply(200, {}, set_cookie="a=b", www_authenticate="c"), "more"))
    assert set(proxy("GET", ME).headers) == {"content-type"}


def test_only_listed_headers_pass(proxy: Proxy, server: FaultServer) -> None:
    proxy(
        "POST",
        "/api/v1/drafts",
        '{"a": "ä"}',
        accept="application/json",
        CONTENT_TYPE="application/json; charset=utf-8",
        if_match='"3"',
        if_none_match='"x"',
        idempotency_key="key",
        x_clumsies_request_id="req_of_client",
        authorization="Bearer stolen",
        cookie="a=b",
        x_forwarded_for="1.2.3.4",
        host="evil.example",
    )
    (asked,) = server.script.requests
    assert asked.bearer == "access_1"
    assert asked.body == '{"a": "ä"}'.encode()
    assert asked.headers["content-type"] == "application/json; charset=utf-8"
    assert asked.headers["if-match"] == '"3"'
    assert asked.headers["if-none-match"] == '"x"'
    assert asked.headers["idempotency-key"] == "key"
    assert asked.headers["x-request-id"] == "req_of_client"
    assert asked.headers["x-clumsies-request-id"] == "req_of_client"
    assert asked.headers["host"].startswith("127.0.0.1:")
    assert {"cookie", "x-forwarded-for"}.isdisjoint(asked.headers)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("HEAD", ME, None),
        ("get", ME, None),
        ("CONNECT", ME, None),
        ("GET", "/admin/health", None),
        ("GET", "/api/v1/../admin", None),
        ("GET", "/api/v1/a#b", None),
        ("GET", "/api/v1/a\r\nb", None),
        ("GET", "/api/v1/", None),
        ("GET", "https://evil.example/api/v1/me", None),
        ("POST", "/api/v1/auth/token", "{}"),
        ("DELETE", "/api/v1/auth/session", None),
        ("POST", "/api/v1/%61uth/token", "{}"),
        ("POST", "/api/v1/AUTH/token", "{}"),
        ("GET", ME, "{}"),
        ("POST", "/api/v1/drafts", "x" * (MAX_BODY_BYTES + 1)),
        ("POST", "/api/v1/drafts", "ä" * (MAX_BODY_BYTES // 2 + 1)),
        ("POST", "/api/v1/drafts", "\ud800"),
    ],
)
def test_what_may_not_pass_is_never_sent(
    proxy: Proxy, server: FaultServer, method: str, path: str, body: str | None
) -> None:
    with pytest.raises(InvalidRequest):
        proxy(method, path, body)
    assert server.script.requests == []


def test_a_header_injects_nothing(proxy: Proxy, server: FaultServer) -> None:
    for headers in ({"if_match": '"1"\r\nx: y'}, {"x_clumsies_request_id": "a b"}):
        with pytest.raises(InvalidRequest):
            proxy("GET", ME, **headers)
    assert server.script.requests == []


def test_a_body_of_ten_mebibytes_passes(proxy: Proxy, server: FaultServer) -> None:
    server.plan(answers(json_reply(200, {}), "200"))
    assert proxy("PUT", "/api/v1/drafts", "x" * MAX_BODY_BYTES).status == 200
    (asked,) = server.script.requests
    assert len(asked.body) == MAX_BODY_BYTES
    assert asked.headers["content-type"] == "application/json"


@pytest.mark.parametrize("code", [400, 403, 404, 409, 412, 429, 500, 503])
def test_a_failure_is_an_answer(proxy: Proxy, server: FaultServer, code: int) -> None:
    server.plan(status(code))
    assert proxy("POST", "/api/v1/drafts", "{}").status == code


AWAY = [
    broken(Break.RESET),
    broken(Break.CUT, after=True),
    status(408),
    status(429),
    status(500),
    status(503),
    html(200),
    html(502),
]


@pytest.mark.parametrize("fault", AWAY, ids=str)
def test_without_the_server_a_read_is_what_it_was_and_marked(
    proxy: Proxy, server: FaultServer, fault: Fault
) -> None:
    fresh = proxy("GET", ME)
    server.plan(fault)
    stale = proxy("GET", ME, x_clumsies_request_id="req_7")
    assert (stale.status, stale.body) == (fresh.status, fresh.body)
    assert stale.headers == {
        "content-type": "application/json",
        "etag": '"one"',
        "x-clumsies-cache": "stale",
    }
    line = json.loads(proxy.logged.read_text())
    assert line["event"] == "http_cache_fallback"
    assert (line["route"], line["request_id"]) == ("/api/v1/me", "req_7")
    assert proxy("GET", ME).headers["x-request-id"] == "req_server"


def test_not_found_is_remembered_too(proxy: Proxy, server: FaultServer) -> None:
    assert proxy("GET", "/api/v1/drafts/draft_1").status == 404
    server.plan(status(503))
    assert proxy("GET", "/api/v1/drafts/draft_1").headers["x-clumsies-cache"] == "stale"


@pytest.mark.parametrize("code", [400, 403, 404, 409, 412])
def test_what_the_server_says_is_never_hidden(proxy: Proxy, server: FaultServer, code: int) -> None:
    proxy("GET", ME)
    server.plan(status(code))
    found = proxy("GET", ME)
    assert found.status == code
    assert "x-clumsies-cache" not in found.headers


def test_a_change_is_never_answered_from_what_was_heard(proxy: Proxy, server: FaultServer) -> None:
    proxy("GET", ME)
    server.plan(broken(Break.RESET))
    with pytest.raises(ClumsiesError):
        proxy("DELETE", ME)


def test_nothing_was_heard_before(proxy: Proxy, server: FaultServer) -> None:
    server.plan(broken(Break.RESET))
    with pytest.raises(ClumsiesError) as caught:
        proxy("GET", ME)
    assert caught.value.code == "server_request_failed"
    server.plan(status(503))
    assert proxy("GET", ME).status == 503


def test_who_signs_in_sees_nothing_of_who_was_signed_in(
    proxy: Proxy, server: FaultServer, sessions: KeyringSession
) -> None:
    proxy("GET", ME)
    sessions.replace(Session(server.url, "access_1", "refresh_other"))
    server.plan(broken(Break.RESET))
    with pytest.raises(ClumsiesError):
        proxy("GET", ME)


def test_an_answer_that_is_no_text_is_not_passed_on(proxy: Proxy, server: FaultServer) -> None:
    server.plan(answers(Reply(200, {"content-type": "application/zip"}, b"\xff\xfe"), "binary"))
    with pytest.raises(ClumsiesError) as caught:
        proxy("POST", "/api/v1/admin/memory-export", "{}")
    assert caught.value.details["reason"] == "wrong_content"


def test_the_authority_in_process_needs_no_cache(sessions: KeyringSession) -> None:
    with RemoteClient(sessions) as client:
        assert server_request(client, None, "GET", ME).status == 200
