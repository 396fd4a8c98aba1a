"""Three-way reconciliation of resource states, and the operations that confirm its result."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from clumsies.config import DEFAULT_RESOURCE_LIMIT_BYTES
from clumsies.memory.operations import decode_operation, encode_operation
from clumsies.memory.overlay import DraftedMemory, DraftIdentity, apply_operations
from clumsies.memory.reconciliation import (
    ABSENT,
    ConflictField,
    ResourceState,
    StateConflict,
    canonical_state,
    operations_between,
    path_conflicts,
    reconcile,
    result_hash,
)
from clumsies.memory.text_merge import merge_texts
from clumsies.storage.tree_paths import collision_key, find_collision
from tests.effort import at_least
from tests.memory.line_texts import text_triples

PROPERTY = settings(max_examples=at_least(300))
PATHS = st.sampled_from(["a.md", "A.md", "b.md", "b.md/c.md", "d/é.md", "d/e\u0301.md", "d"])
DESCRIPTIONS = st.sampled_from([None, "", "one", "two"])


def there(
    path: str = "a.md", content: str = "a\nb\nc\n", description: str | None = None
) -> ResourceState:
    return ResourceState(exists=True, path=path, content=content, description=description)


BASE = there(description="about")
STATES = st.one_of(
    st.just(ABSENT),
    st.builds(there, PATHS, st.sampled_from(["a\nb\nc\n", "A\nb\nc\n", "a\nb\nC\n"]), DESCRIPTIONS),
)


@st.composite
def state_triples(draw: st.DrawFn) -> tuple[ResourceState, ResourceState, ResourceState]:
    contents = draw(text_triples().filter(lambda texts: all(text.strip() for text in texts)))
    base, current, draft = (
        ABSENT if draw(st.integers(0, 5)) == 0 else there(draw(PATHS), content, draw(DESCRIPTIONS))
        for content in contents
    )
    return base, current, draft


def kinds(conflicts: list[StateConflict]) -> list[tuple[str, str]]:
    return [(conflict.kind, conflict.field) for conflict in conflicts]


def expected_value(field: ConflictField, states: tuple[ResourceState, ...]) -> object:
    """What the field of three existing states comes to; None for a conflict."""
    base, current, draft = (getattr(state, field) or "" for state in states)
    if draft in (base, current):
        return current
    if current == base:
        return draft
    merged = merge_texts(base, current, draft).text if field == "content" else None
    return merged if merged and merged.strip() else None


@PROPERTY
@given(state_triples())
def test_fields_are_merged_each_by_itself(
    states: tuple[ResourceState, ResourceState, ResourceState],
) -> None:
    assume(all(state.exists for state in states))
    fields: tuple[ConflictField, ...] = ("path", "content", "description")
    expected = {field: expected_value(field, states) for field in fields}
    result = reconcile(*states)
    failed = [field for field, value in expected.items() if value is None]
    assert [conflict.field for conflict in result.conflicts] == failed
    if failed:
        assert (result.status, result.proposed) == ("conflicts", None)
        for conflict in result.conflicts:
            assert conflict.kind == ("path" if conflict.field == "path" else "content")
            assert (conflict.base, conflict.current, conflict.draft) == tuple(
                getattr(state, conflict.field) or "" for state in states
            )
    else:
        assert result.status == "clean"
        assert result.proposed == ResourceState(exists=True, **expected)  # type: ignore[arg-type]


@PROPERTY
@given(STATES, STATES)
def test_a_side_that_changed_nothing_yields(base: ResourceState, state: ResourceState) -> None:
    for current, draft in ((state, base), (base, state), (state, state)):
        result = reconcile(base, current, draft)
        assert (result.status, result.proposed, result.conflicts) == ("clean", state, [])


@PROPERTY
@given(state_triples())
def test_the_sides_are_equal_in_rank(
    states: tuple[ResourceState, ResourceState, ResourceState],
) -> None:
    base, current, draft = states
    one, other = reconcile(base, current, draft), reconcile(base, draft, current)
    assert one.proposed == other.proposed
    assert kinds(one.conflicts) == kinds(other.conflicts)


EDITED = there(content="A\nb\nc\n", description="about")


@pytest.mark.parametrize(
    ("base", "current", "draft"),
    [
        pytest.param(BASE, ABSENT, EDITED, id="deleted under an edit"),
        pytest.param(BASE, EDITED, ABSENT, id="a deletion of what was edited"),
        pytest.param(BASE, there("b.md", description="about"), ABSENT, id="of what was renamed"),
        pytest.param(ABSENT, BASE, EDITED, id="a creation of what appeared"),
    ],
)
def test_existence_against_another_change_is_a_conflict(
    base: ResourceState, current: ResourceState, draft: ResourceState
) -> None:
    result = reconcile(base, current, draft)
    assert result.proposed is None
    assert result.conflicts == [
        StateConflict(
            kind="existence",
            field="existence",
            base=base.exists,
            current=current.exists,
            draft=draft.exists,
        )
    ]


def test_what_both_deleted_is_gone() -> None:
    assert reconcile(BASE, ABSENT, ABSENT).proposed == ABSENT


def test_a_creation_on_nothing_stands() -> None:
    assert reconcile(ABSENT, ABSENT, BASE).proposed == BASE


def test_rename_edit_and_description_of_two_sides_are_joined() -> None:
    current = there("b.md", "A\nb\nc\n", "about")
    draft = there("a.md", "a\nb\nC\n", "new")
    assert reconcile(BASE, current, draft).proposed == there("b.md", "A\nb\nC\n", "new")


def test_every_conflict_is_told_at_once() -> None:
    current = there("b.md", "A\nb\nc\n", "one")
    draft = there("c.md", "X\nb\nc\n", "two")
    assert kinds(reconcile(BASE, current, draft).conflicts) == [
        ("path", "path"),
        ("content", "content"),
        ("content", "description"),
    ]


def test_a_description_both_changed_is_a_conflict_where_one_took_it_away() -> None:
    result = reconcile(BASE, there(description="one"), there(description=""))
    assert result.conflicts == [
        StateConflict(kind="content", field="description", base="about", current="one", draft="")
    ]


@pytest.mark.parametrize(
    ("current", "draft"),
    [
        ("\nb\n", "a\n\n"),
        (f"{'x' * DEFAULT_RESOURCE_LIMIT_BYTES}\n\nb\n", f"a\n\n{'y' * 9}\n"),
    ],
)
def test_a_merged_text_that_may_not_be_is_a_conflict(current: str, draft: str) -> None:
    assert merge_texts("a\n\nb\n", current, draft).text is not None
    result = reconcile(there(content="a\n\nb\n"), there(content=current), there(content=draft))
    assert kinds(result.conflicts) == [("content", "content")]


@pytest.mark.parametrize(
    ("path", "others", "occupied"),
    [
        ("b.md", ["c.md"], False),
        ("b.md", ["b.md"], True),
        ("B.md", ["b.MD"], True),
        ("d/\u00e9.md", ["d/e\u0301.md"], True),
        ("d/e", ["d/e/f.md"], True),
        ("d/e/f.md", ["D/E"], True),
        ("d/e", ["d/ef", "d/e.md", "d"], True),
        ("d/e", ["d/ef", "d/e.md", "dd"], False),
    ],
)
def test_a_path_of_another_resource_is_occupied(
    path: str, others: list[str], occupied: bool
) -> None:
    keys = frozenset(map(collision_key, others))
    conflict = StateConflict(kind="path_occupied", field="path", draft=path)
    result = reconcile(ABSENT, ABSENT, there(path), keys)
    assert result.conflicts == ([conflict] if occupied else [])
    moved = there(path, description="about")
    result = reconcile(BASE, BASE, moved, keys)
    assert kinds(result.conflicts) == ([("path_occupied", "path")] if occupied else [])
    result = reconcile(BASE, EDITED, moved, keys)
    assert kinds(result.conflicts) == ([("path_occupied", "path")] if occupied else [])


@PROPERTY
@given(PATHS, st.lists(PATHS, max_size=3))
def test_occupied_is_what_cannot_stand_side_by_side(path: str, others: list[str]) -> None:
    assume(find_collision(others) is None)
    keys = frozenset(map(collision_key, others))
    conflicts = path_conflicts(ABSENT, ABSENT, there(path), keys)
    assert bool(conflicts) == (find_collision([*others, path]) is not None)


def test_the_path_that_current_has_is_not_asked_about() -> None:
    occupied = {"a.md", "b.md"}
    assert reconcile(BASE, BASE, EDITED, occupied).proposed == EDITED
    moved = there("b.md", description="about")
    assert reconcile(BASE, moved, EDITED, occupied).status == "clean"
    assert reconcile(BASE, moved, moved, occupied).status == "clean"


def test_an_occupied_path_and_a_conflict_of_content_are_told_together() -> None:
    draft = there("b.md", "X\nb\nc\n", "about")
    assert kinds(reconcile(BASE, EDITED, draft, {"b.md"}).conflicts) == [
        ("path_occupied", "path"),
        ("content", "content"),
    ]


def applied(current: ResourceState, wanted: ResourceState, draft: DraftIdentity) -> ResourceState:
    """What the overlay of a draft with the operations between leaves."""
    base = None
    if current.path is not None and current.content is not None:
        description = current.description or ""
        base = DraftedMemory("mem", current.path, current.content, description, "org", "c")
    operations = operations_between(current, wanted, "mem")
    assert [decode_operation(encode_operation(each)) for each in operations] == operations
    result = apply_operations(draft, base, operations).result
    if result is None:
        return ABSENT
    return there(result.path, result.content, result.description)


@PROPERTY
@given(STATES, STATES)
def test_the_operations_between_make_the_wanted_state(
    current: ResourceState, wanted: ResourceState
) -> None:
    target = "mem" if current.exists else None
    draft = DraftIdentity("draft", "org", target, current.path, "c")
    assert applied(current, wanted, draft) == wanted
    assert bool(operations_between(current, wanted, "mem")) == (current != wanted)


def test_a_deleted_resource_that_is_to_stay_is_created_again() -> None:
    draft = DraftIdentity("draft", "org", "mem", "a.md", "c")
    assert applied(ABSENT, BASE, draft) == BASE
    (operation,) = operations_between(ABSENT, BASE, "mem")
    assert operation.create is not None


def test_operations_are_stored_in_full() -> None:
    wanted = there("b.md", "new\n", None)
    assert [encode_operation(each) for each in operations_between(BASE, wanted, "mem")] == [
        b'{"rename":{"id":"mem","new_path":"b.md"}}',
        b'{"update":{"id":"mem","content":{"content":"new\\n","description":""}}}',
    ]


def test_the_hash_is_of_the_canonical_bytes() -> None:
    assert canonical_state(ABSENT) == b'{"exists":false}'
    state = there("d/é.md", 'x "y"\\\r\n\t\x00\u2028', "about")
    golden = (
        '{"exists":true,"path":"d/é.md","content":"x \\"y\\"\\\\\\r\\n\\t\\u0000\u2028",'
        '"description":"about"}'
    ).encode()
    assert canonical_state(state) == golden
    assert result_hash(state) == f"sha256:{sha256(golden).hexdigest()}"
    assert result_hash(there(description="")) == result_hash(there(description=None))


@PROPERTY
@given(STATES, STATES)
def test_states_are_equal_where_their_hashes_are(one: ResourceState, two: ResourceState) -> None:
    assert (result_hash(one) == result_hash(two)) == (one == two)
    assert msgspec.json.decode(canonical_state(one), type=ResourceState) == one


@pytest.mark.parametrize(
    "data",
    [
        b'{"exists":true}',
        b'{"exists":true,"path":"a.md"}',
        b'{"exists":false,"path":"a.md"}',
        b'{"exists":false,"description":"x"}',
    ],
)
def test_a_state_that_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(msgspec.ValidationError, match="a resource that"):
        msgspec.json.decode(data, type=ResourceState)
