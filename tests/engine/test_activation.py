"""Budgets, exclusion reasons and deltas over hand-made candidates."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import msgspec
import pytest

from clumsies.engine.activation import Budget, delta, select, skipped_stages
from clumsies.engine.state import (
    EMPTY_STATE,
    STATE_VERSION,
    ActivationState,
    KnownFragment,
    decode_state,
    encode_state,
)
from clumsies.engine.trace import Candidate, Skipped
from clumsies.errors import InvalidRequest
from clumsies.models.manifest import COMPACT, MULTILINGUAL
from clumsies.types import Locator, ResourceId, UnitKey, content_hash

BLEND = replace(COMPACT, relevance_floor=0.5)
RERANKER = replace(MULTILINGUAL, relevance_floor=0.5)


def candidate(
    number: int,
    *,
    resource: str | None = None,
    span: tuple[int, int] | None = None,
    tokens: int = 10,
    relevance: float | None = 0.9,
    identity: Literal["equal", "prefix"] | None = None,
    text: str | None = None,
) -> Candidate:
    owner = resource or f"r{number}"
    start, end = span or (number * 100, number * 100 + 50)
    body = text if text is not None else f"text {number}"
    return Candidate(
        unit_key=UnitKey(f"{owner}/{number}"),
        resource_id=ResourceId(owner),
        scope="project",
        kind="memory",
        path=f"{owner}.md",
        heading_path=("Top",),
        locator=Locator(start, end),
        content_hash=content_hash(body),
        resource_content_hash=content_hash("whole"),
        token_count=tokens,
        text=body,
        identity=identity,
        relevance=relevance,
    )


def reasons(candidates: list[Candidate], budget: Budget | None = None, profile=BLEND) -> list[str]:  # type: ignore[no-untyped-def]
    chosen = select(candidates, profile, budget or Budget())
    assert chosen == [c for c in candidates if c.selected]
    assert all((c.exclusion_reason == "selected") == c.selected for c in candidates)
    return [c.exclusion_reason for c in candidates]


def test_default_budget() -> None:
    assert Budget() == Budget(fragments=12, per_resource=2, tokens=2_400)
    assert reasons([candidate(i) for i in range(14)]) == ["selected"] * 12 + ["fragment_limit"] * 2


@pytest.mark.parametrize("field", ["fragments", "per_resource", "tokens"])
@pytest.mark.parametrize("value", [0, -1])
def test_a_budget_below_one_is_refused(field: str, value: int) -> None:
    with pytest.raises(InvalidRequest):
        Budget(**{field: value})


def test_nothing_to_select() -> None:
    assert select([], BLEND, Budget()) == []


def test_fragment_limit_ends_the_selection() -> None:
    later = [candidate(3, resource="r1"), candidate(4, relevance=0.1), candidate(5)]
    found = reasons([candidate(1), candidate(2), candidate(9), *later], Budget(fragments=2))
    assert found == ["selected"] * 2 + ["fragment_limit"] * 4


def test_token_budget_ends_the_selection() -> None:
    sizes = [60, 30, 20, 1]
    found = reasons([candidate(i, tokens=n) for i, n in enumerate(sizes)], Budget(tokens=100))
    assert found == ["selected", "selected", "token_budget", "token_budget"]


def test_the_token_budget_may_be_used_up_exactly() -> None:
    found = reasons([candidate(i, tokens=50) for i in range(3)], Budget(tokens=100))
    assert found == ["selected", "selected", "token_budget"]


def test_the_first_fragment_is_taken_whatever_it_costs() -> None:
    found = reasons([candidate(0, tokens=500), candidate(1, tokens=1)], Budget(tokens=100))
    assert found == ["selected", "token_budget"]
    late = [candidate(0, relevance=0.1), candidate(1, tokens=500)]
    assert reasons(late, Budget(tokens=100)) == ["below_relevance", "selected"]


def test_overlap_only_skips() -> None:
    found = reasons(
        [
            candidate(0, resource="a", span=(0, 100)),
            candidate(1, resource="a", span=(99, 150)),
            candidate(2, resource="b", span=(50, 150)),
            candidate(3, resource="a", span=(100, 150)),
        ]
    )
    assert found == ["selected", "overlap", "selected", "selected"]


def test_a_description_overlaps_nothing() -> None:
    found = reasons(
        [candidate(0, resource="a", span=(0, 0)), candidate(1, resource="a", span=(0, 9))]
    )
    assert found == ["selected", "selected"]


def test_per_resource_limit_only_skips() -> None:
    found = reasons([*(candidate(i, resource="a") for i in range(4)), candidate(5)])
    assert found == ["selected", "selected", "per_resource_limit", "per_resource_limit", "selected"]


def test_relevance_floor_of_a_blend_only_skips() -> None:
    values = [0.5, 0.49, 0.9]
    found = reasons([candidate(i, relevance=v) for i, v in enumerate(values)])
    assert found == ["selected", "below_relevance", "selected"]


def test_relevance_floor_of_a_reranker_order_ends() -> None:
    values = [0.5, 0.49, 0.9]
    found = reasons([candidate(i, relevance=v) for i, v in enumerate(values)], profile=RERANKER)
    assert found == ["selected", "below_relevance", "below_relevance"]


def test_an_equal_identity_needs_no_relevance_and_a_prefix_does() -> None:
    found = reasons(
        [
            candidate(0, relevance=0.0, identity="equal"),
            candidate(1, relevance=0.0, identity="prefix"),
        ],
        profile=RERANKER,
    )
    assert found == ["selected", "below_relevance"]


def test_what_was_not_reranked_says_so_also_behind_the_end() -> None:
    found = reasons([candidate(0), candidate(1), candidate(2, relevance=None)], Budget(fragments=1))
    assert found == ["selected", "fragment_limit", "not_reranked"]


def test_delta_add_reuse_replace_removed() -> None:
    first = [candidate(0), candidate(1), candidate(2)]
    fragments, state = delta(first, EMPTY_STATE, [])
    assert [f.action for f in fragments] == ["add"] * 3
    assert [f.content for f in fragments] == ["text 0", "text 1", "text 2"]
    assert [c.delta_action for c in first] == ["add"] * 3
    state = decode_state(encode_state(state))
    second = [candidate(1, text="new text"), candidate(0)]
    fragments, state = delta(second, state, [first[2].unit_key])
    assert [f.action for f in fragments] == ["replace", "reuse"]
    assert [f.content for f in fragments] == ["new text", None]
    assert b'"content"' not in msgspec.json.encode(fragments[1])
    assert (state.version, state.epoch) == (STATE_VERSION, 2)
    assert {k.unit_key: k.last_seen for k in state.known} == {"r0/0": 2, "r1/1": 2}
    assert {k.content_hash for k in state.known} == {
        content_hash("new text"),
        first[0].content_hash,
    }


def test_delta_remembers_what_this_answer_does_not_show() -> None:
    before = ActivationState(STATE_VERSION, 7, (KnownFragment("old", "sha256:0", 4),))
    _, state = delta([candidate(0)], before, [])
    assert state.epoch == 8
    assert {k.unit_key: k.last_seen for k in state.known} == {"old": 4, "r0/0": 8}


def test_removing_what_is_not_known_changes_nothing() -> None:
    assert delta([], EMPTY_STATE, ["nobody"])[1] == ActivationState(STATE_VERSION, 1, ())


def test_skipped_stages() -> None:
    (stage,) = skipped_stages([Skipped("vector", "script")])
    assert msgspec.to_builtins(stage) == {"stage": "vector", "reason": "script"}
