"""A tool call's arguments, decoded strictly: what is not understood is refused by name.

Unknown fields, nulls, missing fields and wrong types are -32602 with the field's place in
`data.field`. What a value means (whether a path is allowed, a text blank) is the daemon's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from clumsies.agent.jsonrpc import INVALID_PARAMS, ProtocolError

TOOL_NAMES = ("activate", "load", "store", "memory")
OPERATIONS = ("create", "update", "rename", "delete", "discard")


class Activate(NamedTuple):
    query: str
    state: str | None


class Load(NamedTuple):
    ids: tuple[str, ...]
    known_hashes: dict[str, str]


class Create(NamedTuple):
    path: str
    body: str
    description: str | None


class Replace(NamedTuple):
    old_text: str
    new_text: str


class Update(NamedTuple):
    id: str
    expected_hash: str
    replacements: tuple[Replace, ...]
    description: str | None


class Rename(NamedTuple):
    id: str
    new_path: str
    description: str | None


class Delete(NamedTuple):
    id: str
    description: str | None


class Discard(NamedTuple):
    id: str


Store = Create | Update | Rename | Delete | Discard
ToolRequest = Activate | Load | Store


def decode_call(params: Mapping[str, Any]) -> ToolRequest:
    """What the params of `tools/call` ask for; raises ProtocolError naming the field."""
    name = params.get("name")
    if not isinstance(name, str):
        raise _refused("name", "has to be a string")
    if name not in TOOL_NAMES:
        raise ProtocolError(
            INVALID_PARAMS,
            f"Unknown tool `{name[:64]}`; there are {', '.join(TOOL_NAMES[:-1])}.",
            {"field": "name"},
        )
    arguments = params.get("arguments", {})
    _refuse_nulls(arguments, "arguments")
    if name == "memory":
        outer = _Object(arguments, "memory")
        operation = outer.object("op")
        outer.end()
        name, arguments = operation.only_one(("activate", "load", "store"))
    return _DECODERS[name](_Object(arguments, name))


def _activate(given: _Object) -> Activate:
    request = Activate(given.text("query"), given.optional_text("state"))
    given.end()
    return request


def _load(given: _Object) -> Load:
    ids = given.texts("ids")
    if len(set(ids)) != len(ids):
        raise _refused(f"{given.place}.ids", "names a resource twice")
    known = given.optional_object("knownHashes")
    request = Load(ids, {} if known is None else known.all_texts())
    given.end()
    return request


def _store(given: _Object) -> Store:
    if given.optional_text("resource") not in {None, "memory"}:
        raise _refused(f"{given.place}.resource", "may only be `memory`")
    inner = given.optional_object("op")
    if inner is not None:
        given.end()
        given = inner
    name, operation = given.only_one(OPERATIONS)
    return _OPERATION_DECODERS[name](_Object(operation, f"{given.place}.{name}"))


def _create(given: _Object) -> Create:
    request = Create(given.text("path"), given.text("body"), given.optional_text("description"))
    given.end()
    return request


def _update(given: _Object) -> Update:
    request = Update(
        given.text("id"),
        given.text("expected_hash"),
        tuple(_replacement(each) for each in given.objects("replacements")),
        given.optional_text("description"),
    )
    given.end()
    return request


def _replacement(given: _Object) -> Replace:
    request = Replace(given.text("old_text"), given.text("new_text"))
    if not request.old_text:
        raise _refused(f"{given.place}.old_text", "has to be text that stands in the resource")
    given.end()
    return request


def _rename(given: _Object) -> Rename:
    request = Rename(given.text("id"), given.text("new_path"), given.optional_text("description"))
    given.end()
    return request


def _delete(given: _Object) -> Delete:
    request = Delete(given.text("id"), given.optional_text("description"))
    given.end()
    return request


def _discard(given: _Object) -> Discard:
    request = Discard(given.text("id"))
    given.end()
    return request


class _Object:
    """A JSON object whose fields are taken one by one; `end` refuses what was not taken."""

    def __init__(self, value: object, place: str):
        if not isinstance(value, dict):
            raise _refused(place, "has to be an object")
        self._left: dict[str, Any] = dict(value)
        self._taken: list[str] = []
        self.place = place

    def text(self, name: str) -> str:
        value = self._required(name)
        if not isinstance(value, str):
            raise _refused(f"{self.place}.{name}", "has to be a string")
        return value

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if self._has(name) else None

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._items(name)
        for index, value in enumerate(values):
            if not isinstance(value, str) or not value:
                raise _refused(f"{self.place}.{name}[{index}]", "has to be a string, not empty")
        return tuple(values)

    def object(self, name: str) -> _Object:
        return _Object(self._required(name), f"{self.place}.{name}")

    def optional_object(self, name: str) -> _Object | None:
        return self.object(name) if self._has(name) else None

    def objects(self, name: str) -> list[_Object]:
        return [
            _Object(value, f"{self.place}.{name}[{index}]")
            for index, value in enumerate(self._items(name))
        ]

    def all_texts(self) -> dict[str, str]:
        """Every field, where each is a string."""
        return {name: self.text(name) for name in list(self._left)}

    def only_one(self, names: tuple[str, ...]) -> tuple[str, Any]:
        """The single field of these, and nothing beside it."""
        given = [name for name in names if self._has(name)]
        if len(given) != 1:
            self.end()
            raise _refused(
                self.place,
                f"takes exactly one of {', '.join(names)} (given: {', '.join(given) or 'none'})",
            )
        value = self._required(given[0])
        self.end()
        return given[0], value

    def end(self) -> None:
        """Refuse, by its name, a field that nobody asked for."""
        for name in self._left:
            if name not in self._taken:
                known = ", ".join(dict.fromkeys(self._taken))
                raise _refused(
                    f"{self.place}.{name[:64]}", f"is not known; known here: {known or 'nothing'}"
                )

    def _has(self, name: str) -> bool:
        self._taken.append(name)
        return name in self._left

    def _required(self, name: str) -> Any:
        if not self._has(name):
            raise _refused(f"{self.place}.{name}", "is missing")
        return self._left[name]

    def _items(self, name: str) -> list[Any]:
        values = self._required(name)
        if not isinstance(values, list) or not values:
            raise _refused(f"{self.place}.{name}", "has to be a list, not empty")
        return values


_DECODERS: dict[str, Callable[[_Object], ToolRequest]] = {
    "activate": _activate,
    "load": _load,
    "store": _store,
}
_OPERATION_DECODERS: dict[str, Callable[[_Object], Store]] = {
    "create": _create,
    "update": _update,
    "rename": _rename,
    "delete": _delete,
    "discard": _discard,
}


def _refuse_nulls(value: object, place: str) -> None:
    if value is None:
        raise _refused(place, "must not be null; leave it out")
    if isinstance(value, dict):
        for name, inner in value.items():
            _refuse_nulls(inner, f"{place}.{name[:64]}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_nulls(inner, f"{place}[{index}]")


def _refused(place: str, reason: str) -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, f"`{place}` {reason}.", {"field": place})
