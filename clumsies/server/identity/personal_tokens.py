"""Personal tokens: for machines without a browser. They may do what their user's role may."""

from __future__ import annotations

from sqlalchemy import RowMapping, Select, insert, select, update

from clumsies.api.admin import CreatedToken, CreateToken, PersonalToken
from clumsies.errors import NotFound, Refused
from clumsies.server import audit
from clumsies.server.acting import Act
from clumsies.server.identity.schema_identity import personal_tokens
from clumsies.server.identity.secrets import hashed, new_secret
from clumsies.server.identity.users import user_row
from clumsies.server.schema import users
from clumsies.storage.timestamps import row_time

_DAY_NS = 24 * 3600 * 1_000_000_000
_RANK = {"member": 0, "admin": 1, "owner": 2}


def token_message(row: RowMapping) -> PersonalToken:
    """The message of a row of `personal_tokens` with its user's email."""
    return PersonalToken(
        token_id=row["token_id"],
        user_id=row["user_id"],
        email=row["email"],
        name=row["name"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        last_used_at=row["last_used_at"],
        revoked_at=row["revoked_at"],
    )


def tokens_query(act: Act, user_id: str | None = None) -> Select[tuple[object, ...]]:
    """Tokens of the organisation, or of one user of it, newest first."""
    query = (
        select(personal_tokens, users.c.email)
        .join_from(personal_tokens, users, users.c.user_id == personal_tokens.c.user_id)
        .where(personal_tokens.c.org_id == act.principal.org_id)
        .order_by(personal_tokens.c.created_at.desc(), personal_tokens.c.token_id)
    )
    return query if user_id is None else query.where(personal_tokens.c.user_id == user_id)


def create_token(act: Act, user_id: str, data: CreateToken) -> CreatedToken:
    """A new token of a user; its text is in the answer and nowhere else.

    For another user it takes an admin whose role is not lower than theirs.
    """
    principal = act.principal
    user = user_row(act.connection, principal.org_id, user_id)
    if user_id != principal.user_id:
        principal.require("admin:write")
        if _RANK[user["role"]] > _RANK[principal.role]:
            raise Refused("forbidden", "A token of an owner is made by an owner; ask one of them.")
    if user["status"] != "active":
        raise Refused("forbidden", "The member is not active; activate them first.")
    secret = new_secret("personal")
    values = {
        "token_id": act.new_id("token"),
        "token_hash": hashed(secret),
        "org_id": principal.org_id,
        "user_id": user_id,
        "name": data.name,
        "created_by": principal.user_id,
        "created_at": act.now,
        "expires_at": (
            row_time(act.now_ns + data.expires_in_days * _DAY_NS) if data.expires_in_days else None
        ),
        "last_used_at": None,
        "revoked_at": None,
    }
    act.connection.execute(insert(personal_tokens).values(values))
    audit.record(act, "token.created", "token", str(values["token_id"]), user_id=user_id)
    row = _token_row(act, str(values["token_id"]), None)
    return CreatedToken(token=token_message(row), secret=secret)


def revoke_token(act: Act, token_id: str, user_id: str | None = None) -> PersonalToken:
    """Revoke a token of the organisation, or of one user; it is refused from now on."""
    row = _token_row(act, token_id, user_id)
    if row["revoked_at"] is None:
        act.connection.execute(
            update(personal_tokens)
            .where(personal_tokens.c.token_id == token_id)
            .values(revoked_at=act.now)
        )
        audit.record(act, "token.revoked", "token", token_id, user_id=row["user_id"])
    return token_message(_token_row(act, token_id, user_id))


def _token_row(act: Act, token_id: str, user_id: str | None) -> RowMapping:
    query = tokens_query(act, user_id).where(personal_tokens.c.token_id == token_id)
    row = act.connection.execute(query).mappings().first()
    if row is None:
        raise NotFound("not_found", "There is no such token; list the tokens again.")
    return row
