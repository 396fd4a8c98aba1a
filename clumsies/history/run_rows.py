"""Rows of runs and candidates, to and from records. Callers bring the connection."""

from __future__ import annotations

import json
from collections.abc import Iterable

import apsw
import msgspec

from clumsies.engine.trace import Candidate, Trace
from clumsies.history.records import Run, RunCandidate, excerpt
from clumsies.storage.database import SqlValue, all_rows, first_row

RUN_COLUMNS = Run.__struct_fields__
_RUN_LIST = ", ".join(RUN_COLUMNS)
_STORED = (
    "candidate_order",
    "unit_key",
    "resource_id",
    "scope",
    "kind",
    "path",
    "heading_path_json",
    "locator_json",
    "content_hash",
    "resource_content_hash",
    "token_count",
    "identity",
    "exact_rank",
    "bm25_rank",
    "bm25_score",
    "vector_rank",
    "vector_score",
    "rrf_rank",
    "rrf_score",
    "late_rank",
    "late_score",
    "reranker_rank",
    "reranker_logit",
    "coverage",
    "reranker_relevance",
    "final_rank",
    "final_score",
    "superseded_by",
    "selected",
    "exclusion_reason",
    "delta_action",
)
_DERIVED = {"heading_path_json", "locator_json"}
_INSERT_CANDIDATE = (
    f"INSERT INTO retrieval_run_candidates(run_id, {', '.join(_STORED)}) "
    f"VALUES (?{', ?' * len(_STORED)})"
)


def candidate_of(order: int, candidate: Candidate) -> RunCandidate:
    """A candidate of a trace as history keeps it; `order` counts from 1 in final order."""
    return RunCandidate(
        candidate_order=order,
        unit_key=candidate.unit_key,
        resource_id=candidate.resource_id,
        scope=candidate.scope,
        kind=candidate.kind,
        path=candidate.path,
        heading_path=candidate.heading_path,
        start=candidate.locator.start,
        end=candidate.locator.end,
        content_hash=candidate.content_hash,
        resource_content_hash=candidate.resource_content_hash,
        token_count=candidate.token_count,
        evidence_excerpt=excerpt(candidate.text),
        selected=candidate.selected,
        exclusion_reason=candidate.exclusion_reason,
        identity=candidate.identity,
        exact_rank=candidate.exact_rank,
        bm25_rank=candidate.bm25_rank,
        bm25_score=candidate.bm25_score,
        vector_rank=candidate.vector_rank,
        vector_score=candidate.vector_score,
        rrf_rank=candidate.rrf_rank,
        rrf_score=candidate.rrf_score,
        late_rank=candidate.late_rank,
        late_score=candidate.late_score,
        reranker_rank=candidate.reranker_rank,
        reranker_logit=candidate.reranker_logit,
        coverage=candidate.coverage,
        reranker_relevance=candidate.relevance,
        final_rank=candidate.final_rank,
        final_score=candidate.final_score,
        superseded_by=candidate.superseded_by,
        delta_action=candidate.delta_action,
    )


def candidates_of(trace: Trace) -> tuple[RunCandidate, ...]:
    """Every candidate of a trace, in final order."""
    return tuple(candidate_of(order, found) for order, found in enumerate(trace.candidates, 1))


def trace_columns(trace: Trace) -> dict[str, SqlValue]:
    """What a trace says about its run as a whole."""
    times = trace.times
    return {
        "effective_hash": trace.effective_hash,
        "index_revision": trace.index_revision,
        "resource_count": trace.resource_count,
        "unit_count": trace.unit_count,
        "parser_version": trace.parser_version,
        "chunker_version": trace.chunker_version,
        "terms_version": trace.terms_version,
        "profile": trace.profile,
        "model_revision": trace.embedding_revision,
        "ranking_profile": trace.ranking_profile,
        "skipped": " ".join(f"{item.stage}:{item.reason}" for item in trace.skipped),
        "index_ensure_us": times.index_ensure_us,
        "bm25_us": times.bm25_us,
        "embedding_us": times.embedding_us,
        "vector_us": times.vector_us,
        "rrf_us": times.rrf_us,
        "late_us": times.late_us,
        "rerank_us": times.rerank_us,
        "assembly_us": times.assembly_us,
        "total_us": times.total_us,
        "returned_fragment_count": sum(c.selected for c in trace.candidates),
        "returned_token_count": trace.returned_tokens,
    }


def update_run(connection: apsw.Connection, run_id: str, values: dict[str, SqlValue]) -> bool:
    """Write columns of a run that is still running; whether there was one."""
    assigned = ", ".join(f"{name} = ?" for name in values)
    connection.execute(
        f"UPDATE retrieval_runs SET {assigned} WHERE run_id = ? AND status = 'running'",
        (*values.values(), run_id),
    )
    return connection.changes() > 0


def insert_run(connection: apsw.Connection, run: Run, corpus_id: str | None = None) -> None:
    """Write a whole run."""
    places = ", ?" * len(RUN_COLUMNS)
    connection.execute(
        f"INSERT INTO retrieval_runs(corpus_id, {_RUN_LIST}) VALUES (?{places})",
        (corpus_id, *msgspec.structs.astuple(run)),
    )


def insert_candidates(
    connection: apsw.Connection, run_id: str, candidates: Iterable[RunCandidate]
) -> None:
    """Write a run's candidates; an excerpt that another run has already is kept once."""
    found = list(candidates)
    connection.executemany(
        "INSERT OR IGNORE INTO retrieval_excerpts VALUES (?, ?)",
        ((candidate.content_hash, candidate.evidence_excerpt) for candidate in found),
    )
    connection.executemany(
        _INSERT_CANDIDATE, ((run_id, *_candidate_row(candidate)) for candidate in found)
    )


def _candidate_row(c: RunCandidate) -> tuple[SqlValue, ...]:
    return (
        c.candidate_order,
        c.unit_key,
        c.resource_id,
        c.scope,
        c.kind,
        c.path,
        json.dumps(c.heading_path, ensure_ascii=False),
        f'{{"start":{c.start},"end":{c.end}}}',
        c.content_hash,
        c.resource_content_hash,
        c.token_count,
        c.identity,
        c.exact_rank,
        c.bm25_rank,
        c.bm25_score,
        c.vector_rank,
        c.vector_score,
        c.rrf_rank,
        c.rrf_score,
        c.late_rank,
        c.late_score,
        c.reranker_rank,
        c.reranker_logit,
        c.coverage,
        c.reranker_relevance,
        c.final_rank,
        c.final_score,
        c.superseded_by,
        int(c.selected),
        c.exclusion_reason,
        c.delta_action,
    )


def read_run(connection: apsw.Connection, run_id: str) -> tuple[Run, str | None] | None:
    """A run and the id of its manifest, or None."""
    row = first_row(
        connection,
        f"SELECT {_RUN_LIST}, corpus_id FROM retrieval_runs WHERE run_id = ?",
        (run_id,),
    )
    return None if row is None else (Run(*row[:-1]), row[-1])


def read_candidates(connection: apsw.Connection, run_id: str) -> tuple[RunCandidate, ...]:
    """A run's candidates in final order."""
    rows = all_rows(
        connection,
        f"SELECT {', '.join(_STORED)}, evidence_excerpt FROM retrieval_run_candidates "
        "JOIN retrieval_excerpts USING (content_hash) WHERE run_id = ? ORDER BY candidate_order",
        (run_id,),
    )
    return tuple(map(_candidate, rows))


def _candidate(row: tuple[SqlValue, ...]) -> RunCandidate:
    values = dict(zip((*_STORED, "evidence_excerpt"), row, strict=True))
    plain = {name: value for name, value in values.items() if name not in _DERIVED}
    locator = json.loads(str(values["locator_json"]))
    return msgspec.convert(
        plain
        | locator
        | {
            "heading_path": json.loads(str(values["heading_path_json"])),
            "selected": bool(values["selected"]),
        },
        RunCandidate,
    )


def list_runs(
    connection: apsw.Connection, project_id: str, after: tuple[str, str] | None, limit: int
) -> list[Run]:
    """A project's runs, the latest first, from after the one of this (created_at, run_id)."""
    condition = "" if after is None else "AND (created_at, run_id) < (?, ?) "
    rows = all_rows(
        connection,
        f"SELECT {_RUN_LIST} FROM retrieval_runs WHERE project_id = ? {condition}"
        "ORDER BY created_at DESC, run_id DESC LIMIT ?",
        (project_id, *(after or ()), limit),
    )
    return [Run(*row) for row in rows]
