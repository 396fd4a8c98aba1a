"""The daemon's part of signing in and out: tokens come here, into the keyring, and no further."""

from __future__ import annotations

from contextlib import suppress

from clumsies.api.identity import CodeExchange, SessionRevocation, TokenAnswer
from clumsies.errors import ClumsiesError, InvalidRequest
from clumsies.sync.addresses import api_path
from clumsies.sync.credentials import INTERACTIVE_TIMEOUT_S, Session
from clumsies.sync.login import Grant
from clumsies.sync.remote import RemoteClient
from clumsies.sync.sessions import KeyringSession


def sign_in(
    client: RemoteClient, grant: Grant, *, timeout_s: float = INTERACTIVE_TIMEOUT_S
) -> TokenAnswer:
    """Exchange the grant and become who signed in; the keyring may ask for a password first.

    Who was signed in before is replaced. Raises what the exchange raises, CredentialsFailed (then
    the new session is revoked again, and nothing has changed), and InvalidRequest where
    CLUMSIES_TOKEN says who this machine is.
    """
    sessions = _changeable(client)
    body = CodeExchange(
        code=grant.code, redirect_uri=grant.redirect_uri, code_verifier=grant.code_verifier
    )
    tokens = client.call("POST", api_path("auth", "token"), TokenAnswer, json=body, signed=False)
    session = Session(sessions.server_url, tokens.access_token, tokens.refresh_token)
    try:
        sessions.replace(session, timeout_s=timeout_s)
    except ClumsiesError:
        with suppress(ClumsiesError):
            client.revoke(session)
        raise
    return tokens


def sign_out(client: RemoteClient, *, timeout_s: float = INTERACTIVE_TIMEOUT_S) -> bool:
    """Forget the session here, and whether the Server has ended it too.

    Without the Server the session is still forgotten; its refresh token then ends by itself.
    Raises CredentialsFailed where the keyring did not let go of it, and InvalidRequest.
    """
    sessions = _changeable(client)
    revoked = False
    with suppress(ClumsiesError):
        path = api_path("auth", "session")
        revoked = client.call("DELETE", path, SessionRevocation).revoked
    sessions.replace(None, timeout_s=timeout_s)
    return revoked


def _changeable(client: RemoteClient) -> KeyringSession:
    if not isinstance(client.sessions, KeyringSession):
        raise InvalidRequest(
            "invalid_config",
            "CLUMSIES_TOKEN says who this machine is; unset it and restart the daemon to sign in "
            "or out.",
        )
    return client.sessions
