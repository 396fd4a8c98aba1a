"""Tool calls in front of a daemon: what it is asked, and what comes of its failures."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clumsies.agent.calls import foreign_workspaces
from clumsies.daemon import messages as m
from clumsies.daemon.wire import PROTOCOL_REVISION
from clumsies.errors import (
    ClumsiesError,
    Conflict,
    DaemonFailed,
    InvalidRequest,
    NotFound,
    NotReady,
)
from tests.agent.daemon_stub import PROJECT, STORED, DaemonStub, activation, binding, fragment
from tests.agent.host import PATIENCE_S, RUN_PROXY, Host, command, environment, host

UPDATE = {
    "id": "res_1",
    "expected_hash": "sha256:0",
    "replacements": [{"old_text": "a", "new_text": "b"}],
}


def raising(error: ClumsiesError) -> Callable[[Any], Any]:
    def handler(_: Any) -> Any:
        raise error

    return handler


def error_in(result: dict[str, Any]) -> dict[str, Any]:
    assert result["isError"] is True
    body = result["structuredContent"]["error"]
    assert isinstance(body, dict)
    return body


@pytest.fixture
def starting(absent: DaemonStub) -> Iterator[Host]:
    """A host whose proxy may start a daemon: a file beside the socket says that it did."""
    start = f"__import__('pathlib').Path({str(absent.directory / 'started')!r}).touch()"
    script = f"import clumsies.agent.calls as calls; calls.start_detached = lambda: {start}; "
    runtime = environment(CLUMSIES_RUNTIME_DIR=str(absent.directory))
    with host(command(program=script + RUN_PROXY), env=runtime) as started:
        yield started


def test_activate_asks_in_the_project_of_the_directory(daemon: DaemonStub, tmp_path: Path) -> None:
    arguments = command("--no-start", "--socket", str(daemon.path))
    with host(arguments, directory=tmp_path) as started:
        started.shake_hands()
        result = started.tool("activate", {"query": "why? #tag 钱\0", "state": "e30"})
    assert result["isError"] is False
    assert result["structuredContent"] == activation(fragment(1), fragment(2))
    resolve, activate = daemon.seen
    assert resolve.payload == m.ResolveBinding(str(tmp_path))
    assert activate.payload == m.ActivateMemory(PROJECT, "why? #tag 钱\0", "e30")
    assert activate.envelope.agent_runtime is not None
    assert activate.envelope.agent_runtime.protocol_revision == PROTOCOL_REVISION
    assert activate.envelope.request_id.startswith("req_")
    assert activate.envelope.request_id == resolve.envelope.request_id


def test_load_hands_on_ids_and_hashes(daemon: DaemonStub, session: Host) -> None:
    result = session.tool("load", {"ids": ["b", "a"], "knownHashes": {"a": "sha256:1"}})
    assert result["structuredContent"]["resources"][0]["content"] == "# Money\n"
    assert daemon.seen[-1].payload == m.LoadMemory(PROJECT, ["b", "a"], {"a": "sha256:1"})


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (
            {"create": {"path": "a.md", "body": "# A", "description": "d"}},
            m.DraftOperation(create=m.CreateMemory("a.md", m.DraftContent("# A", "d"))),
        ),
        (
            {"update": {**UPDATE, "description": "d"}},
            m.DraftOperation(
                update=m.UpdateMemory(
                    "res_1",
                    expected_hash="sha256:0",
                    replacements=[m.Replacement("a", "b")],
                    description="d",
                )
            ),
        ),
        (
            {"rename": {"id": "r", "new_path": "b.md"}},
            m.DraftOperation(rename=m.RenameMemory("r", "b.md")),
        ),
        (
            {"delete": {"id": "r", "description": "old"}},
            m.DraftOperation(delete=m.DeleteMemory("r", "old")),
        ),
        ({"discard": {"id": "draft_1"}}, m.DraftOperation(discard=m.DiscardDraft("draft_1"))),
    ],
)
@pytest.mark.parametrize("wrap", ["bare", "op", "memory"])
def test_store_proposes_to_the_organisation(
    daemon: DaemonStub,
    session: Host,
    operation: dict[str, Any],
    expected: m.DraftOperation,
    wrap: str,
) -> None:
    if wrap == "memory":
        result = session.tool("memory", {"op": {"store": operation}})
    else:
        result = session.tool("store", operation if wrap == "bare" else {"op": operation})
    assert result["structuredContent"] == STORED
    assert daemon.seen[-1].payload == m.StoreDraftOperation(
        PROJECT, "org", "memory", expected, "mcp_store"
    )


@pytest.mark.parametrize(
    "error",
    [
        NotReady("search_model_preparing", "3 of 9 MB.", {"downloaded_bytes": 3}),
        NotFound("memory_resource_not_found", "Missing: a", {"missing": ["a"]}),
        Conflict("memory_content_changed", "Load it again."),
        InvalidRequest("invalid_activation_state", "Leave it out."),
        DaemonFailed("internal_error", "See the log."),
        NotReady("activation_deadline", "Too late."),
    ],
)
def test_what_the_daemon_refuses_is_a_result(
    daemon: DaemonStub, session: Host, error: ClumsiesError
) -> None:
    daemon.handlers["activate_memory"] = raising(error)
    body = error_in(session.tool("activate", {"query": "x"}))
    assert (body["code"], body["message"]) == (error.code, error.message)
    assert body["retryable"] is error.retryable
    assert body["request_id"] == daemon.seen[-1].envelope.request_id
    assert body.get("details", {}) == error.details


def test_an_unbound_directory_is_said_to_be_one(daemon: DaemonStub, session: Host) -> None:
    daemon.handlers["resolve_project_binding"] = raising(
        NotFound("project_binding_not_found", "Run `clumsies init`.")
    )
    assert error_in(session.tool("load", {"ids": ["a"]}))["code"] == "project_binding_not_found"
    assert daemon.methods() == ["resolve_project_binding"]


def test_a_session_never_goes_on_in_another_project(daemon: DaemonStub, session: Host) -> None:
    session.tool("activate", {"query": "x"})
    daemon.handlers["resolve_project_binding"] = lambda _: binding("project_two")
    for tool, arguments in (("activate", {"query": "x"}), ("store", {"discard": {"id": "d"}})):
        body = error_in(session.tool(tool, arguments))
        assert body["code"] == "project_binding_changed"
        assert body["details"] == {"expected": PROJECT, "found": "project_two"}
    assert daemon.methods().count("activate_memory") == 1
    assert "store_draft_operation" not in daemon.methods()
    daemon.handlers["resolve_project_binding"] = lambda _: binding(PROJECT)
    assert session.tool("activate", {"query": "x"})["isError"] is False


def test_codex_workspaces_have_to_be_of_the_same_project(
    daemon: DaemonStub, session: Host, tmp_path: Path
) -> None:
    def resolve(request: m.ResolveBinding) -> dict[str, Any]:
        if request.directory == "/unbound":
            raise NotFound("project_binding_not_found", "No.")
        return binding("project_two" if request.directory == str(tmp_path) else PROJECT)

    daemon.handlers["resolve_project_binding"] = resolve

    def turn(*paths: str) -> dict[str, Any]:
        workspaces = {path: {"latest_git_commit_hash": "0"} for path in paths}
        return {"x-codex-turn-metadata": {"turn_id": "t", "workspaces": workspaces}}

    for fine in (turn(), turn("/unbound"), turn(str(Path.cwd())), turn("/elsewhere")):
        assert session.tool("activate", {"query": "x"}, **fine)["isError"] is False
    body = error_in(session.tool("activate", {"query": "x"}, **turn("/unbound", str(tmp_path))))
    assert body["code"] == "project_binding_changed"
    assert "project_two" in body["message"]


@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        ({}, []),
        ({"x-codex-turn-metadata": {"workspaces": {"/a": {}, "/b": {}}}}, ["/a", "/b"]),
        ({"x-codex-turn-metadata": '{"workspaces": {"/a": {}}}'}, ["/a"]),
        ({"x-codex-turn-metadata": {"workspaces": ["/a"]}}, ["/a"]),
        ({"x-codex-turn-metadata": {"workspaces": {"/a": {}, "/here": {}}}}, []),
        ({"x-codex-turn-metadata": {"workspaces": {"/": {}}}}, []),
        ({"x-codex-turn-metadata": {"workspaces": {"relative": {}, "": {}}}}, []),
        ({"x-codex-turn-metadata": {"workspaces": 3}}, []),
        ({"x-codex-turn-metadata": "{"}, []),
        ({"x-codex-turn-metadata": [1]}, []),
        ({"x-codex-turn-metadata": {"workspaces": {"/a\0": {}}}}, []),
    ],
)
def test_workspaces_that_hold_the_directory_agree(
    meta: dict[str, Any], expected: list[str]
) -> None:
    assert foreign_workspaces(meta, Path("/here/below")) == expected


@pytest.mark.parametrize("options", [[], ["--no-start"]])
def test_without_a_daemon_the_session_opens_and_calls_say_how(
    absent: DaemonStub, options: list[str]
) -> None:
    """A daemon that would listen elsewhere is not started either."""
    options = ["--socket", str(absent.path), *options]
    with host(command(*options)) as started:
        started.shake_hands()
        assert started.ask("tools/list")["result"]["tools"]
        body = error_in(started.tool("activate", {"query": "x"}))
        assert body["code"] == "daemon_unavailable"
        assert body["retryable"] is True
        assert "clumsies daemon start" in body["message"]
        absent.start()
        assert started.tool("activate", {"query": "x"})["isError"] is False


def test_a_call_starts_the_daemon(absent: DaemonStub, starting: Host) -> None:
    mark = absent.directory / "started"

    def come_up() -> None:
        while not mark.exists():
            stopped.wait(0.02)
        absent.start()

    stopped = threading.Event()
    starter = threading.Thread(target=come_up, daemon=True)
    starter.start()
    starting.shake_hands()
    assert not mark.exists()
    assert starting.tool("activate", {"query": "x"})["isError"] is False
    starter.join(PATIENCE_S)
    assert absent.methods() == ["health", "resolve_project_binding", "activate_memory"]


def test_a_daemon_that_went_away_is_found_again(daemon: DaemonStub, session: Host) -> None:
    assert session.tool("activate", {"query": "x"})["isError"] is False
    daemon.stop()
    assert error_in(session.tool("activate", {"query": "x"}))["code"] == "daemon_unavailable"
    daemon.path.unlink()
    daemon.start()
    assert session.tool("activate", {"query": "x"})["isError"] is False


@pytest.mark.parametrize(
    ("tool", "arguments", "method", "asked"),
    [
        ("activate", {"query": "x"}, "activate_memory", 2),
        ("store", {"discard": {"id": "d"}}, "store_draft_operation", 1),
    ],
)
def test_only_what_changes_nothing_is_asked_twice(
    daemon: DaemonStub, session: Host, tool: str, arguments: object, method: str, asked: int
) -> None:
    first = daemon.handlers[method]

    def broken_once(payload: Any) -> Any:
        if daemon.methods().count(method) == 1:
            raise DaemonFailed("daemon_ipc_failed", "The connection ended.")
        return first(payload)

    daemon.handlers[method] = broken_once
    result = session.tool(tool, arguments)
    assert daemon.methods().count(method) == asked
    assert result["isError"] is (asked == 1)


def test_a_cancelled_call_is_given_up_and_not_answered(daemon: DaemonStub, session: Host) -> None:
    entered, release = threading.Event(), threading.Event()

    def slow(_: Any) -> Any:
        entered.set()
        release.wait(PATIENCE_S)
        return activation()

    daemon.handlers["activate_memory"] = slow
    request_id = session.begin(
        "tools/call", {"name": "activate", "arguments": {"query": "x"}, "_meta": {}}
    )
    assert entered.wait(PATIENCE_S)
    session.send(
        {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": request_id, "reason": "enough"},
        }
    )
    assert daemon.peer_left.wait(PATIENCE_S)
    before = len(session.raw)
    assert session.ask("ping")["result"] == {}
    release.set()
    daemon.handlers["activate_memory"] = lambda _: activation(fragment(9))
    assert session.tool("activate", {"query": "x"})["isError"] is False
    assert session.raw[before:].count(b"\n") == 2


def test_an_id_under_way_is_refused(daemon: DaemonStub, session: Host) -> None:
    release = threading.Event()

    def slow(_: Any) -> Any:
        release.wait(PATIENCE_S)
        return activation()

    daemon.handlers["activate_memory"] = slow
    params = {"name": "activate", "arguments": {"query": "x"}}
    for _ in range(2):
        session.send({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params})
    assert session.receive()["error"]["code"] == -32600
    release.set()
    assert session.receive()["result"]["isError"] is False


def test_a_cancelled_call_leaves_the_next_of_its_id_alone(
    daemon: DaemonStub, session: Host
) -> None:
    entered = threading.Semaphore(0)
    release = threading.Event()

    def slow(_: Any) -> Any:
        entered.release()
        release.wait(PATIENCE_S)
        return activation()

    daemon.handlers["activate_memory"] = slow
    params = {"name": "activate", "arguments": {"query": "x"}}
    call = {"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params}
    session.send(call)
    assert entered.acquire(timeout=PATIENCE_S)
    session.send(
        {
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": {"requestId": "same"},
        }
    )
    session.send(call)
    assert entered.acquire(timeout=PATIENCE_S)
    assert daemon.peer_left.wait(PATIENCE_S)
    session.ask("ping")
    session.send(call)
    assert session.receive()["error"]["code"] == -32600
    release.set()
    assert session.receive()["result"]["isError"] is False


def test_calls_run_side_by_side(daemon: DaemonStub, session: Host) -> None:
    together = threading.Barrier(8)

    def wait_for_all(_: Any) -> Any:
        together.wait(PATIENCE_S)
        return activation()

    daemon.handlers["activate_memory"] = wait_for_all
    params = {"name": "activate", "arguments": {"query": "x"}}
    asked = {session.begin("tools/call", params) for _ in range(8)}
    answers = [session.receive() for _ in range(8)]
    assert {answer["id"] for answer in answers} == asked
    assert all(answer["result"]["isError"] is False for answer in answers)


def test_one_call_too_many_is_told_to_try_again(daemon: DaemonStub, session: Host) -> None:
    release = threading.Event()

    def slow(_: Any) -> Any:
        release.wait(PATIENCE_S)
        return activation()

    daemon.handlers["activate_memory"] = slow
    params = {"name": "activate", "arguments": {"query": "x"}}
    for _ in range(32):
        session.begin("tools/call", params)
    assert error_in(session.tool("activate", {"query": "x"}))["code"] == "daemon_busy"
    release.set()
    assert all(session.receive()["result"]["isError"] is False for _ in range(32))


@pytest.mark.parametrize("token", ["t", 0])
def test_progress_is_told_to_who_asked(session: Host, token: str | int) -> None:
    params = {
        "name": "activate",
        "arguments": {"query": "x"},
        "_meta": {"progressToken": token},
    }
    request_id = session.begin("tools/call", params)
    told = []
    while (message := session.receive()).get("id") != request_id:
        assert message["method"] == "notifications/progress"
        told.append(message["params"])
    assert [each["progress"] for each in told] == [1, 2]
    assert all(each["progressToken"] == token for each in told)


def test_a_long_call_keeps_telling_that_it_works(daemon: DaemonStub) -> None:
    enough = threading.Event()

    def slow(_: Any) -> Any:
        enough.wait(PATIENCE_S)
        return activation()

    daemon.handlers["activate_memory"] = slow
    often = "import clumsies.agent.proxy as proxy; proxy.PROGRESS_INTERVAL_S = 0.02; "
    with host(command("--socket", str(daemon.path), program=often + RUN_PROXY)) as started:
        started.shake_hands()
        params = {
            "name": "activate",
            "arguments": {"query": "x"},
            "_meta": {"progressToken": "t"},
        }
        request_id = started.begin("tools/call", params)
        told = [started.receive()["params"]["progress"] for _ in range(5)]
        assert told == [1, 2, 3, 4, 5]
        enough.set()
        while started.receive().get("id") != request_id:
            pass
        before = len(started.raw)
        assert started.ask("ping")["result"] == {}
        assert started.raw[before:].count(b"\n") == 1


@pytest.mark.parametrize("meta", [{}, {"progressToken": True}, {"progressToken": [1]}])
def test_progress_is_told_to_nobody_else(session: Host, meta: dict[str, Any]) -> None:
    params = {"name": "activate", "arguments": {"query": "x"}, "_meta": meta}
    request_id = session.begin("tools/call", params)
    assert session.receive()["id"] == request_id


def test_a_long_answer_is_cut_to_what_hosts_pass_on(daemon: DaemonStub, session: Host) -> None:
    daemon.handlers["activate_memory"] = lambda _: activation(
        *(fragment(number, "钱" * 3000) for number in range(12))
    )
    before = len(session.raw)
    result = session.tool("activate", {"query": "x"})
    assert 0 < len(result["structuredContent"]["fragments"]) < 12
    assert "left out" in result["structuredContent"]["note"]
    assert len(session.raw) - before < 80_000


def test_the_directory_may_be_gone(daemon: DaemonStub, tmp_path: Path) -> None:
    directory = tmp_path / "gone"
    directory.mkdir()
    with host(command("--no-start", "--socket", str(daemon.path)), directory=directory) as started:
        started.shake_hands()
        directory.rmdir()
        assert error_in(started.tool("activate", {"query": "x"}))["code"] == "not_found"
