"""Who a bearer belongs to: a session's access token, a personal token, or the local secret."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from sqlalchemy import Connection, Row, bindparam, select, update

from clumsies.api.identity import OrgRole
from clumsies.server.acting import Principal
from clumsies.server.database import Database
from clumsies.server.identity.schema_identity import personal_tokens, session_tokens, sessions
from clumsies.server.identity.secrets import hashed, is_personal
from clumsies.server.schema import users
from clumsies.storage.timestamps import row_time

LAST_USE_STEP_S = 3600
"""A personal token's last use is kept to the hour: reading must not write every time."""


_IN_SESSION = (
    select(sessions.c.session_id, users.c.user_id, users.c.org_id, users.c.role)
    .select_from(
        session_tokens.join(sessions, sessions.c.session_id == session_tokens.c.session_id).join(
            users, users.c.user_id == sessions.c.user_id
        )
    )
    .where(
        session_tokens.c.token_hash == bindparam("hash"),
        session_tokens.c.kind == "access",
        session_tokens.c.voided_at.is_(None),
        session_tokens.c.expires_at > bindparam("now"),
        sessions.c.revoked_at.is_(None),
        users.c.status == "active",
    )
)
_WITH_PERSONAL_TOKEN = (
    select(
        personal_tokens.c.expires_at,
        personal_tokens.c.last_used_at,
        users.c.user_id,
        users.c.org_id,
        users.c.role,
    )
    .join_from(personal_tokens, users, users.c.user_id == personal_tokens.c.user_id)
    .where(
        personal_tokens.c.token_hash == bindparam("hash"),
        personal_tokens.c.revoked_at.is_(None),
        users.c.status == "active",
    )
)
"""Made once, as each request runs one of them: making a statement costs more than running it."""


class SessionAuthenticator:
    """Knows access tokens and personal tokens. It keeps nothing in memory: a revocation counts at
    once, whichever worker is asked."""

    def __init__(self, database: Database, clock_ns: Callable[[], int] = time.time_ns):
        self._database = database
        self._clock_ns = clock_ns

    def authenticate(self, bearer: str) -> Principal | None:
        """See server.context.Authenticator."""
        now_ns = self._clock_ns()
        if is_personal(bearer):
            return self._personal(hashed(bearer), now_ns)
        named = {"hash": hashed(bearer), "now": row_time(now_ns)}
        with self._database.read(is_one_statement=True) as connection:
            row = connection.execute(_IN_SESSION, named).first()
        return None if row is None else _principal(row, row.session_id)

    def _personal(self, token_hash: str, now_ns: int) -> Principal | None:
        now = row_time(now_ns)
        with self._database.read(is_one_statement=True) as connection:
            row = connection.execute(_WITH_PERSONAL_TOKEN, {"hash": token_hash}).first()
        if row is None or (row.expires_at is not None and row.expires_at <= now):
            return None
        if (row.last_used_at or "") <= row_time(now_ns - LAST_USE_STEP_S * 1_000_000_000):
            self._database.write(lambda connection: _note_use(connection, token_hash, now))
        return _principal(row, None)


def _principal(row: Row[*tuple[Any, ...]], session_id: str | None) -> Principal:
    return Principal(row.user_id, row.org_id, cast(OrgRole, row.role), session_id)


def _note_use(connection: Connection, token_hash: str, now: str) -> None:
    connection.execute(
        update(personal_tokens)
        .where(personal_tokens.c.token_hash == token_hash)
        .values(last_used_at=now)
    )
