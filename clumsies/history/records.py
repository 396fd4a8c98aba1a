"""What history holds, as it is read: runs, candidates, the searched memory, cases, judgments.

The same records are the parts of a fixture, so a field added here has a default or a new fixture
version. Ranks start at 1, scores are higher is better, times are microseconds.
"""

from __future__ import annotations

from typing import Literal

import msgspec

EXCERPT_CHARS = 1_200
"""Longest excerpt or preview; what is cut ends in an ellipsis."""
RunStatus = Literal["running", "succeeded", "failed"]
ErrorStage = Literal[
    "activation_state",
    "index_head",
    "bm25",
    "embedding",
    "vector",
    "rrf",
    "rerank",
    "assembly",
    "persistence",
    "interrupted",
]
FailureStage = Literal["fusion", "reranking", "assembly"]


class Run(msgspec.Struct, frozen=True, omit_defaults=True):
    """One activation: what was asked of which memory, how long each stage took, how it ended."""

    run_id: str
    project_id: str
    query: str
    activation_state_fingerprint: str
    status: RunStatus
    created_at: str
    effective_hash: str | None = None
    index_revision: str | None = None
    resource_count: int = 0
    unit_count: int = 0
    parser_version: str | None = None
    chunker_version: str | None = None
    terms_version: str | None = None
    profile: str | None = None
    model_revision: str | None = None
    ranking_profile: str | None = None
    skipped: str = ""
    effective_memory_us: int = 0
    index_ensure_us: int = 0
    bm25_us: int = 0
    embedding_us: int = 0
    vector_us: int = 0
    rrf_us: int = 0
    late_us: int = 0
    rerank_us: int = 0
    assembly_us: int = 0
    persistence_us: int = 0
    total_us: int = 0
    returned_fragment_count: int = 0
    returned_token_count: int = 0
    error_stage: str | None = None
    error_code: str | None = None
    error_summary: str | None = None
    completed_at: str | None = None


class RunCandidate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One candidate of a run with every stage's rank and score; None where a stage did not see it.

    `start` and `end` are bytes of the resource's UTF-8 body.
    """

    candidate_order: int
    unit_key: str
    resource_id: str
    scope: str
    kind: str
    path: str
    heading_path: tuple[str, ...]
    start: int
    end: int
    content_hash: str
    resource_content_hash: str
    token_count: int
    evidence_excerpt: str
    selected: bool
    exclusion_reason: str
    identity: str | None = None
    exact_rank: int | None = None
    bm25_rank: int | None = None
    bm25_score: float | None = None
    vector_rank: int | None = None
    vector_score: float | None = None
    rrf_rank: int | None = None
    rrf_score: float | None = None
    late_rank: int | None = None
    late_score: float | None = None
    reranker_rank: int | None = None
    reranker_logit: float | None = None
    coverage: float | None = None
    reranker_relevance: float | None = None
    final_rank: int | None = None
    final_score: float | None = None
    superseded_by: str | None = None
    delta_action: str | None = None


class CorpusResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """One resource of a memory as it was searched; the body is a blob by `content_hash`."""

    resource_order: int
    resource_id: str
    scope: str
    kind: str
    path: str
    title: str
    content_hash: str
    content_preview: str
    source_commit_id: str | None = None
    draft_id: str | None = None
    draft_revision: str | None = None
    description: str = ""


class RunDetail(msgspec.Struct, frozen=True):
    """A run with everything that was kept of it; `pinned` where a case is made of it."""

    run: Run
    pinned: bool
    candidates: tuple[RunCandidate, ...]
    resources: tuple[CorpusResource, ...]


class RunPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Runs, the latest first; `next_cursor` where there are more."""

    runs: tuple[Run, ...]
    next_cursor: str | None = None


class EvaluationCase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A query with the memory it was asked of, for judging; `judgment_version` counts changes."""

    case_id: str
    source_run_id: str
    corpus_id: str
    project_id: str
    query: str
    judgment_version: int
    created_at: str
    updated_at: str
    query_category: str | None = None
    notes: str | None = None


class Judgment(msgspec.Struct, frozen=True, omit_defaults=True):
    """The grade of a retrieved unit, or (`missed`, no unit) of a resource that was not found."""

    judgment_id: str
    case_id: str
    resource_id: str
    relevance: int
    missed: bool
    evidence_excerpt: str
    created_at: str
    unit_key: str | None = None
    notes: str | None = None


class Suggestion(msgspec.Struct, frozen=True):
    """A candidate that was not returned and may be evidence; `failure_stage` is where it fell."""

    unit_key: str
    resource_id: str
    path: str
    heading_path: tuple[str, ...]
    evidence_excerpt: str
    failure_stage: FailureStage


class CaseDetail(msgspec.Struct, frozen=True):
    """A case with its judgments and everything of its source run."""

    evaluation_case: EvaluationCase
    judgments: tuple[Judgment, ...]
    resources: tuple[CorpusResource, ...]
    source_run: Run
    candidates: tuple[RunCandidate, ...]


class CasePage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Cases, the latest first; `next_cursor` where there are more."""

    cases: tuple[EvaluationCase, ...]
    next_cursor: str | None = None


def excerpt(text: str) -> str:
    """The text, or its first `EXCERPT_CHARS` characters and an ellipsis."""
    return text if len(text) <= EXCERPT_CHARS else text[:EXCERPT_CHARS] + "…"
