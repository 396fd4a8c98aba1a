"""One query through the stages: lexical beside query embedding, vectors, fusion, late interaction,
cross-encoder, final order.

Every stage writes its ranks and scores into the candidates it saw and nothing else, so the trace
shows each stage's own opinion beside the final one. Total order of every ranking: score
descending, then the tie rule the stage names, then unit key.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

import apsw
import numpy as np

from clumsies.engine.analysis import foreign_share
from clumsies.engine.blend import IDENTITY_BONUS, blended
from clumsies.engine.fusion import reciprocal_rank_fusion
from clumsies.engine.lexical import (
    IdentityHit,
    QueryTerms,
    best_scored,
    bm25_scores,
    coverage,
    read_query,
    search_identity,
)
from clumsies.engine.reading import read_candidates, read_pages, read_token_vectors
from clumsies.engine.relevance import Evidence, relevance
from clumsies.engine.supersession import in_force_first
from clumsies.engine.token_cache import TokenVectorCache
from clumsies.engine.trace import Candidate, Skipped, StageTimes
from clumsies.engine.units import model_text
from clumsies.engine.vectors import VectorSnapshot
from clumsies.errors import ClumsiesError, NotReady
from clumsies.models.encoder import Embedding, TokenVectors, max_sim
from clumsies.models.manifest import BlendStage
from clumsies.models.runtime import ModelRuntime

LEXICAL_LIMIT = 60
VECTOR_LIMIT = 60
LATE_LIMIT = 60
LEXICAL_RELEVANCE_LIMIT = 24
"""Candidates of a query that no model can read which get a relevance, by their terms alone."""
RERANK_PER_RESOURCE = 4
"""Units of one resource that the reranker sees before others: twice what an answer may show."""
BM25_SCORE_DEPTH = 2_000
"""BM25 scores are read this deep, so that the blend knows those of vector candidates too."""
FOREIGN_SHARE_LIMIT = 0.30
"""Above this share of letters the embedder cannot read, its opinion is noise."""


class Deadline:
    """The moment an activation has to be done by."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._end = clock() + seconds
        self._seconds = seconds

    def remaining_s(self) -> float:
        """Seconds left; raises NotReady("activation_deadline") when there are none."""
        left = self._end - self._clock()
        if left <= 0:
            raise NotReady(
                "activation_deadline",
                f"The activation did not finish within {self._seconds:g} s; "
                "send the same query again, or lower the machine's load.",
            )
        return left


@dataclass(slots=True)
class Ranking:
    """Candidates in final order, by unit row, and what it took."""

    candidates: list[Candidate] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    times: StageTimes = field(default_factory=StageTimes)


@dataclass(slots=True)
class _Query:
    """A query on its way: what is known of it, and the candidates by unit row."""

    text: str
    connection: apsw.Connection
    vectors: VectorSnapshot
    deadline: Deadline
    readable: bool
    ranking: Ranking
    terms: QueryTerms = field(default_factory=lambda: QueryTerms((), {}, 0))
    embedding: Embedding | None = None
    bm25: dict[int, float] = field(default_factory=dict)
    by_row: dict[int, Candidate] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        start = time.perf_counter_ns()
        try:
            with _named(stage.removesuffix("_us")):
                self.deadline.remaining_s()
                yield
        finally:
            spent = (time.perf_counter_ns() - start) // 1000
            setattr(self.ranking.times, stage, getattr(self.ranking.times, stage) + spent)


@contextmanager
def _named(stage: str) -> Iterator[None]:
    """Errors tell in which stage they arose."""
    try:
        yield
    except ClumsiesError as error:
        error.details.setdefault("stage", stage)
        raise


def _is_readable(text: str, scripts: frozenset[str]) -> bool:
    """Whether models of these scripts have anything to go by: letters, or digits, they know."""
    return (
        foreign_share(text, scripts) <= FOREIGN_SHARE_LIMIT
        and re.search(r"[^\W_]", text) is not None
    )


def _awaited(embedding: Future[Embedding], deadline: Deadline) -> Embedding:
    try:
        return embedding.result(timeout=deadline.remaining_s())
    except TimeoutError:
        embedding.cancel()
        deadline.remaining_s()
        raise


class Ranker:
    """Ranks queries with one profile's models. Thread-safe; keeps token vectors between calls."""

    def __init__(self, models: ModelRuntime, tokens: TokenVectorCache):
        self._models = models
        self._profile = models.profile
        self._tokens = tokens

    def rank(
        self,
        text: str,
        connection: apsw.Connection,
        vectors: VectorSnapshot,
        unit_count: int,
        deadline: Deadline,
    ) -> Ranking:
        """All candidates of the query in final order."""
        scripts = self._profile.scripts
        readable = not scripts or _is_readable(text, scripts)
        query = _Query(text, connection, vectors, deadline, readable, Ranking())
        embedding = self._models.pool.submit(self._embed(query)) if readable else None
        with query.timed("bm25_us"):
            lexical = self._lexical(query, unit_count)
        nearest: list[tuple[int, float]] = []
        if embedding is None:
            query.ranking.skipped = [
                Skipped("vector", "script"),
                *([Skipped("late_interaction", "script")] if self._profile.late_pass else []),
                Skipped("rerank", "script"),
            ]
        else:
            with _named("embedding"):
                query.embedding = _awaited(embedding, deadline)
            with query.timed("vector_us"):
                nearest = self._nearest(query)
        with query.timed("rrf_us"):
            fused = self._fuse(query, lexical, nearest)
        query.ranking.candidates = self._final_order(query, fused)
        for rank, candidate in enumerate(query.ranking.candidates, 1):
            candidate.final_rank = rank
        return query.ranking

    def _embed(self, query: _Query) -> Callable[[], Embedding]:
        def work() -> Embedding:
            with query.timed("embedding_us"):
                return self._models.embed_query(query.text)

        return work

    def _lexical(
        self, query: _Query, unit_count: int
    ) -> tuple[list[IdentityHit], list[tuple[int, str, float]]]:
        identity = search_identity(query.connection, query.text, LEXICAL_LIMIT)
        query.terms = read_query(query.connection, query.text, unit_count)
        scored = bm25_scores(query.connection, query.terms, BM25_SCORE_DEPTH)
        query.bm25 = dict(scored)
        return identity, best_scored(query.connection, scored, LEXICAL_LIMIT)

    def _nearest(self, query: _Query) -> list[tuple[int, float]]:
        assert query.embedding is not None
        ids, scores = query.vectors.search(query.embedding.vector, VECTOR_LIMIT)
        return list(zip(ids.tolist(), scores.tolist(), strict=True))

    def _fuse(
        self,
        query: _Query,
        lexical: tuple[list[IdentityHit], list[tuple[int, str, float]]],
        nearest: list[tuple[int, float]],
    ) -> list[int]:
        """Unit rows in the order of their reciprocal rank sums; candidates are made here."""
        identity, ranked = lexical
        listed = list(dict.fromkeys([hit.unit_rowid for hit in identity] + [r[0] for r in ranked]))
        listed = listed[:LEXICAL_LIMIT]
        rowids = dict.fromkeys(listed + [rowid for rowid, _ in nearest])
        query.by_row = read_candidates(query.connection, rowids)
        near = self._write_stage_ranks(query, identity, ranked, nearest)
        rows = sorted(query.by_row, key=lambda rowid: query.by_row[rowid].unit_key)
        number = {rowid: i for i, rowid in enumerate(rows)}
        lists = [np.array([number[r] for r in side], dtype=np.int64) for side in (listed, near)]
        ids, scores = reciprocal_rank_fusion(lists, self._profile.rrf_k)
        fused = [rows[i] for i in ids.tolist()]
        for rank, (rowid, score) in enumerate(zip(fused, scores.tolist(), strict=True), 1):
            candidate = query.by_row[rowid]
            candidate.rrf_rank = rank
            candidate.rrf_score = score
        return fused

    def _write_stage_ranks(
        self,
        query: _Query,
        identity: list[IdentityHit],
        ranked: list[tuple[int, str, float]],
        nearest: list[tuple[int, float]],
    ) -> list[int]:
        """Write what each stage found; returns the vector stage's rows in their order."""
        candidates = query.by_row
        for rank, hit in enumerate(identity, 1):
            candidates[hit.unit_rowid].exact_rank = rank
            candidates[hit.unit_rowid].identity = "prefix" if hit.grade == 2 else "equal"
        for rank, (rowid, _, _) in enumerate(ranked, 1):
            if rowid in candidates:
                candidates[rowid].bm25_rank = rank
        for rowid, candidate in candidates.items():
            candidate.bm25_score = query.bm25.get(rowid)
        placed = [(rowid, score) for rowid, score in nearest if rowid in candidates]
        placed.sort(key=lambda item: (-item[1], candidates[item[0]].unit_key))
        for rank, (rowid, score) in enumerate(placed, 1):
            candidates[rowid].vector_rank = rank
            candidates[rowid].vector_score = score
        return [rowid for rowid, _ in placed]

    def _final_order(self, query: _Query, fused: list[int]) -> list[Candidate]:
        if not fused:
            return []
        if query.embedding is None:
            return self._lexical_order(query, fused)
        fused = self._equal_first(query, fused)
        head, tail = fused, []
        self._write_cosines(query, fused)
        if self._profile.late_pass:
            with query.timed("late_us"):
                head, tail = self._late_pass(query, fused[:LATE_LIMIT]), fused[LATE_LIMIT:]
        chosen, rest = self._chosen(query, head)
        with query.timed("rerank_us"):
            self._rerank(query, chosen)
        with query.timed("assembly_us"):
            ordered = [query.by_row[rowid] for rowid in self._by_final_score(query, chosen)]
            others = [query.by_row[rowid] for rowid in (*rest, *tail)]
            whole = [*self._in_force_first(query, ordered), *others]
            return sorted(whole, key=lambda candidate: candidate.identity != "equal")

    def _equal_first(self, query: _Query, rows: list[int]) -> list[int]:
        """The rows as they stand, identity-equal ones before all others."""
        return sorted(rows, key=lambda r: query.by_row[r].identity != "equal")

    def _chosen(self, query: _Query, head: list[int]) -> tuple[list[int], list[int]]:
        """The rows for the cross-encoder, identity-equal ones always among them, and the rest.

        One long resource does not fill the places: beyond RERANK_PER_RESOURCE its units wait until
        every other resource had its turn.
        """
        taken: Counter[str] = Counter()
        early: list[int] = []
        late: list[int] = []
        for rowid in self._equal_first(query, head):
            resource = query.by_row[rowid].resource_id
            taken[resource] += 1
            (early if taken[resource] <= RERANK_PER_RESOURCE else late).append(rowid)
        chosen = (early + late)[: self._profile.rerank_limit]
        kept = set(chosen)
        return chosen, [rowid for rowid in head if rowid not in kept]

    def _lexical_order(self, query: _Query, fused: list[int]) -> list[Candidate]:
        """Without models the fused order is the answer, and term coverage says how relevant."""
        candidates = [query.by_row[rowid] for rowid in fused]
        for candidate in candidates[:LEXICAL_RELEVANCE_LIMIT]:
            candidate.coverage = self._coverage(query, candidate)
            candidate.relevance = relevance(self._profile, Evidence(candidate.coverage))
            candidate.final_score = candidate.rrf_score
        judged = candidates[:LEXICAL_RELEVANCE_LIMIT]
        return [*self._in_force_first(query, judged), *candidates[LEXICAL_RELEVANCE_LIMIT:]]

    def _in_force_first(self, query: _Query, judged: list[Candidate]) -> list[Candidate]:
        """The candidates that have a relevance, no page before a relevant one that replaces it."""
        pages = read_pages(query.connection, dict.fromkeys(c.resource_id for c in judged))
        return in_force_first(judged, pages, self._profile.relevance_floor)

    def _coverage(self, query: _Query, candidate: Candidate) -> float:
        if candidate.identity == "equal":
            return 1.0
        return coverage(query.terms, [candidate.path, *candidate.heading_path, candidate.text])

    def _late_pass(self, query: _Query, rows: list[int]) -> list[int]:
        """The rows by the profile's first-pass blend: who the reranker sees first."""
        assert query.embedding is not None
        tokens = self._token_vectors(query, rows)
        scores = max_sim(query.embedding.tokens, [tokens[rowid] for rowid in rows])
        for rowid, score in zip(rows, scores.tolist(), strict=True):
            query.by_row[rowid].late_score = score
        ranked = sorted(
            rows, key=lambda r: (-(query.by_row[r].late_score or 0.0), self._tie(query, r))
        )
        for rank, rowid in enumerate(ranked, 1):
            query.by_row[rowid].late_rank = rank
        blend = blended(self._stages(query, rows), self._profile.first_pass_weights)
        order = dict(zip(rows, blend.tolist(), strict=True))
        return sorted(rows, key=lambda r: (-order[r], self._tie(query, r)))

    def _token_vectors(self, query: _Query, rows: list[int]) -> dict[int, TokenVectors]:
        """Token vectors of every row: cached, stored, or embedded now, side by side."""
        found = self._tokens.get(rows)
        wanted = [rowid for rowid in rows if rowid not in found]
        stored = read_token_vectors(query.connection, wanted, self._profile.dimensions)
        missing = [rowid for rowid in wanted if rowid not in stored]
        embedder = self._models.embedder
        inputs = [embedder.passage_input(self._document(query, rowid)) for rowid in missing]
        made = self._models.pool.map(
            embedder.embed, inputs, cost=len, timeout_s=query.deadline.remaining_s()
        )
        fresh = {r: e.quantised() for r, e in zip(missing, made, strict=True)} | stored
        self._tokens.put(fresh)
        return found | fresh

    def _document(self, query: _Query, rowid: int) -> str:
        candidate = query.by_row[rowid]
        return model_text(candidate.path, candidate.heading_path, candidate.text)

    def _rerank(self, query: _Query, rows: list[int]) -> None:
        """Write the cross-encoder's logit, rank and the calibrated relevance of each row."""
        documents = [self._document(query, rowid) for rowid in rows]
        logits = self._models.reranker.score(
            query.text, documents, self._models.pool, query.deadline.remaining_s()
        )
        for rowid, logit in zip(rows, logits.tolist(), strict=True):
            candidate = query.by_row[rowid]
            candidate.reranker_logit = logit
            candidate.coverage = self._coverage(query, candidate)
            evidence = Evidence(
                candidate.coverage, candidate.vector_score, candidate.late_score, logit
            )
            candidate.relevance = relevance(self._profile, evidence)
        ranked = sorted(
            rows, key=lambda r: (-(query.by_row[r].reranker_logit or 0.0), self._tie(query, r))
        )
        for rank, rowid in enumerate(ranked, 1):
            query.by_row[rowid].reranker_rank = rank

    def _by_final_score(self, query: _Query, rows: list[int]) -> list[int]:
        """Rows best first by the profile's rule; identity-equal ones before all others."""
        if self._profile.final_order == "blend":
            scores = blended(self._stages(query, rows), self._profile.blend_weights).tolist()
        else:
            scores = [query.by_row[rowid].reranker_logit or 0.0 for rowid in rows]
        for rowid, score in zip(rows, scores, strict=True):
            candidate = query.by_row[rowid]
            candidate.final_score = score
            if candidate.identity == "equal":
                candidate.final_score += IDENTITY_BONUS
        return sorted(
            rows,
            key=lambda r: (
                query.by_row[r].identity != "equal",
                -(query.by_row[r].final_score or 0.0),
                self._tie(query, r),
            ),
        )

    def _stages(self, query: _Query, rows: list[int]) -> dict[BlendStage, Sequence[float]]:
        """The raw scores of each stage that ran, in the order of `rows`."""
        candidates = [query.by_row[rowid] for rowid in rows]
        stages: dict[BlendStage, Sequence[float]] = {
            "bm25": [candidate.bm25_score or 0.0 for candidate in candidates],
            "vector": [candidate.vector_score or 0.0 for candidate in candidates],
            "rrf": [candidate.rrf_score or 0.0 for candidate in candidates],
        }
        late = [c.late_score for c in candidates if c.late_score is not None]
        if len(late) == len(rows):
            stages["late"] = late
        logits = [c.reranker_logit for c in candidates if c.reranker_logit is not None]
        if len(logits) == len(rows):
            stages["reranker"] = logits
        return stages

    def _write_cosines(self, query: _Query, rows: list[int]) -> None:
        """Give every row its cosine, also those the vector search did not return."""
        assert query.embedding is not None
        ids = np.asarray(rows, dtype=np.int64)
        scores = query.vectors.scores(query.embedding.vector, ids).tolist()
        for rowid, score in zip(rows, scores, strict=True):
            query.by_row[rowid].vector_score = score

    def _tie(self, query: _Query, rowid: int) -> tuple[float, str]:
        candidate = query.by_row[rowid]
        return (-(candidate.rrf_score or 0.0), candidate.unit_key)
