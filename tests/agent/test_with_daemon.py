"""The proxy in front of the real daemon: from an empty home to a text that was just stored."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clumsies.config import runtime_socket
from clumsies.daemon import messages as m
from clumsies.daemon.client import DaemonClient, ensure_running
from tests.agent.host import ENVELOPE, PATIENCE_S, Host, command, environment, host


class Home:
    """An empty home with a daemon of its own, and a workspace to start hosts in."""

    def __init__(self, root: Path):
        self.workspace = root / "workspace"
        self.workspace.mkdir()
        self.environment = environment(
            HOME=str(root), CLUMSIES_HOME=str(root / "c"), CLUMSIES_MODEL_PROFILE="compact"
        )
        self.client = DaemonClient(runtime_socket(self.environment), "test")
        self.daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the daemon as a child of the test, which will end it."""

        def run() -> None:
            self.daemon = subprocess.Popen(
                [sys.executable, "-P", "-m", "clumsies.daemon.main", "run"],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

        ensure_running(self.client, start=run, wait_s=PATIENCE_S)

    def kill(self) -> None:
        if self.daemon is not None:
            self.daemon.kill()
            self.daemon.wait(PATIENCE_S)
            self.daemon = None

    def bind(self, text: str) -> None:
        """Make the workspace a project that holds `rules/money.md`."""
        (self.workspace / "rules").mkdir()
        (self.workspace / "rules" / "money.md").write_text(text, "utf-8")
        created = self.client.call(
            "create_local_project", m.CreateLocalProject("test", str(self.workspace))
        )
        self.client.call(
            "import_memory",
            m.ImportMemory(created["project"]["project_id"], [str(self.workspace)]),
            timeout_s=PATIENCE_S,
        )


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    made = Home(tmp_path_factory.mktemp("h"))
    yield made
    made.client.close()
    made.kill()


def test_a_stored_text_is_in_the_next_answer_and_survives_the_daemon(home: Home) -> None:
    home.start()
    with host(command("--no-start"), env=home.environment, directory=home.workspace) as started:
        started.shake_hands()
        unbound = started.tool("activate", {"query": "money"})
        assert unbound["structuredContent"]["error"]["code"] == "project_binding_not_found"
        home.bind("# Money\n\nAmounts are kept as integer cents.\n")
        before = activated(started, "how are amounts kept?")
        assert "integer cents" in before["fragments"][0]["content"]

        path = before["fragments"][0]["path"]
        [resource] = started.tool("load", {"ids": [path]})["structuredContent"]["resources"]
        update = {
            "id": resource["resource_id"],
            "expected_hash": resource["content_hash"],
            "replacements": [{"old_text": "integer cents", "new_text": "decimal strings"}],
        }
        stored = started.tool("store", {"update": update})
        assert stored["isError"] is False
        assert stored["structuredContent"]["sync_status"] == "queued"
        changed = started.tool("store", {"update": update})
        assert changed["structuredContent"]["error"]["code"] == "memory_content_changed"

        after = activated(started, "how are amounts kept?", state=before["next_state"])
        assert "decimal strings" in after["fragments"][0]["content"]
        again = activated(started, "how are amounts kept?", state=after["next_state"])
        assert again["fragments"][0]["action"] == "reuse"
        assert "content" not in again["fragments"][0]

        home.kill()
        gone = started.tool("activate", {"query": "amounts"})
        assert gone["structuredContent"]["error"]["code"] == "daemon_unavailable"
        home.start()
        kept = activated(started, "how are amounts kept?")
        assert "decimal strings" in kept["fragments"][0]["content"]


def test_the_stateless_era_stores_and_discards(home: Home) -> None:
    home.start()
    home.bind("# Money\n\nAmounts are kept as integer cents.\n")
    with host(command("--no-start"), env=home.environment, directory=home.workspace) as started:
        create = {"path": "rules/time.md", "body": "# Time\n\nTimes are UTC.\n"}
        stored = started.tool("store", {"create": create}, **ENVELOPE)["structuredContent"]
        loaded = started.tool("load", {"ids": [stored["draft_id"]]}, **ENVELOPE)
        [resource] = loaded["structuredContent"]["resources"]
        assert (resource["path"], resource["content"]) == (create["path"], create["body"])
        discard = {"discard": {"id": stored["draft_id"]}}
        assert started.tool("store", discard, **ENVELOPE)["isError"] is False
        missing = started.tool("load", {"ids": [stored["draft_id"]]}, **ENVELOPE)
        assert missing["structuredContent"]["error"]["code"] == "memory_resource_not_found"
        for path in ("../outside.md", "/etc/passwd", "..\\outside.md"):
            refused = started.tool("store", {"create": {"path": path, "body": "x"}}, **ENVELOPE)
            assert refused["structuredContent"]["error"]["code"] == "invalid_request"


def activated(started: Host, query: str, **more: str) -> dict[str, Any]:
    """The answer of an activation; one that is only early is asked for again."""
    end = time.monotonic() + PATIENCE_S
    while True:
        result = started.tool("activate", {"query": query, **more})
        answer = result["structuredContent"]
        assert isinstance(answer, dict)
        if not result["isError"]:
            return answer
        assert answer["error"]["retryable"], answer
        assert time.monotonic() < end, answer
        time.sleep(0.2)
