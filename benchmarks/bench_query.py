"""An activation at several sizes: what is not a model, stage by stage, beside the models' time.

The non-model time is the whole activation with models that cost next to nothing, its late pass
over cached token vectors included. The model time is the compact embedder's and cross-encoder's
on the same queries and candidates, without the late pass. Both choices are against us.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields
from itertools import cycle
from statistics import median
from typing import Any

import pytest

from benchmarks.conftest import Index, Indexes
from clumsies.engine.live_vectors import GRAPH_NAME
from clumsies.engine.pipeline import Engine
from clumsies.engine.trace import StageTimes, Trace
from clumsies.engine.units import model_text
from clumsies.engine.vectors import ANN_THRESHOLD
from clumsies.models.manifest import COMPACT
from clumsies.models.runtime import ModelRuntime

_QUERIES = 16
_ROUNDS = 4
_MODEL_QUERIES = 3
_GRAPH_TIMEOUT_S = 900.0


def _measured(benchmark: Any, engine: Engine, queries: list[str]) -> None:
    """Benchmark warm activations of the queries and note the medians of their stages."""
    traces: list[Trace] = []
    for query in queries:  # the token vectors of their candidates are cached from here on
        engine.activate(query)
    turn = cycle(queries)
    benchmark.pedantic(
        lambda: traces.append(engine.activate(next(turn)).trace), rounds=_ROUNDS * len(queries)
    )
    benchmark.extra_info["stages_us"] = {
        field.name: median(getattr(trace.times, field.name) for trace in traces)
        for field in fields(StageTimes)
    }
    assert all(trace.candidates for trace in traces)


def bench_non_model(benchmark: Any, indexes: Indexes, units: int) -> None:
    built = indexes.index(units)
    _measured(benchmark, built.engine, built.memory.queries[:_QUERIES])


def bench_model_time(
    benchmark: Any, indexes: Indexes, units: int, models: ModelRuntime, short: bool
) -> None:
    """Query embedding, then the cross-encoder's candidates, of each of some queries."""
    built = indexes.index(units)
    work = [_model_work(built, models, q) for q in built.memory.queries[:_MODEL_QUERIES]]
    turn = cycle(work)

    def one() -> None:
        next(turn)()

    benchmark.pedantic(one, rounds=(1 if short else 2) * len(work), warmup_rounds=1)


def _model_work(built: Index, models: ModelRuntime, query: str) -> Callable[[], None]:
    seen = [
        candidate
        for candidate in built.engine.activate(query).trace.candidates
        if candidate.reranker_logit is not None
    ]
    assert len(seen) == COMPACT.rerank_limit
    documents = [model_text(c.path, c.heading_path, c.text) for c in seen]

    def work() -> None:
        models.embed_query(query)
        models.reranker.score(query, documents, models.pool)

    return work


def bench_non_model_graph(benchmark: Any, indexes: Indexes, units: int) -> None:
    """As `bench_non_model`, with the neighbour graph that an index of this size gets."""
    if units < ANN_THRESHOLD:
        pytest.skip(f"no graph below {ANN_THRESHOLD} units")
    built = indexes.index(units)
    with Engine.open(built.directory, models=indexes.models) as engine:
        engine.warm()
        start = time.perf_counter()
        engine.update([indexes.writer.resource(0, 1_000_000)])
        while not (built.directory / GRAPH_NAME).exists():
            assert time.perf_counter() - start < _GRAPH_TIMEOUT_S
            time.sleep(0.5)
        benchmark.extra_info["graph_build_s"] = time.perf_counter() - start
        _measured(benchmark, engine, built.memory.queries[:_QUERIES])
