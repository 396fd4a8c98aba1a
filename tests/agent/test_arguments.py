"""Arguments of tools: each is understood, and each that is not is refused by its name."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.agent import tools
from clumsies.agent.arguments import (
    Activate,
    Create,
    Delete,
    Discard,
    Load,
    Rename,
    Replace,
    ToolRequest,
    Update,
    decode_call,
)
from clumsies.agent.jsonrpc import INVALID_PARAMS, ProtocolError

UPDATE = {
    "id": "res_1",
    "expected_hash": "sha256:0",
    "replacements": [{"old_text": "a", "new_text": ""}],
}
UNDERSTOOD: list[tuple[str, dict[str, Any], ToolRequest]] = [
    ("activate", {"query": ""}, Activate("", None)),
    ("activate", {"query": "a=b NEAR(", "state": "e30"}, Activate("a=b NEAR(", "e30")),
    ("load", {"ids": ["a", "b"]}, Load(("a", "b"), {})),
    ("load", {"ids": ["a"], "knownHashes": {"a": "h"}}, Load(("a",), {"a": "h"})),
    ("store", {"create": {"path": "a.md", "body": "# A"}}, Create("a.md", "# A", None)),
    (
        "store",
        {"create": {"path": "a.md", "body": "x", "description": "d"}, "resource": "memory"},
        Create("a.md", "x", "d"),
    ),
    ("store", {"update": UPDATE}, Update("res_1", "sha256:0", (Replace("a", ""),), None)),
    ("store", {"rename": {"id": "r", "new_path": "b.md"}}, Rename("r", "b.md", None)),
    ("store", {"delete": {"id": "r", "description": "gone"}}, Delete("r", "gone")),
    ("store", {"discard": {"id": "draft_1"}}, Discard("draft_1")),
]
NESTED: list[tuple[str, dict[str, Any], ToolRequest]] = [
    ("store", {"op": {"discard": {"id": "draft_1"}}}, Discard("draft_1")),
    ("store", {"op": {"discard": {"id": "d"}}, "resource": "memory"}, Discard("d")),
]
REFUSED: list[tuple[str, Any, str]] = [
    ("activate", {}, "activate.query"),
    ("activate", {"query": 3}, "activate.query"),
    ("activate", {"query": "x", "querry": "y"}, "activate.querry"),
    ("activate", {"query": None}, "arguments.query"),
    ("activate", {"query": "x", "state": None}, "arguments.state"),
    ("activate", None, "arguments"),
    ("activate", [], "activate"),
    ("load", {"ids": []}, "load.ids"),
    ("load", {"ids": "a"}, "load.ids"),
    ("load", {"ids": ["a", "a"]}, "load.ids"),
    ("load", {"ids": ["a", ""]}, "load.ids[1]"),
    ("load", {"ids": ["a"], "known_hashes": {}}, "load.known_hashes"),
    ("load", {"ids": ["a"], "knownHashes": {"a": 1}}, "load.knownHashes.a"),
    ("store", {}, "store"),
    ("store", {"create": {"path": "a", "body": "b"}, "discard": {"id": "d"}}, "store"),
    ("store", {"replace": {}}, "store.replace"),
    ("store", {"discard": {"id": "d"}, "resource": "rule"}, "store.resource"),
    ("store", {"op": {"discard": {"id": "d"}}, "discard": {"id": "d"}}, "store.discard"),
    ("store", {"op": {}}, "store.op"),
    ("store", {"create": {"path": "a", "content": "b"}}, "store.create.body"),
    ("store", {"discard": {"id": "d", "why": "x"}}, "store.discard.why"),
    ("store", {"update": {**UPDATE, "replacements": []}}, "store.update.replacements"),
    (
        "store",
        {"update": {**UPDATE, "replacements": [{"old_text": "", "new_text": "b"}]}},
        "store.update.replacements[0].old_text",
    ),
    (
        "store",
        {"update": {**UPDATE, "replacements": [{"old_text": "a", "new_text": None}]}},
        "arguments.update.replacements[0].new_text",
    ),
    ("store", {"update": {**UPDATE, "body": "whole"}}, "store.update.body"),
    ("memory", {}, "memory.op"),
    ("memory", {"op": {"kanban": {}}}, "memory.op.kanban"),
    ("memory", {"op": {"load": {"ids": ["a"]}}, "more": 1}, "memory.more"),
    ("remember", {}, "name"),
]


@pytest.mark.parametrize(("name", "arguments", "request_"), UNDERSTOOD + NESTED)
def test_arguments_are_understood(
    name: str, arguments: dict[str, Any], request_: ToolRequest
) -> None:
    assert decode_call({"name": name, "arguments": arguments}) == request_
    unified = {"name": "memory", "arguments": {"op": {name: arguments}}}
    if "op" not in arguments:
        assert decode_call(unified) == request_


@pytest.mark.parametrize(("name", "arguments", "field"), REFUSED)
def test_what_is_wrong_is_named(name: str, arguments: Any, field: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_call({"name": name, "arguments": arguments})
    assert caught.value.code == INVALID_PARAMS
    assert caught.value.data == {"field": field}
    if field != "name":
        assert f"`{field}`" in caught.value.message


@pytest.mark.parametrize("name", [None, 3, "", "Activate"])
def test_an_unknown_tool_is_refused(name: object) -> None:
    with pytest.raises(ProtocolError) as caught:
        decode_call({"name": name})
    assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize(("name", "arguments", "request_"), UNDERSTOOD)
def test_the_schema_allows_what_is_understood(
    name: str, arguments: dict[str, Any], request_: ToolRequest
) -> None:
    _validate(name, arguments)
    jsonschema.validate({"op": {name: arguments}}, tools.UNIFIED_TOOLS[0]["inputSchema"], _DRAFT)


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    # "Exactly one of" is not in the schema: model providers refuse it at a schema's root.
    [case for case in REFUSED if case[0] in {"activate", "load"} and case[2] != "load.ids[1]"],
)
def test_the_schema_refuses_what_is_refused(name: str, arguments: Any, field: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        _validate(name, arguments)


_DRAFT = jsonschema.Draft202012Validator
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["query", "ids", "op", "create", "update", "id", "state", "path"])
            | st.text(max_size=5),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(["activate", "load", "store", "memory"]), JSON)
def test_any_arguments_are_a_request_or_a_refusal(name: str, arguments: Any) -> None:
    request, refusal = _decoded(name, arguments)
    if refusal is None:
        assert isinstance(request, tuple)
    else:
        assert refusal.code == INVALID_PARAMS
        assert refusal.data is not None
        assert refusal.data["field"]


def _decoded(name: str, arguments: Any) -> tuple[ToolRequest | None, ProtocolError | None]:
    try:
        return decode_call({"name": name, "arguments": arguments}), None
    except ProtocolError as error:
        return None, error


def _validate(name: str, arguments: Any) -> None:
    [tool] = [tool for tool in tools.SEPARATE_TOOLS if tool["name"] == name]
    jsonschema.validate(arguments, tool["inputSchema"], _DRAFT)
