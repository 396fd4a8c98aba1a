"""The overlay of one draft against a plain-Python reading of the contract."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.errors import Conflict
from clumsies.memory.operations import MemoryContent, StoreOperation, Update
from clumsies.memory.overlay import (
    NOTHING,
    DraftedMemory,
    DraftIdentity,
    apply_operations,
)
from tests.memory.local_memory import create, delete, discard, rename, update

BASE = DraftedMemory("mem", "a.md", "base", "about", "org", "c1")
TARGETED = DraftIdentity("draft", "org", "mem", "a.md", "c1")
CREATING = DraftIdentity("draft", "org", None, "n.md", None)
Facts = tuple[str, str, str] | None

OPERATIONS = st.one_of(
    st.builds(
        lambda t, d: update("mem", t, d), st.sampled_from("xyz"), st.sampled_from([None, "", "d"])
    ),
    st.sampled_from(["b.md", "c/d.md"]).map(lambda path: rename("mem", path)),
    st.just(delete("mem")),
    st.just(discard("draft")),
)


def oracle(operations: list[StoreOperation]) -> Facts | str:
    """(path, text, description), None where nothing is left, or a word where it is refused."""
    if any(operation.discard for operation in operations):
        return "installed"
    state: list[str] | None = ["a.md", "base", "about"]
    for operation in operations:
        if operation.delete:
            state = None
        elif state is None:
            return "refused"
        elif operation.rename:
            state[0] = operation.rename.new_path
        elif operation.update and operation.update.content:
            state[1] = operation.update.content.content
            if operation.update.content.description is not None:
                state[2] = operation.update.content.description
    return None if state is None else (state[0], state[1], state[2])


@given(st.lists(OPERATIONS, max_size=6))
def test_operations_are_applied_in_order(operations: list[StoreOperation]) -> None:
    expected = oracle(operations)
    if expected == "refused":
        with pytest.raises(Conflict) as caught:
            apply_operations(TARGETED, BASE, operations)
        assert caught.value.code == "draft_conflict"
        return
    overlay = apply_operations(TARGETED, BASE, operations)
    if expected == "installed":
        assert overlay == NOTHING
        return
    assert {"mem", "draft"} <= overlay.removed
    result = overlay.result
    facts = None if result is None else (result.path, result.content, result.description)
    assert facts == expected
    assert result is None or (result.resource_id, result.source_commit_id) == ("mem", "c1")


def test_a_creation_and_what_follows_has_the_drafts_id() -> None:
    operations = [create("n.md", "new"), rename("draft", "m.md"), update("draft", "newer", "d")]
    overlay = apply_operations(CREATING, None, operations)
    assert overlay.result == DraftedMemory("draft", "m.md", "newer", "d", "org", None)
    assert overlay.removed == {"draft"}


def test_a_creation_from_another_machine_keeps_the_id_it_has_there() -> None:
    foreign = DraftIdentity("draft_here", "org", None, "n.md", None)
    operations = [create("n.md", "new"), update("draft_there", "newer")]
    overlay = apply_operations(foreign, None, operations)
    assert overlay.result is not None
    assert overlay.result.resource_id == "draft_there"
    assert overlay.removed == {"draft_here", "draft_there"}


def test_a_draft_without_target_takes_its_base_by_path() -> None:
    draft = DraftIdentity("draft", "org", None, "a.md", "c1")
    overlay = apply_operations(draft, BASE, [update("mem", "new")])
    assert overlay.result is not None
    assert (overlay.result.resource_id, overlay.result.content) == ("mem", "new")
    assert apply_operations(draft, BASE, [delete("mem")]).removed >= {"mem", "draft"}


@pytest.mark.parametrize(
    "operations",
    [
        [update("mem", "x")],
        [rename("mem", "b.md")],
        [create("n.md", " \n")],
        [create("n.md", "x"), StoreOperation(update=Update(id="draft"))],
    ],
)
def test_what_cannot_be_applied_is_refused(operations: list[StoreOperation]) -> None:
    with pytest.raises(Conflict) as caught:
        apply_operations(CREATING, None, operations)
    assert caught.value.details == {"draft_id": "draft"}


def test_a_blank_text_is_refused_however_it_comes() -> None:
    blank = StoreOperation(update=Update(id="mem", content=MemoryContent(content="\t")))
    with pytest.raises(Conflict):
        apply_operations(TARGETED, BASE, [blank])
