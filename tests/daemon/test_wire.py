"""Frames and envelopes: golden bytes, and whatever bytes a peer may send."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.daemon import wire
from clumsies.errors import ClumsiesError, DaemonFailed, InvalidRequest, NotFound, NotReady

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
payloads = st.dictionaries(st.text(), json_values, max_size=4)
requests = st.builds(
    wire.Request,
    id=st.integers(0, 2**53),
    method=st.text(min_size=1, max_size=128),
    payload=payloads.map(wire.encode_payload),
    agent_runtime=st.none()
    | st.builds(wire.AgentRuntime, st.integers(1, 9), st.text(min_size=1, max_size=128)),
    request_id=st.text(max_size=80),
)


def test_a_request_on_the_wire() -> None:
    request = wire.Request(
        id=7,
        method="activate_memory",
        payload=wire.encode_payload({"query": "ä"}),
        agent_runtime=wire.AgentRuntime(1, "0.1.0"),
        request_id="req_1",
    )
    body = (
        '{"id":7,"method":"activate_memory","payload":{"query":"ä"},'
        '"agent_runtime":{"protocol_revision":1,"build_id":"0.1.0"},"request_id":"req_1"}'
    ).encode()
    assert wire.encode_request(request) == b"\x00\x00\x00\x8c" + body
    assert len(body) == 0x8C


def test_an_empty_request_id_and_marker_are_left_out() -> None:
    assert wire.encode_request(wire.Request(id=0, method="health")) == (
        b'\x00\x00\x00\x1a{"id":0,"method":"health"}'
    )


def test_responses_on_the_wire() -> None:
    request = wire.Request(id=7, method="health")
    done = wire.success(request, wire.encode_payload({"a": 1}))
    assert wire.encode_response(done)[4:] == b'{"id":7,"ok":true,"payload":{"a":1}}'
    failed = wire.failure(NotFound("not_found", "No."), "req_1")
    assert wire.encode_response(failed)[4:] == (
        b'{"ok":false,"payload":{},"error":{"code":"not_found","message":"No.",'
        b'"request_id":"req_1","details":{}}}'
    )


@given(st.lists(requests, max_size=4), st.data())
def test_frames_come_back_however_the_bytes_arrive(
    sent: list[wire.Request], data: st.DataObject
) -> None:
    stream = b"".join(map(wire.encode_request, sent))
    buffer = wire.FrameBuffer()
    got = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        buffer.feed(stream[:size])
        stream = stream[size:]
        while (body := buffer.pop()) is not None:
            got.append(wire.decode_request(body))
    assert not buffer.torn
    assert [_comparable(request) for request in got] == [_comparable(r) for r in sent]


def _comparable(request: wire.Request) -> object:
    return msgspec.json.decode(msgspec.json.encode(request))


@given(st.binary(max_size=200) | json_values.map(msgspec.json.encode))
def test_any_body_is_a_request_or_refused(body: bytes) -> None:
    refused: list[ClumsiesError] = []
    for decode in (wire.decode_request, wire.decode_response):
        try:
            decode(body)
        except ClumsiesError as error:
            refused.append(error)
    assert {error.code for error in refused} <= {
        "invalid_request",
        "invalid_json",
        "daemon_ipc_failed",
    }


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        (b'{"id":1,"method":"health","extra":1}', "invalid_request", "`extra`"),
        (
            b'{"id":1,"method":"x","agent_runtime":{"protocol_revision":1,"build_id":"b","v":2}}',
            "invalid_request",
            "`v`",
        ),
        (b'{"id":1,"method":"x","payload":[1]}', "invalid_request", "`payload`"),
        (b'{"id":1,"method":"x","payload":null}', "invalid_request", "`payload`"),
        (b'{"method":"x"}', "invalid_request", "`id`"),
        (b'{"id":-1,"method":"x"}', "invalid_request", "id"),
        (
            b'{"id":1,"method":"x","agent_runtime":{"protocol_revision":0,"build_id":"b"}}',
            "invalid_request",
            "protocol_revision",
        ),
        (b'{"id":1,"method":"x"', "invalid_json", "JSON"),
        (b'{"id":1,"method":"\xff"}', "invalid_json", "UTF-8"),
        (b'{"id":1,"method":"x","payload":{"a":}}', "invalid_json", "JSON"),
        (b'{"id":1,"method":"x","payload":' + b'{"a":' * 100_000, "invalid_json", "JSON"),
    ],
)
def test_a_bad_envelope_is_refused_by_name(body: bytes, code: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        wire.decode_request(body)
    assert caught.value.code == code
    assert named in caught.value.message


@pytest.mark.parametrize("length", [0, wire.MAX_FRAME_BYTES + 1, 2**32 - 1])
def test_an_impossible_length_is_refused_before_its_body(length: int) -> None:
    buffer = wire.FrameBuffer()
    buffer.feed(length.to_bytes(4, "big"))
    with pytest.raises(DaemonFailed):
        buffer.pop()


def test_a_request_that_is_too_long_is_refused_at_its_sender() -> None:
    payload = wire.encode_payload({"query": "x" * wire.MAX_FRAME_BYTES})
    with pytest.raises(InvalidRequest):
        wire.encode_request(wire.Request(id=1, method="x", payload=payload))


def test_an_error_crosses_with_kind_code_details_and_request_id() -> None:
    error = NotReady("search_model_preparing", "Wait.", {"downloaded": 3, "odd": object()})
    frame = wire.encode_response(wire.failure(error, "req_9", 4))
    found = wire.error_of(wire.decode_response(frame[4:]))
    assert type(found) is NotReady
    assert (found.code, found.message) == ("search_model_preparing", "Wait.")
    assert found.details == {"downloaded": 3, "odd": "object", "request_id": "req_9"}


def test_a_code_of_a_newer_daemon_is_still_an_error() -> None:
    body = wire.ErrorBody(code="of_the_future", message="?", request_id="req_1")
    found = wire.error_of(wire.Response(ok=False, payload=wire.EMPTY_PAYLOAD, error=body))
    assert type(found) is ClumsiesError
    assert found.code == "of_the_future"


@pytest.mark.parametrize("given_id", ["", "req_", "x", "req_a b", "req_" + "a" * 65, "req_ä"])
def test_an_unusable_request_id_is_replaced(given_id: str) -> None:
    made = wire.usable_request_id(given_id)
    assert made != given_id
    assert wire.usable_request_id(made) == made
