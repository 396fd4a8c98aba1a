"""Requests made from the OpenAPI document, right and wrong: what comes back is what it promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, assume, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from clumsies.server.context import ServerContext
from clumsies.server.database import Database, sqlite_url
from clumsies.server.http.app import make_app, routes
from clumsies.server.http.openapi import document
from clumsies.server.migrations import migrate
from tests.server.conftest import NamedBearers
from tests.server.world import make_world

EXAMPLES = 4
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
"""Not that whatever fits the document succeeds: it cannot say which cursors a list gave, or that
two fields go together."""


@pytest.fixture(scope="module")
def interface(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The application over the world; what one request changes, the next one meets."""
    database = Database(sqlite_url(tmp_path_factory.mktemp("interface") / "server.db"))
    migrate(database)
    world = make_world(database)
    app = make_app(ServerContext(database, NamedBearers(world)))
    yield schemathesis.openapi.from_asgi("/api/v1/openapi.json", app)
    database.close()


PATHS = document(routes())["paths"]
OPERATIONS = [(path, method) for path, item in PATHS.items() for method in item]
OWNER = {"authorization": "Bearer owner"}


def takes_body(path: str, method: str) -> bool:
    return "requestBody" in PATHS[path][method]


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_every_answer_is_what_the_document_promises(interface: Any, path: str, method: str) -> None:
    operation = interface[path][method]

    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
    def ask(case: Any) -> None:
        case.call_and_validate(headers=OWNER, checks=CHECKS)

    ask()


@pytest.mark.parametrize(("path", "method"), [(p, m) for p, m in OPERATIONS if takes_body(p, m)])
def test_a_body_that_the_document_forbids_is_refused(
    interface: Any, path: str, method: str
) -> None:
    operation = interface[path][method]

    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
    def ask(case: Any) -> None:
        body = case.meta.components.get(ParameterLocation.BODY)
        assume(body is not None and body.mode == GenerationMode.NEGATIVE)
        case.call_and_validate(headers=OWNER, checks=[*CHECKS, negative_data_rejection])

    ask()
