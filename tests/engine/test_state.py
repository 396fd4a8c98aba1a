"""The state token: it comes back as it was sent, or is refused; nothing is taken for empty."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.engine.state import (
    EMPTY_STATE,
    MAX_DECODED_BYTES,
    MAX_ENCODED_CHARS,
    MAX_KNOWN,
    STATE_VERSION,
    ActivationState,
    KnownFragment,
    decode_state,
    encode_state,
)
from clumsies.errors import InvalidRequest

KNOWN = {"unit_key": "r1/root/0/0", "content_hash": "sha256:ab", "last_seen": 3}
GOOD = {"version": 1, "epoch": 3, "known": [KNOWN]}


def token_of(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def known(number: int, last_seen: int = 1, key_chars: int = 20) -> KnownFragment:
    return KnownFragment(f"{number:0{key_chars}d}", "sha256:" + "0" * 64, last_seen)


def state_of(*fragments: KnownFragment, epoch: int = 9) -> ActivationState:
    return ActivationState(STATE_VERSION, epoch, fragments)


FRAGMENTS = st.builds(
    KnownFragment,
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.integers(0, 2**53),
)


@given(
    st.integers(0, 2**53),
    st.lists(FRAGMENTS, max_size=30, unique_by=lambda fragment: fragment.unit_key),
)
def test_a_state_comes_back_as_it_was(epoch: int, fragments: list[KnownFragment]) -> None:
    token = encode_state(state_of(*fragments, epoch=epoch))
    assert token.isascii()
    assert set(token) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    back = decode_state(token)
    assert (back.version, back.epoch) == (STATE_VERSION, epoch)
    assert {fragment.unit_key: fragment for fragment in back.known} == {
        fragment.unit_key: fragment for fragment in fragments
    }


@given(st.one_of(st.text(max_size=80), st.binary(max_size=60).map(lambda b: b.hex())))
def test_other_texts_are_refused(token: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_state(token)
    assert caught.value.code == "invalid_activation_state"
    assert "next_state" in caught.value.message


def test_the_wire_form() -> None:
    token = encode_state(state_of(KnownFragment("r1/root/0/0", "sha256:ab", 3), epoch=3))
    assert json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))) == GOOD
    assert decode_state(token_of(GOOD)).known[0].unit_key == "r1/root/0/0"
    padded = base64.urlsafe_b64encode(json.dumps(GOOD).encode()).decode()
    assert decode_state(padded) == decode_state(token_of(GOOD))


def test_only_no_token_is_an_empty_state() -> None:
    assert decode_state(None) == EMPTY_STATE
    assert EMPTY_STATE.known == ()


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        "text",
        {"version": 1},
        {"version": 1, "epoch": 0},
        {"epoch": 0, "known": []},
        {**GOOD, "version": 2},
        {**GOOD, "version": "1"},
        {**GOOD, "version": True},
        {**GOOD, "epoch": -1},
        {**GOOD, "epoch": 2**53 + 1},
        {**GOOD, "epoch": 1.5},
        {**GOOD, "more": 1},
        {**GOOD, "known": {}},
        {**GOOD, "known": [{**KNOWN, "more": 1}]},
        {**GOOD, "known": [{"unit_key": "a", "content_hash": "b"}]},
        {**GOOD, "known": [{**KNOWN, "unit_key": 1}]},
        {**GOOD, "known": [{**KNOWN, "last_seen": None}]},
        {**GOOD, "known": [KNOWN, KNOWN]},
        {**GOOD, "known": [{**KNOWN, "unit_key": str(i)} for i in range(MAX_KNOWN + 1)]},
    ],
)
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_state(token_of(value))
    assert caught.value.code == "invalid_activation_state"


@pytest.mark.parametrize(
    "token",
    [
        "",
        " ",
        "=",
        "====",
        token_of(GOOD) + "\n",
        " " + token_of(GOOD),
        token_of(GOOD)[:-3],
        token_of(GOOD) + "A",
        "é" + token_of(GOOD),
        "\0",
        token_of({**GOOD, "known": [{**KNOWN, "unit_key": "?~" * 9}]}).replace("-", "+"),
        base64.urlsafe_b64encode(b"\xff\xfe{}").decode(),
        base64.urlsafe_b64encode(b"[" * 40_000).decode(),
        base64.urlsafe_b64encode(b'{"version":1,"epoch":0,"known":[').decode(),
    ],
)
def test_broken_tokens_are_refused(token: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_state(token)
    assert caught.value.code == "invalid_activation_state"


def test_limits_of_what_is_decoded() -> None:
    long = {**GOOD, "known": [{**KNOWN, "unit_key": "k" * MAX_DECODED_BYTES}]}
    with pytest.raises(InvalidRequest, match=str(MAX_DECODED_BYTES)):
        decode_state(token_of(long))
    with pytest.raises(InvalidRequest, match=str(MAX_ENCODED_CHARS)):
        decode_state("A" * (MAX_ENCODED_CHARS + 1))
    fits = {**GOOD, "known": [{**KNOWN, "unit_key": "k" * (MAX_DECODED_BYTES - 200)}]}
    assert len(decode_state(token_of(fits)).known) == 1


def test_encoding_forgets_what_was_not_seen_for_longest() -> None:
    fragments = [known(i, last_seen=i % 400) for i in range(400)]
    back = decode_state(encode_state(state_of(*fragments, epoch=400)))
    assert len(back.known) == MAX_KNOWN
    assert min(fragment.last_seen for fragment in back.known) == 400 - MAX_KNOWN


def test_encoding_stays_within_the_byte_limit() -> None:
    fragments = [known(i, last_seen=i, key_chars=1_000) for i in range(200)]
    token = encode_state(state_of(*fragments, epoch=200))
    assert len(token) <= MAX_ENCODED_CHARS
    back = decode_state(token)
    assert 20 < len(back.known) < 66
    assert min(fragment.last_seen for fragment in back.known) == 200 - len(back.known)


def test_one_key_beyond_the_limit_is_forgotten_not_sent() -> None:
    token = encode_state(state_of(known(1, key_chars=MAX_DECODED_BYTES)))
    assert decode_state(token).known == ()
