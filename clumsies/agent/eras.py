"""Which revision of the Model Context Protocol a host speaks, and what each asks of an answer.

Two eras share one standard input. `initialize` opens the *handshake* era (2024-11-05 to
2025-11-25); a request whose `params._meta` carries the protocol version opens the *stateless*
era (2026-07-28). A refused request decides nothing, and a host that only asked
`server/discover` may still shake hands.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from clumsies.agent.instructions import instructions
from clumsies.agent.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    UNSUPPORTED_PROTOCOL_VERSION,
    ProtocolError,
    Request,
)
from clumsies.version import VERSION

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS_VERSIONS = ("2026-07-28",)
SUPPORTED_VERSIONS = (*HANDSHAKE_VERSIONS, *STATELESS_VERSIONS)

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"

SERVER_INFO = {"name": "clumsies", "version": VERSION}
CAPABILITIES: dict[str, Any] = {"tools": {}}
CACHE_TTL_MS = 300_000
"""How long a stateless host may keep what only another release of clumsies changes."""

_CACHEABLE = frozenset({"server/discover", "tools/list"})


class Era(Enum):
    """How the messages of a host are to be read."""

    UNDECIDED = "undecided"
    HANDSHAKE = "handshake"
    STATELESS = "stateless"


class Session:
    """The era of one host, from its first request on."""

    def __init__(self, unified: bool = False):
        self.era = Era.UNDECIDED
        self._unified = unified
        self._discovered_only = True

    def admit(self, request: Request) -> None:
        """Let a request pass and learn the era from it; raises ProtocolError."""
        if request.method == "initialize":
            self._admit_initialize(request.params)
        elif self.era is Era.HANDSHAKE:
            if _is_enveloped(request.params):
                raise ProtocolError(
                    INVALID_REQUEST,
                    "This connection began with `initialize`; its requests carry no protocol "
                    "version of their own.",
                )
        elif (
            self.era is Era.STATELESS
            or request.method == "server/discover"
            or _is_enveloped(request.params)
        ):
            _check_envelope(request.params)
            self.era = Era.STATELESS
            self._discovered_only &= request.method == "server/discover"
        elif request.method != "ping":
            raise ProtocolError(INVALID_REQUEST, "The first request has to be `initialize`.")

    def initialize(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to `initialize`: the version that was asked for where it is known."""
        asked = params["protocolVersion"]
        return {
            "protocolVersion": asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
            "capabilities": CAPABILITIES,
            "serverInfo": SERVER_INFO,
            "instructions": instructions(self._unified),
        }

    def discover(self) -> dict[str, Any]:
        """The answer to `server/discover`."""
        return {
            "supportedVersions": list(STATELESS_VERSIONS),
            "capabilities": CAPABILITIES,
            "instructions": instructions(self._unified),
        }

    def sealed(self, method: str, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result with what its era wants beside it."""
        if self.era is not Era.STATELESS:
            return result
        sealed = {**result, "resultType": "complete", "_meta": {SERVER_INFO_KEY: SERVER_INFO}}
        if method in _CACHEABLE:
            sealed |= {"ttlMs": CACHE_TTL_MS, "cacheScope": "private"}
        return sealed

    def _admit_initialize(self, params: Mapping[str, Any]) -> None:
        asked = params.get("protocolVersion")
        if self.era is Era.STATELESS and not self._discovered_only:
            raise unsupported_version(asked, STATELESS_VERSIONS)
        if not isinstance(asked, str):
            raise ProtocolError(
                INVALID_PARAMS,
                "`initialize` has to name its `protocolVersion`.",
                {"field": "protocolVersion"},
            )
        self.era = Era.HANDSHAKE


def unsupported_version(
    asked: object, supported: tuple[str, ...] = SUPPORTED_VERSIONS
) -> ProtocolError:
    """The refusal that tells a host which versions it may ask for."""
    return ProtocolError(
        UNSUPPORTED_PROTOCOL_VERSION,
        "The protocol version is not supported here.",
        {"supported": list(supported), "requested": asked if isinstance(asked, str) else ""},
    )


def _meta_of(params: Mapping[str, Any]) -> Mapping[str, Any]:
    meta = params.get("_meta")
    return meta if isinstance(meta, dict) else {}


def _is_enveloped(params: Mapping[str, Any]) -> bool:
    return VERSION_KEY in _meta_of(params)


def _check_envelope(params: Mapping[str, Any]) -> None:
    meta = _meta_of(params)
    missing = [key for key in (VERSION_KEY, CAPABILITIES_KEY) if key not in meta]
    if missing:
        raise ProtocolError(
            INVALID_PARAMS,
            f"`params._meta` has to carry {' and '.join(missing)}.",
            {"field": f"_meta.{missing[0]}"},
        )
    version = meta[VERSION_KEY]
    if not isinstance(version, str):
        raise ProtocolError(
            INVALID_PARAMS, f"{VERSION_KEY} has to be a string.", {"field": f"_meta.{VERSION_KEY}"}
        )
    if version not in STATELESS_VERSIONS:
        raise unsupported_version(version)
