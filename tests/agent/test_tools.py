"""What `tools/list` says: small, valid, and honest about what reads and what writes."""

from __future__ import annotations

import jsonschema
import pytest

from clumsies.agent import tools
from clumsies.agent.arguments import TOOL_NAMES
from clumsies.agent.instructions import instructions
from clumsies.agent.jsonrpc import dumps

MAX_SCHEMAS_BYTES = 6 * 1024


@pytest.mark.parametrize("unified", [False, True])
def test_all_tools_together_stay_small(unified: bool) -> None:
    assert len(dumps(tools.listed(unified)).encode()) < MAX_SCHEMAS_BYTES


@pytest.mark.parametrize("tool", [*tools.SEPARATE_TOOLS, *tools.UNIFIED_TOOLS])
def test_schemas_are_valid_and_closed(tool: tools.Schema) -> None:
    for schema in (tool["inputSchema"], tool["outputSchema"]):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    # Model providers refuse a combination at the root of an input schema.
    assert not {"anyOf", "oneOf", "allOf"} & tool["inputSchema"].keys()
    assert tool["inputSchema"]["additionalProperties"] is False


def test_reading_and_writing_share_no_tool() -> None:
    reads = {
        tool["name"] for tool in tools.SEPARATE_TOOLS if tool["annotations"]["readOnlyHint"] is True
    }
    assert reads == {"activate", "load"}
    assert [tool["name"] for tool in tools.listed(False)] == ["activate", "load", "store"]
    assert [tool["name"] for tool in tools.listed(True)] == ["memory"]
    [unified] = tools.listed(True)
    assert unified["annotations"]["readOnlyHint"] is False


def test_reading_tools_are_always_loaded() -> None:
    loaded = {
        tool["name"]
        for tool in tools.SEPARATE_TOOLS
        if tool.get("_meta") == {"anthropic/alwaysLoad": True}
    }
    assert loaded == {"activate", "load"}


def test_every_listed_tool_is_understood() -> None:
    listed = {tool["name"] for unified in (False, True) for tool in tools.listed(unified)}
    assert listed == set(TOOL_NAMES)


@pytest.mark.parametrize("unified", [False, True])
def test_instructions_name_the_tools_that_are_listed(unified: bool) -> None:
    text = instructions(unified)
    assert ("op.activate" in text) is unified
    for word in ("activate", "load", "store", "next_state", "content_hash"):
        assert word in text
