"""Health of each component the Server stands on."""

from __future__ import annotations

from typing import Literal

from sqlalchemy import func, select

from clumsies.api.common import Answer
from clumsies.errors import ClumsiesError
from clumsies.server.context import ServerContext
from clumsies.server.migrations import VERSION, schema_version
from clumsies.server.schema import commits, refs
from clumsies.version import VERSION as PROGRAM_VERSION

Status = Literal["ok", "degraded", "down"]
_BAD_TO_WORSE: tuple[Status, ...] = ("ok", "degraded", "down")


class Component(Answer, frozen=True, kw_only=True, omit_defaults=False):
    status: Status
    message: str


class Health(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """`status` is the worst of the components'."""

    status: Status
    version: str
    database: Component
    schema: Component
    commit_service: Component
    oidc: Component


def health_of(context: ServerContext) -> Health:
    """The state of every component now; never raises."""
    database, schema, commit_service = _stored(context)
    oidc = _oidc(context)
    parts = (database, schema, commit_service, oidc)
    worst = max((part.status for part in parts), key=_BAD_TO_WORSE.index)
    return Health(
        status=worst,
        version=PROGRAM_VERSION,
        database=database,
        schema=schema,
        commit_service=commit_service,
        oidc=oidc,
    )


def _stored(context: ServerContext) -> tuple[Component, Component, Component]:
    unknown = Component(status="down", message="The database does not answer.")
    try:
        with context.database.read() as connection:
            version = schema_version(connection)
            up = Component(status="ok", message=f"{context.database.dialect} answers")
            if version != VERSION:
                behind = Component(
                    status="down", message=f"Schema {version}; run `clumsies server migrate`."
                )
                return up, behind, behind
            broken = connection.execute(
                select(func.count())
                .select_from(refs.outerjoin(commits, refs.c.commit_id == commits.c.commit_id))
                .where(refs.c.commit_id.is_not(None), commits.c.commit_id.is_(None))
            ).scalar_one()
    except ClumsiesError as error:
        down = Component(status="down", message=error.message)
        return down, unknown, unknown
    current = Component(status="ok", message=f"schema {version}")
    if broken:
        return up, current, Component(status="down", message=f"{broken} Refs lost their commits.")
    return up, current, Component(status="ok", message="every Ref has its commit")


def _oidc(context: ServerContext) -> Component:
    return Component(status="degraded", message="No identity provider is set up.")
