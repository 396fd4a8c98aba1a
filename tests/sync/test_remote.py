"""The client over real sockets: what every kind of answer, and of no answer, becomes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Any

import pytest

from clumsies.api.common import MAX_BODY_BYTES
from clumsies.api.identity import Me
from clumsies.errors import ClumsiesError, Conflict, InvalidRequest, NotFound, Refused, SyncFailed
from clumsies.logs import EventLog, LogFile
from clumsies.sync.answers import MAX_COMMIT_BODY_BYTES, retryable
from clumsies.sync.remote import Patience, RemoteClient
from clumsies.sync.sessions import FixedSession
from tests.sync.fault_server import (
    Break,
    Fault,
    FaultServer,
    Reply,
    answers,
    body_of,
    broken,
    envelope,
    gzip_bomb,
    html,
    json_reply,
    network_faults,
    redirect,
    refused_url,
    reset,
    retyped,
    status,
)
from tests.sync.samples import Authority

SECRET = "s3cret"
QUICK = Patience(connect_s=2.0, request_s=0.6)
ME = "/api/v1/me"


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer(Authority()) as server:
        yield server


@pytest.fixture
def log(tmp_path: Path) -> EventLog:
    return EventLog(LogFile(tmp_path / "daemon.log"), level="debug")


@pytest.fixture
def client(server: FaultServer, log: EventLog) -> Iterator[RemoteClient]:
    with RemoteClient(FixedSession(server.url, "access_1"), log=log) as client:
        yield client


@pytest.fixture
def hasty(server: FaultServer, log: EventLog) -> Iterator[RemoteClient]:
    """A client that waits for less long, for faults that only end with its patience."""
    with RemoteClient(FixedSession(server.url, "access_1"), log=log, patience=QUICK) as client:
        yield client


def failure(client: RemoteClient, path: str = ME, **request: Any) -> ClumsiesError:
    with pytest.raises(ClumsiesError) as caught:
        client.call("GET", path, Me, **request)
    return caught.value


def test_an_answer_is_decoded_and_its_headers_are_there(client: RemoteClient) -> None:
    me, response = client.exchange("GET", ME, Me)
    assert me.projects[0].project_id == "proj_1"
    assert response.headers["etag"] == '"one"'


def test_a_request_carries_its_id_its_session_and_nothing_of_the_environment(
    client: RemoteClient, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    client.call("GET", ME, Me, request_id="req_mine", query={"limit": 3, "cursor": None, "a": "ä"})
    (asked,) = server.script.requests
    assert asked.path == "/api/v1/me?limit=3&a=%C3%A4"
    assert asked.headers["x-request-id"] == asked.headers["x-clumsies-request-id"] == "req_mine"
    assert asked.bearer == "access_1"
    assert asked.headers["accept-encoding"] == "gzip"


def test_a_query_is_added_to_one_that_is_there(client: RemoteClient, server: FaultServer) -> None:
    client.request("GET", f"{ME}?a=1", query={"b": "2"})
    assert server.script.requests[0].path == f"{ME}?a=1&b=2"


def test_failures_of_the_server_are_logged_by_family_alone(
    client: RemoteClient, server: FaultServer, log: EventLog
) -> None:
    server.plan(status(500))
    client.request("GET", f"/api/v1/drafts/{SECRET}", request_id="req_7")
    lines = [json.loads(line) for line in log.file.path.read_text().splitlines()]
    (told,) = [line for line in lines if line["level"] == "warning"]
    assert told["event"] == "http_headers"
    assert told["route"] == "/api/v1/drafts"
    assert (told["request_id"], told["server_request_id"]) == ("req_7", "req_server")
    assert SECRET not in log.file.path.read_text()


def test_made_ids_differ(client: RemoteClient, server: FaultServer) -> None:
    client.call("GET", ME, Me)
    client.call("GET", ME, Me)
    ids = [asked.headers["x-request-id"] for asked in server.script.requests]
    assert len(set(ids)) == 2
    assert all(each.startswith("req_") and len(each) == 36 for each in ids)


def test_json_is_sent(client: RemoteClient) -> None:
    echoed = client.call("POST", "/api/v1/drafts", dict, json={"text": "größer"})
    assert echoed == {"echo": {"text": "größer"}}


@pytest.mark.parametrize("fault", network_faults(), ids=str)
def test_where_no_answer_was_heard_it_may_be_tried_again(
    hasty: RemoteClient, client: RemoteClient, server: FaultServer, fault: Fault
) -> None:
    server.plan(fault)
    error = failure(hasty)
    assert error.code == "server_request_failed"
    assert retryable(error), error.details
    assert isinstance(client.call("GET", ME, Me), Me)
    assert len(server.script.requests) == 2, "nothing is sent twice by itself"


def test_a_body_that_drips_is_given_up_when_the_time_is_over(
    hasty: RemoteClient, server: FaultServer
) -> None:
    server.plan(broken(Break.DRIP, after=True))
    assert failure(hasty).details["reason"] == "timeout"


def test_nobody_listens() -> None:
    with RemoteClient(FixedSession(refused_url(), "t")) as client:
        error = failure(client)
    assert error.details["reason"] == "unreachable"
    assert retryable(error)


@pytest.mark.parametrize(
    ("code", "kind", "again"),
    [
        (400, InvalidRequest, False),
        (401, Refused, False),
        (403, Refused, False),
        (404, NotFound, False),
        (408, SyncFailed, True),
        (409, Conflict, False),
        (412, Conflict, False),
        (429, SyncFailed, True),
        (500, SyncFailed, True),
        (502, SyncFailed, True),
        (504, SyncFailed, True),
    ],
)
def test_a_status_becomes_its_error(
    client: RemoteClient, server: FaultServer, code: int, kind: type[ClumsiesError], again: bool
) -> None:
    server.plan(status(code))
    error = failure(client)
    assert isinstance(error, kind)
    assert error.details["status"] == code
    assert retryable(error) is again


def test_details_of_a_conflict_are_kept(client: RemoteClient, server: FaultServer) -> None:
    details = {"entity": "draft", "expected_version": 1, "actual_version": 2}
    server.plan(answers(envelope(409, "version_conflict", details), "409"))
    error = failure(client)
    assert error.code == "version_conflict"
    assert error.details == {**details, "status": 409, "server_request_id": "req_server"}


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("7", 7.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("99999999999999999999", 3600.0),
        ("soon", None),
        ("-1", None),
    ],
)
@pytest.mark.parametrize("code", [429, 503])
def test_retry_after_is_a_hint(
    client: RemoteClient, server: FaultServer, code: int, value: str, wait_s: float | None
) -> None:
    server.plan(status(code, retry_after=value))
    error = failure(client)
    assert retryable(error)
    assert error.details.get("retry_after_s") == wait_s


@pytest.mark.parametrize(
    ("fault", "again"),
    [
        (html(200), True),
        (html(401), False),
        (html(403), False),
        (html(404), False),
        (html(502), True),
        (retyped("text/plain"), True),
        (redirect("http://127.0.0.1:9/"), False),
        (answers(Reply(404, {}, b""), "bare 404"), False),
        (answers(Reply(404, {"content-type": "application/json"}, b"{}"), "odd 404"), False),
        (answers(json_reply(200, {"user": SECRET}), "odd 200"), False),
        (answers(json_reply(200, [[]]), "odder 200"), False),
        (answers(envelope(400, "local_db_error"), "a code that is not a Server's"), False),
        (answers(envelope(500, "not_found"), "a code that is not of its status"), True),
        (answers(Reply(200, {"content-encoding": "br"}, b"x"), "another packing"), False),
        (
            answers(
                Reply(200, {"content-type": "application/json"}, b"[" * 100_000), "deep nesting"
            ),
            None,
        ),
    ],
    ids=str,
)
def test_what_a_clumsies_server_would_not_say_is_no_answer_of_it(
    client: RemoteClient, server: FaultServer, fault: Fault, again: bool | None
) -> None:
    server.plan(fault)
    error = failure(client)
    assert error.code == "server_request_failed"
    assert again is None or retryable(error) is again
    assert len(server.script.requests) == 1, "redirects are not followed"


def test_nothing_of_a_body_is_told_or_logged(
    client: RemoteClient, server: FaultServer, tmp_path: Path
) -> None:
    odd = json_reply(200, {"user": SECRET})
    faults = [html(200), html(403), answers(odd, "odd"), broken(Break.CUT_UNANNOUNCED, after=True)]
    for fault in faults:
        server.plan(fault)
        error = failure(client, f"{ME}?q={SECRET}")
        assert SECRET not in f"{error.message}{error.details}{error.__cause__}"
    logged = (tmp_path / "daemon.log").read_text()
    assert '"event":"http_failed"' in logged
    assert '"route":"/api/v1/me"' in logged
    assert SECRET not in logged
    assert "access_1" not in logged


def test_words_of_the_server_are_made_fit_to_print(
    client: RemoteClient, server: FaultServer
) -> None:
    told = {"code": "forbidden", "message": "a\x1b[2Jb\n" + "x" * 5000, "request_id": "r"}
    server.plan(answers(json_reply(403, {"error": told}), "403"))
    message = failure(client).message
    assert message.startswith("a [2Jb x")
    assert len(message) == 1000


def test_bodies_are_bounded(client: RemoteClient, server: FaultServer) -> None:
    server.plan(body_of(MAX_BODY_BYTES))
    assert len(client.request("GET", ME).body) == MAX_BODY_BYTES
    server.plan(body_of(MAX_BODY_BYTES + 1))
    assert failure(client).details["reason"] == "too_large"


def test_a_commit_may_be_larger(client: RemoteClient, server: FaultServer) -> None:
    server.plan(body_of(MAX_COMMIT_BODY_BYTES))
    found = client.request("GET", ME, max_bytes=MAX_COMMIT_BODY_BYTES)
    assert len(found.body) == MAX_COMMIT_BODY_BYTES
    server.plan(body_of(65 * 1024 * 1024))
    error = failure(client, max_bytes=MAX_COMMIT_BODY_BYTES)
    assert error.details["reason"] == "too_large"
    assert not retryable(error)


def test_a_packed_body_is_unpacked_no_further_than_its_bound(
    client: RemoteClient, server: FaultServer
) -> None:
    server.plan(gzip_bomb(MAX_BODY_BYTES))
    assert len(client.request("GET", ME).body) == MAX_BODY_BYTES
    server.plan(gzip_bomb(MAX_BODY_BYTES + 1))
    assert failure(client).details["reason"] == "too_large"


@pytest.mark.parametrize(
    "body", [gzip.compress(b"{}")[:-9], b"no gzip", gzip.compress(b"{}") + b"more"], ids=len
)
def test_a_damaged_packing_is_an_answer_that_was_not_heard(
    client: RemoteClient, server: FaultServer, body: bytes
) -> None:
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    server.plan(answers(Reply(200, headers, body), "damaged"))
    assert failure(client).details["reason"] == "connection_lost"


def test_too_large_a_request_is_not_sent(client: RemoteClient, server: FaultServer) -> None:
    with pytest.raises(InvalidRequest):
        client.request("POST", "/api/v1/drafts", content=b"x" * (MAX_BODY_BYTES + 1))
    assert server.script.requests == []


def test_an_answer_without_a_body(client: RemoteClient, server: FaultServer) -> None:
    server.plan(answers(Reply(204), "204"))
    assert client.call("DELETE", "/api/v1/drafts/draft_1", NoneType) is None


@pytest.mark.parametrize("bad", ["", "a b", "a\r\nx: y", "x" * 129, "ä", "a\n"])
def test_a_request_id_injects_nothing(client: RemoteClient, server: FaultServer, bad: str) -> None:
    with pytest.raises(InvalidRequest):
        client.request("GET", ME, request_id=bad)
    assert server.script.requests == []


@pytest.mark.parametrize(
    "headers",
    [
        {"if-match": '"a"\r\nx-evil: 1'},
        {"if-match\r\nx": "1"},
        {"if-match": "ä"},
        {"authorization": "Bearer other"},
        {"host": "other"},
        {"transfer-encoding": "chunked"},
    ],
)
def test_a_header_injects_nothing(
    client: RemoteClient, server: FaultServer, headers: dict[str, str]
) -> None:
    with pytest.raises(InvalidRequest):
        client.request("GET", ME, headers=headers)
    assert server.script.requests == []


def test_a_token_that_is_none_is_never_sent(server: FaultServer) -> None:
    with RemoteClient(FixedSession(server.url, "a\r\nx-evil: 1")) as client:
        error = failure(client)
    assert error.code == "unauthorized"
    assert server.script.requests == []


def test_cookies_are_neither_kept_nor_sent(client: RemoteClient, server: FaultServer) -> None:
    server.plan(answers(json_reply(200, {}, set_cookie="a=b"), "cookie"))
    client.request("GET", ME)
    client.request("GET", ME)
    assert "cookie" not in server.script.requests[1].headers


def test_closing_ends_what_waits(server: FaultServer) -> None:
    import threading

    client = RemoteClient(FixedSession(server.url, "access_1"))
    server.plan(broken(Break.STALL))
    caught: list[ClumsiesError] = []
    thread = threading.Thread(target=lambda: caught.append(failure(client)))
    thread.start()
    assert server.stalled.wait(10)
    client.close()
    thread.join(10)
    assert not thread.is_alive()
    assert retryable(caught[0])
    assert failure(client).details["reason"] == "closed"


def test_a_connection_lost_while_idle_costs_nothing(
    client: RemoteClient, server: FaultServer
) -> None:
    client.call("GET", ME, Me)
    server.plan(reset(after=True))
    assert retryable(failure(client))
    assert isinstance(client.call("GET", ME, Me), Me)
