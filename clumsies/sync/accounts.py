"""Whose memory is kept in step: one signed-in identity at one authority.

A Server has one account. The local authority has one for each local project, which is an
organisation of its own. Every account's meta keys end in its suffix, so that none reads another's
cursor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from clumsies.errors import ClumsiesError, SyncFailed
from clumsies.storage.project_storage import LOCAL_AUTHORITY
from clumsies.sync.answers import Response, retryable

T = TypeVar("T")
_UNCERTAIN = frozenset(
    {
        "server_request_failed",
        "server_sync_failed",
        "commit_sync_failed",
        "sync_session_changed",
        "unauthorized",
        "credential_store_failed",
    }
)


class Peer(Protocol):
    """What synchronization needs of `sync.remote.RemoteClient`; safe for several threads."""

    def call(self, method: str, path: str, answer: type[T], **request: Any) -> T: ...

    def exchange(
        self, method: str, path: str, answer: type[T], **request: Any
    ) -> tuple[T, Response]: ...


@dataclass(frozen=True, slots=True)
class Account:
    """An identity and how to speak for it.

    `project_id` is set for a local project's account and None for a Server's. `org_id` is the
    organisation that the identity must have, where that is known beforehand.
    """

    server_url: str
    client: Peer = field(repr=False)
    project_id: str | None = None
    org_id: str | None = None

    @property
    def is_local(self) -> bool:
        """Nobody else changes what a local account has, so it is never polled."""
        return self.server_url == LOCAL_AUTHORITY

    def meta_key(self, name: str) -> str:
        """The account's own key of `daemon_meta`."""
        return name if self.project_id is None else f"{name}:{self.project_id}"


def is_uncertain(error: ClumsiesError) -> bool:
    """Whether a request may be repeated as it was: it may have taken effect or not, or nobody
    was signed in. What something in between said (a captive portal, a proxy) settles nothing."""
    return retryable(error) or error.code in _UNCERTAIN


def broken(what: str, **details: object) -> SyncFailed:
    """The Server's answer is understood and cannot be true; nothing of it was kept."""
    return SyncFailed(
        "server_sync_failed",
        f"The Server's answer breaks the protocol: {what}. Nothing was changed; if it repeats, "
        "ask whoever runs the Server.",
        details,
    )
