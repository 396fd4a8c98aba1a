"""The signed-in user: who they are, their session and their personal tokens."""

from __future__ import annotations

from litestar import delete, get, post
from litestar.params import JSONBody

from clumsies.api.admin import CreatedToken, CreateToken, PersonalToken, TokenPage
from clumsies.api.identity import Me, SessionRevocation
from clumsies.server.acting import Act
from clumsies.server.http.dependencies import OffsetPage, PathId, SignedIn
from clumsies.server.identity import personal_tokens, sessions, users
from clumsies.server.organization import administration


@get("/api/v1/me", sync_to_thread=True)
def me(acting: SignedIn) -> Me:
    """The signed-in user, their organisation and every project they are a member of."""
    return acting.read(users.me)


@delete("/api/v1/auth/session", status_code=200, sync_to_thread=True)
def end_session(acting: SignedIn) -> SessionRevocation:
    """End the session of the bearer; its tokens are refused from now on. A personal token has no
    session: nothing is revoked then."""

    def work(act: Act) -> SessionRevocation:
        session_id = act.principal.session_id
        ended = session_id is not None and sessions.end_session(act.connection, session_id, act.now)
        return SessionRevocation(revoked=ended)

    return acting.write(work)


@get("/api/v1/me/tokens", sync_to_thread=True)
def list_my_tokens(acting: SignedIn, page: OffsetPage) -> TokenPage:
    """The user's own personal tokens, newest first."""
    return acting.read(lambda act: administration.list_my_tokens(act, page))


@post("/api/v1/me/tokens", sync_to_thread=True)
def create_my_token(acting: SignedIn, data: JSONBody[CreateToken]) -> CreatedToken:
    """A personal token of the user's own; its text is shown this once."""
    user_id = acting.principal.user_id
    return acting.write(lambda act: personal_tokens.create_token(act, user_id, data))


@delete("/api/v1/me/tokens/{token_id:str}", status_code=200, sync_to_thread=True)
def revoke_my_token(acting: SignedIn, token_id: PathId) -> PersonalToken:
    """Revoke a personal token of the user's own."""
    user_id = acting.principal.user_id
    return acting.write(lambda act: personal_tokens.revoke_token(act, token_id, user_id))


ROUTES = [me, end_session, list_my_tokens, create_my_token, revoke_my_token]
