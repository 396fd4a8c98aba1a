"""The database's schema as numbered steps, run under a lock by whoever comes first.

An empty database is brought up by the same steps. A database of a newer program is refused and left
as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Column, Connection, Integer, MetaData, String, Table, func, inspect, select

from clumsies.errors import StoreFailed
from clumsies.server import first_schema
from clumsies.server.database import Database
from clumsies.storage.timestamps import row_time

LOCK_KEY = 0x636C756D
"""PostgreSQL's advisory lock of this program's migrations: `clum`."""
schema_versions = Table(
    "schema_versions",
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("applied_at", String, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Migration:
    """A step to `version` from the one before it, for either dialect."""

    version: int
    apply: Callable[[Connection], None]


MIGRATIONS: tuple[Migration, ...] = (Migration(1, first_schema.create),)
VERSION = MIGRATIONS[-1].version


def schema_version(connection: Connection) -> int:
    """The number of the last step that was run; 0 for an empty database."""
    if not inspect(connection).has_table(schema_versions.name):
        return 0
    found = connection.execute(select(func.max(schema_versions.c.version))).scalar()
    return int(found or 0)


def migrate(
    database: Database,
    *,
    clock_ns: Callable[[], int] = time.time_ns,
    steps: tuple[Migration, ...] = MIGRATIONS,
) -> int:
    """Bring the database to the newest schema, all of it or nothing; the version it had before.

    Any number of processes may ask at once. Raises StoreFailed("server_database_failed") for a
    database that a newer program made.
    """

    def work(connection: Connection) -> int:
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(LOCK_KEY)))
        before = schema_version(connection)
        _refuse_newer(before, steps[-1].version)
        if before == 0:
            schema_versions.create(connection, checkfirst=True)
        for step in steps:
            if step.version > before:
                step.apply(connection)
                connection.execute(
                    schema_versions.insert().values(
                        version=step.version, applied_at=row_time(clock_ns())
                    )
                )
        return before

    return database.write(work)


def require_current(database: Database) -> None:
    """Raise StoreFailed("server_database_failed") unless the schema is this program's."""
    with database.read() as connection:
        found = schema_version(connection)
    _refuse_newer(found, VERSION)
    if found < VERSION:
        raise StoreFailed(
            "server_database_failed",
            "The database's schema is not this program's; run `clumsies server migrate`.",
        )


def _refuse_newer(found: int, known: int) -> None:
    if found > known:
        raise StoreFailed(
            "server_database_failed",
            f"A newer clumsies made the database (schema {found}, known is {known}); update this "
            "program.",
        )
