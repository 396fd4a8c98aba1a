"""The official client, the proxy and the real daemon, which the proxy starts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import mcp
import pytest
from mcp.client.stdio import StdioServerParameters

from clumsies.config import daemon_places
from clumsies.daemon.client import DaemonClient
from clumsies.daemon.lock import running_pid
from clumsies.daemon.services import DaemonControl
from tests.agent.host import PATIENCE_S, command
from tests.agent.test_official_client import Mode, each_mode, structured
from tests.daemon.resident import resident_environment, write_files

FILES = {"deploy.md": "# Deploying\n\nThe rollout needs the blue key.\n"}


class System:
    """An empty home and a workspace; no daemon runs yet."""

    def __init__(self, root: Path):
        self.workspace = root / "w"
        write_files(self.workspace, FILES)
        self.environment = resident_environment(root)
        self.places = daemon_places(self.environment)

    def clumsies(self, *arguments: str) -> str:
        """What a command in the workspace prints; it has to succeed."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "clumsies", *arguments],
            cwd=self.workspace,
            env=self.environment,
            check=True,
            capture_output=True,
            timeout=PATIENCE_S,
        )
        return done.stdout.decode("utf-8")

    def in_session(
        self, mode: Mode, steps: Callable[[mcp.Client], Awaitable[None]], *options: str
    ) -> None:
        program, *arguments = command(*options)
        server = StdioServerParameters(
            command=program, args=arguments, env=self.environment, cwd=self.workspace
        )

        async def session() -> None:
            with anyio.fail_after(PATIENCE_S * 2):
                async with mcp.Client(server, mode=mode) as client:
                    await steps(client)

        anyio.run(session)

    def stop(self) -> None:
        DaemonControl(self.places).stop()


@pytest.fixture
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    made = System(tmp_path_factory.mktemp("s"))
    yield made
    made.stop()


async def fragments(client: mcp.Client, query: str) -> str:
    answer = structured(await client.call_tool("activate", {"query": query}))
    return "\n".join(fragment.get("content", "") for fragment in answer["fragments"])


@each_mode
def test_an_update_is_in_the_next_answer(mode: Mode, system: System) -> None:
    system.clumsies("init")
    system.clumsies("import", ".")
    system.stop()
    assert running_pid(system.places) is None

    async def steps(client: mcp.Client) -> None:
        await client.list_tools()
        assert "blue key" in await fragments(client, "rollout key")  # and the daemon was started
        loaded = structured(await client.call_tool("load", {"ids": ["deploy.md"]}))
        [resource] = loaded["resources"]
        update = {
            "id": resource["resource_id"],
            "expected_hash": resource["content_hash"],
            "replacements": [{"old_text": "blue key", "new_text": "green key"}],
        }
        stored = await client.call_tool("store", {"update": update})
        assert stored.is_error is False
        assert structured(stored)["queued"] is True
        text = await fragments(client, "rollout key")
        assert "green key" in text
        assert "blue key" not in text
        again = await client.call_tool("store", {"update": update})
        assert again.is_error is True
        assert structured(again)["error"]["code"] == "memory_content_changed"

    system.in_session(mode, steps)
    assert running_pid(system.places) is not None


@each_mode
def test_a_page_that_another_replaces_says_so_and_comes_after_it(
    mode: Mode, system: System
) -> None:
    system.clumsies("init")
    system.clumsies("import", ".")

    async def steps(client: mcp.Client) -> None:
        loaded = structured(await client.call_tool("load", {"ids": ["deploy.md"]}))
        [old] = loaded["resources"]
        created = {
            "path": "deploying-by-robot.md",
            "body": "# Robot\n\nA rollout of the robot.\n",
        }
        assert (await client.call_tool("store", {"create": created})).is_error is False
        notice = "# Deploying\n\n> **Superseded** by [the robot](deploying-by-robot.md).\n"
        update = {
            "id": old["resource_id"],
            "expected_hash": old["content_hash"],
            "replacements": [{"old_text": "# Deploying\n", "new_text": notice}],
        }
        assert (await client.call_tool("store", {"update": update})).is_error is False
        answer = structured(await client.call_tool("activate", {"query": "rollout blue key"}))
        assert [(f["path"], f.get("superseded_by")) for f in answer["fragments"]] == [
            ("deploying-by-robot.md", None),
            ("deploy.md", "deploying-by-robot.md"),
        ]

    system.in_session(mode, steps)
    for command_line in (("activate", "rollout blue key"), ("history", "show")):
        assert "superseded by" in system.clumsies(*command_line)


def environment_names(pid: int) -> set[str]:
    place = Path(f"/proc/{pid}/environ")
    if not place.exists():
        return set()
    return {entry.partition(b"=")[0].decode() for entry in place.read_bytes().split(b"\0")}


def test_keys_of_the_host_do_not_reach_the_daemon(system: System) -> None:
    system.clumsies("init")
    system.stop()
    system.environment |= {"OPENAI_API_KEY": "secret", "ANTHROPIC_API_KEY": "secret"}

    async def steps(client: mcp.Client) -> None:
        assert (await client.call_tool("activate", {"query": "x"})).is_error is False

    system.in_session("auto", steps)
    pid = running_pid(system.places)
    assert pid is not None
    assert environment_names(pid).isdisjoint({"ANTHROPIC_API_KEY", "OPENAI_API_KEY"})


def test_a_daemon_that_cannot_start_is_a_result_that_says_why(system: System) -> None:
    system.clumsies("init")
    system.stop()
    database = system.places.root / "local.db"
    database.write_bytes(b"\x5a" * 20_000)

    async def steps(client: mcp.Client) -> None:
        result = await client.call_tool("activate", {"query": "x"})
        assert result.is_error is True
        error: dict[str, Any] = structured(result)["error"]
        assert error["code"] == "local_db_error"
        assert str(database) in error["message"]

    system.in_session("auto", steps)
    assert database.read_bytes() == b"\x5a" * 20_000


def test_a_proxy_that_may_not_start_a_daemon_says_how(system: System) -> None:
    async def steps(client: mcp.Client) -> None:
        result = await client.call_tool("activate", {"query": "x"})
        assert result.is_error is True
        error = structured(result)["error"]
        assert error["code"] == "daemon_unavailable"
        assert "clumsies daemon start" in error["message"]

    system.in_session("auto", steps, "--no-start")
    assert running_pid(system.places) is None


def test_sessions_come_and_go_and_the_daemon_stays(system: System) -> None:
    system.clumsies("init")
    pid = running_pid(system.places)

    async def steps(client: mcp.Client) -> None:
        await client.call_tool("load", {"ids": ["nothing"]})

    for _ in range(5):
        system.in_session("auto", steps)
    assert running_pid(system.places) == pid
    with DaemonClient(system.places.socket, "test") as client:
        assert client.call("mcp_status")["agent_connections"] <= 1
