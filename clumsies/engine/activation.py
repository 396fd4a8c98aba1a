"""From a ranking to an answer: relevance floor, budgets, and the difference to what is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from clumsies.engine.state import STATE_VERSION, ActivationState, KnownFragment
from clumsies.engine.trace import Candidate, DeltaAction, Exclusion, Skipped
from clumsies.errors import InvalidRequest
from clumsies.models.manifest import Profile

FRAGMENT_LIMIT = 12
FRAGMENTS_PER_RESOURCE = 2
TOKEN_BUDGET = 2_400


@dataclass(frozen=True, slots=True)
class Budget:
    """How much an answer may hold. Tokens are the embedder's, of the fragments' texts."""

    fragments: int = FRAGMENT_LIMIT
    per_resource: int = FRAGMENTS_PER_RESOURCE
    tokens: int = TOKEN_BUDGET

    def __post_init__(self) -> None:
        if min(self.fragments, self.per_resource, self.tokens) < 1:
            raise InvalidRequest(
                "invalid_request", "A budget is at least 1 fragment and 1 token; raise the limit."
            )


class Fragment(msgspec.Struct, frozen=True, omit_defaults=True):
    """One fragment of an answer; `content` is left out where the caller has it (`reuse`).

    `superseded_by` is the page that replaces this one, where a page says so.
    """

    action: DeltaAction
    unit_key: str
    content_hash: str
    resource_id: str
    scope: str
    kind: str
    path: str
    heading_path: tuple[str, ...]
    content: str | None = None
    superseded_by: str | None = None


class Removed(msgspec.Struct, frozen=True):
    """A fragment the caller knows and the memory no longer has."""

    unit_key: str


class SkippedStage(msgspec.Struct, frozen=True):
    """A stage that did not run for this query, and why."""

    stage: str
    reason: str


class ActivationResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer as it goes over the wire; `run_id` is left out where no run was stored."""

    index_revision: str
    profile: str
    next_state: str
    fragments: tuple[Fragment, ...]
    removed: tuple[Removed, ...]
    skipped: tuple[SkippedStage, ...]
    run_id: str | None = None


def select(candidates: Sequence[Candidate], profile: Profile, budget: Budget) -> list[Candidate]:
    """The candidates that the answer holds, in final order; every one learns its reason.

    `fragment_limit` and `token_budget` end the selection, and so does `below_relevance` where the
    reranker alone makes the order; in a blend a later candidate may still be relevant. The first
    fragment is taken whatever it costs.
    """
    chosen: list[Candidate] = []
    taken: Counter[str] = Counter()
    tokens = 0
    ended: Exclusion | None = None
    for candidate in candidates:
        if candidate.relevance is None:
            candidate.exclusion_reason = "not_reranked"
            continue
        reason = ended or _skip_reason(candidate, chosen, taken, profile, budget)
        if reason is None and len(chosen) >= budget.fragments:
            reason = ended = "fragment_limit"
        elif reason is None and chosen and tokens + candidate.token_count > budget.tokens:
            reason = ended = "token_budget"
        elif reason == "below_relevance" and profile.final_order == "reranker":
            ended = reason
        candidate.exclusion_reason = reason or "selected"
        if reason is None:
            candidate.selected = True
            chosen.append(candidate)
            taken[candidate.resource_id] += 1
            tokens += candidate.token_count
    return chosen


def _skip_reason(
    candidate: Candidate,
    chosen: Sequence[Candidate],
    taken: Counter[str],
    profile: Profile,
    budget: Budget,
) -> Exclusion | None:
    if candidate.identity != "equal" and (candidate.relevance or 0.0) < profile.relevance_floor:
        return "below_relevance"
    if any(_overlap(candidate, other) for other in chosen):
        return "overlap"
    if taken[candidate.resource_id] >= budget.per_resource:
        return "per_resource_limit"
    return None


def _overlap(one: Candidate, other: Candidate) -> bool:
    if one.resource_id != other.resource_id:
        return False
    return one.locator.start < other.locator.end and other.locator.start < one.locator.end


def delta(
    chosen: Sequence[Candidate], state: ActivationState, removed: Sequence[str]
) -> tuple[tuple[Fragment, ...], ActivationState]:
    """The fragments with what to do with each, and the caller's next state."""
    known = {fragment.unit_key: fragment for fragment in state.known}
    epoch = state.epoch + 1
    fragments: list[Fragment] = []
    for key in removed:
        known.pop(key, None)
    for candidate in chosen:
        previous = known.get(candidate.unit_key)
        action: DeltaAction = "add"
        if previous is not None:
            same = previous.content_hash == candidate.content_hash
            action = "reuse" if same else "replace"
        candidate.delta_action = action
        known[candidate.unit_key] = KnownFragment(candidate.unit_key, candidate.content_hash, epoch)
        fragments.append(_fragment(candidate, action))
    return tuple(fragments), ActivationState(STATE_VERSION, epoch, tuple(known.values()))


def _fragment(candidate: Candidate, action: DeltaAction) -> Fragment:
    return Fragment(
        action=action,
        unit_key=candidate.unit_key,
        content_hash=candidate.content_hash,
        resource_id=candidate.resource_id,
        scope=candidate.scope,
        kind=candidate.kind,
        path=candidate.path,
        heading_path=candidate.heading_path,
        content=None if action == "reuse" else candidate.text,
        superseded_by=candidate.superseded_by,
    )


def skipped_stages(skipped: Sequence[Skipped]) -> tuple[SkippedStage, ...]:
    """The wire form of what a ranking left out."""
    return tuple(SkippedStage(item.stage, item.reason) for item in skipped)
