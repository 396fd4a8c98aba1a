"""Late interaction beside the formula written out."""

from __future__ import annotations

import numpy as np
import pytest

from clumsies.models.encoder import TokenVectors, max_sim

DIMENSIONS = 24


def tokens(rng: np.random.Generator, count: int) -> TokenVectors:
    values = rng.integers(-127, 128, (count, DIMENSIONS), dtype=np.int8)
    return TokenVectors(values, rng.random(count, dtype=np.float32) / 500)


def unit_rows(
    rng: np.random.Generator, count: int
) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    rows = rng.standard_normal((count, DIMENSIONS)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("query_tokens", [1, 7, 32, 33, 100])
@pytest.mark.parametrize("lengths", [[1], [16], [17, 0, 3], [0, 40, 1, 15, 200], [0, 0]])
def test_scores_are_the_mean_of_the_best_cosines(query_tokens: int, lengths: list[int]) -> None:
    rng = np.random.default_rng(query_tokens)
    query = unit_rows(rng, query_tokens)
    documents = [tokens(rng, length) for length in lengths]
    expected = [
        float(
            np.mean(
                [
                    max(row @ (v * s) for v, s in zip(d.values, d.scales, strict=True))
                    for row in query
                ]
            )
        )
        if len(d.values)
        else -1.0
        for d in documents
    ]
    assert max_sim(query, documents) == pytest.approx(expected, abs=1e-5)


def test_no_query_token_and_no_document_are_no_error() -> None:
    rng = np.random.default_rng(0)
    assert max_sim(unit_rows(rng, 0), [tokens(rng, 3)]).tolist() == [-1.0]
    assert max_sim(unit_rows(rng, 2), []).tolist() == []
