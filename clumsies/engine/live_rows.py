"""The rows of one moment as arrays, and the next moment made from them by copy-on-write.

Invariant: nothing that an earlier moment can see is written again. New rows go behind the end of
every earlier view, into spare capacity; a removal makes a new mask; growth and compaction make new
buffers. A change therefore costs its own size, one mask of a byte a row where rows are removed,
and now and then a copy of the matrix that earlier changes have paid for.

One chain of moments only: of two successors of one value, the earlier made must be thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clumsies.engine.exact_scan import Bool, Float32, Int64
from clumsies.errors import IndexFailed

_MIN_CAPACITY = 256
_SPARE_SHARE = 4  # a full buffer grows by 1/4
_DEAD_SHARE = 4  # more than 1/4 dead rows are compacted away


@dataclass(frozen=True, slots=True, eq=False)
class LiveRows:
    """Rows by position: ids int64 (n,) ascending, matrix float32 (n, d), alive bool (n,).

    `live` counts the alive ones; `last_row_id` is the highest id ever, even of a row that is gone.
    The arrays are read-only views into the `_buffers` of the same three, of (capacity,) rows.
    """

    ids: Int64
    matrix: Float32
    alive: Bool
    live: int
    last_row_id: int
    _buffers: tuple[Int64, Float32, Bool]

    @classmethod
    def empty(cls, dimensions: int, capacity: int = 0) -> LiveRows:
        """No rows, with room for `capacity` and a quarter more."""
        size = max(_MIN_CAPACITY, capacity + capacity // _SPARE_SHARE)
        buffers = (
            np.empty(size, dtype=np.int64),
            np.empty((size, dimensions), dtype=np.float32),
            np.empty(size, dtype=np.bool_),
        )
        return _view(buffers, count=0, live=0, last_row_id=0)

    def positions(self, row_ids: Int64) -> tuple[Int64, Bool]:
        """Position of each id, and whether a live row stands there; else the position is void."""
        found = np.searchsorted(self.ids, row_ids).astype(np.int64, copy=False)
        live = found < len(self.ids)
        found[~live] = 0
        if len(self.ids):
            live &= (self.ids[found] == row_ids) & self.alive[found]
        return found, live

    def appended(self, row_ids: Int64, vectors: Float32) -> LiveRows:
        """These rows and the given ones, whose ids ascend from above `last_row_id`.

        Raises IndexFailed("search_index_corrupt") where they do not.
        """
        _check_ascending(row_ids, after=self.last_row_id)
        if len(row_ids) == 0:
            return self
        count = len(self.ids) + len(row_ids)
        if count > len(self._buffers[0]):
            roomy = self.compacted(spare=len(row_ids))
            return roomy.appended(row_ids, vectors)
        new = slice(len(self.ids), count)
        ids, matrix, alive = self._buffers
        ids[new], matrix[new], alive[new] = row_ids, vectors, True
        return _view(self._buffers, count, self.live + len(row_ids), int(row_ids[-1]))

    def without(self, row_ids: Int64) -> LiveRows:
        """These rows except the given ones, compacted where more than a quarter is dead.

        Raises IndexFailed("search_index_corrupt") for an id that is not live.
        """
        if len(row_ids) == 0:
            return self
        positions, live = self.positions(row_ids)
        if not live.all():
            raise IndexFailed(
                "search_index_corrupt",
                f"Row {int(row_ids[~live][0])} was to be removed from the vectors and is not "
                "there. Rebuild the search index.",
            )
        ids, matrix, old_alive = self._buffers
        alive = np.empty_like(old_alive)
        count = len(self.ids)
        alive[:count] = self.alive
        alive[positions] = False
        left = int(np.count_nonzero(alive[:count]))
        rows = _view((ids, matrix, alive), count, left, self.last_row_id)
        return rows.compacted() if (count - left) * _DEAD_SHARE > count else rows

    def compacted(self, spare: int = 0) -> LiveRows:
        """The live rows alone, in new buffers with room for `spare` more and a quarter on top."""
        keep = np.flatnonzero(self.alive)
        fresh = LiveRows.empty(self.matrix.shape[1], len(keep) + spare)
        ids, matrix, alive = fresh._buffers
        ids[: len(keep)] = self.ids[keep]
        np.take(self.matrix, keep, axis=0, out=matrix[: len(keep)])
        alive[: len(keep)] = True
        return _view(fresh._buffers, len(keep), len(keep), self.last_row_id)


def _check_ascending(row_ids: Int64, after: int) -> None:
    if row_ids.dtype != np.int64 or row_ids.ndim != 1:
        raise TypeError("row ids must be a one-dimensional int64 array")
    if len(row_ids) and (row_ids[0] <= after or (row_ids[1:] <= row_ids[:-1]).any()):
        raise IndexFailed(
            "search_index_corrupt",
            "Vector row ids are not strictly increasing. Rebuild the search index.",
        )


def _view(
    buffers: tuple[Int64, Float32, Bool], count: int, live: int, last_row_id: int
) -> LiveRows:
    ids, matrix, alive = buffers[0][:count], buffers[1][:count], buffers[2][:count]
    ids.flags.writeable = matrix.flags.writeable = alive.flags.writeable = False
    return LiveRows(ids, matrix, alive, live, last_row_id, buffers)
