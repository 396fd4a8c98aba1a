"""Recall and latency of the neighbour graph against the exact scan, on vectors of your own.

Either a file of unit vectors, float32 (n, d)::

    python -m benchmarks.vector_recall --vectors vectors.npy [--queries queries.npy]

or a directory of Markdown, embedded first by the compact model (about 10 ms a section)::

    python -m benchmarks.vector_recall --markdown docs --keep vectors.npy

Without queries of their own, some of the vectors are held out and used as such: passages as
queries are an easier case than questions. Sizes above the number of vectors are filled with noised
copies and marked `*`: they flatter the graph. Latencies are medians of one query at a time on one
thread; compare them within one run only. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from clumsies.engine.exact_scan import Float32, Int64, best_first, candidate_positions, cosines
from clumsies.engine.hnsw_graph import HnswGraph

_SECTION = re.compile(r"^(?=#{1,6} )", re.MULTILINE)
_MIN_SECTION_CHARS = 40
_HELD_OUT_QUERIES = 300
_COPY_NOISE = 0.35  # length of the noise beside a unit vector: cosine to the original about .94


def markdown_sections(root: Path) -> Iterator[str]:
    """Each heading's text of each `*.md` file below `root`, after its relative path."""
    for path in sorted(root.rglob("*.md")):
        for section in _SECTION.split(path.read_text(encoding="utf-8", errors="replace")):
            if len(section.strip()) >= _MIN_SECTION_CHARS:
                yield f"{path.relative_to(root)}\n{section}"


def embedded(texts: Iterable[str], embed: Callable[[str], Float32], threads: int = 2) -> Float32:
    """The vectors of the distinct texts, float32 (n, d), in order of first appearance."""
    with ThreadPoolExecutor(threads) as pool:
        return np.stack(list(pool.map(embed, dict.fromkeys(texts))))


def compact_embedder() -> Callable[[str], Float32]:
    """The embedder that ships with the package, as a function from a passage to its vector."""
    from clumsies.models.encoder import Embedder
    from clumsies.models.manifest import COMPACT
    from clumsies.models.sessions import ModelSession
    from clumsies.models.tokenizer import TextTokenizer

    folder = Path(sys.modules[Embedder.__module__].__file__ or "").parent / "data"
    embedder = Embedder(
        COMPACT,
        ModelSession(folder / COMPACT.embedder.model_file.path),
        TextTokenizer(folder / COMPACT.embedder.tokenizer_file.path),
    )
    return lambda text: embedder.embed(embedder.passage_input(text)).vector


def sized(vectors: Float32, size: int, rng: np.random.Generator) -> Float32:
    """The first `size` vectors, continued by noised copies where there are not as many."""
    if size <= len(vectors):
        return vectors[:size]
    picked = vectors[rng.integers(0, len(vectors), size - len(vectors))]
    noise = rng.standard_normal(picked.shape) * (_COPY_NOISE / np.sqrt(picked.shape[1]))
    copies = picked + noise
    copies /= np.linalg.norm(copies, axis=1, keepdims=True)
    return np.concatenate([vectors, copies.astype(np.float32)])


def exact(matrix: Float32, query: Float32, limit: int) -> Int64:
    positions = candidate_positions(matrix, np.ones(len(matrix), dtype=np.bool_), query, limit)
    return best_first(positions, cosines(matrix[positions], query), limit)[0]


def through_graph(
    graph: HnswGraph, matrix: Float32, query: Float32, limit: int, expansion: int
) -> Int64:
    positions = graph.nearest(query, 2 * limit, expansion) - 1
    return best_first(positions, cosines(matrix[positions], query), limit)[0]


def timed(search: Callable[[Float32], Int64], queries: Float32) -> tuple[list[Int64], float]:
    """The answers, and the median milliseconds of one."""
    answers, times = [], []
    for query in queries:
        start = time.perf_counter()
        answers.append(search(query))
        times.append(time.perf_counter() - start)
    return answers, 1e3 * float(np.median(times))


def recall(truth: list[Int64], found: list[Int64]) -> float:
    hits = sum(len(np.intersect1d(a, b)) for a, b in zip(truth, found, strict=True))
    return hits / sum(len(answer) for answer in truth)


def report(matrix: Float32, queries: Float32, given: argparse.Namespace, mark: str) -> None:
    truth, exact_ms = timed(lambda query: exact(matrix, query, given.limit), queries)
    print(f"| {len(matrix)}{mark} | exact | | | 1 | {exact_ms:.2f} | 1.0 |", flush=True)
    for kind in given.kinds:
        graph = HnswGraph(matrix.shape[1], kind)
        start = time.perf_counter()
        graph.add(np.arange(1, len(matrix) + 1), matrix)
        build_s = time.perf_counter() - start
        for expansion in given.expansions:
            found, graph_ms = timed(
                lambda query, graph=graph, expansion=expansion: through_graph(  # type: ignore[misc]
                    graph, matrix, query, given.limit, expansion
                ),
                queries,
            )
            print(
                f"| {len(matrix)}{mark} | {kind} | {expansion} | {build_s:.0f} "
                f"| {recall(truth, found):.4f} | {graph_ms:.2f} | {exact_ms / graph_ms:.1f} |",
                flush=True,
            )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.vector_recall", description=(__doc__ or "").split("\n", 1)[0]
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--vectors", type=Path, help="unit vectors, float32 (n, d), .npy")
    source.add_argument("--markdown", type=Path, help="directory to embed with the compact model")
    parser.add_argument("--keep", type=Path, help="write the vectors made from --markdown here")
    parser.add_argument("--queries", type=Path, help="unit vectors, float32 (q, d), .npy")
    parser.add_argument("--sizes", type=int, nargs="+", help="default: all vectors")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--kinds", nargs="*", default=["f16"], choices=["f32", "f16", "bf16"])
    parser.add_argument("--expansions", type=int, nargs="+", default=[128, 256, 512])
    return parser.parse_args()


def main() -> None:
    given = arguments()
    rng = np.random.default_rng(0)
    if given.markdown is not None:
        vectors = embedded(markdown_sections(given.markdown), compact_embedder())
        if given.keep is not None:
            np.save(given.keep, vectors)
    else:
        vectors = np.load(given.vectors).astype(np.float32)
    vectors = vectors[rng.permutation(len(vectors))]
    if given.queries is not None:
        queries = np.load(given.queries).astype(np.float32)
    else:
        held_out = min(_HELD_OUT_QUERIES, len(vectors) // 10)
        queries, vectors = vectors[:held_out], vectors[held_out:]
    print(f"recall@{given.limit}, {len(queries)} queries, {len(vectors)} vectors given\n")
    print("| rows | search | expansion | build s | recall | ms | exact / this |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for size in given.sizes or [len(vectors)]:
        mark = "*" if size > len(vectors) else ""
        matrix = np.ascontiguousarray(sized(vectors, size, rng))
        report(matrix, queries, given, mark)


if __name__ == "__main__":
    main()
