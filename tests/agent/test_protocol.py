"""The protocol, line by line: what each era answers, and that garbage never breaks the output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clumsies.agent.jsonrpc import MAX_LINE_BYTES, LineBuffer
from tests.agent.daemon_stub import DaemonStub
from tests.agent.host import ENVELOPE, STATELESS, VERSION, Host, command, host

HANDSHAKE_VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
ALL_VERSIONS = [*HANDSHAKE_VERSIONS, STATELESS]


@pytest.fixture
def fresh(daemon: DaemonStub) -> Iterator[Host]:
    """A host that has said nothing yet."""
    with host(command("--no-start", "--socket", str(daemon.path))) as started:
        yield started


def error_of(answer: dict[str, Any]) -> tuple[int, Any]:
    return answer["error"]["code"], answer["error"].get("data")


@pytest.mark.parametrize("version", HANDSHAKE_VERSIONS)
def test_a_known_version_is_echoed(fresh: Host, version: str) -> None:
    result = fresh.shake_hands(version)
    assert result["protocolVersion"] == version
    assert result["serverInfo"]["name"] == "clumsies"
    assert result["capabilities"] == {"tools": {}}
    assert "activate" in result["instructions"]
    listed = fresh.ask("tools/list")["result"]
    assert [tool["name"] for tool in listed["tools"]] == ["activate", "load", "store"]
    assert listed.keys() == {"tools"}
    assert fresh.ask("ping")["result"] == {}


@pytest.mark.parametrize("version", ["1999-01-01", "2099-01-01", STATELESS, ""])
def test_an_unknown_version_gets_the_latest_handshake(fresh: Host, version: str) -> None:
    assert fresh.shake_hands(version)["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize("params", [None, {}, {"protocolVersion": 3}])
def test_initialize_without_a_version_is_refused(fresh: Host, params: Any) -> None:
    assert error_of(fresh.ask("initialize", params)) == (-32602, {"field": "protocolVersion"})
    assert fresh.shake_hands()["protocolVersion"] == VERSION


def test_the_first_request_has_to_open_an_era(fresh: Host) -> None:
    assert error_of(fresh.ask("tools/list"))[0] == -32600
    assert fresh.ask("ping")["result"] == {}
    assert error_of(fresh.ask("resources/list"))[0] == -32601
    fresh.shake_hands()
    assert "result" in fresh.ask("tools/list")


def test_the_stateless_era_carries_its_version_with_each_request(fresh: Host) -> None:
    fresh.send(
        {
            "jsonrpc": "2.0",
            "id": "probe",
            "method": "server/discover",
            "params": {"_meta": ENVELOPE},
        }
    )
    answer = fresh.receive()
    assert answer["id"] == "probe"
    found = answer["result"]
    assert found["supportedVersions"] == [STATELESS]
    assert found["resultType"] == "complete"
    assert "activate" in found["instructions"]
    listed = fresh.ask("tools/list", {"_meta": ENVELOPE})["result"]
    assert listed["resultType"] == "complete"
    assert listed["ttlMs"] >= 0
    assert listed["cacheScope"] == "private"
    assert listed["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "clumsies"
    result = fresh.tool("activate", {"query": "money"}, **ENVELOPE)
    assert result["resultType"] == "complete"
    assert "ttlMs" not in result
    for method in ("ping", "logging/setLevel", "subscriptions/listen"):
        assert error_of(fresh.ask(method, {"_meta": ENVELOPE}))[0] == -32601
    assert error_of(fresh.ask("tools/list"))[0] == -32602
    refused = fresh.ask("initialize", {"protocolVersion": VERSION})
    assert error_of(refused) == (-32022, {"supported": [STATELESS], "requested": VERSION})


@pytest.mark.parametrize("missing", sorted(ENVELOPE))
def test_half_an_envelope_is_refused_by_name(fresh: Host, missing: str) -> None:
    half = {key: value for key, value in ENVELOPE.items() if key != missing}
    answer = fresh.ask("server/discover", {"_meta": half})
    assert error_of(answer) == (-32602, {"field": f"_meta.{missing}"})
    # A refused request has not decided the era.
    assert fresh.shake_hands()["protocolVersion"] == VERSION


def test_an_unknown_stateless_version_is_told_the_known_ones(fresh: Host) -> None:
    envelope = {**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}
    answer = fresh.ask("server/discover", {"_meta": envelope})
    assert error_of(answer) == (-32022, {"supported": ALL_VERSIONS, "requested": "2099-01-01"})
    envelope["io.modelcontextprotocol/protocolVersion"] = 7  # type: ignore[assignment]
    assert error_of(fresh.ask("tools/list", {"_meta": envelope}))[0] == -32602
    assert "result" in fresh.ask("server/discover", {"_meta": ENVELOPE})


def test_a_host_that_only_discovered_may_shake_hands(fresh: Host) -> None:
    assert "result" in fresh.ask("server/discover", {"_meta": ENVELOPE})
    assert fresh.shake_hands()["protocolVersion"] == VERSION
    assert fresh.ask("tools/list")["result"].keys() == {"tools"}


def test_an_envelope_after_a_handshake_is_refused(session: Host) -> None:
    assert error_of(session.ask("tools/list", {"_meta": ENVELOPE}))[0] == -32600
    assert error_of(session.ask("server/discover"))[0] == -32601
    assert "result" in session.ask("tools/list", {"_meta": {"progressToken": 1}})


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"{", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}', -32700, None),
        (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b'{"jsonrpc":"2.0","id":' + b"9" * 10_000 + b',"method":"ping"}', -32700, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
        (b"[]", -32600, None),
        (b"3", -32600, None),
        (b"null", -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":[1],"method":"ping"}', -32600, None),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', -32600, 7),
        (b'{"id":7,"method":"ping"}', -32600, 7),
        (b'{"jsonrpc":"2.0","id":"seven","method":7}', -32600, "seven"),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":null}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call"}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"rm"}}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"prompts/list"}', -32601, 7),
        (b'{"jsonrpc":"2.0","id":"\xe9\x92\xb1","method":"\xe9\x92\xb1"}', -32601, "钱"),
        (b'{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"cursor":"2"}}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":7,"method":"logging/setLevel"}', -32602, 7),
        (b'{"jsonrpc":"2.0","id":"' + b"x" * MAX_LINE_BYTES + b'","method":"ping"}', -32600, None),
    ],
)
def test_a_wrong_line_is_answered_by_its_code(
    session: Host, line: bytes, code: int, request_id: Any
) -> None:
    session.write(line + b"\n")
    answer = session.receive()
    assert error_of(answer)[0] == code
    assert answer["id"] == request_id
    assert session.ask("ping")["result"] == {}


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   \r",
        b'{"jsonrpc":"2.0","id":7,"result":{}}',
        b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":""}}',
        b'{"jsonrpc":"2.0","method":"notifications/unheard/of"}',
        b'{"jsonrpc":"2.0","method":"tools/list"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":404}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}',
    ],
)
def test_what_wants_no_answer_gets_none(session: Host, line: bytes) -> None:
    before = len(session.raw)
    session.write(line + b"\n")
    assert session.ask("ping")["result"] == {}
    assert session.raw[before:].count(b"\n") == 1


def test_levels_of_logging_are_accepted(session: Host) -> None:
    assert session.ask("logging/setLevel", {"level": "warning"})["result"] == {}
    assert error_of(session.ask("logging/setLevel", {"level": "loud"}))[0] == -32602


def test_a_line_of_one_mebibyte_is_read(session: Host) -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":""}}'
    line = frame.replace(b'""', b'"' + b"x" * (MAX_LINE_BYTES - len(frame)) + b'"')
    assert len(line) == MAX_LINE_BYTES
    session.write(line + b"\r\n"[1:])
    assert session.receive()["result"] == {}


@pytest.fixture(scope="module")
def enduring() -> Iterator[Host]:
    """One host for many examples, whatever era they lead it into."""
    stub = DaemonStub().start()
    with host(command("--no-start", "--socket", str(stub.path))) as started:
        yield started
    stub.close()


_PINGS = count()
_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0"]) | _SCALARS,
        "id": _VALUES,
        "method": st.sampled_from(
            ["initialize", "tools/list", "tools/call", "server/discover", "ping", "x"]
        )
        | _SCALARS,
        "params": st.fixed_dictionaries(
            {},
            optional={
                "name": st.sampled_from(["activate", "load", "store", "memory"]) | _SCALARS,
                "arguments": st.fixed_dictionaries({}, optional={"query": _SCALARS, "ids": _VALUES})
                | _VALUES,
                "protocolVersion": st.sampled_from(ALL_VERSIONS) | _SCALARS,
                "_meta": st.just(ENVELOPE) | _VALUES,
            },
        )
        | _VALUES,
        "result": _VALUES,
    },
)


@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | _MESSAGES.map(lambda message: json.dumps(message).encode())
    | st.lists(_MESSAGES, max_size=3).map(lambda messages: json.dumps(messages).encode())
)
@example(b'{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{"name":"load"}}')
def test_only_messages_leave_whatever_comes_in(enduring: Host, garbage: bytes) -> None:
    ping = f"ping-{next(_PINGS)}"
    enduring.write(garbage + b"\n")
    enduring.send({"jsonrpc": "2.0", "id": ping, "method": "ping", "params": {"_meta": {}}})
    while True:
        answer = enduring.receive()
        assert ("result" in answer) != ("error" in answer)
        if "error" in answer:
            assert answer["error"]["code"] in {-32700, -32600, -32601, -32602, -32022}
        if answer["id"] == ping:
            break


@given(st.lists(st.binary(max_size=30)), st.integers(1, 12))
def test_lines_do_not_depend_on_how_they_arrive(chunks: list[bytes], limit: int) -> None:
    whole = b"".join(chunks)
    pieces = LineBuffer(limit)
    in_pieces = [line for chunk in chunks for line in pieces.feed(chunk)]
    lines = whole.split(b"\n")
    expected = [line if len(line) <= limit else None for line in lines[:-1]]
    if len(lines[-1]) > limit:
        expected.append(None)
    assert in_pieces == expected
    assert list(LineBuffer(limit).feed(whole)) == expected
