"""The official client of the protocol in front of the proxy, in every mode that it has."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
import mcp
import pytest
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from tests.agent.daemon_stub import STORED, DaemonStub, activation, fragment
from tests.agent.host import PATIENCE_S, command, environment

Mode = Literal["auto", "legacy", "2026-07-28"]
MODES: dict[Mode, str] = {
    "auto": "2026-07-28",
    "legacy": "2025-11-25",
    "2026-07-28": "2026-07-28",
}
each_mode = pytest.mark.parametrize("mode", MODES)


def in_session(
    mode: Mode, daemon: DaemonStub, steps: Callable[[mcp.Client], Awaitable[None]], *options: str
) -> None:
    """Run the steps in a client's session with a proxy of its own."""
    program, *arguments = command("--no-start", "--socket", str(daemon.path), *options)
    server = StdioServerParameters(command=program, args=arguments, env=environment())

    async def session() -> None:
        with anyio.fail_after(PATIENCE_S):
            async with mcp.Client(server, mode=mode) as client:
                await steps(client)

    anyio.run(session)


def structured(result: Any) -> Any:
    """The structured content, the text seen to say the same."""
    [block] = result.content
    assert isinstance(block, TextContent)
    assert json.loads(block.text) == result.structured_content
    return result.structured_content


@each_mode
def test_each_mode_finds_its_version_and_the_tools(mode: Mode, daemon: DaemonStub) -> None:
    async def steps(client: mcp.Client) -> None:
        assert client.protocol_version == MODES[mode]
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["activate", "load", "store"]
        reads = [
            tool.name
            for tool in listed.tools
            if tool.annotations is not None and tool.annotations.read_only_hint
        ]
        assert reads == ["activate", "load"]
        if mode != "2026-07-28":  # A pinned version is adopted without asking the server.
            assert client.server_info is not None
            assert client.server_info.name == "clumsies"
            assert client.instructions is not None
            assert "activate" in client.instructions

    in_session(mode, daemon, steps)


@each_mode
def test_tools_answer_and_satisfy_their_schemas(mode: Mode, daemon: DaemonStub) -> None:
    async def steps(client: mcp.Client) -> None:
        await client.list_tools()  # From here on the client checks results itself.
        found = await client.call_tool("activate", {"query": "how is money kept? 钱"})
        assert structured(found) == activation(fragment(1), fragment(2))
        loaded = await client.call_tool("load", {"ids": ["res_1"]})
        assert structured(loaded)["resources"][0]["content"] == "# Money\n"
        stored = await client.call_tool("store", {"create": {"path": "a.md", "body": "# A"}})
        assert structured(stored) == STORED
        discarded = await client.call_tool("memory", {"op": {"store": {"discard": {"id": "d"}}}})
        assert structured(discarded) == STORED

    in_session(mode, daemon, steps)


@each_mode
def test_the_unified_tool_answers_and_satisfies_its_schema(mode: Mode, daemon: DaemonStub) -> None:
    async def steps(client: mcp.Client) -> None:
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == ["memory"]
        for op in (
            {"activate": {"query": "x"}},
            {"load": {"ids": ["a"]}},
            {"store": {"discard": {"id": "d"}}},
        ):
            result = await client.call_tool("memory", {"op": op})
            assert result.is_error is False
            assert structured(result)

    in_session(mode, daemon, steps, "--tools", "memory")


@each_mode
def test_wrong_arguments_are_an_error_of_the_protocol(mode: Mode, daemon: DaemonStub) -> None:
    async def steps(client: mcp.Client) -> None:
        with pytest.raises(mcp.MCPError) as caught:
            await client.call_tool("activate", {"query": "x", "querry": "y"})
        assert caught.value.error.code == -32602
        assert caught.value.error.data == {"field": "activate.querry"}
        with pytest.raises(mcp.MCPError) as caught:
            await client.call_tool("forget", {})
        assert caught.value.error.code == -32602

    in_session(mode, daemon, steps)


@each_mode
def test_an_absent_daemon_is_a_result(mode: Mode, absent: DaemonStub) -> None:
    async def steps(client: mcp.Client) -> None:
        await client.list_tools()
        result = await client.call_tool("activate", {"query": "x"})
        assert result.is_error is True
        assert structured(result)["error"]["code"] == "daemon_unavailable"

    in_session(mode, absent, steps)


@each_mode
def test_calls_side_by_side_with_progress(mode: Mode, daemon: DaemonStub) -> None:
    async def steps(client: mcp.Client) -> None:
        told: list[float] = []

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            told.append(progress)

        async def activate() -> None:
            result = await client.call_tool("activate", {"query": "x"}, progress_callback=hear)
            assert result.is_error is False

        async with anyio.create_task_group() as group:
            for _ in range(10):
                group.start_soon(activate)
        assert len(told) == 20

    in_session(mode, daemon, steps)


@each_mode
def test_a_call_given_up_leaves_the_session_usable(mode: Mode, daemon: DaemonStub) -> None:
    def slow(_: Any) -> Any:
        daemon.peer_left.wait(PATIENCE_S)
        return activation()

    async def steps(client: mcp.Client) -> None:
        daemon.handlers["activate_memory"] = slow
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "activate", {"query": "x"})
            while "activate_memory" not in daemon.methods():
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(daemon.peer_left.wait, PATIENCE_S)
        result = await client.call_tool("load", {"ids": ["a"]})
        assert result.is_error is False

    in_session(mode, daemon, steps)
