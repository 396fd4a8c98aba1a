"""The tools as a host lists them. Their schemas together stay under 6 KB: every session pays.

Reading and writing never share a tool, because hosts ask before each call of a tool that is not
marked as read-only; the single `memory` tool is for hosts that were set up for it. Input
schemas use no `anyOf` at their root: model providers refuse it. Output schemas hold for failures
too, because some hosts check those as well.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_ALWAYS_LOAD = {"anthropic/alwaysLoad": True}
_READS = {"readOnlyHint": True, "openWorldHint": False}
_WRITES = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": False}


def _said(description: str, schema: Schema = _TEXT) -> Schema:
    return {**schema, "description": description}


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _input(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    schema: Schema = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return {**schema, "required": list(required)} if required else schema


_ID = _said("id or draft id of a resource")
_WHY = _said("why, for the reviewer")

ACTIVATE_INPUT = _input(
    ("query",),
    query=_said("the task at hand, in natural language"),
    state=_said("next_state of the last answer, only while its fragments are in context"),
)
LOAD_INPUT = _input(
    ("ids",),
    ids=_list(_TEXT, minItems=1, uniqueItems=True, description="ids or exact paths"),
    knownHashes={
        "type": "object",
        "additionalProperties": _TEXT,
        "description": "content_hash you hold, by id: unchanged text is not sent again",
    },
)
STORE_INPUT = _input(
    create=_input(
        ("path", "body"),
        path=_said("e.g. rules/money.md"),
        body=_said("whole Markdown"),
        description=_said("one line on what it is for"),
    ),
    update=_input(
        ("id", "expected_hash", "replacements"),
        id=_ID,
        expected_hash=_said("content_hash from load"),
        replacements=_list(
            _input(
                ("old_text", "new_text"),
                old_text=_said("exact text that stands there once"),
                new_text=_TEXT,
            ),
            minItems=1,
        ),
        description=_said("new line on what it is for; kept when left out"),
    ),
    rename=_input(("id", "new_path"), id=_ID, new_path=_TEXT, description=_WHY),
    delete=_input(("id",), id=_ID, description=_WHY),
    discard=_input(("id",), id=_said("draft id")),
    resource={"const": "memory"},
)


def _output(required: tuple[str, ...], **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": {**properties, "error": _ERROR},
        "anyOf": [{"required": list(required)}, {"required": ["error"]}],
    }


_ERROR: Schema = {
    "type": "object",
    "properties": {"code": _TEXT, "message": _TEXT, "retryable": _FLAG},
    "required": ["code", "message"],
}
_ACTIVATED = {
    "run_id": _TEXT,
    "index_revision": _TEXT,
    "profile": _TEXT,
    "next_state": _TEXT,
    "fragments": _list(
        {
            "type": "object",
            "properties": {
                "action": {"enum": ["add", "replace", "reuse"]},
                "resource_id": _TEXT,
                "path": _TEXT,
                "heading_path": _list(_TEXT),
                "content": _TEXT,
                "superseded_by": _TEXT,
            },
            "required": ["action", "resource_id", "path"],
        }
    ),
    "removed": _list({"type": "object"}),
    "skipped": _list({"type": "object"}),
    "note": _TEXT,
}
_ACTIVATED_REQUIRED = ("next_state", "fragments", "removed")
_LOADED = {
    "resources": _list(
        {
            "type": "object",
            "properties": {
                "resource_id": _TEXT,
                "path": _TEXT,
                "content_hash": _TEXT,
                "changed": _FLAG,
                "content": _TEXT,
            },
            "required": ["resource_id", "path", "content_hash", "changed"],
        }
    ),
    "omitted": _list(_TEXT),
    "note": _TEXT,
}
_LOADED_REQUIRED = ("resources",)
_STORED = {
    "local_operation_id": _TEXT,
    "draft_id": _TEXT,
    "queued": _FLAG,
    "sync_status": _TEXT,
}
_STORED_REQUIRED = ("local_operation_id", "draft_id", "queued", "sync_status")

_ACTIVATE = {
    "name": "activate",
    "description": (
        "Find what the project's memory says about the task at hand: ranked fragments. "
        "`superseded_by` names the page that replaces a fragment's page."
    ),
    "inputSchema": ACTIVATE_INPUT,
    "outputSchema": _output(_ACTIVATED_REQUIRED, **_ACTIVATED),
    "annotations": {"title": "Activate memory", **_READS},
    "_meta": _ALWAYS_LOAD,
}
_LOAD = {
    "name": "load",
    "description": "Read whole resources of the memory. Needed before an update.",
    "inputSchema": LOAD_INPUT,
    "outputSchema": _output(_LOADED_REQUIRED, **_LOADED),
    "annotations": {"title": "Load memory", **_READS},
    "_meta": _ALWAYS_LOAD,
}
_STORE = {
    "name": "store",
    "description": (
        "Draft a change of the memory, only when the user asks for it. Exactly one of create, "
        "update, rename, delete, discard."
    ),
    "inputSchema": STORE_INPUT,
    "outputSchema": _output(_STORED_REQUIRED, **_STORED),
    "annotations": {"title": "Store memory", **_WRITES},
}
_MEMORY = {
    "name": "memory",
    "description": (
        "The project's memory. `op` is exactly one of: activate, ranked fragments for the task at "
        "hand; load, whole resources, needed before an update; store, a draft of one change, only "
        "when the user asks."
    ),
    "inputSchema": _input(
        ("op",), op=_input(activate=ACTIVATE_INPUT, load=LOAD_INPUT, store=STORE_INPUT)
    ),
    "outputSchema": {
        "type": "object",
        "properties": {**_ACTIVATED, **_LOADED, **_STORED, "error": _ERROR},
        "anyOf": [
            {"required": list(required)}
            for required in (_ACTIVATED_REQUIRED, _LOADED_REQUIRED, _STORED_REQUIRED, ("error",))
        ],
    },
    "annotations": {"title": "Project memory", **_WRITES},
    "_meta": _ALWAYS_LOAD,
}

SEPARATE_TOOLS = (_ACTIVATE, _LOAD, _STORE)
UNIFIED_TOOLS = (_MEMORY,)


def listed(unified: bool) -> list[Schema]:
    """The tools of `tools/list`."""
    return list(UNIFIED_TOOLS if unified else SEPARATE_TOOLS)
