"""The proxy as a process: how it ends, what it loads, and that standard output stays pure."""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from clumsies.version import VERSION
from tests.agent.daemon_stub import DaemonStub, activation, fragment
from tests.agent.host import PATIENCE_S, Host, command, environment, host

SESSIONS = 50
STOPPED_READING_S = 3.0
"""Longer than a proxy that reads, on a busy machine, leaves its input full."""
BEFORE_THE_DEADLINE_S = 30.0
"""Well under the 65 s that a call may take: who ends by then has not waited for one."""

NOISY = """
import os, subprocess, sys
import clumsies.agent.proxy as proxy
quiet = proxy.listed
def listed(unified):
    print("noise")
    sys.stdout.flush()
    os.write(1, b"noise\\n")
    subprocess.run(["echo", "noise"], check=True)
    return quiet(unified)
proxy.listed = listed
proxy.main(sys.argv[1:])
"""
TELLING_MODULES = """
import sys
import clumsies.agent.proxy as proxy
quiet = proxy.listed
def listed(unified):
    sys.stderr.write(" ".join(sys.modules) + "\\n")
    return quiet(unified)
proxy.listed = listed
proxy.main(sys.argv[1:])
"""
BLOCKED = {"name": "activate", "arguments": {"query": "x"}}


@pytest.fixture
def blocking(daemon: DaemonStub) -> threading.Event:
    """Set once an activation is under way; it stays so."""
    entered = threading.Event()

    def forever(_: Any) -> Any:
        entered.set()
        daemon.peer_left.wait(PATIENCE_S)
        return activation()

    daemon.handlers["activate_memory"] = forever
    return entered


def test_the_end_of_input_ends_it(session: Host) -> None:
    assert session.end(BEFORE_THE_DEADLINE_S) == 0


def test_it_ends_before_anything_was_said(daemon: DaemonStub) -> None:
    with host(command("--socket", str(daemon.path))) as started:
        assert started.end(BEFORE_THE_DEADLINE_S) == 0
    assert started.raw == b""


def test_what_was_asked_before_the_end_is_answered(session: Host) -> None:
    for _ in range(20):
        session.begin("tools/list")
    before = session.raw.count(b"\n")
    assert session.end(BEFORE_THE_DEADLINE_S) == 0
    assert session.raw.count(b"\n") - before == 20


def test_a_call_under_way_does_not_hold_up_the_end(
    daemon: DaemonStub, session: Host, blocking: threading.Event
) -> None:
    session.begin("tools/call", BLOCKED)
    assert blocking.wait(PATIENCE_S)
    assert session.end(BEFORE_THE_DEADLINE_S) == 0
    assert daemon.peer_left.wait(PATIENCE_S)


def test_a_host_that_does_not_read_does_not_hold_up_the_end(session: Host) -> None:
    for _ in range(200):
        session.begin("tools/list")  # About 1 MB of answers: more than a pipe takes.
    session.stdin.close()
    assert session.process.wait(BEFORE_THE_DEADLINE_S) == 0


def test_a_host_that_no_longer_reads_ends_it(session: Host) -> None:
    session.stdout.close()
    session.begin("tools/list")
    assert session.process.wait(BEFORE_THE_DEADLINE_S) == 0


def test_more_answers_than_are_kept_all_arrive(session: Host) -> None:
    requests = 4000  # About 20 MB of answers.
    writer = threading.Thread(
        target=lambda: [session.begin("tools/list") for _ in range(requests)], daemon=True
    )
    writer.start()
    writer.join(0.5)
    ids = [session.receive()["id"] for _ in range(requests)]
    assert ids == sorted(ids)
    writer.join(PATIENCE_S)


def test_a_host_that_does_not_read_is_not_read_from_either(session: Host) -> None:
    """Answers are not kept without bound, and the end is seen all the same."""
    os.set_blocking(session.stdin.fileno(), False)
    request = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}\n'
    written = 0
    for _ in range(40_000):  # 200 MB of answers, were they all made.
        writable = select.select([], [session.stdin], [], STOPPED_READING_S)[1]
        if not writable:
            break
        written += os.write(session.stdin.fileno(), request)
    assert written < 20_000 * len(request)
    session.stdin.close()
    assert session.process.wait(BEFORE_THE_DEADLINE_S) == 0


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("busy", [False, True])
def test_signals_end_it_at_once(
    session: Host, blocking: threading.Event, ending: signal.Signals, busy: bool
) -> None:
    if busy:
        session.begin("tools/call", BLOCKED)
        assert blocking.wait(PATIENCE_S)
    session.process.send_signal(ending)
    assert session.process.wait(BEFORE_THE_DEADLINE_S) == -ending
    assert session.stderr.read() == b""


def test_nothing_else_can_write_to_standard_output(daemon: DaemonStub) -> None:
    with host(command("--socket", str(daemon.path), program=NOISY)) as started:
        started.shake_hands()
        assert started.ask("tools/list")["result"]["tools"]
        started.stdin.close()
        started.raw += started.stdout.read()
        assert b"noise" not in started.raw
        assert all(json.loads(line)["jsonrpc"] for line in started.raw.splitlines())
        assert started.stderr.read().count(b"noise") == 3


def test_a_closed_standard_error_harms_nothing(daemon: DaemonStub) -> None:
    line = shlex.join(command("--socket", str(daemon.path), program=NOISY))
    with host(["/bin/sh", "-c", f"exec {line} 2>&-"]) as started:
        started.shake_hands()
        assert started.ask("tools/list")["result"]["tools"]
        assert started.tool("activate", {"query": "x"})["isError"] is False
        started.end()
        assert b"noise" not in started.raw


@pytest.mark.parametrize(
    "more",
    [
        {"LC_ALL": "C"},
        {"PYTHONIOENCODING": "cp1252"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_text_does_not_depend_on_the_locale(daemon: DaemonStub, more: dict[str, str]) -> None:
    daemon.handlers["activate_memory"] = lambda request: activation(fragment(1, request.query))
    arguments = command("--no-start", "--socket", str(daemon.path))
    with host(arguments, env=environment(**more)) as started:
        started.shake_hands()
        query = "重跑gen-itgc后50条 Müller 😀 \u2028 \\n"
        result = started.tool("activate", {"query": query})
        assert result["structuredContent"]["fragments"][0]["content"] == query
        assert started.end() == 0
        assert "😀".encode() in started.raw


def test_fifty_sessions_leave_no_process(daemon: DaemonStub) -> None:
    socket = str(daemon.path)
    for _ in range(SESSIONS // 5):
        several = [Host(command("--no-start", "--socket", socket)) for _ in range(5)]
        for started in several:
            started.shake_hands()
        assert several[0].tool("activate", {"query": "x"})["isError"] is False
        assert [started.end(BEFORE_THE_DEADLINE_S) for started in several] == [0] * 5
    assert processes_with(socket) == []


def test_what_slow_starts_are_made_of_is_never_loaded(daemon: DaemonStub) -> None:
    runtime = environment(CLUMSIES_RUNTIME_DIR=str(daemon.directory))
    with host(command(program=TELLING_MODULES), env=runtime) as started:
        started.shake_hands()
        started.ask("tools/list")
        assert started.tool("activate", {"query": "x"})["isError"] is False
        started.ask("tools/list")
        started.stdin.close()
        before, after = (set(line.split()) for line in started.stderr.read().decode().splitlines())
    heavy = {
        *("numpy", "onnxruntime", "tokenizers", "usearch", "apsw", "httpx", "rich", "typer"),
        *("asyncio", "mcp", "pydantic", "concurrent.futures", "platformdirs", "subprocess"),
    }
    assert "clumsies.agent.proxy" in before
    assert not heavy & after
    # The handshake waits for neither the wire format nor a socket.
    assert not {"msgspec", "socket", "clumsies.daemon", "clumsies.agent.calls"} & before
    assert "clumsies.daemon.client" in after


def test_a_repository_is_never_imported_from(daemon: DaemonStub, tmp_path: Path) -> None:
    for name in ("clumsies", "msgspec", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n", "utf-8")
    with host(command("--socket", str(daemon.path)), directory=tmp_path) as started:
        assert started.shake_hands()["serverInfo"]["version"] == VERSION
        assert started.tool("activate", {"query": "x"})["isError"] is False


@pytest.mark.parametrize(
    "options",
    [["--help"], ["--tools"], ["--tools", "all"], ["--socket", "relative"], ["--no-start=1"], [""]],
)
def test_options_that_are_not_understood_are_refused(options: list[str]) -> None:
    done = subprocess.run(
        command(*options), env=environment(), capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 2
    assert done.stdout == b""
    assert b"usage:" in done.stderr


@pytest.mark.parametrize("option", [["--tools", "memory"], ["--tools=memory"]])
def test_the_unified_tool_is_listed_where_it_is_wanted(
    daemon: DaemonStub, option: list[str]
) -> None:
    with host(command(*option, "--socket", str(daemon.path))) as started:
        assert "op.activate" in started.shake_hands()["instructions"]
        listed = started.ask("tools/list")["result"]["tools"]
        assert [tool["name"] for tool in listed] == ["memory"]
        result = started.tool("memory", {"op": {"load": {"ids": ["a"]}}})
        assert result["structuredContent"]["resources"]
        assert started.tool("load", {"ids": ["a"]})["isError"] is False


def processes_with(argument: str) -> list[str]:
    """Command lines of this machine that carry `argument`."""
    if sys.platform == "linux":
        lines = [_command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline")]
    else:
        listing = subprocess.run(["ps", "-axo", "args"], capture_output=True, check=True)
        lines = listing.stdout.decode(errors="replace").splitlines()
    return [line for line in lines if argument in line]


def _command_line(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""  # It ended while we looked.
