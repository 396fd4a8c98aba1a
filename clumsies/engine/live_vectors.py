"""The vectors of the live revision, kept beside the database that they are derived from.

`at` gives the vectors of exactly the revision that a reader's transaction sees. The graph file is
written when a graph is complete and read when an index is opened; see `ann_file` for when it is
trusted.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict

import apsw
import numpy as np

from clumsies.engine.ann_file import GraphStamp, load_graph, save_graph
from clumsies.engine.commit import VectorChange
from clumsies.engine.exact_scan import Float32, Int64
from clumsies.engine.index import Head, IndexStore, read_head
from clumsies.engine.reading import read_unit_rowids, read_vectors
from clumsies.engine.vectors import VectorIndex, VectorSnapshot
from clumsies.errors import ClumsiesError

_log = logging.getLogger(__name__)

GRAPH_NAME = "vectors.graph"
_SNAPSHOTS_KEPT = 8
"""Revisions whose vectors stay at hand for readers that began before the latest commit."""


class Superseded(Exception):
    """The reader's revision is older than every snapshot kept; it must begin again."""


class LiveVectors:
    """Thread-safe. One instance a store and process."""

    def __init__(
        self, store: IndexStore, dimensions: int, embedding_revision: str, ann_threshold: int
    ):
        self._store = store
        self._dimensions = dimensions
        self._embedding_revision = embedding_revision
        self._index = VectorIndex(dimensions, ann_threshold)
        self._mutex = threading.Lock()
        self._snapshots: OrderedDict[int, VectorSnapshot] = OrderedDict()
        self._sequence: int | None = None
        self._last_rowid = 0
        self._saved_sequence = -1

    def at(self, connection: apsw.Connection, head: Head) -> VectorSnapshot:
        """The vectors of `head`, the revision that the connection's transaction sees.

        Raises Superseded where that revision is no longer kept.
        """
        with self._mutex:
            kept = self._snapshots.get(head.sequence)
            if kept is not None:
                return kept
            if self._sequence is None:
                return self._load(connection, head)
            if head.sequence < self._sequence:
                raise Superseded
            return self._catch_up(connection, head)

    @property
    def wants_graph(self) -> bool:
        """Whether a graph is lacking, or worn, so that `tend` has one to build."""
        return self._index.wants_graph

    def follow(self, change: VectorChange) -> None:
        """Take over a commit of this process without reading it back."""
        with self._mutex:
            if self._sequence is None or self._sequence >= change.head.sequence:
                return
            if self._sequence != change.previous_sequence:
                return  # another process committed in between: `at` catches up from the database
            vectors = (
                np.stack(change.added_vectors)
                if change.added_vectors
                else np.empty((0, self._dimensions), dtype=np.float32)
            )
            self._apply(
                change.head.sequence,
                np.asarray(change.added_ids, dtype=np.int64),
                vectors,
                np.asarray(change.removed_ids, dtype=np.int64),
            )

    def forget(self) -> None:
        """Drop everything in memory; the next reader loads it again."""
        with self._mutex:
            self._sequence = None
            self._snapshots.clear()
            self._last_rowid = 0

    def tend(self, stop: threading.Event) -> None:
        """Build or extend the graph until it is complete or `stop` is set, then save it."""
        more = True
        while more and not stop.is_set():
            with self._mutex:
                more = self._sequence is not None and self._index.tend_graph()
                if self._sequence is not None:
                    self._keep(self._sequence, self._index.snapshot)
        if stop.is_set():
            return
        try:
            self._save()
        except ClumsiesError as error:  # the graph serves from memory all the same
            _log.warning("the vector graph was not saved: %s", error.code)

    def _load(self, connection: apsw.Connection, head: Head) -> VectorSnapshot:
        ids, vectors = read_vectors(connection, self._dimensions)
        stamps = {row[0] for row in connection.execute("SELECT stamp FROM lineage")}
        graph = load_graph(
            self._store.directory / GRAPH_NAME,
            index_identity=self._store.identity,
            embedding_revision=self._embedding_revision,
            dimensions=self._dimensions,
            known_tokens=stamps,
        )
        self._index.load(ids, vectors, graph)
        self._sequence = head.sequence
        self._last_rowid = int(ids[-1]) if len(ids) else 0
        return self._keep(head.sequence, self._index.snapshot)

    def _catch_up(self, connection: apsw.Connection, head: Head) -> VectorSnapshot:
        """Follow commits of other processes: rows above the last known one, and rows gone."""
        added_ids, added = read_vectors(connection, self._dimensions, self._last_rowid)
        live = read_unit_rowids(connection)
        removed = np.setdiff1d(self._index.snapshot.row_ids, live, assume_unique=True)
        return self._apply(head.sequence, added_ids, added, removed)

    def _apply(
        self,
        sequence: int,
        added_ids: Int64,
        added: Float32,
        removed: Int64,
    ) -> VectorSnapshot:
        snapshot = self._index.apply(added_ids, added, removed)
        self._sequence = sequence
        if len(added_ids):
            self._last_rowid = int(added_ids[-1])
        return self._keep(sequence, snapshot)

    def _keep(self, sequence: int, snapshot: VectorSnapshot) -> VectorSnapshot:
        self._snapshots[sequence] = snapshot
        while len(self._snapshots) > _SNAPSHOTS_KEPT:
            self._snapshots.popitem(last=False)
        return snapshot

    def _save(self) -> None:
        with self._mutex:
            graph, sequence = self._index.graph, self._sequence
            if graph is None or sequence is None or sequence == self._saved_sequence:
                return
            with self._store.reader() as connection:
                head = read_head(connection)
            if head is None or head.sequence != sequence:
                return  # a newer commit of another process: its graph is saved when caught up
            stamp = GraphStamp(self._store.identity, self._embedding_revision, head.stamp)
            save_graph(self._store.directory / GRAPH_NAME, graph, stamp)
            self._saved_sequence = sequence
