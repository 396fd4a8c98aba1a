"""The compact models: single sequences side by side, padded batches, and wider sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest

from benchmarks.synthetic import read_memory, sample_directory
from clumsies.engine.pipeline import Engine
from clumsies.engine.ranking import LATE_LIMIT
from clumsies.engine.units import InputBudget, model_text, split
from clumsies.models.encoder import max_sim
from clumsies.models.manifest import COMPACT, Role
from clumsies.models.runtime import ModelRuntime
from clumsies.models.sessions import FloatArray
from clumsies.models.tokenizer import ModelInput

QUERY = "How do we roll back a release that already ran its database migration?"
_BATCH = 8


@pytest.fixture(scope="module")
def passages(models: ModelRuntime) -> list[str]:
    """LATE_LIMIT model texts of the sample memory's units, of the lengths that units have."""
    budget = InputBudget.of(models.tokenizer, models.profile.max_tokens, "")
    texts = [
        model_text(resource.path, unit.heading_path, unit.text)
        for resource in read_memory(sample_directory())
        for unit in split(resource, models.tokenizer, budget)
    ]
    return texts[:: len(texts) // LATE_LIMIT][:LATE_LIMIT]


@pytest.fixture(scope="module")
def inputs(models: ModelRuntime, passages: list[str], short: bool) -> list[ModelInput]:
    chosen = passages[: 2 * _BATCH if short else 4 * _BATCH]
    return [models.embedder.passage_input(text) for text in chosen]


@pytest.fixture(scope="module")
def pairs(models: ModelRuntime, passages: list[str]) -> list[ModelInput]:
    return models.reranker.inputs(QUERY, passages[: COMPACT.rerank_limit])


class PaddedSession:
    """A graph run on padded batches: what the engine does not do."""

    def __init__(self, models: ModelRuntime, role: Role, threads: int):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        artifact = models.profile.embedder if role == "embedder" else models.profile.reranker
        path = str(models._files.path(role, artifact.model_file.path))
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )
        self._names = {item.name for item in self._session.get_inputs()}

    def run(self, batch: Sequence[ModelInput]) -> FloatArray:
        shape = (len(batch), max(map(len, batch)))
        feeds = {
            name: np.zeros(shape, dtype=np.int64)
            for name in ("input_ids", "attention_mask", "token_type_ids")
        }
        for row, item in enumerate(batch):
            feeds["input_ids"][row, : len(item)] = item.ids
            feeds["attention_mask"][row, : len(item)] = 1
            feeds["token_type_ids"][row, : len(item)] = item.type_ids
        used = {name: array for name, array in feeds.items() if name in self._names}
        output: FloatArray = self._session.run(None, used)[0]
        return output


def _batches(items: Sequence[ModelInput]) -> list[Sequence[ModelInput]]:
    return [items[i : i + _BATCH] for i in range(0, len(items), _BATCH)]


def _padding(batches: Sequence[Sequence[ModelInput]]) -> float:
    """Padded positions over real ones, 1 without padding."""
    real = sum(len(item) for batch in batches for item in batch)
    return sum(len(batch) * max(map(len, batch)) for batch in batches) / real


def bench_query_embedding(benchmark: Any, models: ModelRuntime) -> None:
    assert benchmark(models.embed_query, QUERY).vector.shape == (models.profile.dimensions,)


def bench_passages_side_by_side(
    benchmark: Any, models: ModelRuntime, inputs: list[ModelInput]
) -> None:
    """One sequence a call on the pool: what the engine does."""
    embedder = models.embedder
    found = benchmark.pedantic(
        lambda: models.pool.map(embedder.embed, inputs, cost=len), rounds=3, warmup_rounds=1
    )
    assert len(found) == len(inputs)


@pytest.mark.parametrize("order", ["unsorted", "sorted"])
def bench_passages_padded(
    benchmark: Any, models: ModelRuntime, inputs: list[ModelInput], order: str
) -> None:
    """Padded batches, side by side on the same pool."""
    session = PaddedSession(models, "embedder", 1)
    batches = _batches(sorted(inputs, key=len) if order == "sorted" else inputs)
    benchmark.extra_info["padding"] = _padding(batches)
    found = benchmark.pedantic(
        lambda: models.pool.map(session.run, batches, cost=len), rounds=3, warmup_rounds=1
    )
    assert sum(map(len, found)) == len(inputs)


def bench_rerank(benchmark: Any, models: ModelRuntime, passages: list[str]) -> None:
    """`rerank_limit` pairs as an activation scores them, tokenization included."""
    chosen = passages[: COMPACT.rerank_limit]
    logits = benchmark.pedantic(
        lambda: models.reranker.score(QUERY, chosen, models.pool), rounds=5, warmup_rounds=1
    )
    assert len(logits) == COMPACT.rerank_limit


def bench_rerank_pairs_side_by_side(
    benchmark: Any, models: ModelRuntime, pairs: list[ModelInput]
) -> None:
    """A session on one thread, called from every thread of the pool at once."""
    session = PaddedSession(models, "reranker", 1)
    benchmark.pedantic(
        lambda: models.pool.map(lambda pair: session.run([pair]), pairs, cost=len),
        rounds=3,
        warmup_rounds=1,
    )


def bench_rerank_pairs_wide_session(
    benchmark: Any, models: ModelRuntime, pairs: list[ModelInput]
) -> None:
    """A session of as many threads as the pool has, one pair after the other."""
    session = PaddedSession(models, "reranker", models.pool.threads)
    benchmark.pedantic(lambda: [session.run([pair]) for pair in pairs], rounds=3, warmup_rounds=1)


def bench_rerank_padded_wide_session(
    benchmark: Any, models: ModelRuntime, pairs: list[ModelInput]
) -> None:
    """The same session, sorted padded batches."""
    session = PaddedSession(models, "reranker", models.pool.threads)
    batches = _batches(sorted(pairs, key=len))
    benchmark.extra_info["padding"] = _padding(batches)
    benchmark.pedantic(lambda: [session.run(batch) for batch in batches], rounds=3, warmup_rounds=1)


def bench_late_cold(benchmark: Any, models: ModelRuntime, passages: list[str], short: bool) -> None:
    """Token vectors of LATE_LIMIT passages that are neither cached nor stored, and MaxSim."""
    embedder = models.embedder
    query = models.embed_query(QUERY)

    def work() -> FloatArray:
        made = [embedder.passage_input(text) for text in passages]
        embeddings = models.pool.map(embedder.embed, made, cost=len)
        return max_sim(query.tokens, [each.quantised() for each in embeddings])

    assert len(benchmark.pedantic(work, rounds=1 if short else 2)) == len(passages)


def bench_late_cached(benchmark: Any, models: ModelRuntime, passages: list[str]) -> None:
    """MaxSim alone over LATE_LIMIT passages."""
    embedder = models.embedder
    query = models.embed_query(QUERY)
    stored = [embedder.embed(embedder.passage_input(text)).quantised() for text in passages]
    benchmark(max_sim, query.tokens, stored)


@pytest.fixture(scope="module")
def sample_engine(
    models: ModelRuntime, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    with Engine.open(tmp_path_factory.mktemp("sample"), models=models) as engine:
        engine.index(read_memory(sample_directory()))
        yield engine


def bench_activation(benchmark: Any, sample_engine: Engine) -> None:
    """The whole activation on the sample memory, warm, real models."""
    answer = benchmark.pedantic(sample_engine.activate, (QUERY,), rounds=5, warmup_rounds=1)
    assert answer.response.fragments
