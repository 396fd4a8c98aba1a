"""The OpenAPI document, made from the routes and the messages.

The framework knows paths and parameters; schemas of messages are msgspec's own, as that is what
reads and writes them.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, get_args, get_origin

import msgspec
from litestar import Litestar, Response, get
from litestar.openapi.config import OpenAPIConfig
from litestar.openapi.spec import Components, SecurityScheme
from litestar.routes import HTTPRoute

from clumsies.api.admin import MemoryExport
from clumsies.api.common import ErrorEnvelope
from clumsies.server.http.dependencies import DEPENDENCIES
from clumsies.server.http.openapi_answers import describe_answers, describe_parameters
from clumsies.version import VERSION

PATH = "/api/v1/openapi.json"
_METHODS = frozenset({"get", "put", "post", "delete", "patch"})
_PREFIX = ("api", "v1")
_PLACE = "#/components/schemas/{name}"
_INTEGER = "(0|[1-9][0-9]{0,14})"
_REQUIRED_HEADERS = {
    "if-match of a Ref": '^"([0-9a-f]{64}|ref-none)"$',
    "if-match of a version": f'^({_INTEGER}|"{_INTEGER}")$',
    "idempotency-key": "^[!-~]{1,200}$",
}
"""Headers that the handlers themselves refuse to miss, so that the refusal says what to send."""
_STREAMED = {"/api/v1/admin/memory-export": MemoryExport}
"""What the streams of a path are when they have come whole."""


def document(handlers: Sequence[Any]) -> dict[str, Any]:
    """The document of these routes, as JSON values."""
    bearer = SecurityScheme(type="http", scheme="bearer")
    config = OpenAPIConfig(
        title="clumsies",
        version=VERSION,
        components=Components(security_schemes={"bearer": bearer}),
        security=[{"bearer": []}],
        operation_id_creator=_operation_id,
    )
    app = Litestar(
        list(handlers), dependencies=DEPENDENCIES, openapi_config=config, logging_config=None
    )
    made: dict[str, Any] = json.loads(json.dumps(app.openapi_schema.to_schema()))
    messages: set[Any] = {ErrorEnvelope}
    envelope = {"$ref": _PLACE.format(name=ErrorEnvelope.__name__)}
    for path, method, handler in _operations(app):
        operation = made["paths"][path][method]
        _describe(operation, handler)
        describe_parameters(operation)
        describe_answers(path, method, operation, _takes_ref(handler), envelope)
        messages.update(_messages(handler))
        if path in _STREAMED:
            messages.add(_STREAMED[path])
            place = {"$ref": _PLACE.format(name=_STREAMED[path].__name__)}
            operation["responses"]["200"]["content"] = {"application/json": {"schema": place}}
    _, parts = msgspec.json.schema_components(
        sorted(messages, key=lambda kind: str(kind.__name__)), ref_template=_PLACE
    )
    made.setdefault("components", {}).setdefault("schemas", {}).update(parts)
    portable: dict[str, Any] = _portable(made)
    return portable


def _operations(app: Litestar) -> Iterator[tuple[str, str, Any]]:
    """(path, method, handler) of everything in the document."""
    for route in app.routes:
        if isinstance(route, HTTPRoute) and not route.path.startswith("/schema"):
            for method, (handler, _) in route.route_handler_map.items():
                if method.lower() in _METHODS:
                    yield route.path_format, method.lower(), handler


def _operation_id(_handler: Any, method: Any, path: Sequence[Any]) -> str:
    """Like `get_projects_project_id`."""
    names = [part if isinstance(part, str) else part.name for part in path]
    words = [name.replace("-", "_").replace(".", "_") for name in names if name not in _PREFIX]
    return "_".join([str(method.value).lower(), *words])


def _describe(operation: dict[str, Any], handler: Any) -> None:
    """Name and words of an operation: its function's, below what runs that in a thread."""
    function = handler.fn
    while hasattr(function, "func"):
        function = function.func
    operation["summary"] = function.__name__.replace("_", " ").capitalize()
    operation["description"] = inspect.getdoc(function) or ""
    for parameter in operation.get("parameters", ()):
        name = parameter["name"]
        if name == "if-match":
            name = "if-match of a Ref" if _takes_ref(handler) else "if-match of a version"
        if name in _REQUIRED_HEADERS:
            parameter["required"] = True
            parameter["schema"] = {"type": "string", "pattern": _REQUIRED_HEADERS[name]}


def _takes_ref(handler: Any) -> bool:
    return "if_match_ref" in handler.parsed_fn_signature.parameters


def _messages(handler: Any) -> Iterator[Any]:
    """The structs that a handler takes and gives."""
    given = handler.parsed_fn_signature.return_type.annotation
    if isinstance(get_origin(given), type) and issubclass(get_origin(given), Response):
        given = get_args(given)[0]
    data = handler.parsed_data_field
    for kind in (given, None if data is None else data.annotation):
        for part in get_args(kind) or (kind,):
            if isinstance(part, type) and issubclass(part, msgspec.Struct):
                yield part


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
