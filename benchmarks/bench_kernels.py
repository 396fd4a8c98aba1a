"""The compiled kernels: block scan, units, search terms and rank fusion, beside what others do."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.synthetic import SEED
from clumsies._native import markdown
from clumsies.engine.analysis import document_terms
from clumsies.engine.fusion import reciprocal_rank_fusion, reciprocal_rank_fusion_batch
from clumsies.engine.units import TARGET_TOKENS, InputBudget, split
from clumsies.models.runtime import ModelRuntime
from clumsies.types import Resource, ResourceId

Ids = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

_TARGET_CHARS = 1_500  # about TARGET_TOKENS of English
_RRF_K = 10.0
_DEPTH = 60
_UNITS = 10_000
_QUERIES = 2_000


def _note_size(benchmark: Any, text: str) -> bytes:
    body = text.encode("utf-8")
    benchmark.extra_info["bytes"] = len(body)
    return body


def bench_scan(benchmark: Any, text: str) -> None:
    blocks = benchmark(markdown.scan, _note_size(benchmark, text))
    assert blocks.headings


def bench_markdown_it(benchmark: Any, text: str) -> None:
    peer = pytest.importorskip("markdown_it")
    _note_size(benchmark, text)
    parser = peer.MarkdownIt("commonmark")
    assert benchmark.pedantic(parser.parse, (text,), rounds=3)


def bench_markdown_it_blocks(benchmark: Any, text: str) -> None:
    """Block structure alone: the inline rule is off."""
    peer = pytest.importorskip("markdown_it")
    _note_size(benchmark, text)
    parser = peer.MarkdownIt("commonmark")
    parser.core.ruler.disable("inline")
    assert benchmark.pedantic(parser.parse, (text,), rounds=3)


def bench_markdown_splitter(benchmark: Any, text: str) -> None:
    """semantic-text-splitter by characters, so without a tokenizer."""
    peer = pytest.importorskip("semantic_text_splitter")
    _note_size(benchmark, text)
    splitter = peer.MarkdownSplitter(_TARGET_CHARS)
    assert benchmark.pedantic(splitter.chunks, (text,), rounds=3)


def bench_markdown_splitter_tokens(benchmark: Any, text: str, models: ModelRuntime) -> None:
    """semantic-text-splitter with the tokenizer that `bench_units` counts with."""
    peer = pytest.importorskip("semantic_text_splitter")
    tokenizers = pytest.importorskip("tokenizers")
    _note_size(benchmark, text)
    # The splitter takes its own tokenizer object; the definition is the compact profile's.
    definition = models.tokenizer._tokenizer.to_str()
    tokenizer = tokenizers.Tokenizer.from_str(definition)
    splitter = peer.MarkdownSplitter.from_huggingface_tokenizer(tokenizer, TARGET_TOKENS)
    assert benchmark.pedantic(splitter.chunks, (text,), rounds=2)


def bench_units(benchmark: Any, text: str, models: ModelRuntime) -> None:
    """Scan, tokenization and cutting: a resource as `Engine.index` splits it."""
    _note_size(benchmark, text)
    resource = Resource(ResourceId("all"), "all.md", text)
    budget = InputBudget.of(models.tokenizer, models.profile.max_tokens, "")
    assert benchmark.pedantic(split, (resource, models.tokenizer, budget), rounds=3)


def bench_tokenization(benchmark: Any, text: str, models: ModelRuntime) -> None:
    """The part of `bench_units` that is the tokenizer's."""
    _note_size(benchmark, text)
    assert len(benchmark.pedantic(models.tokenizer.spans, (text,), rounds=3).starts)


def bench_terms(benchmark: Any, text: str) -> None:
    _note_size(benchmark, text)
    assert benchmark(document_terms, text)


def _rankings(queries: int) -> Ids:
    """int64 (queries, 2, _DEPTH): two rankings that share about half their ids."""
    rng = np.random.default_rng(SEED)
    pools = rng.permuted(np.tile(np.arange(90), (queries, 1)), axis=1)
    first = pools[:, :_DEPTH]
    second = rng.permuted(pools[:, 90 - _DEPTH :], axis=1)
    offsets = rng.integers(0, _UNITS - 90, (queries, 1))
    return np.ascontiguousarray(np.stack([first + offsets, second + offsets], axis=1))


def numpy_fusion(rankings: list[Ids], rrf_k: float) -> tuple[Ids, Scores]:
    """Reciprocal rank fusion as one would write it with NumPy; ties by best rank, then id."""
    joined = np.concatenate(rankings)
    ranks = np.concatenate([np.arange(1, len(ranking) + 1) for ranking in rankings])
    ids, inverse = np.unique(joined, return_inverse=True)
    scores: Scores = np.bincount(inverse, weights=1.0 / (rrf_k + ranks)).astype(np.float64)
    best = np.full(len(ids), np.iinfo(np.int64).max)
    np.minimum.at(best, inverse, ranks)
    order = np.lexsort((ids, best, -scores))
    return ids[order], scores[order]


def numpy_fusion_batch(rankings: Ids, rrf_k: float) -> tuple[Ids, Ids, Scores]:
    """The same over (queries, lists, depth): (query, id, score) rows, query by query."""
    queries, lists, depth = rankings.shape
    keys = rankings + np.arange(queries)[:, None, None] * _UNITS
    ranks = np.broadcast_to(np.arange(1, depth + 1), (queries, lists, depth)).ravel()
    found, inverse = np.unique(keys.ravel(), return_inverse=True)
    scores: Scores = np.bincount(inverse, weights=1.0 / (rrf_k + ranks)).astype(np.float64)
    best = np.full(len(found), depth + 1)
    np.minimum.at(best, inverse, ranks)
    query, ids = np.divmod(found, _UNITS)
    order = np.lexsort((ids, best, -scores, query))
    return query[order], ids[order], scores[order]


def bench_fusion(benchmark: Any) -> None:
    lists = list(_rankings(1)[0])
    ids, _ = benchmark(reciprocal_rank_fusion, lists, _RRF_K)
    assert ids.tolist() == numpy_fusion(lists, _RRF_K)[0].tolist()


def bench_fusion_numpy(benchmark: Any) -> None:
    benchmark(numpy_fusion, list(_rankings(1)[0]), _RRF_K)


def bench_fusion_batch(benchmark: Any) -> None:
    rankings = _rankings(_QUERIES)
    ids, _, counts = benchmark(reciprocal_rank_fusion_batch, rankings, _RRF_K)
    assert ids[ids >= 0].tolist() == numpy_fusion_batch(rankings, _RRF_K)[1].tolist()
    assert int(counts.sum()) == int((ids >= 0).sum())


def bench_fusion_batch_numpy(benchmark: Any) -> None:
    benchmark.pedantic(numpy_fusion_batch, (_rankings(_QUERIES), _RRF_K), rounds=5)
