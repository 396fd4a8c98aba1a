"""Checked unit vectors, their exact cosines, and the top rows of a brute-force scan.

Invariant: a row's score depends on the row and the query alone. A float32 product may round one
row differently at another place of the matrix, so it only chooses candidates, with a margin above
its worst rounding error; the candidates' scores are then summed in float64, row by row. Equal
vectors therefore tie exactly, and the order never depends on layout or threads.

The product is one dot product a row and no matrix-vector product: BLAS divides the latter among
threads that wait for each other busily, 24 ms instead of a tenth of one where processors are
taken, and even on one thread it is no faster here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clumsies.errors import ModelFailed

Float32 = NDArray[np.float32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

NORM_TOLERANCE = 0.01
_FLOAT32_UNIT_ROUNDOFF = 2.0**-24
_NORM_CHECK_ROWS = 4096  # rows turned to float64 at once: bounds the memory of a check


def checked_vectors(vectors: Float32, dimensions: int) -> Float32:
    """`vectors` as a C-contiguous float32 (n, dimensions) matrix of finite unit rows.

    Raises TypeError for another dtype and ModelFailed("search_vector_corrupt") for another shape,
    a value that is not finite, or a norm off by more than NORM_TOLERANCE.
    """
    if vectors.dtype != np.float32:
        raise TypeError(f"vectors must be float32, not {vectors.dtype}")
    if vectors.ndim != 2 or vectors.shape[1] != dimensions:
        raise _corrupt(f"shape {vectors.shape} where (n, {dimensions}) was expected")
    rows = np.ascontiguousarray(vectors)
    for start in range(0, len(rows), _NORM_CHECK_ROWS):
        block = rows[start : start + _NORM_CHECK_ROWS]
        squares = np.einsum("ij,ij->i", block, block, dtype=np.float64)
        # `not (… <= …)` so that a NaN counts as wrong; an infinity has an infinite norm.
        wrong = ~(np.abs(np.sqrt(squares) - 1.0) <= NORM_TOLERANCE)
        if wrong.any():
            raise _corrupt("a value that is not finite or a norm that is not 1")
    return rows


def checked_query(query: Float32, dimensions: int) -> Float32:
    """`query` as a contiguous unit vector of shape (dimensions,); errors as `checked_vectors`."""
    if query.ndim != 1:
        raise _corrupt(f"shape {query.shape} where ({dimensions},) was expected")
    return checked_vectors(query[np.newaxis, :], dimensions).reshape(dimensions)


def _corrupt(found: str) -> ModelFailed:
    return ModelFailed(
        "search_vector_corrupt",
        f"An embedding is unusable: {found}. Rebuild the search index.",
    )


def cosines(rows: Float32, query: Float32) -> Float32:
    """Dot product of each unit row (n, d) with the unit query (d,), float32 (n,).

    Summed in float64 along the contiguous axis, so that a row has one score wherever it stands.
    """
    products = rows.astype(np.float64)
    products *= query
    scores: Float32 = products.sum(axis=1).astype(np.float32)
    return scores


def candidate_positions(matrix: Float32, alive: Bool, query: Float32, limit: int) -> Int64:
    """Positions, ascending, of a superset of the `limit` best live rows of `matrix` (n, d).

    At least `limit` rows must be live. The superset is no larger than needed: every live row whose
    float32 score comes within twice the error bound of the limit-th best one. The bound of an inner
    product is d·u·|x|·|y| to first order (Higham 2002, section 3.1), u the unit round-off.
    """
    if limit == 0:
        return np.empty(0, dtype=np.int64)
    scores: Float32 = np.vecdot(matrix, query)
    scores[~alive] = -np.inf  # below every cut: at least `limit` scores are finite
    if limit < len(scores):
        cut = np.partition(scores, len(scores) - limit)[len(scores) - limit]
        dimensions = matrix.shape[1]
        bound = (dimensions + 2) * _FLOAT32_UNIT_ROUNDOFF * (1.0 + NORM_TOLERANCE) ** 2
        chosen = scores >= cut - np.float32(2.0 * bound)
    else:
        chosen = alive
    return np.flatnonzero(chosen).astype(np.int64, copy=False)


def best_first(row_ids: Int64, scores: Float32, limit: int) -> tuple[Int64, Float32]:
    """The `limit` best of the given rows: score descending, then row id ascending."""
    order = np.lexsort((row_ids, -scores))[:limit]
    return row_ids[order], scores[order]
