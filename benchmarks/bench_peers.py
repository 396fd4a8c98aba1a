"""Peers on the same data in the same run: bm25s, LanceDB's hybrid search, brute force in NumPy.

All search the units of one synthetic index. Ours is measured as the activation calls it, through
SQLite, and gives units, not row numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.conftest import Indexes
from clumsies.engine.analysis import document_terms, query_terms
from clumsies.engine.fusion import reciprocal_rank_fusion
from clumsies.engine.index import IndexStore
from clumsies.engine.lexical import read_query, search_bm25
from clumsies.engine.reading import read_candidates, read_vectors
from clumsies.engine.vectors import VectorIndex, VectorSnapshot
from clumsies.models.sessions import FloatArray
from clumsies.storage.database import all_rows

pytestmark = pytest.mark.filterwarnings("default")  # what peers warn of is not ours to answer

LIMIT = 60
_QUERIES = 16
_PEER_ROUNDS = 32


@dataclass(frozen=True, slots=True)
class Corpus:
    """The units of one index as everyone gets them; `vectors` float32 (n, d)."""

    store: IndexStore
    ids: npt.NDArray[np.int64]
    texts: list[str]
    vectors: FloatArray
    snapshot: VectorSnapshot
    queries: list[str]
    query_vectors: FloatArray


@pytest.fixture(scope="module")
def corpora() -> Iterator[dict[int, Corpus]]:
    held: dict[int, Corpus] = {}
    yield held
    for corpus in held.values():
        corpus.store.close()


@pytest.fixture
def searched(corpora: dict[int, Corpus], indexes: Indexes, units: int) -> Corpus:
    if units not in corpora:
        corpora[units] = _corpus(indexes, units)
    return corpora[units]


def _corpus(indexes: Indexes, units: int) -> Corpus:
    built = indexes.index(units)
    store = IndexStore(built.directory)
    dimensions = indexes.models.profile.dimensions
    with store.reader() as connection:
        ids, vectors = read_vectors(connection, dimensions)
        rows = all_rows(connection, "SELECT text FROM units ORDER BY unit_rowid", ())
    queries = built.memory.queries[:_QUERIES]
    embedded = [indexes.models.embed_query(query).vector for query in queries]
    snapshot = VectorIndex(dimensions, len(ids) + 1).load(ids, vectors)
    texts = [row[0] for row in rows]
    return Corpus(store, ids, texts, vectors, snapshot, queries, np.stack(embedded))


def bench_lexical(benchmark: Any, searched: Corpus) -> None:
    """Our BM25 search of LIMIT units."""
    turn = cycle(searched.queries)

    def work() -> int:
        with searched.store.reader() as connection:
            terms = read_query(connection, next(turn), len(searched.ids))
            return len(search_bm25(connection, terms, LIMIT))

    assert benchmark.pedantic(work, rounds=_PEER_ROUNDS, warmup_rounds=4)


def bench_lexical_bm25s(benchmark: Any, searched: Corpus) -> None:
    """bm25s over the same terms, in memory."""
    peer = pytest.importorskip("bm25s")
    retriever = peer.BM25(method="lucene")
    retriever.index([document_terms(text).split() for text in searched.texts], show_progress=False)
    turn = cycle([query_terms(query) for query in searched.queries])

    def work() -> Any:
        return retriever.retrieve([next(turn)], k=LIMIT, show_progress=False)

    assert benchmark.pedantic(work, rounds=_PEER_ROUNDS, warmup_rounds=4).documents.size


def bench_vectors(benchmark: Any, searched: Corpus) -> None:
    """Our exact scan."""
    turn = cycle(searched.query_vectors)
    ids, _ = benchmark.pedantic(
        lambda: searched.snapshot.search(next(turn), LIMIT), rounds=_PEER_ROUNDS, warmup_rounds=2
    )
    assert len(ids) == LIMIT


def bench_vectors_numpy(benchmark: Any, searched: Corpus) -> None:
    """Matrix times vector, argpartition, sort."""
    turn = cycle(searched.query_vectors)

    def work() -> npt.NDArray[np.int64]:
        scores = searched.vectors @ next(turn)
        best = np.argpartition(-scores, LIMIT)[:LIMIT]
        return searched.ids[best[np.argsort(-scores[best])]]

    found = benchmark.pedantic(work, rounds=_PEER_ROUNDS, warmup_rounds=2)
    assert len(found) == LIMIT


def bench_hybrid(benchmark: Any, searched: Corpus) -> None:
    """Our BM25, vectors, fusion and the candidates' rows, without identity and models."""
    turn = cycle(zip(searched.queries, searched.query_vectors, strict=True))

    def work() -> int:
        query, vector = next(turn)
        with searched.store.reader() as connection:
            terms = read_query(connection, query, len(searched.ids))
            lexical = search_bm25(connection, terms, LIMIT)
            nearest, _ = searched.snapshot.search(vector, LIMIT)
            words = np.array([row[0] for row in lexical], dtype=np.int64)
            fused, _ = reciprocal_rank_fusion([words, nearest])
            return len(read_candidates(connection, fused[:LIMIT].tolist()))

    assert benchmark.pedantic(work, rounds=_PEER_ROUNDS, warmup_rounds=4) == LIMIT


def bench_hybrid_lancedb(benchmark: Any, searched: Corpus, tmp_path: Path) -> None:
    """LanceDB: its full-text index and its exact vector search, fused by its RRF."""
    peer = pytest.importorskip("lancedb")
    from lancedb.index import FTS
    from lancedb.rerankers import RRFReranker

    rows = zip(searched.ids.tolist(), searched.texts, searched.vectors, strict=True)
    table = peer.connect(str(tmp_path)).create_table(
        "units", [{"id": i, "text": text, "vector": vector} for i, text, vector in rows]
    )
    table.create_index("text", config=FTS())
    reranker = RRFReranker()
    turn = cycle(zip(searched.queries, searched.query_vectors, strict=True))

    def work() -> int:
        query, vector = next(turn)
        search = table.search(query_type="hybrid").vector(vector).text(query)
        return int(search.rerank(reranker).limit(LIMIT).to_arrow().num_rows)

    assert benchmark.pedantic(work, rounds=_PEER_ROUNDS, warmup_rounds=4)
