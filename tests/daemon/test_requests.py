"""What a running daemon does with requests, good and bad."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clumsies.daemon import messages as m
from clumsies.daemon.client import DaemonClient
from clumsies.daemon.connections import MAX_REQUESTS
from clumsies.daemon.wire import MAX_FRAME_BYTES, PROTOCOL_REVISION, Response
from clumsies.errors import ClumsiesError, DaemonFailed, InvalidRequest, NotFound, NotReady
from tests.daemon.running import Daemon, Peer, wait_for

RUNTIME = {"protocol_revision": PROTOCOL_REVISION, "build_id": "test"}


@pytest.fixture
def client(daemon: Daemon) -> Iterator[DaemonClient]:
    with daemon.client() as made:
        yield made


def request(method: str, payload: object = None, **more: object) -> bytes:
    return msgspec.json.encode({"id": 1, "method": method, "payload": payload or {}, **more})


def activate(query: str, number: int = 1) -> bytes:
    payload = {"project_id": "p", "query": query}
    return request("activate_memory", payload, id=number, agent_runtime=RUNTIME)


def code_of(answer: Response | None) -> str:
    assert answer is not None
    assert answer.error is not None
    assert not answer.ok
    assert bytes(answer.payload) == b"{}"
    return answer.error.code


def test_health_needs_no_marker_and_answers_typed(daemon: Daemon, client: DaemonClient) -> None:
    with Peer(daemon.places.socket) as peer:
        peer.send(request("health"))
        answer = peer.answer()
        assert answer is not None
        assert answer.ok
        health = msgspec.json.decode(answer.payload, type=m.Health)
    assert health == client.ask("health", None, m.Health)
    assert health.agent_runtime.protocol_revision == PROTOCOL_REVISION


@pytest.mark.parametrize(
    ("marker", "code"),
    [
        (None, "agent_runtime_mismatch"),
        ({"protocol_revision": PROTOCOL_REVISION + 1, "build_id": "b"}, "agent_runtime_mismatch"),
        ({"protocol_revision": PROTOCOL_REVISION, "build_id": "of another time"}, None),
    ],
)
def test_the_gate_stands_before_the_payload(
    daemon: Daemon, marker: dict[str, Any] | None, code: str | None
) -> None:
    """The payload is wrong in each case; only past the gate is that found out."""
    more = {"agent_runtime": marker} if marker else {}
    with Peer(daemon.places.socket) as peer:
        peer.send(request("activate_memory", {"nonsense": 1}, **more))
        assert code_of(peer.answer()) == (code or "invalid_request")


def test_a_foreign_marker_is_refused_where_none_is_needed(daemon: Daemon) -> None:
    marker = {"protocol_revision": PROTOCOL_REVISION + 1, "build_id": "b"}
    with Peer(daemon.places.socket) as peer:
        peer.send(request("mcp_status", agent_runtime=marker))
        assert code_of(peer.answer()) == "agent_runtime_mismatch"
        peer.send(request("health", agent_runtime=marker))
        answer = peer.answer()
        assert answer is not None
        assert answer.ok


def test_a_desktop_alias_needs_no_marker(daemon: Daemon) -> None:
    operation = {
        "project_id": "alias",
        "scope": "org",
        "resource": "memory",
        "op": {"discard": {"id": "draft_1"}},
        "source": "desktop",
    }
    with Peer(daemon.places.socket) as peer:
        peer.send(request("store_draft_operation", operation))
        assert code_of(peer.answer()) == "agent_runtime_mismatch"
        peer.send(request("desktop_store_draft_operation", operation))
        answer = peer.answer()
        assert answer is not None
        assert answer.ok


@pytest.mark.parametrize(
    ("method", "payload", "named"),
    [
        ("no_such_method", {}, "no such method"),
        ("health", {"verbose": True}, "`verbose`"),
        ("activate_memory", {"project_id": "p", "qurey": "x"}, "`qurey`"),
        ("activate_memory", {"project_id": "p"}, "`query`"),
        ("load_memory", {"project_id": "p", "ids": []}, "ids"),
        ("list_drafts", {"limit": 501}, "limit"),
        ("list_drafts", {"project_id": "p"}, "does not serve"),
    ],
)
def test_a_wrong_request_is_refused_by_name(
    client: DaemonClient, method: str, payload: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.call(method, payload)
    assert caught.value.code == "invalid_request"
    assert named in caught.value.message


def store(op: dict[str, Any]) -> dict[str, Any]:
    return {"project_id": "p", "scope": "org", "resource": "memory", "op": op, "source": "cli"}


@pytest.mark.parametrize(
    ("op", "named"),
    [
        ({}, "exactly one"),
        ({"delete": {"id": "a"}, "discard": {"id": "a"}}, "delete, discard"),
        ({"update": {"id": "a"}}, "`expected_hash`"),
        ({"update": {"id": "a", "content": {"content": "x"}, "expected_hash": "h"}}, "not both"),
        ({"update": {"id": "a", "expected_hash": "h", "replacements": []}}, "replacements"),
        ({"delete": None}, "$.op.delete"),
        ({"rename": {"id": "a", "new_path": "b", "force": True}}, "`force`"),
    ],
)
def test_a_draft_operation_is_exactly_one_of_five(
    client: DaemonClient, op: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.call("store_draft_operation", store(op))
    assert named in caught.value.message


def test_a_handlers_error_arrives_as_it_was_raised(client: DaemonClient) -> None:
    with pytest.raises(NotFound) as caught:
        client.call(
            "activate_memory", {"project_id": "p", "query": "missing m1"}, request_id="req_mine"
        )
    assert caught.value.code == "memory_resource_not_found"
    assert caught.value.details == {"ids": ["m1"], "request_id": "req_mine"}


@pytest.mark.parametrize("method", ["activate_memory", "project_checkout"])
def test_a_fault_of_a_handler_is_an_internal_error_without_its_text(
    daemon: Daemon, client: DaemonClient, method: str
) -> None:
    payload = {"project_id": "p"}
    if method == "activate_memory":
        payload["query"] = "broken marmalade"
    with pytest.raises(DaemonFailed) as caught:
        client.call(method, payload)
    assert caught.value.code == "internal_error"
    assert "marmalade" not in caught.value.message
    assert "ipc_failed" in daemon.logs()
    assert "marmalade" not in daemon.logs()


def test_the_request_id_goes_end_to_end(client: DaemonClient) -> None:
    payload = {"project_id": "p", "query": "x"}
    answer = client.ask("activate_memory", payload, m.Activation, request_id="req_abc")
    assert answer.profile == "req_abc"
    made = client.ask("activate_memory", payload, m.Activation)
    assert made.profile.startswith("req_")


def test_answers_come_in_any_order_on_one_connection(daemon: Daemon) -> None:
    with Peer(daemon.places.socket) as peer:
        peer.send(activate("wait order", 1))
        peer.send(request("health", id=2))
        answer = peer.answer()
        assert answer is not None
        assert (answer.id, answer.ok) == (2, True)


def test_a_peer_that_goes_cancels_its_work(daemon: Daemon) -> None:
    with Peer(daemon.places.socket) as peer:
        peer.send(activate("wait gone"))
        wait_for(lambda: daemon.saw("waiting-gone"), "the handler runs")
    wait_for(lambda: daemon.saw("cancelled-gone"), "the handler is cancelled")


@pytest.mark.parametrize("how", ["event", "socket"])
def test_a_client_gives_a_call_up(daemon: Daemon, client: DaemonClient, how: str) -> None:
    here, there = socket.socketpair()
    event = threading.Event()
    payload = {"project_id": "p", "query": f"wait up-{how}"}
    with here, there, ThreadPoolExecutor(1) as pool:
        call = pool.submit(
            client.call, "activate_memory", payload, cancel=event if how == "event" else here
        )
        wait_for(lambda: daemon.saw(f"waiting-up-{how}"), "the handler runs")
        event.set() if how == "event" else there.send(b"x")
        with pytest.raises(NotReady) as caught:
            call.result()
    assert caught.value.code == "request_cancelled"
    wait_for(lambda: daemon.saw(f"cancelled-up-{how}"), "the handler is cancelled")


def test_a_client_that_waited_long_enough_cancels(daemon: Daemon, client: DaemonClient) -> None:
    with pytest.raises(NotReady) as caught:
        client.call("activate_memory", {"project_id": "p", "query": "wait late"}, timeout_s=0.5)
    assert caught.value.code == "request_deadline"
    wait_for(lambda: client.call("mcp_status")["active_requests"] == 1, "the work is given up")
    assert not daemon.saw("forgotten-late")


def test_a_full_model_pool_leaves_quick_methods_alone(daemon: Daemon, client: DaemonClient) -> None:
    with Peer(daemon.places.socket) as peer:
        for number in range(8):
            peer.send(activate(f"wait full-{number}", number))
        wait_for(lambda: daemon.saw("waiting-full-0"), "a model call runs")
        assert client.call("health")["daemon_version"] == "test"
    wait_for(lambda: not client.call("mcp_status")["active_requests"] > 1, "all are given up")


def test_a_connection_has_a_bounded_number_of_requests(daemon: Daemon) -> None:
    with Peer(daemon.places.socket) as peer:
        for number in range(MAX_REQUESTS + 1):
            peer.send(activate(f"wait bound-{number}", number))
        answer = peer.answer()
        assert code_of(answer) == "daemon_busy"
        assert answer is not None
        assert answer.id == MAX_REQUESTS


def test_a_large_answer_arrives_whole_and_a_larger_one_is_refused(client: DaemonClient) -> None:
    payload = {"project_id": "p", "query": f"large {MAX_FRAME_BYTES - 1000}"}
    assert len(client.call("activate_memory", payload)["next_state"]) == MAX_FRAME_BYTES - 1000
    payload = {"project_id": "p", "query": f"large {MAX_FRAME_BYTES}"}
    with pytest.raises(DaemonFailed) as caught:
        client.call("activate_memory", payload)
    assert caught.value.code == "daemon_ipc_failed"
    assert client.call("health")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x00\x00\x00\x00", "daemon_ipc_failed"),
        ((MAX_FRAME_BYTES + 1).to_bytes(4, "big"), "daemon_ipc_failed"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "daemon_ipc_failed"),
        (b"\x00\x00\x00\x02[]", "invalid_request"),
        (b"\x00\x00\x00\x02{]", "invalid_json"),
        (b"\x00\x00\x00\x04\xff\xfe\x00{", "invalid_json"),
    ],
)
def test_a_bad_frame_gets_an_error_frame_and_the_end(
    daemon: Daemon, sent: bytes, code: str
) -> None:
    with Peer(daemon.places.socket) as peer:
        peer.socket.sendall(sent)
        answer = peer.answer()
        assert code_of(answer) == code
        assert answer is not None
        assert answer.id is None
        assert peer.answer() is None


@pytest.mark.parametrize("sent", [b"\x00", b"\x00\x00\x00\x09", b'\x00\x00\x00\x09{"id"'])
def test_a_torn_frame_gets_an_error_frame_and_the_end(daemon: Daemon, sent: bytes) -> None:
    with Peer(daemon.places.socket) as peer:
        peer.socket.sendall(sent)
        peer.socket.shutdown(socket.SHUT_WR)
        assert code_of(peer.answer()) == "daemon_ipc_failed"
        assert peer.answer() is None


def test_a_slow_peer_is_served_and_delays_nobody(daemon: Daemon, client: DaemonClient) -> None:
    frame = request("health")
    frame = len(frame).to_bytes(4, "big") + frame
    with Peer(daemon.places.socket) as peer:
        for position in range(len(frame)):
            peer.socket.sendall(frame[position : position + 1])
            if position % 8 == 0:
                assert client.call("health")["server_url"] == "local:"
        answer = peer.answer()
        assert answer is not None
        assert answer.ok


def test_a_peer_that_does_not_read_delays_nobody(daemon: Daemon, client: DaemonClient) -> None:
    with Peer(daemon.places.socket) as peer:
        peer.send(activate(f"large {MAX_FRAME_BYTES // 2}"))
        for _ in range(5):
            assert client.call("health")["server_url"] == "local:"


def test_two_hundred_connections_at_once(daemon: Daemon, client: DaemonClient) -> None:
    peers = [Peer(daemon.places.socket) for _ in range(200)]
    try:
        for number, peer in enumerate(peers):
            peer.send(request("health", id=number))
        for number, peer in enumerate(peers):
            answer = peer.answer()
            assert answer is not None
            assert (answer.id, answer.ok) == (number, True)
    finally:
        for peer in peers:
            peer.socket.close()
    wait_for(lambda: client.call("mcp_status")["agent_connections"] == 1, "all are forgotten")


def test_threads_share_a_client(client: DaemonClient) -> None:
    def load(name: str) -> str:
        answer = client.ask("load_memory", {"project_id": "p", "ids": [name]}, m.LoadedMemories)
        return answer.resources[0].resource_id

    names = [f"name-{number}" for number in range(200)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(load, names)) == names


def test_nothing_of_a_payload_reaches_a_log(daemon: Daemon, client: DaemonClient) -> None:
    word = "Quittenmarmelade"
    calls: list[tuple[str, dict[str, Any]]] = [
        ("activate_memory", {"project_id": word, "query": word, "state": word}),
        ("activate_memory", {"project_id": "p", "query": f"missing {word}"}),
        ("activate_memory", {"project_id": "p", "query": f"broken {word}"}),
        ("activate_memory", {"project_id": "p", "query": "x", word: word}),
        ("load_memory", {"project_id": "p", "ids": [word]}),
        ("store_draft_operation", store({"delete": {"id": word, "description": word}})),
        (word, {word: word}),
    ]
    for method, payload in calls:
        with contextlib.suppress(ClumsiesError):
            client.call(method, payload, request_id=f"req {word}")
    with Peer(daemon.places.socket) as peer:
        peer.send(b'{"%s":1}' % word.encode())
        assert code_of(peer.answer()) == "invalid_request"
    logs = daemon.logs()
    assert "ipc_failed" in logs
    assert word not in logs


def test_an_idle_daemon_rests(daemon: Daemon, client: DaemonClient) -> None:
    """Processor seconds of the process, which a loaded machine does not change."""

    def used_s() -> float:
        stat = Path(f"/proc/{daemon.process.pid}/stat")
        if not stat.exists():
            pytest.skip("this platform has no /proc to read another process's time from")
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    client.call("health")
    before = used_s()
    time.sleep(3.0)
    assert used_s() - before < 0.3
