"""Which session signs the requests to one Server, and when it became another one.

`revision` numbers sessions, not tokens: it grows when somebody signs in or out, and stays when the
tokens of the same session are rotated. What was begun under one revision is never finished under
another. New tokens are in the keyring before any request carries them; tokens that could not be
saved are kept aside, since the Server has spent the ones before, and saved first of all.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from clumsies.config import personal_token
from clumsies.errors import Conflict, CredentialsFailed
from clumsies.sync.credentials import LAZY_TIMEOUT_S, Session


@dataclass(frozen=True, slots=True)
class Held:
    """A session as it stood at one moment; `session` is None where nobody is signed in."""

    session: Session | None = field(repr=False)
    revision: int


class SessionSource(Protocol):
    """Where a client gets the session of its Server. Safe to use from several threads."""

    @property
    def server_url(self) -> str: ...

    @property
    def label(self) -> str:
        """Says without any token which session this is; it outlives the process."""

    def current(self, *, timeout_s: float = LAZY_TIMEOUT_S) -> Held:
        """The session to sign with; raises CredentialsFailed where the keyring cannot say."""

    def rotate(self, held: Held, renewed: Session) -> Held:
        """The same session with new tokens, which are saved when this returns.

        Raises Conflict("sync_session_changed") where `held` is no longer the session, and
        CredentialsFailed where the new tokens could not be saved yet.
        """

    def forget(self, held: Held) -> None:
        """Remove a session whose tokens are refused, unless it is already another one."""


class Credentials(Protocol):
    """The part of `CredentialStore` that is used here."""

    def load(self, server_url: str, *, timeout_s: float = ...) -> Session | None: ...

    def save(self, session: Session, *, timeout_s: float = ...) -> None: ...

    def clear(self, *, timeout_s: float = ...) -> None: ...


def superseded() -> Conflict:
    """The error of a request whose session was replaced while it ran."""
    return Conflict(
        "sync_session_changed",
        "Somebody signed in or out while this request ran; it was not sent again. Try it again.",
    )


class FixedSession:
    """One token for the whole life of the process: a personal one, or the local authority's."""

    def __init__(self, server_url: str, token: str):
        self._held = Held(Session(server_url, token), 1)
        self.server_url = server_url
        self.label = "token-" + hashlib.sha256(token.encode()).hexdigest()[:16]

    def current(self, *, timeout_s: float = LAZY_TIMEOUT_S) -> Held:  # noqa: ARG002
        return self._held

    def rotate(self, held: Held, renewed: Session) -> Held:  # noqa: ARG002
        raise superseded()  # It has no refresh token, so nobody comes here.

    def forget(self, held: Held) -> None:
        """Nothing: who set the token takes it away."""


class KeyringSession:
    """The session in the keyring, read once and then held in memory."""

    label = "keyring"

    def __init__(self, server_url: str, store: Credentials):
        self.server_url = server_url
        self._store = store
        self._mutex = threading.RLock()
        self._held = Held(None, 0)
        self._loaded = False
        self._unsaved = False
        self._watchers: list[Callable[[], None]] = []

    def on_change(self, call: Callable[[], None]) -> None:
        """Have `call` run, in the thread that did it, after each sign-in and sign-out."""
        self._watchers.append(call)

    def current(self, *, timeout_s: float = LAZY_TIMEOUT_S) -> Held:
        with self._mutex:
            if not self._loaded:
                session = self._store.load(self.server_url, timeout_s=timeout_s)
                self._held, self._loaded = Held(session, self._held.revision + 1), True
            if self._unsaved:
                self._save(timeout_s)
            return self._held

    def rotate(self, held: Held, renewed: Session) -> Held:
        with self._mutex:
            if not self._is_current(held):
                raise superseded()
            self._held, self._unsaved = Held(renewed, held.revision), True
            self._save(LAZY_TIMEOUT_S)
            return self._held

    def forget(self, held: Held) -> None:
        with self._mutex:
            if not self._is_current(held):
                return
            self._become(None)
            with suppress(CredentialsFailed):  # What stays stored is refused again, and removed.
                self._store.clear()
        self._tell()

    def replace(self, session: Session | None, *, timeout_s: float = LAZY_TIMEOUT_S) -> None:
        """Sign in as `session`, or out; the keyring has changed when this returns.

        Raises CredentialsFailed: then a sign-in changed nothing, and a sign-out is in force here
        although the item is still stored.
        """
        with self._mutex:
            try:
                if session is None:
                    self._become(None)
                    self._store.clear(timeout_s=timeout_s)
                else:
                    self._store.save(session, timeout_s=timeout_s)
                    self._become(session)
            except CredentialsFailed:
                if session is None:
                    self._tell()
                raise
        self._tell()

    def _is_current(self, held: Held) -> bool:
        return self._held.revision == held.revision and self._held.session == held.session

    def _become(self, session: Session | None) -> None:
        self._held, self._loaded = Held(session, self._held.revision + 1), True
        self._unsaved = False

    def _save(self, timeout_s: float) -> None:
        assert self._held.session is not None
        self._store.save(self._held.session, timeout_s=timeout_s)
        self._unsaved = False

    def _tell(self) -> None:
        for call in self._watchers:
            call()


def session_source(server_url: str, store: Credentials) -> FixedSession | KeyringSession:
    """The personal token of `CLUMSIES_TOKEN` where there is one, else the keyring's session."""
    token = personal_token()
    return KeyringSession(server_url, store) if token is None else FixedSession(server_url, token)
