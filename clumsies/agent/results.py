"""Results of tool calls: one JSON said twice, and no larger than hosts pass on whole.

Some hosts show a model only `structuredContent`, others only the text: both carry the same
serialisation, on failures too. An answer over 32,000 bytes loses whole fragments or resources
from its end (the text of a single one at the end of a line) and says in `note` how to get the
rest. What was left out is also taken out of `next_state`, so that the next answer brings it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from clumsies.agent.jsonrpc import dumps
from clumsies.errors import ClumsiesError

MAX_RESULT_BYTES = 32_000
"""Of one of the two serialisations; hosts cut or spill what is longer."""
MAX_STATE_CHARS = 8 * 1024
"""Of a token in an answer that is too long: a model has to copy it letter by letter."""
MAX_DETAILS_BYTES = 4 * 1024
_NOTE_BYTES = 512
_MAX_OMITTED = 32
_MAX_DESCRIPTION_CHARS = 1_000
"""Of a resource whose text has to be cut as well."""

Structured = dict[str, Any]


def tool_result(structured: Mapping[str, Any], is_error: bool = False) -> dict[str, Any]:
    """The `tools/call` result of a structured answer."""
    return {
        "content": [{"type": "text", "text": dumps(structured)}],
        "structuredContent": structured,
        "isError": is_error,
    }


def failed(error: ClumsiesError) -> dict[str, Any]:
    """A failure as a result that a model can read and act upon."""
    details = dict(error.details)
    body: Structured = {
        "code": error.code,
        "message": error.message,
        "retryable": error.retryable,
    }
    request_id = details.pop("request_id", None)
    if isinstance(request_id, str) and request_id:
        body["request_id"] = request_id
    if details and _size(details) <= MAX_DETAILS_BYTES:
        body["details"] = details
    return tool_result({"error": body}, is_error=True)


def fitted_activation(answer: Structured, limit: int = MAX_RESULT_BYTES) -> Structured:
    """The answer of `activate`, without the last fragments where it is too long."""
    if _size(answer) <= limit:
        return answer
    fragments: list[Structured] = list(answer.get("fragments", []))
    frame = {**answer, "fragments": [], "next_state": _shortened(answer.get("next_state", ""))}
    kept = _leading(fragments, limit - _size(frame) - _NOTE_BYTES)
    note = f"{len(fragments) - len(kept)} of {len(fragments)} fragments were left out: "
    note += "activate again with this next_state to get them."
    if fragments and not kept:
        kept = [_cut(fragments[0], limit - _size(frame) - _NOTE_BYTES)]
        note = f"The text was cut, and {len(fragments) - 1} more fragments were left out: load "
        note += "the resource, or activate again with this next_state."
        unseen = fragments
    else:
        unseen = fragments[len(kept) :]
    hidden = {str(fragment.get("unit_key")) for fragment in unseen}
    shortened = _shortened(answer.get("next_state", ""), hidden)
    return {**answer, "next_state": shortened, "fragments": kept, "note": note}


def fitted_load(answer: Structured, limit: int = MAX_RESULT_BYTES) -> Structured:
    """The answer of `load`, without the last resources where it is too long."""
    if _size(answer) <= limit:
        return answer
    resources: list[Structured] = list(answer.get("resources", []))
    omitted = [str(each.get("resource_id")) for each in resources[1:]][:_MAX_OMITTED]
    room = limit - _size({**answer, "resources": [], "omitted": omitted}) - _NOTE_BYTES
    kept = _leading(resources, room)
    note = f"{len(resources) - len(kept)} of {len(resources)} resources were left out: load them "
    note += "by themselves."
    if resources and not kept:
        kept = [_cut(resources[0], room)]
        note = (
            "The text of the first resource is too long for one answer and was cut; content_hash "
            "is that of the whole, so what you see can be updated. Activate with a question about "
            f"the rest of it. {len(resources) - 1} more resources were left out: load them by "
            "themselves."
        )
    omitted = [str(each.get("resource_id")) for each in resources[len(kept) :]][:_MAX_OMITTED]
    return {**answer, "resources": kept, "omitted": omitted, "note": note}


def _leading(items: list[Structured], room: int) -> list[Structured]:
    """As many items from the start as fit into `room` bytes."""
    for count, item in enumerate(items):
        room -= _size(item) + 1
        if room < 0:
            return items[:count]
    return items


def _cut(item: Structured, room: int) -> Structured:
    """The item with the start of its content, up to the end of a line where there is one."""
    content = item.get("content") or ""
    marked = {**item, "content_cut": True, "content_chars": len(content)}
    if "description" in item:
        marked["description"] = str(item["description"])[:_MAX_DESCRIPTION_CHARS]
    room -= _size({**marked, "content": ""})
    end = min(len(content), max(0, room))
    while end and (size := _size(content[:end]) - 2) > room:
        end = min(end - 1, int(end * room / size)) if room > 0 else 0
    line_end = content.rfind("\n", 0, end)
    return {**marked, "content": content[: line_end + 1 if line_end > 0 else end]}


def _shortened(token: str, hidden: set[str] | frozenset[str] = frozenset()) -> str:
    """The state token without `hidden` units and with the newest of the others alone.

    Forgetting is harmless: a forgotten fragment is sent again. A token that is not understood
    here is the daemon's own and stays as it is.
    """
    if len(token) <= MAX_STATE_CHARS and not hidden:
        return token
    try:
        state = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        known = [each for each in state["known"] if each["unit_key"] not in hidden]
        known.sort(key=lambda each: -each["last_seen"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        return token
    while True:
        data = dumps({**state, "known": known}).encode("utf-8")
        encoded = base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
        if len(encoded) <= MAX_STATE_CHARS or not known:
            return encoded
        known = known[: len(known) * 3 // 4]


def _size(value: object) -> int:
    return len(dumps(value).encode("utf-8"))
