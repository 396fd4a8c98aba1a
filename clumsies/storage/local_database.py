"""`local.db`: the daemon's durable state, the one thing here that must never be lost.

Everything acknowledged was committed with `synchronous=FULL`. One connection writes, under a lock
and in IMMEDIATE transactions; readers have their own and see one snapshot each. A damaged file, a
newer schema and another program's database are refused and left exactly as they are.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import apsw

from clumsies.errors import ClumsiesError, IndexFailed, IoFailed, StoreFailed
from clumsies.files import (
    FILE_MODE,
    ensure_private_directory,
    io_failed,
    sync_directory,
    temporary_sibling,
)
from clumsies.storage.database import (
    BUSY_TIMEOUT_MS,
    connect,
    first_row,
    only_row,
    transaction,
)
from clumsies.storage.migrations import APPLICATION_ID, MIGRATIONS, Migration
from clumsies.storage.timestamps import row_time

DATABASE_NAME = "local.db"
BACKUP_FOLDER = "backups"
IDLE_READERS = 5
"""Reading connections that are kept open; a burst opens more and closes them again."""
INSTALLATION_KEY = "daemon_installation_id"


class LocalDatabase:
    """The central database in a data directory; any thread may use it."""

    def __init__(
        self,
        directory: Path,
        *,
        migrations: Sequence[Migration] = MIGRATIONS,
        clock_ns: Callable[[], int] = time.time_ns,
    ):
        """Open it, making it where it is not there, and bring its schema up to date.

        Raises StoreFailed("local_db_error") for a file that is damaged, foreign or newer, naming
        it and the newest backup, and IoFailed where the file system refuses.
        """
        self.directory = ensure_private_directory(directory)
        self.path = directory / DATABASE_NAME
        self._migrations = migrations
        self._clock_ns = clock_ns
        self._writer_mutex = threading.Lock()
        self._idle: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        self._closed = False
        try:
            with self._mapped():
                self._open()
        except OSError as error:
            raise io_failed(error, "open", self.path) from error

    def _open(self) -> None:
        self._harden()
        self._writer = self._connect()
        try:
            self._check_and_migrate()
            self._harden()
            self.installation_id = self._installation_id()
        except BaseException:
            self._writer.close()
            raise

    @property
    def schema_version(self) -> int:
        """The number of the newest migration, which the open file has."""
        return self._migrations[-1].version

    def _harden(self) -> None:
        """Owner-only modes, also for a file that was copied here with others."""
        for suffix in ("", "-wal", "-shm"):
            place = self.path.with_name(DATABASE_NAME + suffix)
            with suppress(FileNotFoundError):
                place.chmod(FILE_MODE)

    def _connect(self) -> apsw.Connection:
        connection = connect(self.path, synchronous="FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone stops at the drive's cache
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        return connection

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """Turn what SQLite and the file system say into our errors, naming the file."""
        try:
            yield
        except IndexFailed as error:  # connect() speaks of derived databases, which this is not
            cause = error.__cause__
            raise self._failure(cause if isinstance(cause, apsw.Error) else apsw.Error()) from error
        except apsw.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: apsw.Error) -> ClumsiesError:
        if isinstance(error, apsw.CorruptError | apsw.NotADBError):
            return self._damaged()
        if isinstance(error, apsw.FullError):
            return IoFailed(
                "insufficient_space",
                f"No space left to write {self.path}; nothing was acknowledged. "
                "Free some and try again.",
            )
        if isinstance(error, apsw.CantOpenError | apsw.PermissionsError | apsw.ReadOnlyError):
            return IoFailed(
                "permission_required",
                f"Cannot open or write {self.path}; check the owner and mode of it and its folder.",
            )
        if isinstance(error, apsw.BusyError):
            return self._refused(
                f"{self.path} stayed locked by another program for {BUSY_TIMEOUT_MS // 1000} s; "
                "end that program and try again."
            )
        return self._refused(
            f"{self.path} could not be read or written ({type(error).__name__}); "
            "nothing was acknowledged. Run `clumsies doctor`."
        )

    def _refused(self, message: str) -> StoreFailed:
        return StoreFailed("local_db_error", message, {"path": str(self.path)})

    def _damaged(self) -> StoreFailed:
        backup = self.newest_backup()
        return StoreFailed(
            "local_db_error",
            f"{self.path} is damaged or is not a database. It was left as it is: move it away, and "
            + (
                f"put a copy of {backup} in its place."
                if backup
                else "there is no backup; keep the file, what is readable in it can be recovered."
            ),
            {"path": str(self.path), "backup": str(backup) if backup else None},
        )

    def newest_backup(self) -> Path | None:
        """The latest copy that was made before a migration."""
        found = sorted((self.directory / BACKUP_FOLDER).glob("local-*.db"))
        return found[-1] if found else None

    def _check_and_migrate(self) -> None:
        (tables,) = only_row(self._writer, "SELECT count(*) FROM sqlite_schema")
        if tables:
            problems = self._problems(self._writer)
            if problems:
                raise self._damaged()
        version = self._version()
        newest = self.schema_version
        if tables and (self._application() != APPLICATION_ID or version < 1):
            raise self._refused(
                f"{self.path} belongs to another program; move it away, or set CLUMSIES_HOME."
            )
        if version > newest:
            raise self._refused(
                f"{self.path} was written by a newer clumsies (schema {version}, this one knows "
                f"{newest}); it was left as it is. Update clumsies."
            )
        for migration in self._migrations:
            if migration.version > version:
                self._migrate(migration, backed_up=bool(tables))

    @staticmethod
    def _problems(connection: apsw.Connection) -> list[str]:
        rows = connection.execute("PRAGMA quick_check(10)").fetchall()
        return [str(row[0]) for row in rows if row[0] != "ok"]

    def _version(self) -> int:
        return int(only_row(self._writer, "PRAGMA user_version")[0])

    def _application(self) -> int:
        return int(only_row(self._writer, "PRAGMA application_id")[0])

    def _migrate(self, migration: Migration, backed_up: bool) -> None:
        if backed_up:
            self.back_up()
        with transaction(self._writer, "IMMEDIATE"):
            if self._version() >= migration.version:  # another process was faster
                return
            self._writer.execute(migration.sql)
            self._writer.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._writer.execute(f"PRAGMA user_version = {migration.version}")

    def back_up(self) -> Path:
        """A whole copy of the database as it stands, 0600, in `backups/`; older ones stay."""
        folder = ensure_private_directory(self.directory / BACKUP_FOLDER)
        stamp = row_time(self._clock_ns()).translate({ord(c): None for c in "-:."})
        target = folder / f"local-{stamp}-v{self._version():04d}.db"
        temporary = temporary_sibling(target)
        try:
            temporary.touch(FILE_MODE, exist_ok=False)
            copy = apsw.Connection(str(temporary))
            try:
                with (
                    self._writer_mutex,
                    copy.backup("main", self._writer, "main") as running,
                ):
                    while not running.done:
                        running.step(1_000)
                copy.execute("PRAGMA journal_mode = DELETE")
            finally:
                copy.close()
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
            temporary.rename(target)
            sync_directory(folder)
        finally:
            temporary.unlink(missing_ok=True)
        return target

    def _installation_id(self) -> str:
        with transaction(self._writer, "IMMEDIATE"):
            self._writer.execute(
                "INSERT OR IGNORE INTO daemon_meta VALUES (?, ?)",
                (INSTALLATION_KEY, f"daemon_{secrets.token_hex(16)}"),
            )
            (value,) = only_row(
                self._writer, "SELECT value FROM daemon_meta WHERE key = ?", (INSTALLATION_KEY,)
            )
        return str(value)

    @contextmanager
    def reader(self) -> Iterator[apsw.Connection]:
        """A connection inside one read transaction: everything read is of one moment."""
        self._require_open()
        with self._mapped():
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                connection = self._connect()
                connection.execute("PRAGMA query_only = ON")
            try:
                with transaction(connection, "DEFERRED"):
                    yield connection
            finally:
                if self._closed or self._idle.qsize() >= IDLE_READERS:
                    connection.close()
                else:
                    self._idle.put(connection)

    @contextmanager
    def writer(self) -> Iterator[apsw.Connection]:
        """The writing connection inside one IMMEDIATE transaction; one thread at a time.

        When the block has ended without an error, what it wrote is on the disk.
        """
        self._require_open()
        with self._writer_mutex, self._mapped():
            self._require_open()
            try:
                with transaction(self._writer, "IMMEDIATE"):
                    yield self._writer
            finally:
                if self._writer.in_transaction:  # a COMMIT that failed leaves it open
                    self._writer.execute("ROLLBACK")

    def _require_open(self) -> None:
        if self._closed:
            raise RuntimeError("the local database is closed")

    def meta(self, key: str) -> str | None:
        """A fact of this installation, or None."""
        with self.reader() as connection:
            row = first_row(connection, "SELECT value FROM daemon_meta WHERE key = ?", (key,))
        return None if row is None else str(row[0])

    def set_meta(self, key: str, value: str | None) -> None:
        """Keep a fact of this installation, or forget it."""
        with self.writer() as connection:
            if value is None:
                connection.execute("DELETE FROM daemon_meta WHERE key = ?", (key,))
            else:
                connection.execute("INSERT OR REPLACE INTO daemon_meta VALUES (?, ?)", (key, value))

    def problems(self) -> list[str]:
        """What SQLite's quick check and the foreign keys say; empty for a sound database."""
        try:
            with self.reader() as connection:
                found = self._problems(connection)
                broken = connection.execute("PRAGMA foreign_key_check").fetchall()
        except ClumsiesError as error:
            return [error.message]
        return found + [f"{row[0]} row {row[1]} has no {row[2]}" for row in broken]

    def close(self) -> None:
        """Fold the write-ahead log into the file and close; calls must have returned."""
        with self._writer_mutex:
            if self._closed:
                return
            self._closed = True
            while True:
                try:
                    self._idle.get_nowait().close()
                except queue.Empty:
                    break
            self._writer.close()
