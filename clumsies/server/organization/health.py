"""Health of each component the Server stands on."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from clumsies.api.admin import Component, Health, ServerHealth
from clumsies.errors import ClumsiesError
from clumsies.server.context import ServerContext
from clumsies.server.identity.oidc import discover
from clumsies.server.identity.provider_settings import find_provider
from clumsies.server.migrations import VERSION, schema_version
from clumsies.server.schema import commits, refs
from clumsies.version import VERSION as PROGRAM_VERSION

_BAD_TO_WORSE: tuple[Health, ...] = ("ok", "degraded", "down")


def health_of(context: ServerContext) -> ServerHealth:
    """The state of every component now; never raises."""
    database, schema, commit_service = _stored(context)
    oidc = _oidc(context, usable=schema.status == "ok")
    parts = (database, schema, commit_service, oidc)
    return ServerHealth(
        status=max((part.status for part in parts), key=_BAD_TO_WORSE.index),
        version=PROGRAM_VERSION,
        database=database,
        schema=schema,
        commit_service=commit_service,
        oidc=oidc,
    )


def _down(message: str) -> Component:
    return Component(status="down", message=message)


def _ok(message: str) -> Component:
    return Component(status="ok", message=message)


def _stored(context: ServerContext) -> tuple[Component, Component, Component]:
    """Of the database, its schema and the commits."""
    unknown = _down("The database does not answer.")
    try:
        with context.database.read() as connection:
            up = _ok(f"{context.database.dialect} answers")
            version = schema_version(connection)
            if version != VERSION:
                behind = _down(f"Schema {version}, not {VERSION}; run `clumsies server migrate`.")
                return up, behind, behind
            return up, _ok(f"schema {version}"), _commits(connection)
    except ClumsiesError as error:
        return _down(error.message), unknown, unknown


def _commits(connection: Connection) -> Component:
    lost = connection.execute(
        select(func.count())
        .select_from(refs.outerjoin(commits, refs.c.commit_id == commits.c.commit_id))
        .where(refs.c.commit_id.is_not(None), commits.c.commit_id.is_(None))
    ).scalar_one()
    if lost:
        return _down(f"{lost} Refs name commits that are not here.")
    return _ok("every Ref has its commit")


def _oidc(context: ServerContext, usable: bool) -> Component:
    """Without sign-in sessions and personal tokens still work: degraded, not down."""
    try:
        provider = find_provider(context) if usable else None
        if provider is None:
            return Component(status="degraded", message="No identity provider is set.")
        discover(provider.issuer)
    except ClumsiesError as error:
        return Component(status="degraded", message=error.message)
    return _ok("the identity provider answers")
