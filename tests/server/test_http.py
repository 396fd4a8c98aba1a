"""What every route shares: request ids, the error envelope, bounds, CORS and compression."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from litestar import Litestar, get, post
from litestar.datastructures import State
from litestar.params import FromPath, FromQuery, JSONBody

from clumsies.api.common import MAX_BODY_BYTES
from clumsies.api.projects import CreateProject, Project
from clumsies.config import ServerSettings
from clumsies.errors import Conflict, StoreFailed
from clumsies.server.context import ServerContext
from clumsies.server.http.app import make_app
from clumsies.server.http.bodies import StrictRequest
from clumsies.server.http.dependencies import (
    DEPENDENCIES,
    IfMatchRef,
    IfMatchVersion,
    SignedIn,
)
from clumsies.server.http.errors import HANDLERS
from clumsies.server.http.request_ids import RequestIds

MADE = re.compile(r"req_[0-9a-f]{32}")
Connect = Callable[..., httpx.Client]
Client = Callable[[str | None], httpx.Client]


@get("/who", sync_to_thread=True)
def who(acting: SignedIn) -> str:
    return acting.principal.user_id


@post("/projects", sync_to_thread=True)
def make_project(data: JSONBody[CreateProject], if_match_version: IfMatchVersion) -> Project:
    return Project(
        project_id="p", name=data.name, description="", revision=if_match_version,
        created_at="", updated_at="",
    )  # fmt: skip


@get("/page", sync_to_thread=True)
def page(limit: FromQuery[int] = 50) -> int:
    return limit


@get("/ref", sync_to_thread=True)
def ref(if_match_ref: IfMatchRef) -> dict[str, str | None]:
    return {"commit_id": if_match_ref}


@get("/broken/{kind:str}", sync_to_thread=True)
def broken(kind: FromPath[str]) -> str:
    if kind == "conflict":
        raise Conflict("version_conflict", "It changed.", {"expected_version": 1})
    if kind == "database":
        raise StoreFailed("server_database_failed", "The database is busy.")
    raise ValueError("the text of a memory")


@pytest.fixture
def sample(context: ServerContext, connect: Connect) -> Client:
    """An application of the routes above, made as the real one is."""
    app = Litestar(
        [who, make_project, page, ref, broken],
        dependencies=DEPENDENCIES,
        exception_handlers=HANDLERS,
        state=State({"context": context}),
        request_class=StrictRequest,
        request_max_body_size=MAX_BODY_BYTES,
        openapi_config=None,
        logging_config=None,
    )
    wrapped = RequestIds(app, context.log)
    return lambda user: connect(wrapped, user)


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error of a failure; its id is the header's."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"code", "message", "request_id", "details"}
    assert body["error"]["request_id"] == answer.headers["x-request-id"]
    found: dict[str, Any] = body["error"]
    return found


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ({}, None),
        ({"x-request-id": "req_mine"}, "req_mine"),
        ({"x-clumsies-request-id": "A.b-9", "x-request-id": "other"}, "A.b-9"),
        ({"x-clumsies-request-id": "a b", "x-request-id": "second"}, "second"),
        ({"x-request-id": "x" * 128}, "x" * 128),
        ({"x-request-id": "x" * 129}, None),
        ({"x-request-id": "line;break"}, None),
    ],
)
def test_a_request_keeps_the_clients_id_or_gets_one(
    client: Client, sent: dict[str, str], kept: str | None
) -> None:
    answer = client(None).get("/nowhere", headers=sent)
    found = answer.headers["x-request-id"]
    assert found == kept if kept else MADE.fullmatch(found)
    assert error_of(answer, 404)["code"] == "not_found"


def test_a_method_that_is_not_taken_names_those_that_are(client: Client) -> None:
    answer = client(None).delete("/api/v1/admin/health")
    error_of(answer, 405)
    assert "GET" in answer.headers["allow"]


@pytest.mark.parametrize("header", [None, "Basic ann", "Bearer", "Bearer nobody", "ann"])
def test_without_a_known_bearer_nobody_is_in(sample: Client, header: str | None) -> None:
    headers = {"authorization": header} if header else {}
    answer = sample(None).get("/who", headers=headers)
    assert error_of(answer, 401)["code"] == "unauthorized"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert sample("ann").get("/who").text == "user_ann"


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        (b"{", "invalid_json", None),
        (b"", "invalid_request", None),
        (b"[]", "invalid_request", None),
        (b"{}", "invalid_request", "name"),
        (b'{"name": 1}', "invalid_request", "name"),
        (b'{"name": "a", "description": 5}', "invalid_request", "description"),
        (b'{"name": ""}', "invalid_request", "name"),
        (b'{"name": "a", "colour": "red"}', "invalid_request", "colour"),
        (b'{"name": "\xff"}', "invalid_json", None),
    ],
)
def test_a_body_that_is_wrong_is_told_where(
    sample: Client, body: bytes, code: str, field: str | None
) -> None:
    answer = sample("ann").post(
        "/projects",
        content=body,
        headers={"content-type": "application/json", "if-match": "1"},
    )
    error = error_of(answer, 400)
    assert error["code"] == code
    if field:
        assert error["details"] == {"field": field, "source": "body"}


def test_a_parameter_that_is_wrong_is_told(sample: Client) -> None:
    error = error_of(sample("ann").get("/page", params={"limit": "many"}), 400)
    assert error["details"]["field"] == "limit"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_10_mib_is_refused(sample: Client, chunked: bool) -> None:
    whole = b'{"name": "' + b"a" * MAX_BODY_BYTES + b'"}'
    content: Any = iter([whole[:1000], whole[1000:]]) if chunked else whole
    headers = {"content-type": "application/json", "if-match": "1"}
    answer = sample("ann").post("/projects", content=content, headers=headers)
    assert error_of(answer, 413)["code"] == "invalid_request"


@pytest.mark.parametrize(("header", "version"), [("7", 7), ('"7"', 7), (" 0 ", 0)])
def test_an_integer_if_match_is_read(sample: Client, header: str, version: int) -> None:
    answer = sample("ann").post("/projects", json={"name": "a"}, headers={"if-match": header})
    assert answer.json()["revision"] == version


@pytest.mark.parametrize("header", [None, "", "x", "-1", '"7', 'W/"7"', "1.0", "01", "1" * 17])
def test_an_integer_if_match_must_be_one(sample: Client, header: str | None) -> None:
    headers = {} if header is None else {"if-match": header}
    answer = sample("ann").post("/projects", json={"name": "a"}, headers=headers)
    assert error_of(answer, 400)["code"] == "invalid_request"


def test_a_refs_if_match_is_strong_and_quoted(sample: Client) -> None:
    def ask(header: str) -> httpx.Response:
        return sample("ann").get("/ref", headers={"if-match": header})

    name = "0123456789abcdef" * 4
    assert ask(f'"{name}"').json() == {"commit_id": name}
    assert ask('"ref-none"').json() == {"commit_id": None}
    for wrong in (name, f'W/"{name}"', f'"{name.upper()}"', "ref-none", '"7"', "*", ""):
        assert error_of(ask(wrong), 400)["code"] == "invalid_request"


def test_our_errors_travel_and_others_do_not(
    sample: Client, caplog: pytest.LogCaptureFixture
) -> None:
    error = error_of(sample("ann").get("/broken/conflict"), 409)
    assert (error["code"], error["details"]) == ("version_conflict", {"expected_version": 1})
    assert error_of(sample("ann").get("/broken/database"), 500)["code"] == "server_database_failed"
    with caplog.at_level(logging.INFO, "clumsies.server"):
        error = error_of(sample("ann").get("/broken/else?secret=1"), 500)
    assert error["code"] == "internal_error"
    assert "memory" not in error["message"]
    assert "ValueError" in caplog.text
    assert "text of a memory" not in caplog.text
    assert "secret" not in caplog.text
    assert error["request_id"] in caplog.text


def test_a_known_origin_may_read_the_headers(context: ServerContext, connect: Connect) -> None:
    settings = ServerSettings(cors_origins=("https://app.example",))
    app = make_app(replace(context, settings=settings))
    asked = connect(app).get("/api/v1/admin/health", headers={"origin": "https://app.example"})
    assert asked.headers["access-control-allow-origin"] == "https://app.example"
    exposed = asked.headers["access-control-expose-headers"]
    assert {"etag", "x-request-id"} <= set(re.split(r",\s*", exposed))
    asked = connect(app).get("/api/v1/admin/health", headers={"origin": "https://evil.example"})
    assert "access-control-allow-origin" not in asked.headers


def test_long_answers_are_compressed(client: Client) -> None:
    answer = client(None).get("/api/v1/openapi.json", headers={"accept-encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    plain = client(None).get("/api/v1/openapi.json", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert answer.json() == plain.json()


def test_the_document_describes_routes_and_failures(client: Client) -> None:
    document = client(None).get("/api/v1/openapi.json").json()
    operation = document["paths"]["/api/v1/admin/health"]["get"]
    assert {"200", "500"} == set(operation["responses"])
    merge = document["paths"]["/api/v1/reviews/{review_id}/merges"]["post"]["responses"]
    assert set(merge) == {"201", "400", "401", "403", "404", "409", "412", "413", "500"}
    assert "ErrorEnvelope" in document["components"]["schemas"]


def test_health_names_every_component(client: Client) -> None:
    body = client(None).get("/api/v1/admin/health").json()
    parts = {"database", "schema", "commit_service", "oidc"}
    assert body.keys() == {"status", "version"} | parts
    assert {name: body[name]["status"] for name in parts} == {
        "database": "ok",
        "schema": "ok",
        "commit_service": "ok",
        "oidc": "degraded",
    }
    assert body["status"] == "degraded"


def test_options_names_every_method_of_a_path(client: Client) -> None:
    for path, item in client(None).get("/api/v1/openapi.json").json()["paths"].items():
        if path.startswith("/api/v1/"):
            answer = client(None).options(path)
            wanted = {method.upper() for method in item} | {"OPTIONS"}
            assert set(re.split(r",\s*", answer.headers["allow"])) == wanted


def test_who_is_not_signed_in_is_told_that_first(client: Client) -> None:
    for method, path, more in (
        ("GET", "/api/v1/admin/members", {"params": {"cursor": "x"}}),
        ("PATCH", "/api/v1/projects/proj_alpha", {"headers": {"if-match": "x"}, "json": {}}),
    ):
        assert error_of(client(None).request(method, path, **more), 401)["code"] == "unauthorized"


def test_an_integer_may_be_written_with_a_fraction_of_nothing(client: Client) -> None:
    body = '{"name": "nightly", "expires_in_days": %s}'
    for number, status in (("5.0", 201), ("5.5", 400), ("1e300", 400), ('"5"', 400)):
        answer = client("ann").post("/api/v1/me/tokens", content=body % number)
        assert answer.status_code == status, number
