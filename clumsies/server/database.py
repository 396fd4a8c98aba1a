"""The Server's database: SQLite in a file, or PostgreSQL; the same statements for both.

A transaction that writes is a function, so that it can be run again: PostgreSQL may refuse one
because of another that runs beside it. It must therefore do nothing but use its connection.
"""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from clumsies.errors import InvalidRequest, StoreFailed
from clumsies.files import FILE_MODE, ensure_private_directory

BUSY_TIMEOUT_S = 30
POOL_SIZE = 10
MAX_OVERFLOW = 20
ATTEMPTS = 6
_FIRST_PAUSE_S = 0.01
_RETRIED_STATES = frozenset({"40001", "40P01"})
"""PostgreSQL's serialization_failure and deadlock_detected."""
_Result = TypeVar("_Result")


def sqlite_url(path: Path) -> str:
    """The URL of a database file."""
    return URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


class Database:
    """Connections of one process to one database; any thread may use it."""

    def __init__(self, url: str, *, sleep: Callable[[float], None] = time.sleep):
        """`url` is `sqlite:///PATH` or `postgresql://…`; nothing is opened yet.

        Raises InvalidRequest("invalid_config") for any other.
        """
        self._sleep = sleep
        self._engine = _engine(_parsed(url))

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @contextmanager
    def read(self, *, is_one_statement: bool = False) -> Iterator[Connection]:
        """One snapshot of the database; a single statement is one without a transaction."""
        options: dict[str, Any] = {}
        if self.dialect != "sqlite":
            level = "AUTOCOMMIT" if is_one_statement else "REPEATABLE READ"
            options["isolation_level"] = level
        try:
            with _mapped(), self._engine.connect().execution_options(**options) as connection:
                yield connection
                connection.rollback()
        except _Refused as refused:
            raise _busy() from refused.__cause__

    def write(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run `work` in a transaction that is committed when it returns and undone when it raises.

        It is run again where the database refused it for the sake of another transaction.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with (
                    _mapped(),
                    self._engine.connect().execution_options(clumsies_writes=True) as connection,
                    connection.begin(),
                ):
                    return work(connection)
            except _Refused as refused:
                if attempt == ATTEMPTS:
                    raise _busy() from refused.__cause__
            self._sleep(random.uniform(0.5, 1.5) * _FIRST_PAUSE_S * 2**attempt)
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


def _busy() -> StoreFailed:
    return StoreFailed(
        "server_database_failed",
        "The database is busy with other changes; try again in a moment.",
    )


class _Refused(Exception):
    """The transaction was undone; running it again may succeed."""


@contextmanager
def _mapped() -> Iterator[None]:
    """The one seam where the database's errors become ours. They are shown without statements and
    parameters, which hold texts."""
    try:
        yield
    except DBAPIError as error:
        state = getattr(error.orig, "sqlstate", None)
        if state in _RETRIED_STATES or "database is locked" in str(error.orig):
            raise _Refused from error
        what = f" ({state})" if state else ""
        if isinstance(error, OperationalError):
            message = f"The database does not answer{what}; see that it runs and has space left."
        else:
            message = f"The database refused a statement{what}; report it with the request's id."
        raise StoreFailed("server_database_failed", message) from error


def _parsed(url: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise _unusable() from error
    kind = parsed.get_backend_name()
    if kind == "sqlite" and parsed.database and parsed.database != ":memory:":
        return parsed
    if kind in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise _unusable()


def _unusable() -> InvalidRequest:
    return InvalidRequest(
        "invalid_config",
        "The database's URL is not usable; give sqlite:///PATH or postgresql://USER@HOST/NAME.",
    )


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        try:
            return create_engine(
                url, pool_size=POOL_SIZE, max_overflow=MAX_OVERFLOW, pool_pre_ping=True
            )
        except (ModuleNotFoundError, NoSuchModuleError) as error:
            raise InvalidRequest(
                "invalid_config",
                "PostgreSQL needs its driver; run `pip install 'clumsies[server]'`.",
            ) from error
    path = Path(url.database or "").absolute()
    ensure_private_directory(path.parent)
    if not path.exists():
        path.touch(mode=FILE_MODE)
    engine = create_engine(
        url.set(database=str(path)),
        pool_size=POOL_SIZE,
        max_overflow=MAX_OVERFLOW,
        connect_args={"timeout": BUSY_TIMEOUT_S, "isolation_level": None},
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _record: Any) -> None:
    _use_write_ahead_log(connection)
    for pragma in (
        "synchronous = FULL",
        "fullfsync = ON",
        "foreign_keys = ON",
        "trusted_schema = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _use_write_ahead_log(connection: Any) -> None:
    """Switch a new file's journal. Where several connections do that at once SQLite says that it
    is locked without its busy wait, lest two wait for each other: so the wait is here."""
    end = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() >= end:
                raise
            time.sleep(_FIRST_PAUSE_S)


def _begin_sqlite(connection: Connection) -> None:
    """The driver begins nothing itself: a transaction that writes takes its lock at once."""
    writes = connection.get_execution_options().get("clumsies_writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
