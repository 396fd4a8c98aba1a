"""The audit trail: who changed what, in the transaction of the change. Never texts of memory."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection

from clumsies.server.acting import Act
from clumsies.server.schema import audit_events


def record(act: Act, action: str, target_type: str, target_id: str | None, **facts: object) -> None:
    """Add an event of the acting user, such as `project.created`.

    `facts` are small JSON values: ids, roles, versions, counts, names of fields.
    """
    record_of(
        act.connection,
        event_id=act.new_id("audit"),
        org_id=act.principal.org_id,
        actor_id=act.principal.user_id,
        action=action,
        target=(target_type, target_id),
        facts=facts,
        request_id=act.request_id,
        now=act.now,
    )


def record_of(
    connection: Connection,
    *,
    event_id: str,
    org_id: str,
    actor_id: str | None,
    action: str,
    target: tuple[str, str | None],
    facts: dict[str, object],
    request_id: str | None,
    now: str,
) -> None:
    """Add an event where nobody is signed in yet: a sign-in, or a command on the machine itself."""
    connection.execute(
        audit_events.insert().values(
            event_id=event_id,
            org_id=org_id,
            actor_id=actor_id,
            action=action,
            target_type=target[0],
            target_id=target[1],
            details_json=msgspec.json.encode(facts).decode("utf-8"),
            request_id=request_id,
            created_at=now,
        )
    )
