"""An HNSW graph over row ids: proposes likely neighbours, decides nothing.

The only module that may import usearch: see the import below. Faults of the library are kept out
by construction: rows are never removed (a removed key that comes back has been mixed up with
another), a key is added once, at most `len(graph)` neighbours are asked for, and distances never
leave this module; callers rescore every hit from their own vectors and drop ids they do not know.

Graph: Malkov and Yashunin, 2018 (connectivity = M, expansion = efConstruction and efSearch).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from clumsies.models import sessions as _onnxruntime_first  # noqa: F401

# isort: split
# usearch links a C++ runtime of its own and exports its process-wide symbols (locale facets among
# them). Where it is loaded first, ONNX Runtime's import crashes inside std::codecvt (seen with
# usearch 2.26.6 and onnxruntime 1.32.0 on Linux); loaded second, it works. Hence the import above.
from usearch import __version__ as usearch_version
from usearch.compiled import MetricKind, ScalarKind
from usearch.index import Index

CONNECTIVITY = 16
EXPANSION_ADD = 128
SCALAR_KIND = "f16"  # the recall of f32 once rescored, at 56 % of its memory
LIBRARY = f"usearch {usearch_version}"

# One insertion of 384 dimensions costs under a millisecond; a reader waits for one batch at most.
_ADD_BATCH_ROWS = 16
_SCALAR_KINDS = {"f32": ScalarKind.F32, "f16": ScalarKind.F16, "bf16": ScalarKind.BF16}


class _TurnLock:
    """A lock that alternates: whoever waits gets in before the last holder can come again.

    usearch gives up the GIL while all callers share its first scratch context, so every call into
    one graph is exclusive. With a plain lock the batches of a long insertion could starve readers.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._held = threading.Lock()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._turn:
            self._held.acquire()
        try:
            yield
        finally:
            self._held.release()


class HnswGraph:
    """Neighbour lists over the rows added so far; searching while another thread adds is safe."""

    def __init__(self, dimensions: int, scalar_kind: str = SCALAR_KIND):
        self.dimensions = dimensions
        self.scalar_kind = scalar_kind
        self.last_row_id = 0
        self._exclusive = _TurnLock()
        self._index = Index(
            ndim=dimensions,
            metric=MetricKind.IP,
            dtype=_SCALAR_KINDS[scalar_kind],
            connectivity=CONNECTIVITY,
            expansion_add=EXPANSION_ADD,
        )

    def __len__(self) -> int:
        """Rows ever added: live and dead ones."""
        return len(self._index)

    def add(self, row_ids: NDArray[np.int64], vectors: NDArray[np.float32]) -> None:
        """Insert rows, ids strictly increasing and above `last_row_id`, vectors (n, d) of norm 1.

        Raises ValueError for ids out of order: a key that is added twice would be ambiguous.
        """
        if len(row_ids) == 0:
            return
        if row_ids[0] <= self.last_row_id or (np.diff(row_ids) <= 0).any():
            raise ValueError("row ids must be strictly increasing and new to the graph")
        keys = row_ids.astype(np.uint64)
        for start in range(0, len(keys), _ADD_BATCH_ROWS):
            batch = slice(start, start + _ADD_BATCH_ROWS)
            with self._exclusive():
                self._index.add(keys[batch], vectors[batch], copy=True, threads=1)
                self.last_row_id = int(keys[batch][-1])

    def nearest(self, query: NDArray[np.float32], limit: int, expansion: int) -> NDArray[np.int64]:
        """Row ids, likely nearest first, of at most `limit` rows; dead rows are among them.

        `expansion` is the length of the search's candidate list: more is slower and misses less.
        """
        with self._exclusive():
            wanted = min(limit, len(self._index))
            if wanted <= 0:
                return np.empty(0, dtype=np.int64)
            # The library's setter stands apart from its property, which mypy does not see.
            self._index.expansion_search = max(expansion, wanted)  # type: ignore[misc]
            matches = self._index.search(query, wanted, threads=1)
            return np.asarray(matches.keys).astype(np.int64)

    def row_ids(self) -> NDArray[np.int64]:
        """Every row id of the graph, ascending."""
        with self._exclusive():
            keys = np.asarray(self._index.keys[: len(self._index)])
        return np.sort(keys.astype(np.int64))

    def to_bytes(self) -> tuple[bytes | bytearray, int, int]:
        """The library's serialised form, the number of rows and the last row id, of one moment."""
        with self._exclusive():
            payload = self._index.save()
            assert payload is not None
            return payload, len(self._index), self.last_row_id

    @classmethod
    def from_bytes(
        cls, payload: bytes | memoryview, dimensions: int, scalar_kind: str
    ) -> HnswGraph:
        """The graph of `to_bytes`; the payload must have been verified, the library does not.

        Raises ValueError where the library refuses it or it holds other kinds of vectors.
        """
        graph = cls(dimensions, scalar_kind)
        try:
            graph._index.load(payload)
        except (RuntimeError, ValueError) as error:
            raise ValueError(f"usearch refuses the graph: {error}") from error
        index = graph._index
        if (index.ndim, index.dtype, index.metric_kind) != (
            dimensions,
            _SCALAR_KINDS[scalar_kind],
            MetricKind.IP,
        ):
            raise ValueError("the graph holds vectors of another kind")
        if len(index):
            graph.last_row_id = int(graph.row_ids()[-1])
        return graph
