"""The share of a query's term weight that stands in each candidate, for calibration.

The engine's relevance rests on it, but its trace holds only the relevance. It is computed again
here by the engine's own functions, over the index that answered; the caller keeps that unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clumsies.engine.index import DATABASE_NAME, IndexStore
from clumsies.engine.lexical import coverage, read_query
from clumsies.engine.trace import Candidate, Trace

Floats = NDArray[np.float64]


class TermCoverage:
    """Reads one index; safe for several threads. Make it with `term_coverage`."""

    def __init__(self, store: IndexStore | None):
        self._store = store

    def of(self, trace: Trace) -> Floats:
        """float64 (candidates,), NaN where the engine gave no relevance, or there is no index."""
        shares = np.full(len(trace.candidates), np.nan)
        if self._store is None:
            return shares
        with self._store.reader() as connection:
            terms = read_query(connection, trace.query, trace.unit_count)
        for at, candidate in enumerate(trace.candidates):
            if candidate.relevance is not None:
                exact = candidate.identity == "equal"
                shares[at] = 1.0 if exact else coverage(terms, _texts(candidate))
        return shares


@contextmanager
def term_coverage(directory: Path) -> Iterator[TermCoverage]:
    """The coverage over the index in `directory`; of nothing where there is none."""
    if not (directory / DATABASE_NAME).is_file():
        yield TermCoverage(None)
        return
    store = IndexStore(directory)
    try:
        yield TermCoverage(store)
    finally:
        store.close()


def _texts(candidate: Candidate) -> list[str]:
    return [candidate.path, *candidate.heading_path, candidate.text]
