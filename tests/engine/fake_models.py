"""A model runtime whose embedder and reranker are arithmetic on token ids.

For tests whose subject is the index, not the models: the tokenizer, the pool, the inputs and the
shapes are the real ones; a vector is the sum of fixed random directions of its tokens, so that
texts that share words are near each other, and the same text always has the same vector.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np

import clumsies.models
from clumsies.engine.pipeline import Engine
from clumsies.models.encoder import Embedding
from clumsies.models.manifest import COMPACT, Artifact, Profile
from clumsies.models.runtime import ModelRuntime
from clumsies.models.sessions import FloatArray, WorkerPool
from clumsies.models.tokenizer import ModelInput, TextTokenizer

DIMENSIONS = 24
_VOCABULARY = 30_522


def arithmetic_profile(
    name: str = "arithmetic", dimensions: int = DIMENSIONS, revision: str = "1"
) -> Profile:
    """A profile like `compact` whose embedding revision is its own, and whose floor is 0."""
    embedder = replace(COMPACT.embedder, repository="tests/arithmetic", revision=revision)
    artifacts: tuple[Artifact, ...] = (embedder, COMPACT.reranker)
    return replace(
        COMPACT,
        name=name,
        artifacts=artifacts,
        dimensions=dimensions,
        relevance_floor=0.0,
        relevance_calibration=(0.0, 1.0, 0.0, 0.0, 0.0),
        lexical_calibration=(0.0, 0.0),
        blend_weights=(("bm25", 1.0), ("vector", 1.0), ("late", 1.0), ("reranker", 1.0)),
    )


@functools.cache
def compact_tokenizer() -> TextTokenizer:
    return TextTokenizer(Path(clumsies.models.__file__).parent / "data" / "tokenizer.json")


class ArithmeticEmbedder:
    """`embedded` counts calls of `embed`."""

    def __init__(self, profile: Profile):
        self._profile = profile
        self.tokenizer = compact_tokenizer()
        directions = np.random.default_rng(7).standard_normal((_VOCABULARY, profile.dimensions))
        self._directions = directions.astype(np.float32)
        self._mutex = threading.Lock()
        self.embedded = 0

    def query_input(self, text: str) -> ModelInput:
        return self.tokenizer.single(text, self._profile.max_tokens)

    passage_input = query_input

    def embed(self, sequence: ModelInput) -> Embedding:
        with self._mutex:
            self.embedded += 1
        states = self._directions[sequence.ids]
        mean = states.mean(axis=0)
        tokens = states[1:-1] / np.linalg.norm(states[1:-1], axis=1, keepdims=True)
        return Embedding(mean / np.linalg.norm(mean), tokens, sequence.cut)


class ArithmeticReranker:
    """The share of the query's distinct tokens that stand in the document, as a logit."""

    def score(
        self,
        query: str,
        documents: Sequence[str],
        pool: WorkerPool,
        timeout_s: float | None = None,
    ) -> FloatArray:
        wanted = set(compact_tokenizer().single(query, 512).ids[1:-1])
        logits = [
            6.0 * len(wanted & set(compact_tokenizer().single(text, 512).ids)) / max(1, len(wanted))
            for text in documents
        ]
        return np.asarray(logits, dtype=np.float32) - np.float32(3.0)


class ArithmeticModels:
    """The parts of `ModelRuntime` that engines use."""

    def __init__(self, profile: Profile | None = None, threads: int = 2):
        self.profile = profile or arithmetic_profile()
        self.pool = WorkerPool(threads)
        self.tokenizer = compact_tokenizer()
        self.embedder = ArithmeticEmbedder(self.profile)
        self.reranker = ArithmeticReranker()

    def require_ready(self) -> None:
        """Always ready."""

    def embed_query(self, query: str) -> Embedding:
        return self.embedder.embed(self.embedder.query_input(query))

    def warm(self) -> None:
        """Nothing to load."""

    def close(self) -> None:
        self.pool.close()

    @property
    def runtime(self) -> ModelRuntime:
        """This, as the type that engines take."""
        return cast("ModelRuntime", self)


def open_engine(directory: Path, models: ArithmeticModels, ann_threshold: int = 50_000) -> Engine:
    """An engine over the arithmetic models, which outlive it."""
    return Engine.open(directory, models=models.runtime, ann_threshold=ann_threshold)
