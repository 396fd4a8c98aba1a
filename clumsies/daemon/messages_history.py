"""What the methods of retrieval history and evaluation take and give.

Ranks start at 1, scores are higher is better, times are microseconds; a stage that did not see a
candidate leaves its fields out.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from clumsies.daemon.messages import FilePath, Identifier, Message, Revision

Label = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Notes = Annotated[str, msgspec.Meta(max_length=10_000)]
Relevance = Annotated[int, msgspec.Meta(ge=0, le=3)]


class RetrievalRun(Message):
    run_id: str
    project_id: str
    query: str
    activation_state_fingerprint: str
    status: Literal["running", "succeeded", "failed"]
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


class RetrievalCandidate(Message):
    candidate_order: int
    unit_key: str
    resource_id: str
    scope: str
    kind: str
    path: str
    heading_path: list[str]
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


class CorpusResource(Message):
    """One resource of the searched memory, without its preview."""

    resource_order: int
    resource_id: str
    scope: str
    kind: str
    path: str
    title: str
    content_hash: str
    source_commit_id: str | None = None
    draft_id: str | None = None
    draft_revision: str | None = None
    description: str = ""


class ListRetrievalRuns(Message):
    """Newest first; `cursor` is the `next_cursor` of the page before."""

    project_id: Identifier
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50


class RetrievalRunPage(Message):
    runs: list[RetrievalRun]
    next_cursor: str | None = None


class OfRun(Message):
    run_id: Identifier


class RetrievalRunDetail(Message):
    run: RetrievalRun
    pinned: bool
    candidates: list[RetrievalCandidate]
    resources: list[CorpusResource]


class ClearedRuns(Message):
    """How many runs were removed, and how many stayed because cases pin them."""

    removed: int
    pinned: int


class CreateEvaluationCase(Message):
    run_id: Identifier
    query_category: Label | None = None
    notes: Notes | None = None


class GivenJudgment(Message):
    """The grade of a retrieved unit, or (`missed`, no `unit_key`) of a resource not found."""

    resource_id: Identifier
    relevance: Relevance
    missed: bool
    unit_key: Identifier | None = None
    notes: Notes | None = None


class ReplaceEvaluationJudgments(Message):
    """All of a case's judgments. A label left out stays, null takes it away."""

    case_id: Identifier
    expected_judgment_version: Revision
    judgments: Annotated[list[GivenJudgment], msgspec.Meta(max_length=10_000)]
    query_category: Label | UnsetType | None = UNSET
    notes: Notes | UnsetType | None = UNSET


class EvaluationCase(Message):
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


class Judgment(Message):
    judgment_id: str
    case_id: str
    resource_id: str
    relevance: int
    missed: bool
    evidence_excerpt: str
    created_at: str
    unit_key: str | None = None
    notes: str | None = None


class Suggestion(Message):
    """An unreturned candidate that may be evidence, and where the chain dropped it."""

    unit_key: str
    resource_id: str
    path: str
    heading_path: list[str]
    evidence_excerpt: str
    failure_stage: Literal["fusion", "reranking", "assembly"]


class EvaluationCaseDetail(Message):
    """`report` holds the numbers of the four variants, as in a fixture."""

    evaluation_case: EvaluationCase
    judgments: list[Judgment]
    resources: list[CorpusResource]
    source_run: RetrievalRun
    candidates: list[RetrievalCandidate]
    suggestions: list[Suggestion]
    report: dict[str, Any]


class ListEvaluationCases(Message):
    project_id: Identifier | None = None
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100


class EvaluationCasePage(Message):
    cases: list[EvaluationCase]
    next_cursor: str | None = None


class OfCase(Message):
    case_id: Identifier


class RemoveEvaluationCase(Message):
    """Forget a case as it stood at that version, with its judgments; its run stays."""

    case_id: Identifier
    expected_judgment_version: Revision


class ExportEvaluationSet(Message):
    """All cases of the project, or of all projects, or those named.

    With `path`, absolute, the fixture goes into that file instead of the answer, which a large
    memory would not fit into.
    """

    project_id: Identifier | None = None
    case_ids: list[Identifier] = msgspec.field(default_factory=list)
    path: FilePath | None = None


class EvaluationSet(Message):
    case_count: int
    fixture: dict[str, Any] | None = None


class ImportEvaluationSet(Message):
    """A fixture, or the absolute path of its file; `project_id` replaces those it names."""

    fixture: dict[str, Any] | None = None
    path: FilePath | None = None
    project_id: Identifier | None = None

    def __post_init__(self) -> None:
        if (self.fixture is None) == (self.path is None):
            raise ValueError("give either `fixture` or `path`")


class ImportedEvaluationSet(Message):
    imported: list[str]
    unchanged: list[str]


class RankChange(Message):
    """A unit that stands elsewhere than it did; a rank left out: it is no candidate."""

    unit_key: str
    resource_id: str
    path: str
    heading_path: list[str]
    before_selected: bool
    after_selected: bool
    text_changed: bool
    before_rank: int | None = None
    after_rank: int | None = None


class ReplayedRun(Message):
    run_id: str
    query: str
    same_memory: bool
    changes: list[RankChange]
