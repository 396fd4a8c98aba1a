"""Members of an organisation: invited, given a role, disabled. One active owner always stays.

An owner is made, changed and disabled by owners alone.
"""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import RowMapping, insert, select, update

from clumsies.api.admin import ChangeMember, InviteMember, Member, MemberPage, MemberStatus
from clumsies.api.identity import OrgRole
from clumsies.errors import Conflict, InvalidRequest, NotFound, Refused
from clumsies.server import audit
from clumsies.server.acting import Act
from clumsies.server.identity.schema_identity import personal_tokens
from clumsies.server.identity.sessions import end_sessions_of
from clumsies.server.identity.sign_in import email_key
from clumsies.server.identity.users import user_row
from clumsies.server.paging import Page
from clumsies.server.schema import users


def member_message(row: RowMapping) -> Member:
    """The message of a row of `users`."""
    return Member(
        user_id=row["user_id"],
        email=row["email"],
        display_name=row["display_name"],
        avatar_url=row["avatar_url"],
        role=cast(OrgRole, row["role"]),
        status=cast(MemberStatus, row["status"]),
        signs_in=row["oidc_subject"] is not None,
        revision=row["revision"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def list_org_members(act: Act, page: Page) -> MemberPage:
    """Every member, the first to come first."""
    act.principal.require("admin:write")
    query = (
        select(users)
        .where(users.c.org_id == act.principal.org_id)
        .order_by(users.c.created_at, users.c.user_id)
    )
    found, info = page.of(page.rows(act.connection, query))
    return MemberPage(items=[member_message(row) for row in found], page_info=info)


def get_member(act: Act, user_id: str) -> Member:
    """One member; raises NotFound("not_found")."""
    act.principal.require("admin:write")
    return member_message(user_row(act.connection, act.principal.org_id, user_id))


def invite_member(act: Act, data: InviteMember) -> Member:
    """A member who joins with their first sign-in; raises Conflict("already_exists")."""
    act.principal.require("admin:write")
    _require_rank(act, data.role)
    user_id = act.new_id("user")
    taken = select(users.c.user_id).where(
        users.c.org_id == act.principal.org_id, users.c.email_key == email_key(data.email)
    )
    _lock_org(act)
    if act.connection.execute(taken).first() is not None:
        raise Conflict(
            "already_exists", "There is a member with that address already; change that one."
        )
    act.connection.execute(
        insert(users).values(
            user_id=user_id,
            org_id=act.principal.org_id,
            email=data.email,
            email_key=email_key(data.email),
            display_name=data.display_name or data.email,
            role=data.role,
            status="invited",
            revision=1,
            created_at=act.now,
            updated_at=act.now,
        )
    )
    audit.record(act, "member.invited", "user", user_id, role=data.role)
    return get_member(act, user_id)


def change_member(act: Act, user_id: str, data: ChangeMember) -> Member:
    """Another role, status or name; raises NotFound, Refused("forbidden"), and InvalidRequest for
    what would leave the organisation without an active owner."""
    act.principal.require("admin:write")
    rows = _lock_org(act)
    old = rows.get(user_id)
    if old is None:
        raise NotFound("not_found", "There is no such member; list the members again.")
    _require_rank(act, old["role"])
    if data.role is not None:
        _require_rank(act, data.role)
    new = {
        name: value
        for name, value in (
            ("role", data.role),
            ("status", data.status),
            ("display_name", data.display_name),
        )
        if value is not None and value != old[name]
    }
    if not new:
        return member_message(old)
    _require_owner_left(rows, user_id, new)
    act.connection.execute(
        update(users)
        .where(users.c.user_id == user_id)
        .values(**new, revision=old["revision"] + 1, updated_at=act.now)
    )
    if new.get("status") == "disabled":
        _end_access(act, user_id)
    facts = {name: value for name, value in new.items() if name != "display_name"}
    audit.record(act, "member.changed", "user", user_id, fields=sorted(new), **facts)
    return get_member(act, user_id)


def _lock_org(act: Act) -> dict[str, RowMapping]:
    """The members' rows by id, locked in order of id: roles change one at a time."""
    query = (
        select(users)
        .where(users.c.org_id == act.principal.org_id)
        .order_by(users.c.user_id)
        .with_for_update()
    )
    return {row["user_id"]: row for row in act.connection.execute(query).mappings()}


def _require_rank(act: Act, role: str) -> None:
    if role == "owner" and act.principal.role != "owner":
        raise Refused("forbidden", "Owners are made and changed by owners alone; ask one of them.")


def _require_owner_left(rows: dict[str, RowMapping], user_id: str, new: dict[str, Any]) -> None:
    left = [
        row
        for name, row in rows.items()
        if (new.get("role", row["role"]) if name == user_id else row["role"]) == "owner"
        and (new.get("status", row["status"]) if name == user_id else row["status"]) == "active"
    ]
    lost = rows[user_id]["role"] == "owner" and rows[user_id]["status"] == "active"
    if lost and not left:
        raise InvalidRequest(
            "invalid_request", "The last owner stays one; make somebody else an owner first."
        )


def _end_access(act: Act, user_id: str) -> None:
    end_sessions_of(act.connection, user_id, act.now)
    act.connection.execute(
        update(personal_tokens)
        .where(personal_tokens.c.user_id == user_id, personal_tokens.c.revoked_at.is_(None))
        .values(revoked_at=act.now)
    )
