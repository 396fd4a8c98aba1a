"""Schema: an empty database and a migrated one are the same, and races have one winner."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import inspect, text

from clumsies.errors import StoreFailed
from clumsies.server import migrations
from clumsies.server.database import Database
from clumsies.server.identity import schema_identity
from clumsies.server.migrations import MIGRATIONS, VERSION, Migration, migrate, schema_version
from clumsies.server.schema import metadata


def described(database: Database) -> dict[str, Any]:
    """Columns, keys and indexes of every table of the schema."""
    found: dict[str, Any] = {}
    with database.read() as connection:
        inspector = inspect(connection)
        for table in inspector.get_table_names():
            if table != "schema_versions":
                found[table] = {
                    "columns": [
                        (c["name"], str(c["type"]), c["nullable"])
                        for c in inspector.get_columns(table)
                    ],
                    "primary": inspector.get_pk_constraint(table)["constrained_columns"],
                    "foreign": sorted(
                        (*f["constrained_columns"], f["referred_table"])
                        for f in inspector.get_foreign_keys(table)
                    ),
                    "unique": sorted(
                        u["column_names"] for u in inspector.get_unique_constraints(table)
                    ),
                    "checks": sorted(
                        (c["name"], c["sqltext"]) for c in inspector.get_check_constraints(table)
                    ),
                    "indexes": sorted(
                        (str(i["name"]), i["column_names"], bool(i["unique"]))
                        for i in inspector.get_indexes(table)
                    ),
                }
    return found


def test_steps_are_numbered_without_a_gap() -> None:
    assert [step.version for step in MIGRATIONS] == list(range(1, VERSION + 1))


def test_a_migrated_database_is_what_the_tables_say(database_url: str) -> None:
    """A table that was changed without a step of its own fails here."""
    assert schema_identity.sessions.metadata is metadata
    fresh = Database(database_url)
    fresh.write(metadata.create_all)
    wanted = described(fresh)
    fresh.write(metadata.drop_all)
    assert migrate(fresh) == 0
    assert described(fresh) == wanted
    assert "drafts" in wanted
    assert "sessions" in wanted
    fresh.close()


def test_migrating_again_changes_nothing(database: Database) -> None:
    before = described(database)
    assert migrate(database) == VERSION
    assert described(database) == before


def test_many_may_migrate_at_once(database_url: str) -> None:
    databases = [Database(database_url) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = sorted(pool.map(migrate, databases))
    assert found == [0, VERSION, VERSION, VERSION]
    for item in databases:
        item.close()


def test_a_step_that_fails_leaves_nothing_behind(database: Database) -> None:
    def broken(connection: Any) -> None:
        connection.execute(text("CREATE TABLE half_done(x INTEGER)"))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        migrate(database, steps=(*MIGRATIONS, Migration(VERSION + 1, broken)))
    assert "half_done" not in described(database)
    with database.read() as connection:
        assert schema_version(connection) == VERSION


def test_a_later_step_runs_once(database: Database) -> None:
    later = Migration(VERSION + 1, lambda c: c.execute(text("CREATE TABLE later(x INTEGER)")))
    assert migrate(database, steps=(*MIGRATIONS, later)) == VERSION
    assert migrate(database, steps=(*MIGRATIONS, later)) == VERSION + 1
    assert "later" in described(database)


def test_a_newer_database_is_refused_and_left(database: Database) -> None:
    database.write(
        lambda c: c.execute(
            migrations.schema_versions.insert().values(version=VERSION + 1, applied_at="later")
        )
    )
    with pytest.raises(StoreFailed, match="update this program"):
        migrate(database)
    with pytest.raises(StoreFailed, match="update this program"):
        migrations.require_current(database)


def test_an_empty_database_is_not_current(database_url: str) -> None:
    empty = Database(database_url)
    with pytest.raises(StoreFailed, match="server migrate"):
        migrations.require_current(empty)
    empty.close()
