"""The synthetic memory is what the benchmarks take it for, and its bounded parts are bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.synthetic import UNITS_PER_RESOURCE, MemoryWriter, SyntheticModels
from clumsies.engine import build
from clumsies.engine.pipeline import Engine
from clumsies.models.manifest import COMPACT


@pytest.fixture(scope="module")
def writer() -> MemoryWriter:
    return MemoryWriter()


@pytest.fixture(scope="module")
def models() -> Iterator[SyntheticModels]:
    runtime = SyntheticModels.for_profile(COMPACT)
    assert isinstance(runtime, SyntheticModels)
    yield runtime
    runtime.close()


def test_one_seed_gives_one_memory(writer: MemoryWriter) -> None:
    again = MemoryWriter()
    assert writer.memory(80) == again.memory(80)
    assert len({resource.content for resource in writer.memory(80).resources}) == 10


def test_another_edition_changes_one_unit_of_all(
    writer: MemoryWriter, models: SyntheticModels, tmp_path: Path
) -> None:
    with Engine.open(tmp_path, models=models) as engine:
        report = engine.index(writer.memory(80).resources)
        assert report.units == report.passages_embedded == 80
        changed = engine.update([writer.resource(3, edition=1)])
        assert (changed.units, changed.units_added, changed.units_removed) == (80, 1, 1)
        assert changed.passages_embedded == 1


def test_questions_find_a_full_list_of_candidates(
    writer: MemoryWriter, models: SyntheticModels, tmp_path: Path
) -> None:
    memory = writer.memory(400)
    with Engine.open(tmp_path, models=models) as engine:
        engine.index(memory.resources)
        for query in memory.queries[:5]:
            candidates = engine.activate(query).trace.candidates
            assert len(candidates) >= 60
            reranked = [c for c in candidates if c.reranker_logit is not None]
            assert len(reranked) == models.profile.rerank_limit


def test_hashing_vectors_are_unit_vectors_that_repeat(models: SyntheticModels) -> None:
    one, two = (
        models.embed_query("a release rolls back"),
        models.embed_query("rolls back a release"),
    )
    assert np.linalg.norm(one.vector) == pytest.approx(1.0, abs=1e-5)
    assert one.vector @ two.vector == pytest.approx(1.0, abs=1e-5)
    assert models.embed_query("a release rolls back").vector.tolist() == one.vector.tolist()


def test_a_build_stores_token_vectors_within_the_bound(
    writer: MemoryWriter,
    models: SyntheticModels,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many passages one build embeds: a large one wrote gigabytes before."""
    monkeypatch.setattr(build, "TOKEN_VECTOR_BYTES", 200_000)
    with Engine.open(tmp_path, models=models) as engine:
        engine.index(writer.memory(20 * UNITS_PER_RESOURCE).resources)
        with engine._store.reader() as connection:
            sizes = [row[0] for row in connection.execute("SELECT length(data) FROM token_vectors")]
        assert sizes
        assert sum(sizes) <= 200_000
        assert engine.activate(writer.memory(160).queries[0]).trace.candidates
