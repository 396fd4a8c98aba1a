"""The bi-encoder: texts to unit vectors, and to token vectors for late interaction.

A vector is the mean of the last hidden states over the sequence, L2-normalised. Token vectors
are the same states, each normalised, without special and unknown tokens; stored as int8 with
one scale a token (the token's largest component maps to 127).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clumsies.errors import ModelFailed
from clumsies.models.manifest import Profile
from clumsies.models.sessions import FloatArray, ModelSession
from clumsies.models.tokenizer import ModelInput, TextTokenizer

NORM_TOLERANCE = 0.01
_BLOCK_ROWS = 16
_BLOCK_TOKENS = 32
"""A product of 16 x d by d x 32 stays on one thread of OpenBLAS up to d = 512."""


@dataclass(frozen=True, slots=True)
class TokenVectors:
    """Token vectors of one text: `values` int8 (tokens, d), `scales` float32 (tokens,)."""

    values: np.ndarray[tuple[int, int], np.dtype[np.int8]]
    scales: np.ndarray[tuple[int], np.dtype[np.float32]]

    @property
    def size_bytes(self) -> int:
        return int(self.values.nbytes + self.scales.nbytes)

    def to_bytes(self) -> bytes:
        """`scales` as little-endian float32, then `values`; the token count follows from both."""
        return self.scales.astype("<f4").tobytes() + self.values.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, dimensions: int) -> TokenVectors:
        """Inverse of `to_bytes`; raises ModelFailed where the length does not fit."""
        tokens, rest = divmod(len(data), dimensions + 4)
        if rest:
            raise ModelFailed(
                "search_vector_corrupt",
                "A stored token vector has a wrong length; rebuild the index.",
            )
        scales = np.frombuffer(data, dtype="<f4", count=tokens)
        values = np.frombuffer(data, dtype=np.int8, offset=4 * tokens)
        return cls(values.reshape(tokens, dimensions), scales)


@dataclass(frozen=True, slots=True)
class Embedding:
    """`vector` float32 (d,) of norm 1; `tokens` float32 (t, d), each row of norm 1."""

    vector: FloatArray
    tokens: FloatArray
    cut: bool

    def quantised(self) -> TokenVectors:
        """The token vectors as they are stored."""
        peaks = np.abs(self.tokens).max(axis=1, initial=0.0)
        scales = np.where(peaks > 0, peaks / 127.0, 1.0).astype(np.float32)
        values = np.rint(self.tokens / scales[:, None]).astype(np.int8)
        return TokenVectors(values, scales)


class Embedder:
    """Thread-safe; one sequence a call."""

    def __init__(self, profile: Profile, session: ModelSession, tokenizer: TextTokenizer):
        self._profile = profile
        self._session = session
        self.tokenizer = tokenizer

    def query_input(self, text: str) -> ModelInput:
        return self.tokenizer.single(self._profile.query_prefix + text, self._profile.max_tokens)

    def passage_input(self, text: str) -> ModelInput:
        return self.tokenizer.single(self._profile.passage_prefix + text, self._profile.max_tokens)

    def embed(self, sequence: ModelInput) -> Embedding:
        """Raises ModelFailed("search_vector_corrupt") for a vector that cannot be used."""
        states = self._session.run(sequence.ids, sequence.type_ids)
        wanted = (len(sequence), self._profile.dimensions)
        if states.shape != wanted:
            raise self._untrusted(f"a shape {states.shape} where {wanted} is pinned")
        if not np.isfinite(states).all():
            raise self._untrusted("numbers that are not finite")
        vector = _normalised(states.mean(axis=0, dtype=np.float32)[None, :])[0]
        if abs(float(np.linalg.norm(vector)) - 1.0) > NORM_TOLERANCE:
            raise self._untrusted("a vector without a direction")
        return Embedding(vector, _normalised(states[self._worded(sequence)]), sequence.cut)

    def _worded(self, sequence: ModelInput) -> list[int]:
        """Positions that stand for words: neither special nor unknown tokens, which would match
        each other perfectly whatever they stand for."""
        unknown = self.tokenizer.unknown_id
        inner = range(1, len(sequence) - 1)
        return [position for position in inner if sequence.ids[position] != unknown]

    def _untrusted(self, what: str) -> ModelFailed:
        return ModelFailed(
            "search_vector_corrupt",
            f"The embedder gave {what}; run `clumsies models verify {self._profile.name}`.",
        )


def _normalised(rows: FloatArray) -> FloatArray:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: FloatArray = (rows / np.maximum(norms, 1e-12)).astype(np.float32)
    return unit


def max_sim(query: FloatArray, documents: list[TokenVectors]) -> FloatArray:
    """float32 (n,): mean over query tokens of the best cosine with a document's token.

    `query` is float32 (t, d) with rows of norm 1. A document without tokens scores -1. The
    measure is ColBERT's (Khattab and Zaharia 2020), averaged so that queries compare.
    """
    scores = np.full(len(documents), -1.0, dtype=np.float32)
    filled = [i for i, document in enumerate(documents) if len(document.values)]
    if not filled or not len(query):
        return scores
    scales = np.concatenate([documents[i].scales for i in filled])
    cosines = _products([documents[i].values for i in filled], query)[: len(scales)]
    cosines *= scales[:, None]
    starts = np.cumsum([0] + [len(documents[i].values) for i in filled[:-1]])
    best = np.maximum.reduceat(cosines, starts, axis=0)
    scores[filled] = best.mean(axis=1)
    return scores


def _products(
    matrices: list[np.ndarray[tuple[int, int], np.dtype[np.int8]]], query: FloatArray
) -> FloatArray:
    """float32 (n or more, t): products of all rows, (n, d) in all, with the query's (t, d).

    In blocks too small for BLAS to divide among threads: these wait for each other busily, which
    is ten times slower where processors are taken and no faster where they are free.
    """
    rows = sum(len(matrix) for matrix in matrices)
    blocks = np.zeros((-(-rows // _BLOCK_ROWS), _BLOCK_ROWS, query.shape[1]), dtype=np.float32)
    np.concatenate(matrices, out=blocks.reshape(-1, query.shape[1])[:rows])
    products = np.empty((*blocks.shape[:2], len(query)), dtype=np.float32)
    for start in range(0, len(query), _BLOCK_TOKENS):
        stop = start + _BLOCK_TOKENS
        products[:, :, start:stop] = blocks @ query[start:stop].T
    return products.reshape(-1, len(query))
