"""Vector search over the live rows of one index, as immutable snapshots.

Invariants: a snapshot answers for exactly the rows of its moment, whatever the writer does later;
every score is the exact float32 cosine of a live row; the order is score descending, then row id
ascending. An HNSW graph may stand in for the scan of older rows of a large index: it can miss a
row, never invent one, because each hit is looked up among the snapshot's live rows and rescored.

Row ids are positive int64, handed out in increasing order and never reused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from clumsies.engine.exact_scan import (
    Float32,
    Int64,
    best_first,
    candidate_positions,
    checked_query,
    checked_vectors,
    cosines,
)
from clumsies.engine.live_rows import LiveRows

if TYPE_CHECKING:  # usearch costs about 50 ms to import, and most indexes never need it
    from clumsies.engine.hnsw_graph import HnswGraph

ANN_THRESHOLD = 50_000  # live rows from which a graph is kept
GRAPH_STEP_ROWS = 64  # rows inserted by one `tend_graph`: some tens of milliseconds
EXPANSION_SEARCH = 512  # recall@60 on 57k real vectors: .984 at 256, .991 at 384, .994 at 512
_OVERSAMPLE = 2  # the graph's own vectors are half precision: leave the cut to the rescoring
_SCAN_SHARE = 8  # a tail, or a hit list, of more than 1/8 of the live rows is not worth a detour
_DEAD_SHARE = 4  # a graph of more than 1/4 dead rows is replaced


@dataclass(frozen=True, slots=True, eq=False)
class _Coverage:
    """What a graph held at one moment: `covered` live rows; from `tail_start` on, `tail` lack."""

    graph: HnswGraph
    covered: int
    tail_start: int
    tail: int

    @classmethod
    def of(cls, graph: HnswGraph, rows: LiveRows) -> _Coverage:
        start = int(np.searchsorted(rows.ids, graph.last_row_id, side="right"))
        tail = int(np.count_nonzero(rows.alive[start:]))
        return cls(graph, rows.live - tail, start, tail)

    @property
    def worn(self) -> bool:
        """Whether dead rows dilute the graph enough to make a new one worth its price."""
        return (len(self.graph) - self.covered) * _DEAD_SHARE > len(self.graph)


@dataclass(frozen=True, slots=True, eq=False)
class VectorSnapshot:
    """The live rows at one moment. Any number of threads may read one snapshot."""

    _rows: LiveRows
    _coverage: _Coverage | None

    def __len__(self) -> int:
        return self._rows.live

    @property
    def dimensions(self) -> int:
        return int(self._rows.matrix.shape[1])

    @property
    def row_ids(self) -> Int64:
        """The live rows' ids, int64 (n,), ascending; a copy."""
        return self._rows.ids[self._rows.alive]

    @property
    def approximate(self) -> bool:
        """Whether a search with a small limit goes through the graph instead of a full scan."""
        return self._coverage is not None and self._coverage.tail * _SCAN_SHARE <= self._rows.live

    def search(self, query: Float32, limit: int) -> tuple[Int64, Float32]:
        """The `min(limit, len(self))` nearest rows as (ids int64, cosines float32), best first.

        `query` is a float32 unit vector (d,). Raises ModelFailed("search_vector_corrupt") where it
        is not, ValueError for a negative limit.
        """
        if limit < 0:
            raise ValueError("limit must not be negative")
        checked = checked_query(query, self.dimensions)
        limit = min(limit, self._rows.live)
        positions = self._from_graph(checked, limit)
        if positions is None:
            rows = self._rows
            positions = candidate_positions(rows.matrix, rows.alive, checked, limit)
        scores = cosines(self._rows.matrix[positions], checked)
        return best_first(self._rows.ids[positions], scores, limit)

    def scores(self, query: Float32, row_ids: Int64) -> Float32:
        """Cosines of the given rows, in their order, the same floats that `search` gives.

        Raises KeyError for an id that is not live here, and as `search` for a bad query.
        """
        checked = checked_query(query, self.dimensions)
        positions, live = self._rows.positions(row_ids)
        if not live.all():
            raise KeyError(int(row_ids[~live][0]))
        return cosines(self._rows.matrix[positions], checked)

    def _from_graph(self, query: Float32, limit: int) -> Int64 | None:
        """Candidate positions by graph and tail scan; None where the full scan has to answer."""
        coverage, rows = self._coverage, self._rows
        if coverage is None or not self.approximate:
            return None
        # Dead rows, and rows newer than this snapshot, dilute the answer: ask for more by as much.
        dilution = len(coverage.graph) / max(1, coverage.covered)
        wanted = int(limit * _OVERSAMPLE * dilution)
        if wanted * _SCAN_SHARE > rows.live:
            return None
        hits = coverage.graph.nearest(query, wanted, int(EXPANSION_SEARCH * dilution))
        found, live = rows.positions(hits)
        nearest = np.unique(found[live & (found < coverage.tail_start)])
        if len(nearest) < min(limit, coverage.covered):
            return None  # for example, many dead versions of one text right beside the query
        start = coverage.tail_start
        tail = candidate_positions(
            rows.matrix[start:], rows.alive[start:], query, min(limit, coverage.tail)
        )
        return np.concatenate([nearest, tail + start])


class VectorIndex:
    """The single writer of one index's vectors; `snapshot` may be read by any thread.

    `load` once, then `apply` per index sequence. Neither builds a graph: call `tend_graph` when
    there is time, until it returns False. Without it every search is a scan: slower, never worse.
    """

    def __init__(self, dimensions: int, ann_threshold: int = ANN_THRESHOLD):
        if dimensions < 1 or ann_threshold < 1:
            raise ValueError("dimensions and ann_threshold must be positive")
        self._dimensions = dimensions
        self._ann_threshold = ann_threshold
        self._graph: HnswGraph | None = None  # in service
        self._next_graph: HnswGraph | None = None  # being filled; replaces it once it caught up
        self._snapshot = VectorSnapshot(LiveRows.empty(dimensions), None)

    @property
    def snapshot(self) -> VectorSnapshot:
        """The newest rows."""
        return self._snapshot

    @property
    def graph(self) -> HnswGraph | None:
        """The graph in service, to be saved; None below the threshold or before it is built."""
        return self._graph

    def load(
        self, row_ids: Int64, vectors: Float32, graph: HnswGraph | None = None
    ) -> VectorSnapshot:
        """Replace everything by these rows, ids (n,) strictly increasing, vectors (n, d).

        `graph` is one saved at this or an earlier sequence of the same index; one that lacks a row
        it should have is left aside, and `tend_graph` builds another. Raises as `apply`.
        """
        checked = self._checked(row_ids, vectors)
        rows = LiveRows.empty(self._dimensions, len(row_ids)).appended(row_ids, checked)
        self._graph = self._next_graph = None
        if graph is not None and self._fits(graph, rows):
            self._graph = graph
            # Its last rows may be gone from the index; their ids do not come back either.
            rows = replace(rows, last_row_id=max(rows.last_row_id, graph.last_row_id))
        return self._publish(rows)

    def apply(self, added_ids: Int64, added_vectors: Float32, removed_ids: Int64) -> VectorSnapshot:
        """One sequence's change: some rows removed, others added; returns the new snapshot.

        Raises, with nothing changed: ModelFailed("search_vector_corrupt") for a vector that is not
        a finite unit vector of this dimension; IndexFailed("search_index_corrupt") for an added id
        that is not above every earlier one or a removed id that is not live.
        """
        checked = self._checked(added_ids, added_vectors)
        rows = self._snapshot._rows.without(removed_ids)
        return self._publish(rows.appended(added_ids, checked))

    def tend_graph(self, rows: int = GRAPH_STEP_ROWS) -> bool:
        """Bring the graph nearer to the live rows by at most `rows` insertions; True: call again.

        Builds it at the threshold, extends it, replaces it where over a quarter of it is dead and
        drops it below half the threshold. Searches go on meanwhile, the old graph in service.
        """
        graph = self._graph_to_fill()
        held = self._snapshot._rows
        if graph is None:
            self._publish(held)
            return False
        start = int(np.searchsorted(held.ids, graph.last_row_id, side="right"))
        missing = np.flatnonzero(held.alive[start:]) + start
        step = missing[:rows]
        self._extend(graph, held.ids[step], held.matrix[step])
        more = len(missing) > len(step)
        if graph is self._next_graph and not more:
            self._graph, self._next_graph = graph, None
        self._publish(held)
        return more or self.wants_graph

    def _extend(self, graph: HnswGraph, row_ids: Int64, vectors: Float32) -> None:
        """Insert rows; a graph that took in some of them only (memory ran out) is given up."""
        complete = False
        try:
            graph.add(row_ids, vectors)
            complete = True
        finally:
            if not complete:
                self._graph = self._next_graph = None
                self._publish(self._snapshot._rows)

    def _graph_to_fill(self) -> HnswGraph | None:
        if len(self._snapshot) < self._ann_threshold // 2:
            self._graph = self._next_graph = None
        elif self._next_graph is None and self.wants_graph:
            from clumsies.engine.hnsw_graph import HnswGraph

            self._next_graph = HnswGraph(self._dimensions)
        return self._graph if self._next_graph is None else self._next_graph

    @property
    def wants_graph(self) -> bool:
        """Whether there should be a graph and is none, or the one in service is worn."""
        coverage = self._snapshot._coverage
        if coverage is None:
            return len(self._snapshot) >= self._ann_threshold
        return coverage.worn

    def _publish(self, rows: LiveRows) -> VectorSnapshot:
        coverage = None if self._graph is None else _Coverage.of(self._graph, rows)
        self._snapshot = VectorSnapshot(rows, coverage)
        return self._snapshot

    def _checked(self, row_ids: Int64, vectors: Float32) -> Float32:
        if len(row_ids) != len(vectors):
            raise ValueError(f"{len(row_ids)} row ids and {len(vectors)} vectors do not match")
        return checked_vectors(vectors, self._dimensions)

    def _fits(self, graph: HnswGraph, rows: LiveRows) -> bool:
        """Whether `graph` has every live row up to its last one, and vectors of this dimension."""
        if graph.dimensions != self._dimensions:
            return False
        expected = rows.ids[rows.ids <= graph.last_row_id]
        return bool(np.isin(expected, graph.row_ids(), assume_unique=True).all())
