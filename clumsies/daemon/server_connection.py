"""The Server that is used beside the local authority: its address, its session, its client.

At most one is configured. Its address is in `local.db`; its tokens are in the keyring and in the
memory of this process, nowhere else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from clumsies.api.identity import Me
from clumsies.config import dev_instance
from clumsies.errors import CredentialsFailed, InvalidRequest, NotReady
from clumsies.logs import EventLog, WorkerLog
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import LOCAL_AUTHORITY, canonical_authority
from clumsies.sync.accounts import Account
from clumsies.sync.addresses import server_base
from clumsies.sync.credentials import CredentialStore
from clumsies.sync.login import Grant
from clumsies.sync.remote import RemoteClient
from clumsies.sync.response_cache import ResponseCache
from clumsies.sync.sessions import FixedSession, Held, KeyringSession, session_source
from clumsies.sync.sign_in import sign_in, sign_out

SERVER_URL_KEY = "server_url"


@dataclass(frozen=True, slots=True)
class _Open:
    """What belongs to one configured Server."""

    sessions: FixedSession | KeyringSession
    client: RemoteClient
    cache: ResponseCache


class ServerConnection:
    """The configured Server, or none; any thread may use it.

    `changed` is called after every change of Server or session.
    """

    def __init__(self, database: LocalDatabase, log: EventLog, changed: Callable[[], None]):
        self._database = database
        self._log = log
        self._changed = changed
        self._store = CredentialStore(dev_instance())
        self._mutex = threading.RLock()
        self._open: _Open | None = None
        url = database.meta(SERVER_URL_KEY)
        if url is not None:
            self._open = self._opened(url)

    @property
    def url(self) -> str | None:
        """The configured Server's address; None without one."""
        found = self._open
        return None if found is None else found.sessions.server_url

    @property
    def account(self) -> Account | None:
        """The Server's account, signed in or not; None without a Server."""
        found = self._open
        return None if found is None else Account(found.sessions.server_url, found.client)

    def require(self) -> tuple[RemoteClient, ResponseCache]:
        """Client and cache; raises NotReady("daemon_project_config_incomplete") without a
        Server."""
        found = self._open
        if found is None:
            raise NotReady(
                "daemon_project_config_incomplete",
                "No Server is set; `clumsies login URL` sets one and signs you in.",
                {"missing": ["server_url"]},
            )
        return found.client, found.cache

    def held(self) -> Held | None:
        """The session as it stands; None without a Server. Raises CredentialsFailed."""
        found = self._open
        return None if found is None else found.sessions.current()

    def configure(self, server_url: str | None) -> None:
        """Use this Server, or none. The session of another one is forgotten."""
        with self._mutex:
            url = None if server_url is None else checked_url(server_url)
            if url == self.url:
                return
            old, self._open = self._open, None
            self._database.set_meta(SERVER_URL_KEY, url)
            if old is not None:
                _forget(old)
            if url is not None:
                self._open = self._opened(url)
        self._changed()

    def sign_in(self, server_url: str, grant: Grant) -> Me:
        """Exchange a sign-in's code and keep the session; who it is. Another Server takes the
        place of the one before only when somebody is signed in there."""
        url = checked_url(server_url)
        with self._mutex:
            if self._open is not None and url == self.url:
                sign_in(self._open.client, grant)
            else:
                new = self._opened(url, quiet=True)
                try:
                    sign_in(new.client, grant)
                finally:
                    _shut(new)
                old, self._open = self._open, None
                self._database.set_meta(SERVER_URL_KEY, url)
                if old is not None:
                    _shut(old)  # the keyring's one item is the new Server's already
                self._open = self._opened(url)
        self._changed()
        return self.require()[0].call("GET", "/api/v1/me", Me)

    def sign_out(self) -> bool:
        """End the session here; whether the Server has ended it too."""
        with self._mutex:
            client, _ = self.require()
            return sign_out(client)

    def close(self) -> None:
        """Give up what is in flight."""
        with self._mutex:
            old, self._open = self._open, None
        if old is not None:
            _shut(old)

    def _opened(self, url: str, *, quiet: bool = False) -> _Open:
        sessions = session_source(url, self._store)
        if isinstance(sessions, KeyringSession) and not quiet:
            sessions.on_change(self._changed)
        client = RemoteClient(sessions, log=self._log)
        cache = ResponseCache(self._database, sessions, log=WorkerLog(self._log, "cache"))
        return _Open(sessions, client, cache)


def _forget(old: _Open) -> None:
    """Close what belonged to a Server, and take its item out of the keyring."""
    if isinstance(old.sessions, KeyringSession):
        with suppress(CredentialsFailed):  # An item of another Server is never used.
            old.sessions.replace(None)
    _shut(old)


def _shut(old: _Open) -> None:
    old.client.close()
    old.cache.close()


def checked_url(server_url: str) -> str:
    """The Server's address as it is kept; raises InvalidRequest for one that cannot be used, and
    for the local authority's."""
    url = canonical_authority(server_url)
    if url == LOCAL_AUTHORITY:
        raise InvalidRequest(
            "invalid_config", "The local authority is always there; name a Server's URL, or none."
        )
    server_base(url)
    return url
