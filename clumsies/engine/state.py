"""The state token: what a caller still has in its context, so that only changes are sent.

base64url (without padding) of a JSON object `{version: 1, epoch, known: [{unit_key, content_hash,
last_seen}]}`. At most 256 identities, 64 KiB of JSON, 128 KiB encoded. A token that is anything
else is refused; it is never taken for an empty one.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated

import msgspec

from clumsies.errors import InvalidRequest

STATE_VERSION = 1
MAX_KNOWN = 256
MAX_DECODED_BYTES = 64 * 1024
MAX_ENCODED_CHARS = 128 * 1024

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class KnownFragment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A fragment the caller was sent; `last_seen` is the epoch it was last part of an answer."""

    unit_key: str
    content_hash: str
    last_seen: Count


class ActivationState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the caller knows. `epoch` counts the answers it was given.

    No field has a default: a token that lacks one is refused.
    """

    version: int
    epoch: Count
    known: tuple[KnownFragment, ...]


EMPTY_STATE = ActivationState(STATE_VERSION, 0, ())

_BASE64URL = re.compile(r"[A-Za-z0-9_-]*={0,2}")
_DECODER = msgspec.json.Decoder(ActivationState)
_ENCODER = msgspec.json.Encoder()


def _refused(reason: str) -> InvalidRequest:
    return InvalidRequest(
        "invalid_activation_state",
        f"The state is {reason}; send the `next_state` of the last answer, or leave it out.",
    )


def decode_state(token: str | None) -> ActivationState:
    """The state of a token; None is a caller that knows nothing.

    Raises InvalidRequest("invalid_activation_state").
    """
    if token is None:
        return EMPTY_STATE
    if len(token) > MAX_ENCODED_CHARS:
        raise _refused(f"longer than {MAX_ENCODED_CHARS} characters")
    if not _BASE64URL.fullmatch(token):
        raise _refused("not base64url")
    try:
        data = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
    except binascii.Error as error:
        raise _refused("not base64url") from error
    if len(data) > MAX_DECODED_BYTES:
        raise _refused(f"longer than {MAX_DECODED_BYTES} bytes when decoded")
    try:
        state = _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _refused("not a state of this version") from error
    if state.version != STATE_VERSION:
        raise _refused("of another version")
    if len(state.known) > MAX_KNOWN:
        raise _refused(f"naming more than {MAX_KNOWN} fragments")
    if len({fragment.unit_key for fragment in state.known}) != len(state.known):
        raise _refused("naming a fragment twice")
    return state


def encode_state(state: ActivationState) -> str:
    """The token of a state. What would not fit the limits is forgotten, longest unseen first."""
    known = sorted(state.known, key=lambda k: (-k.last_seen, k.unit_key))[:MAX_KNOWN]
    while True:
        data = _ENCODER.encode(ActivationState(STATE_VERSION, state.epoch, tuple(known)))
        if len(data) <= MAX_DECODED_BYTES or not known:
            return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
        known = known[: len(known) * 3 // 4]
