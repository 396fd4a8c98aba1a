"""Recall on real vectors: titles of a retrieval collection, embedded by the compact model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from tokenizers import Tokenizer

from clumsies import models
from clumsies.engine.exact_scan import Float32
from clumsies.engine.vectors import VectorIndex

COLLECTION = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "scifact"
ROWS, QUERIES, LIMIT = 2500, 60, 60
LONGEST_TOKENS = 24


def embedder() -> tuple[Tokenizer, onnxruntime.InferenceSession]:
    folder = Path(models.__file__).parent / "data"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(LONGEST_TOKENS)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = str(folder / "compact-embedder.int8.onnx")
    return tokenizer, onnxruntime.InferenceSession(model, options)


def embed(texts: list[str]) -> Float32:
    tokenizer, session = embedder()
    rows = []
    for text in texts:
        token_ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        feeds = {
            "input_ids": token_ids,
            "attention_mask": np.ones_like(token_ids),
            "token_type_ids": np.zeros_like(token_ids),
        }
        row = session.run(None, feeds)[0][0].mean(axis=0)
        rows.append(row / np.linalg.norm(row))
    return np.array(rows, dtype=np.float32)


def field(name: str, key: str, count: int) -> list[str]:
    lines = (COLLECTION / name).read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(json.loads(line)[key] for line in lines))[:count]


@pytest.mark.skipif(not COLLECTION.exists(), reason="the retrieval collections are not at hand")
def test_recall_on_real_vectors_before_and_after_a_fifth_is_replaced() -> None:
    vectors = embed(field("corpus.jsonl", "title", ROWS))
    queries = embed(field("queries.jsonl", "text", QUERIES))
    first = len(vectors) * 4 // 5
    index = VectorIndex(vectors.shape[1], ann_threshold=1000)
    index.load(np.arange(1, first + 1), vectors[:first])
    while index.tend_graph():
        pass
    assert recall(index, np.arange(1, first + 1), vectors[:first], queries) >= 0.99
    live = np.array([*range(401, len(vectors) + 1)], dtype=np.int64)
    index.apply(np.arange(first + 1, len(vectors) + 1), vectors[first:], np.arange(1, 401))
    while index.tend_graph():
        pass
    assert recall(index, live, vectors[live - 1], queries) >= 0.99


def recall(index: VectorIndex, live: np.ndarray, vectors: Float32, queries: Float32) -> float:
    assert index.snapshot.approximate
    hits = 0
    for query in queries:
        best = live[np.argsort(-(vectors.astype(np.float64) @ query), kind="stable")[:LIMIT]]
        hits += len(np.intersect1d(best, index.snapshot.search(query, LIMIT)[0]))
    return hits / (LIMIT * len(queries))
