"""Which addresses are spoken to, and paths that an id cannot lead astray."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import unquote, urlsplit

from clumsies.api.common import API_PREFIX
from clumsies.errors import InvalidRequest, SyncFailed
from clumsies.storage.project_storage import canonical_authority

LOCAL_AUTHORITY_BASE = "http://local.invalid"
"""What the in-process authority is asked as: a name that no network resolves."""
MAX_PATH_BYTES = 8 * 1024
_SEGMENT = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9_.-]{1,200}\Z")
_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*\Z")
_QUERY = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*\Z")


def server_base(server_url: str) -> tuple[str, bool]:
    """The address that paths are appended to, and whether it is on this machine.

    Raises InvalidRequest("invalid_config") unless it is HTTPS, or HTTP of a loopback address,
    without a name, a query or a fragment. The address is not quoted: it may hold a password.
    """
    url = canonical_authority(server_url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _unusable("is no address") from None
    if not host or not url.isascii() or not url.isprintable() or " " in url or port == 0:
        raise _unusable("is no address")
    if "@" in parts.netloc:
        raise _unusable("holds a name or a password; sign in with `clumsies login` instead")
    if "?" in url or "#" in url or "\\" in url or ".." in parts.path.split("/"):
        raise _unusable("has more than scheme, host, port and a plain path")
    if parts.scheme == "https":
        return url, is_loopback(host)
    if parts.scheme == "http" and is_loopback(host):
        return url, True
    raise _unusable("is neither https nor on this machine")


def is_loopback(host: str) -> bool:
    """`localhost` or an address of the loopback interface."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _unusable(what: str) -> InvalidRequest:
    return InvalidRequest(
        "invalid_config",
        f"The Server's address {what}; give `clumsies login` one like https://host.",
    )


def api_path(*segments: str) -> str:
    """`/api/v1/…` of the segments; an id that the Server gave stays one segment.

    Raises SyncFailed("server_request_failed") for an id that is none.
    """
    for segment in segments:
        if _SEGMENT.match(segment) is None:
            raise SyncFailed(
                "server_request_failed",
                "An id that the Server gave is none; nothing was asked for it.",
                {"reason": "wrong_content"},
            )
    return "/".join((API_PREFIX, *segments))


def check_path(path: str) -> None:
    """Raise InvalidRequest unless `path` is one of the API's, at most 8 KiB, maybe with a query.

    No line break, no fragment and, before the query, no segment that leads upwards, however it is
    written.
    """
    place, _, query = path.partition("?")
    fits = (
        len(path) <= MAX_PATH_BYTES
        and place.startswith(f"{API_PREFIX}/")
        and _PATH.match(place) is not None
        and _QUERY.match(query) is not None
        and not any(unquote(part) in (".", "..") for part in place.split("/"))
        and not any(c in unquote(place) for c in "\\\r\n\x00")
        and "%2f" not in place.lower()
    )
    if not fits:
        raise InvalidRequest(
            "invalid_request",
            f"The path must start with {API_PREFIX}/ and be plain: escaped, without `#` or `..`, "
            f"at most {MAX_PATH_BYTES} bytes.",
        )
