"""How every SQLite database of clumsies is opened: one policy, one place.

Write-ahead log, foreign keys on, a busy wait instead of `database is locked`, and files that only
their owner can read. apsw brings its own SQLite with FTS5, so behaviour does not depend on the
machine's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, cast

import apsw

from clumsies.errors import IndexFailed, IoFailed
from clumsies.files import FILE_MODE, ensure_private_directory

BUSY_TIMEOUT_MS = 5_000
_SWITCH_PAUSE_S = 0.005
Synchronous = Literal["NORMAL", "FULL"]
SqlValue = None | int | float | str | bytes


def connect(path: Path, *, synchronous: Synchronous = "NORMAL") -> apsw.Connection:
    """A connection under the policy; the file is made (0600) where it is not there.

    Raises IndexFailed("search_index_corrupt") for a file that is no database.
    """
    ensure_private_directory(path.parent)
    with mapped_errors(path):
        if not path.exists():
            with suppress(FileExistsError):
                path.touch(FILE_MODE, exist_ok=False)
        connection = apsw.Connection(str(path))
        connection.set_busy_timeout(BUSY_TIMEOUT_MS)
        _use_write_ahead_log(connection)
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def _use_write_ahead_log(connection: apsw.Connection) -> None:
    """Switch the file's journal, which is done once in its life.

    Connections that open a new file at once get in each other's way, and SQLite then says that it
    is locked without the busy wait, lest two wait for each other: so the wait is here.
    """
    end = time.monotonic() + BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except apsw.BusyError:
            if time.monotonic() >= end:
                raise
            time.sleep(_SWITCH_PAUSE_S)


def is_storable(text: str) -> bool:
    """Whether UTF-8 can hold the text; a lone surrogate it cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def mapped_errors(path: Path) -> Iterator[None]:
    """Turn apsw's errors into ours, once, naming the file and what to do."""
    try:
        yield
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise IndexFailed(
            "search_index_corrupt",
            f"{path} is damaged or is not a database; it is derived data: "
            "delete it and index again.",
        ) from error
    except apsw.FullError as error:
        raise IoFailed(
            "insufficient_space", f"No space left to write {path}; free some and run it again."
        ) from error
    except (apsw.CantOpenError, apsw.PermissionsError, apsw.ReadOnlyError, apsw.IOError) as error:
        raise IoFailed(
            "io_error", f"Cannot open or write {path}; check its owner, mode and disk."
        ) from error
    except apsw.BusyError as error:
        raise IndexFailed(
            "search_index_failed",
            f"{path} stayed locked by another program for {BUSY_TIMEOUT_MS // 1000} s; "
            "end that program and run it again.",
        ) from error
    except apsw.Error as error:
        raise IndexFailed(
            "search_index_failed",
            f"SQLite refused an operation on {path} ({type(error).__name__}); "
            "if that repeats, delete the file, which is derived data, and index again.",
        ) from error


def first_row(
    connection: apsw.Connection, sql: str, bindings: Sequence[SqlValue] = ()
) -> tuple[Any, ...] | None:
    """The first row of a query, or None; columns are of the types the schema is STRICT about."""
    return cast("tuple[Any, ...] | None", connection.execute(sql, tuple(bindings)).fetchone())


def only_row(
    connection: apsw.Connection, sql: str, bindings: Sequence[SqlValue] = ()
) -> tuple[Any, ...]:
    """The row of a query that has one by construction."""
    row = first_row(connection, sql, bindings)
    if row is None:
        raise LookupError(sql)
    return row


def all_rows(
    connection: apsw.Connection, sql: str, bindings: Sequence[SqlValue] = ()
) -> list[tuple[Any, ...]]:
    """Every row of a query."""
    return cast("list[tuple[Any, ...]]", connection.execute(sql, tuple(bindings)).fetchall())


@contextmanager
def transaction(
    connection: apsw.Connection, mode: Literal["DEFERRED", "IMMEDIATE"]
) -> Iterator[None]:
    """One transaction: committed at the end of the block, rolled back if it raises."""
    connection.execute(f"BEGIN {mode}")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
