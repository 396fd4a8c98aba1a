"""The candidates that the engine's reranker saw, so that any other reranker can be judged on them.

A pool is one query with the candidates of its kept trace that were reranked: their model texts, out
of the index that answered, and the raw scores of the stages before the cross-encoder. Scoring
pools with another file takes no engine, and all files are judged on the same candidates.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from clumsies.engine.index import IndexStore
from clumsies.engine.units import model_text
from clumsies.storage.database import all_rows
from evaluation.datasets import EvaluationSet
from evaluation.harness import Settings, index_directory
from evaluation.traces import Floats, KeptTrace

STAGES = ("rrf_score", "bm25_score", "vector_score", "late_score", "reranker_logit")


@dataclass(frozen=True, slots=True)
class Pool:
    """One query's candidates in fused order; ``scores[stage]`` is float64 (candidates,).

    ``first`` marks candidates that an identity match keeps before all others, bool (candidates,).
    """

    set_name: str
    query_id: str
    query: str
    judgments: Mapping[str, int]
    documents: tuple[str, ...]
    texts: tuple[str, ...]
    scores: Mapping[str, Floats]
    first: tuple[bool, ...]


class IndexTexts:
    """Model texts of an index's units by key."""

    def __init__(self, store: IndexStore) -> None:
        self._store = store

    def of(self, keys: Sequence[str]) -> list[str]:
        """The texts in the order of ``keys``. Raises KeyError for a unit that is not there."""
        marks = ", ".join("?" * len(keys))
        with self._store.reader() as connection:
            rows = all_rows(
                connection,
                "SELECT unit_key, path, heading_path, text FROM units "
                f"JOIN resources USING (resource_rowid) WHERE unit_key IN ({marks})",
                tuple(keys),
            )
        found = {key: model_text(path, json.loads(heads), text) for key, path, heads, text in rows}
        return [found[key] for key in keys]


@contextmanager
def index_texts(directory: Path) -> Iterator[IndexTexts]:
    """The texts of the index in ``directory``."""
    store = IndexStore(directory)
    try:
        yield IndexTexts(store)
    finally:
        store.close()


def pools_of(
    evaluation_set: EvaluationSet, traces: Iterable[KeptTrace], settings: Settings
) -> Iterator[Pool]:
    """A pool of each answerable trace whose query was reranked, in the traces' order by scope.

    The index must be the one that answered: run the set with the same settings first.
    """
    queries = {query.query_id: query for query in evaluation_set.queries}
    usable = [trace for trace in traces if trace.answerable]
    for scope in evaluation_set.scopes:
        of_scope = [trace for trace in usable if queries[trace.query_id].scope == scope]
        if not of_scope:
            continue
        with index_texts(index_directory(evaluation_set, scope, settings)) as texts:
            for trace in of_scope:
                pool = _pool(trace, queries[trace.query_id].text, texts)
                if pool.documents:
                    yield pool


def spread(pools: Sequence[Pool], limit: int) -> list[Pool]:
    """At most ``limit`` pools at even distances, the first among them."""
    if len(pools) <= limit:
        return list(pools)
    return [pools[number * len(pools) // limit] for number in range(limit)]


def _pool(trace: KeptTrace, query: str, texts: IndexTexts) -> Pool:
    seen = np.flatnonzero(~np.isnan(trace.columns["reranker_logit"])).tolist()
    seen.sort(key=lambda at: (trace.columns["rrf_rank"][at], trace.unit_keys[at]))
    return Pool(
        set_name=trace.set_name,
        query_id=trace.query_id,
        query=query,
        judgments=trace.judgments,
        documents=tuple(trace.documents[at] for at in seen),
        texts=tuple(texts.of([trace.unit_keys[at] for at in seen])),
        scores={stage: trace.filled(stage)[seen] for stage in STAGES},
        first=tuple(bool(trace.columns["identity_equal"][at] > 0) for at in seen),
    )
