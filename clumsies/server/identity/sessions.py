"""Sessions: a pair of an access and a refresh token, and how a pair follows a pair.

A refresh token is spent by the pair it gives. Sent again, it gives another pair as long as the one
before was never refreshed from: its answer may have been lost on the way. That earlier pair is
void from then on. Any other use of a spent or void refresh token means that two parties have it:
the session ends.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from clumsies.api.identity import TokenAnswer
from clumsies.errors import Refused
from clumsies.server import audit
from clumsies.server.acting import capabilities_of
from clumsies.server.context import ServerContext
from clumsies.server.identity.schema_identity import authorization_codes, session_tokens, sessions
from clumsies.server.identity.secrets import SecretKind, code_challenge, hashed, new_secret
from clumsies.server.identity.users import organization, user_message
from clumsies.server.schema import users
from clumsies.storage.timestamps import row_time

ACCESS_TTL_S = 15 * 60
REFRESH_TTL_S = 30 * 24 * 3600
_SECOND_NS = 1_000_000_000
_AGAIN = "The session has ended; run `clumsies login`."


@dataclass(frozen=True, slots=True)
class _Turn:
    """One transaction of an exchange."""

    connection: Connection
    new_id: Callable[[str], str]
    now_ns: int
    request_id: str

    @property
    def now(self) -> str:
        return row_time(self.now_ns)

    def later(self, seconds: int) -> str:
        return row_time(self.now_ns + seconds * _SECOND_NS)


def _in_turn(
    context: ServerContext, request_id: str, work: Callable[[_Turn], TokenAnswer | None]
) -> TokenAnswer:
    """The answer of `work`. What it changed is kept where it gives none, too, and then
    Refused("unauthorized") is raised."""

    def whole(connection: Connection) -> TokenAnswer | None:
        return work(_Turn(connection, context.new_id, context.clock_ns(), request_id))

    answer = context.database.write(whole)
    if answer is None:
        raise Refused("unauthorized", _AGAIN)
    return answer


def exchange_code(
    context: ServerContext, request_id: str, code: str, redirect_uri: str, verifier: str
) -> TokenAnswer:
    """A session for the one-time code of a sign-in; raises Refused("unauthorized").

    A code is good for one attempt. One that comes again ends the session it gave.
    """
    return _in_turn(
        context, request_id, lambda turn: _exchange_code(turn, code, redirect_uri, verifier)
    )


def _exchange_code(turn: _Turn, code: str, redirect_uri: str, verifier: str) -> TokenAnswer | None:
    this = authorization_codes.c.code_hash == hashed(code)
    row = (
        turn.connection.execute(select(authorization_codes).where(this).with_for_update())
        .mappings()
        .first()
    )
    if row is None:
        return None
    if row["session_id"] is not None:
        _revoke(turn, row["session_id"], "session.code_replayed")
        return None
    fits = (
        row["expires_at"] > turn.now
        and row["redirect_uri"] == redirect_uri
        and hmac.compare_digest(row["code_challenge"], code_challenge(verifier))
    )
    user = _active_user(turn.connection, row["user_id"])
    if not fits or user is None:
        turn.connection.execute(delete(authorization_codes).where(this))
        return None
    session_id = _open(turn, user, row["client_kind"])
    turn.connection.execute(update(authorization_codes).where(this).values(session_id=session_id))
    return _issue(turn, session_id, user, None)


def refresh(context: ServerContext, request_id: str, refresh_token: str) -> TokenAnswer:
    """The next pair of the session; raises Refused("unauthorized"). See the module."""
    return _in_turn(context, request_id, lambda turn: _refresh(turn, hashed(refresh_token)))


def _refresh(turn: _Turn, token_hash: str) -> TokenAnswer | None:
    tokens = session_tokens.c
    found = turn.connection.execute(
        select(tokens.session_id).where(tokens.token_hash == token_hash, tokens.kind == "refresh")
    ).first()
    if found is None:
        return None
    session = (
        turn.connection.execute(
            select(sessions).where(sessions.c.session_id == found.session_id).with_for_update()
        )
        .mappings()
        .one()
    )
    token = (
        turn.connection.execute(select(session_tokens).where(tokens.token_hash == token_hash))
        .mappings()
        .first()
    )
    user = _active_user(turn.connection, session["user_id"])
    if token is None or user is None or session["revoked_at"] is not None:
        return None
    if token["voided_at"] is not None or _has_used_successor(turn, token_hash):
        _revoke(turn, session["session_id"], "session.refresh_reused")
        return None
    if token["expires_at"] <= turn.now:
        return None
    turn.connection.execute(
        update(session_tokens)
        .where(tokens.parent_hash == token_hash, tokens.voided_at.is_(None))
        .values(voided_at=turn.now)
    )
    turn.connection.execute(
        update(session_tokens).where(tokens.token_hash == token_hash).values(used_at=turn.now)
    )
    turn.connection.execute(
        delete(session_tokens).where(
            tokens.session_id == session["session_id"], tokens.expires_at <= turn.now
        )
    )
    return _issue(turn, session["session_id"], user, token_hash)


def _has_used_successor(turn: _Turn, token_hash: str) -> bool:
    tokens = session_tokens.c
    used = select(tokens.token_hash).where(
        tokens.parent_hash == token_hash, tokens.kind == "refresh", tokens.used_at.is_not(None)
    )
    return turn.connection.execute(used.limit(1)).first() is not None


def _active_user(connection: Connection, user_id: str) -> RowMapping | None:
    row = connection.execute(select(users).where(users.c.user_id == user_id)).mappings().first()
    return row if row is not None and row["status"] == "active" else None


def _open(turn: _Turn, user: RowMapping, client_kind: str) -> str:
    session_id = turn.new_id("sess")
    turn.connection.execute(
        insert(sessions).values(
            session_id=session_id,
            user_id=user["user_id"],
            client_kind=client_kind,
            created_at=turn.now,
        )
    )
    _note(turn, user, "session.created", session_id)
    return session_id


def _issue(turn: _Turn, session_id: str, user: RowMapping, parent_hash: str | None) -> TokenAnswer:
    pair: list[str] = []
    kinds: tuple[tuple[SecretKind, int], ...] = (
        ("access", ACCESS_TTL_S),
        ("refresh", REFRESH_TTL_S),
    )
    for kind, ttl_s in kinds:
        pair.append(new_secret(kind))
        turn.connection.execute(
            insert(session_tokens).values(
                token_hash=hashed(pair[-1]),
                session_id=session_id,
                kind=kind,
                parent_hash=parent_hash,
                created_at=turn.now,
                expires_at=turn.later(ttl_s),
            )
        )
    shown = user_message(user)
    return TokenAnswer(
        access_token=pair[0],
        refresh_token=pair[1],
        token_type="Bearer",
        expires_in=ACCESS_TTL_S,
        user=shown,
        org=organization(turn.connection, user["org_id"]),
        capabilities=capabilities_of(shown.role),
    )


def _revoke(turn: _Turn, session_id: str, action: str) -> None:
    row = (
        turn.connection.execute(
            select(sessions.c.revoked_at, users)
            .join_from(sessions, users, users.c.user_id == sessions.c.user_id)
            .where(sessions.c.session_id == session_id)
        )
        .mappings()
        .first()
    )
    if row is None or row["revoked_at"] is not None:
        return
    turn.connection.execute(
        update(sessions).where(sessions.c.session_id == session_id).values(revoked_at=turn.now)
    )
    _note(turn, row, action, session_id)


def _note(turn: _Turn, user: RowMapping, action: str, session_id: str) -> None:
    audit.record_of(
        turn.connection,
        event_id=turn.new_id("audit"),
        org_id=user["org_id"],
        actor_id=user["user_id"],
        action=action,
        target=("session", session_id),
        facts={},
        request_id=turn.request_id,
        now=turn.now,
    )


def end_session(connection: Connection, session_id: str, now: str) -> bool:
    """Revoke a session; False where it had ended already."""
    done = connection.execute(
        update(sessions)
        .where(sessions.c.session_id == session_id, sessions.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )
    return done.rowcount > 0


def end_sessions_of(connection: Connection, user_id: str, now: str) -> int:
    """Revoke every session of a user; how many there were."""
    done = connection.execute(
        update(sessions)
        .where(sessions.c.user_id == user_id, sessions.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )
    return done.rowcount
