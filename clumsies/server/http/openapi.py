"""The OpenAPI document, made from the types of the routes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
from litestar import Litestar, Response, get
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme

from clumsies.api.common import ErrorEnvelope
from clumsies.server.http.dependencies import DEPENDENCIES
from clumsies.version import VERSION

PATH = "/api/v1/openapi.json"
_METHODS = frozenset({"get", "put", "post", "delete", "patch"})


def document(handlers: Sequence[Any]) -> dict[str, Any]:
    """The document of these routes, as JSON values."""
    bearer = SecurityScheme(type="http", scheme="bearer")
    config = OpenAPIConfig(
        title="clumsies",
        version=VERSION,
        components=Components(security_schemes={"bearer": bearer}),
        security=[{"bearer": []}],
        use_handler_docstrings=True,
    )
    app = Litestar(list(handlers), dependencies=DEPENDENCIES, openapi_config=config)
    made: dict[str, Any] = json.loads(json.dumps(app.openapi_schema.to_schema()))
    _, parts = msgspec.json.schema_components(
        [ErrorEnvelope], ref_template="#/components/schemas/{name}"
    )
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(parts)
    for item in made["paths"].values():
        for method, operation in item.items():
            if method in _METHODS:
                _describe_failures(operation["responses"])
    return _portable(made)  # type: ignore[no-any-return]


def _describe_failures(responses: dict[str, Any]) -> None:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}}
    for status in [status for status in responses if status[0] in "45"]:
        del responses[status]
    responses["4XX"] = {"description": "The request is refused.", "content": content}
    responses["5XX"] = {"description": "The Server failed.", "content": content}


def _portable(value: Any) -> Any:
    """`value` with patterns that other languages' regular expressions understand too."""
    if isinstance(value, dict):
        return {
            key: item.replace("\\Z", "$")
            if key == "pattern" and isinstance(item, str)
            else _portable(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_portable(item) for item in value]
    return value


def document_route(handlers: Sequence[Any]) -> Any:
    """The route that serves the document; it is made when it is first asked for."""

    @cache
    def made() -> bytes:
        return json.dumps(document(handlers), ensure_ascii=False).encode("utf-8")

    @get(PATH, sync_to_thread=True)
    def openapi_document() -> Response[bytes]:
        return Response(made(), media_type="application/json")

    return openapi_document
