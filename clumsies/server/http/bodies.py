"""Bodies are read as strictly as their messages say: `"5"` is no integer, a wrong field is named.

The framework's own way converts between types where it can, so that what is accepted would not be
what the OpenAPI document promises.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import msgspec
from litestar import Request

from clumsies.errors import InvalidRequest
from clumsies.server.http.dependencies import principal_of

_EXACT = 2**53
"""Up to here every integer has a float of its own."""
_PLACE = re.compile(r" - at `\$\.?(.*)`\Z", re.S)
_UNKNOWN = re.compile(r"unknown field `(.*)`", re.S)
_MISSING = re.compile(r"missing required field `(.*)`", re.S)


class StrictRequest(Request[Any, Any, Any]):
    """A request whose JSON is the handler's message, or an InvalidRequest."""

    async def json(self) -> Any:
        """The body as the type of the handler's `data`.

        What is wrong with it is told to those alone who may ask: bodies are read before the route
        looks who asks, so that is done here. Raises InvalidRequest, Refused("unauthorized").
        """
        field = self.route_handler.parsed_data_field
        kind = Any if field is None else field.annotation
        body = await self.body()
        try:
            return decoded(body, kind)
        except InvalidRequest:
            if "acting" in self.route_handler.parsed_fn_signature.parameters:
                await asyncio.to_thread(principal_of, self, self.app.state.context)
            raise


def decoded(body: bytes, kind: Any) -> Any:
    """`body` as a `kind`; raises InvalidRequest("invalid_json") or ("invalid_request")."""
    try:
        return _as_sent(body, kind)
    except msgspec.ValidationError as error:
        raise _misfit(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(
            "invalid_json", "The body is not JSON in UTF-8; send a JSON object."
        ) from error


def _as_sent(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        # JSON has one kind of number, and in JSON Schema `5.0` is an integer.
        if not str(error).startswith("Expected `int") or "got `float`" not in str(error):
            raise
    return msgspec.convert(_with_integers(msgspec.json.decode(body)), kind)


def _with_integers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return int(value)
    if isinstance(value, list):
        return [_with_integers(item) for item in value]
    if isinstance(value, dict):
        return {key: _with_integers(item) for key, item in value.items()}
    return value


def _misfit(said: str) -> InvalidRequest:
    place = _PLACE.search(said)
    what = _PLACE.sub("", said)
    field = place[1] if place else ""
    for named in (_UNKNOWN, _MISSING):
        found = named.search(what)
        if found:
            field = f"{field}.{found[1]}" if field else found[1]
    return InvalidRequest(
        "invalid_request",
        f"`{field or 'body'}` cannot be used: {what}.",
        {"field": field, "source": "body"},
    )
