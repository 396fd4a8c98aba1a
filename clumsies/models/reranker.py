"""The cross-encoder: one logit a (query, document) pair, higher is better, not a probability."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from clumsies.errors import ModelFailed
from clumsies.models.manifest import Profile
from clumsies.models.sessions import FloatArray, ModelSession, WorkerPool
from clumsies.models.tokenizer import ModelInput, TextTokenizer


class CrossEncoder:
    """Thread-safe; one pair a call, pairs side by side on the pool."""

    def __init__(self, profile: Profile, session: ModelSession, tokenizer: TextTokenizer):
        self._profile = profile
        self._session = session
        self._tokenizer = tokenizer

    def inputs(self, query: str, documents: Sequence[str]) -> list[ModelInput]:
        """One input a document, in order, within the profile's pair limit."""
        head = self._tokenizer.encode_query(query, self._query_limit())
        limit = self._profile.rerank_max_tokens
        return [self._tokenizer.pair(head, document, limit) for document in documents]

    def _query_limit(self) -> int:
        half = self._profile.rerank_max_tokens // 2
        return self._profile.rerank_max_query_tokens or half

    def score(
        self,
        query: str,
        documents: Sequence[str],
        pool: WorkerPool,
        timeout_s: float | None = None,
    ) -> FloatArray:
        """float32 (n,) logits in the order of `documents`."""
        pairs = self.inputs(query, documents)
        logits = pool.map(self._logit, pairs, cost=len, timeout_s=timeout_s)
        return np.asarray(logits, dtype=np.float32)

    def _logit(self, pair: ModelInput) -> float:
        output = self._session.run(pair.ids, pair.type_ids)
        logit = float(output.reshape(-1)[0]) if output.size == 1 else math.nan
        if not math.isfinite(logit):
            raise ModelFailed(
                "search_vector_corrupt",
                "The reranker gave no finite single score; run `clumsies models verify`.",
            )
        return logit
