"""The Server that is used beside the local authority: its address, its session, its client.

At most one is configured. Its address is in `local.db`; its tokens are in the keyring and in the
memory of this process, nowhere else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from clumsies.api.identity import Me, SessionRevocation, TokenAnswer, TokenRequest
from clumsies.config import dev_instance
from clumsies.errors import ClumsiesError, CredentialsFailed, InvalidRequest, NotReady
from clumsies.logs import EventLog
from clumsies.storage.local_database import LocalDatabase
from clumsies.storage.project_storage import LOCAL_AUTHORITY, canonical_authority
from clumsies.sync.accounts import Account
from clumsies.sync.credentials import CredentialStore, Session
from clumsies.sync.remote import RemoteClient
from clumsies.sync.sessions import FixedSession, Held, KeyringSession, session_source

SERVER_URL_KEY = "server_url"


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
        self._client: RemoteClient | None = None
        self._sessions: FixedSession | KeyringSession | None = None
        url = database.meta(SERVER_URL_KEY)
        if url is not None:
            self._open(url)

    @property
    def url(self) -> str | None:
        """The configured Server's address; None without one."""
        sessions = self._sessions
        return None if sessions is None else sessions.server_url

    @property
    def account(self) -> Account | None:
        """The Server's account, signed in or not; None without a Server."""
        with self._mutex:
            if self._client is None or self._sessions is None:
                return None
            return Account(self._sessions.server_url, self._client)

    def require(self) -> RemoteClient:
        """The client; raises NotReady("daemon_project_config_incomplete") without a Server."""
        with self._mutex:
            if self._client is None:
                raise NotReady(
                    "daemon_project_config_incomplete",
                    "No Server is set; `clumsies login URL` sets one and signs you in.",
                    {"missing": ["server_url"]},
                )
            return self._client

    def held(self) -> Held | None:
        """The session as it stands; None without a Server. Raises CredentialsFailed."""
        sessions = self._sessions
        return None if sessions is None else sessions.current()

    def configure(self, server_url: str | None) -> None:
        """Use this Server, or none. The session of another one is forgotten."""
        with self._mutex:
            url = None if server_url is None else checked_url(server_url)
            if url == self.url:
                return
            if url is not None:
                RemoteClient(FixedSession(url, "unused")).close()  # refuses a bad address
            if isinstance(self._sessions, KeyringSession):
                with suppress(CredentialsFailed):  # An item of another Server is never used.
                    self._sessions.replace(None)
            self._database.set_meta(SERVER_URL_KEY, url)
            self._shut()
            if url is not None:
                self._open(url)
        self._changed()

    def sign_in(self, server_url: str, code: str, redirect_uri: str, verifier: str) -> Me:
        """Exchange a sign-in's code and keep the session; who it is.

        Raises what the exchange raises, and CredentialsFailed where it cannot be kept; then
        nobody is signed in, and the Server is told so.
        """
        self.configure(server_url)
        with self._mutex:
            client, sessions = self.require(), self._sessions
        if not isinstance(sessions, KeyringSession):
            raise InvalidRequest(
                "invalid_config",
                "CLUMSIES_TOKEN is set, so nobody can sign in; unset it and restart the daemon.",
            )
        request = TokenRequest(
            grant_type="authorization_code",
            code=code,
            redirect_uri=redirect_uri,
            code_verifier=verifier,
        )
        answer = client.call("POST", "/api/v1/auth/token", TokenAnswer, json=request, signed=False)
        session = Session(sessions.server_url, answer.access_token, answer.refresh_token)
        try:
            sessions.replace(session)
        except CredentialsFailed:
            self._revoke(session)
            raise
        return client.call("GET", "/api/v1/me", Me)

    def sign_out(self) -> tuple[str | None, bool]:
        """End the session here, and at the Server where it can be reached: (URL, was told)."""
        with self._mutex:
            client, sessions = self._client, self._sessions
        if client is None or not isinstance(sessions, KeyringSession):
            return self.url, False
        revoked = False
        with suppress(ClumsiesError):
            answer = client.call("DELETE", "/api/v1/auth/session", SessionRevocation)
            revoked = answer.revoked
        sessions.replace(None)
        return sessions.server_url, revoked

    def _revoke(self, session: Session) -> None:
        fixed = FixedSession(session.server_url, session.access_token)
        with suppress(ClumsiesError), RemoteClient(fixed) as client:
            client.call("DELETE", "/api/v1/auth/session", SessionRevocation)

    def close(self) -> None:
        """Give up what is in flight."""
        with self._mutex:
            self._shut()

    def _open(self, url: str) -> None:
        self._sessions = session_source(url, self._store)
        if isinstance(self._sessions, KeyringSession):
            self._sessions.on_change(self._changed)
        self._client = RemoteClient(self._sessions, log=self._log)

    def _shut(self) -> None:
        client, self._client, self._sessions = self._client, None, None
        if client is not None:
            client.close()


def checked_url(server_url: str) -> str:
    """The Server's address as it is kept; raises InvalidRequest for the local authority's."""
    url = canonical_authority(server_url)
    if url == LOCAL_AUTHORITY:
        raise InvalidRequest(
            "invalid_config", "The local authority is always there; name a Server's URL, or none."
        )
    return url
