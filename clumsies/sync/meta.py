"""Facts of synchronization in `daemon_meta`, read and written within a transaction."""

from __future__ import annotations

import apsw

from clumsies.storage.database import first_row


def read_meta(connection: apsw.Connection, key: str) -> str | None:
    """The fact with this key; None where there is none."""
    row = first_row(connection, "SELECT value FROM daemon_meta WHERE key = ?", (key,))
    return None if row is None else str(row[0])


def write_meta(connection: apsw.Connection, key: str, value: str | None) -> None:
    """Keep the fact; None forgets it."""
    if value is None:
        connection.execute("DELETE FROM daemon_meta WHERE key = ?", (key,))
    else:
        connection.execute("INSERT OR REPLACE INTO daemon_meta VALUES (?, ?)", (key, value))
