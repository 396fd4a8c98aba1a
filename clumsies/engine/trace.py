"""What one activation did: every candidate with every stage's rank and score, and the times.

The answer that the caller gets and the run that history stores are both made from the same
trace, so neither can say something the other does not. Ranks start at 1; every score is higher
is better; a stage that did not see a candidate leaves `None`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from clumsies.types import ContentHash, IndexRevision, Locator, ResourceId, UnitKey

Exclusion = Literal[
    "selected",
    "below_relevance",
    "overlap",
    "per_resource_limit",
    "token_budget",
    "fragment_limit",
    "not_reranked",
]
DeltaAction = Literal["add", "replace", "reuse"]
Stage = Literal["vector", "late_interaction", "rerank"]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A stage that did not run for this query, and why (`script`: the model cannot read it)."""

    stage: Stage
    reason: str


@dataclass(slots=True)
class Candidate:
    """One fused unit on its way through the stages; filled in by them, in this order.

    `superseded_by` is the page that replaces this one: its path where it was found, too, else what
    this page calls it. A successor's unit may stand above a better `final_score` for it.
    """

    unit_key: UnitKey
    resource_id: ResourceId
    scope: str
    kind: str
    path: str
    heading_path: tuple[str, ...]
    locator: Locator
    content_hash: ContentHash
    resource_content_hash: ContentHash
    token_count: int
    text: str
    identity: Literal["equal", "prefix"] | None = None
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
    relevance: float | None = None
    final_rank: int | None = None
    final_score: float | None = None
    superseded_by: str | None = None
    selected: bool = False
    exclusion_reason: Exclusion = "not_reranked"
    delta_action: DeltaAction | None = None


@dataclass(slots=True)
class StageTimes:
    """Wall time of each stage, microseconds."""

    index_ensure_us: int = 0
    bm25_us: int = 0
    embedding_us: int = 0
    vector_us: int = 0
    rrf_us: int = 0
    late_us: int = 0
    rerank_us: int = 0
    assembly_us: int = 0
    total_us: int = 0

    @property
    def model_us(self) -> int:
        """Time spent inside models: query embedding, late interaction, cross-encoder."""
        return self.embedding_us + self.late_us + self.rerank_us


@dataclass(slots=True)
class Trace:
    """Everything one activation did. `candidates` stand in final order, all of them."""

    query: str
    profile: str
    ranking_profile: str
    index_revision: IndexRevision
    effective_hash: str
    parser_version: str
    chunker_version: str
    terms_version: str
    embedding_revision: str
    resource_count: int
    unit_count: int
    candidates: list[Candidate] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    times: StageTimes = field(default_factory=StageTimes)
    returned_tokens: int = 0
