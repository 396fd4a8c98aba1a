"""Token vectors of recently ranked units, in memory, within a bound."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from clumsies.models.encoder import TokenVectors

DEFAULT_BYTES = 64 * 1024 * 1024


class TokenVectorCache:
    """Least recently used out. Keys are unit rows, which are never reused, so nothing goes stale
    but by a lapse of the whole index: `clear` then. Thread-safe."""

    def __init__(self, limit_bytes: int = DEFAULT_BYTES):
        self._limit = limit_bytes
        self._bytes = 0
        self._entries: OrderedDict[int, TokenVectors] = OrderedDict()
        self._mutex = threading.Lock()

    @property
    def size_bytes(self) -> int:
        return self._bytes

    def get(self, rows: Iterable[int]) -> dict[int, TokenVectors]:
        """What is kept of `rows`."""
        found: dict[int, TokenVectors] = {}
        with self._mutex:
            for row in rows:
                entry = self._entries.get(row)
                if entry is not None:
                    self._entries.move_to_end(row)
                    found[row] = entry
        return found

    def put(self, entries: Mapping[int, TokenVectors]) -> None:
        """Keep these, and drop the least recently used beyond the bound."""
        with self._mutex:
            for row, entry in entries.items():
                previous = self._entries.pop(row, None)
                if previous is not None:
                    self._bytes -= previous.size_bytes
                self._entries[row] = entry
                self._bytes += entry.size_bytes
            while self._bytes > self._limit and self._entries:
                _, dropped = self._entries.popitem(last=False)
                self._bytes -= dropped.size_bytes

    def clear(self) -> None:
        with self._mutex:
            self._entries.clear()
            self._bytes = 0
