"""The central database: its policy, its migrations, and every way in which it must refuse."""

from __future__ import annotations

import shutil
import stat
import threading
from pathlib import Path

import apsw
import pytest

from clumsies.errors import IoFailed, StoreFailed
from clumsies.storage.database import only_row
from clumsies.storage.local_database import IDLE_READERS, LocalDatabase
from clumsies.storage.migrations import MIGRATIONS, Migration

NEXT = Migration(len(MIGRATIONS) + 1, "CREATE TABLE notes(text TEXT) STRICT")
TABLES = {
    "daemon_meta",
    "local_projects",
    "project_bindings",
    "cached_blobs",
    "cached_trees",
    "cached_commits",
    "cached_refs",
    "local_drafts",
    "local_draft_operations",
    "sync_retries",
    "remote_draft_events",
    "index_jobs",
}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def raw(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


def made(directory: Path) -> Path:
    """A database with one fact in it, closed."""
    database = LocalDatabase(directory)
    database.set_meta("fact", "kept")
    database.close()
    return database.path


def test_a_new_database(tmp_path: Path) -> None:
    database = LocalDatabase(tmp_path / "data")
    assert mode(database.directory) == 0o700
    for name in ("local.db", "local.db-wal", "local.db-shm"):
        assert mode(database.directory / name) == 0o600
    with database.writer() as connection:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        assert {row[0] for row in tables} >= TABLES
        settings = {
            name: only_row(connection, f"PRAGMA {name}")[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "user_version")
        }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "user_version": database.schema_version,
    }
    assert database.problems() == []
    assert not (database.directory / "backups").exists()
    database.close()
    database.close()


def test_the_installation_keeps_its_id(tmp_path: Path) -> None:
    first = LocalDatabase(tmp_path)
    name = first.installation_id
    first.close()
    second = LocalDatabase(tmp_path)
    assert second.installation_id == name
    assert second.meta("daemon_installation_id") == name
    second.close()
    with pytest.raises(RuntimeError):
        second.meta("daemon_installation_id")


def test_migrations_are_numbered_without_gaps() -> None:
    assert [step.version for step in MIGRATIONS] == list(range(1, len(MIGRATIONS) + 1))


def test_a_migration_makes_a_backup_first_and_keeps_everything(tmp_path: Path) -> None:
    path = made(tmp_path)
    database = LocalDatabase(tmp_path, migrations=(*MIGRATIONS, NEXT))
    assert database.meta("fact") == "kept"
    with database.reader() as connection:
        assert only_row(connection, "SELECT count(*) FROM notes") == (0,)
    backup = database.newest_backup()
    database.close()
    assert backup is not None
    assert mode(backup) == 0o600
    assert mode(backup.parent) == 0o700
    shutil.copy(backup, path)  # the copy is a whole database of the old schema
    old = LocalDatabase(tmp_path)
    assert old.meta("fact") == "kept"
    old.close()


def test_a_failed_migration_changes_nothing(tmp_path: Path) -> None:
    made(tmp_path)
    broken = Migration(NEXT.version, f"{NEXT.sql}; CREATE TABLE daemon_meta(x)")
    with pytest.raises(StoreFailed) as caught:
        LocalDatabase(tmp_path, migrations=(*MIGRATIONS, broken))
    assert caught.value.code == "local_db_error"
    database = LocalDatabase(tmp_path)
    assert database.meta("fact") == "kept"
    with database.reader() as connection, pytest.raises(apsw.SQLError):
        connection.execute("SELECT * FROM notes")
    database.close()


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = made(tmp_path)
    LocalDatabase(tmp_path, migrations=(*MIGRATIONS, NEXT)).close()
    before = path.read_bytes()
    with pytest.raises(StoreFailed, match="newer clumsies") as caught:
        LocalDatabase(tmp_path)
    assert caught.value.code == "local_db_error"
    assert path.read_bytes() == before


def test_another_programs_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    raw(tmp_path / "local.db", "CREATE TABLE theirs(x); INSERT INTO theirs VALUES (1)")
    with pytest.raises(StoreFailed, match="another program"):
        LocalDatabase(tmp_path)
    raw(tmp_path / "local.db", "INSERT INTO theirs VALUES (2)")


def overwrite_middle(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as stream:
        stream.seek(4096)
        stream.write(b"\xaa" * (size - 4096))


def overwrite_all(path: Path) -> None:
    path.write_bytes(b"not a database at all, and long enough to be looked at" * 100)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:10_000])


@pytest.mark.parametrize("damage", [overwrite_middle, overwrite_all, truncate])
@pytest.mark.parametrize("backed_up", [True, False])
def test_a_damaged_file_is_named_with_its_backup_and_kept(
    tmp_path: Path, damage: object, backed_up: bool
) -> None:
    path = made(tmp_path)
    backups = []
    if backed_up:
        database = LocalDatabase(tmp_path)
        backups = [database.back_up(), database.back_up()]
        database.close()
    damage(path)  # type: ignore[operator]
    before = path.read_bytes()
    with pytest.raises(StoreFailed) as caught:
        LocalDatabase(tmp_path)
    assert caught.value.code == "local_db_error"
    assert str(path) in caught.value.message
    if backed_up:
        assert str(backups[-1]) in caught.value.message
        assert caught.value.details["backup"] == str(backups[-1])
    else:
        assert "no backup" in caught.value.message
    assert path.read_bytes() == before


def test_modes_of_a_copied_file_are_hardened(tmp_path: Path) -> None:
    path = made(tmp_path)
    path.chmod(0o644)
    tmp_path.chmod(0o755)
    LocalDatabase(tmp_path).close()
    assert mode(path) == 0o600
    assert mode(tmp_path) == 0o700


def test_a_path_that_cannot_be_a_database(tmp_path: Path) -> None:
    (tmp_path / "local.db").mkdir()
    with pytest.raises((IoFailed, StoreFailed)):
        LocalDatabase(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(IoFailed):
        LocalDatabase(tmp_path / "file")


def test_a_lock_held_elsewhere_is_said_and_never_called_derived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = made(tmp_path)
    monkeypatch.setattr("clumsies.storage.database.BUSY_TIMEOUT_MS", 10)
    holder = apsw.Connection(str(path))
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreFailed) as caught:
        LocalDatabase(tmp_path)
    holder.close()
    assert caught.value.code == "local_db_error"
    assert "locked" in caught.value.message
    assert "derived" not in caught.value.message
    LocalDatabase(tmp_path).close()


def test_a_failed_block_is_rolled_back(database: LocalDatabase) -> None:
    def fail(connection: apsw.Connection) -> None:
        connection.execute("INSERT INTO daemon_meta VALUES ('a', 'b')")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), database.writer() as connection:
        fail(connection)
    assert database.meta("a") is None
    with pytest.raises(StoreFailed), database.writer() as connection:
        connection.execute("INSERT INTO nothing VALUES (1)")
    database.set_meta("a", "c")
    assert database.meta("a") == "c"
    database.set_meta("a", None)
    assert database.meta("a") is None


def test_a_commit_that_fails_is_rolled_back(database: LocalDatabase) -> None:
    def refuse() -> bool:
        return True

    database._writer.set_commit_hook(refuse)
    with pytest.raises(StoreFailed), database.writer() as connection:
        connection.execute("INSERT INTO daemon_meta VALUES ('a', 'b')")
    database._writer.set_commit_hook(None)
    assert database.meta("a") is None
    database.set_meta("a", "c")
    assert database.meta("a") == "c"


def test_a_deferred_constraint_refuses_the_commit_and_nothing_stays_open(
    database: LocalDatabase,
) -> None:
    lost = (
        "INSERT INTO local_draft_operations(local_operation_id, draft_id, resource_kind, "
        "operation_json, source, created_at, updated_at) "
        "VALUES ('op', 'lost', 'memory', '{}', 'cli', '', '')"
    )
    with pytest.raises(StoreFailed), database.writer() as connection:
        connection.execute(f"PRAGMA defer_foreign_keys = ON; {lost}")
    database.set_meta("a", "c")
    assert database.problems() == []


def test_readers_cannot_write_and_see_one_moment(database: LocalDatabase) -> None:
    with database.reader() as connection:
        query = "SELECT count(*) FROM daemon_meta"
        before = only_row(connection, query)
        database.set_meta("later", "x")
        assert only_row(connection, query) == before
        with pytest.raises(apsw.ReadOnlyError):
            connection.execute("DELETE FROM daemon_meta")
    with database.reader() as connection:
        assert only_row(connection, query) == (before[0] + 1,)


def test_many_threads_lose_no_write(database: LocalDatabase) -> None:
    def work(number: int) -> None:
        for part in range(10):
            with database.writer() as connection:
                connection.execute(
                    "INSERT INTO daemon_meta VALUES (?, ?)", (f"k{number}-{part}", "v")
                )
            assert database.meta(f"k{number}-{part}") == "v"

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2 * IDLE_READERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.reader() as connection:
        query = "SELECT count(*) FROM daemon_meta WHERE key LIKE 'k%'"
        assert only_row(connection, query) == (20 * IDLE_READERS,)


def test_a_violated_foreign_key_is_a_problem_that_is_named(tmp_path: Path) -> None:
    path = made(tmp_path)
    raw(
        path,
        "INSERT INTO local_draft_operations(local_operation_id, draft_id, resource_kind, "
        "operation_json, source, created_at, updated_at) "
        "VALUES ('op', 'lost', 'memory', '{}', 'cli', '', '')",
    )
    database = LocalDatabase(tmp_path)
    assert database.problems() == ["local_draft_operations row 1 has no local_drafts"]
    database.close()
