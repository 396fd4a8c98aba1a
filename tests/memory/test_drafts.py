"""Storing: every form of it, what it refuses, and that nothing acknowledged is lost."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from clumsies.errors import ClumsiesError, Conflict, InvalidRequest, IoFailed, NotFound
from clumsies.memory.draft_rows import DraftFilter, get_draft, list_drafts
from clumsies.memory.drafts import count_pending
from clumsies.memory.index_jobs import index_job
from clumsies.memory.operations import (
    Create,
    Delete,
    Discard,
    MemoryContent,
    Rename,
    Replacement,
    StoreOperation,
    StoreRequest,
    Update,
    encode_operation,
)
from clumsies.storage.database import all_rows
from tests.memory.local_memory import (
    LocalMemory,
    create,
    delete,
    discard,
    rename,
    replace_in,
    update,
)

TEXTS = {"a.md": "# A\n\nalpha beta\n", "b/c.md": "# C\n\ngamma\n"}


@pytest.fixture
def filled(memory: LocalMemory) -> LocalMemory:
    memory.bring_in(TEXTS)
    return memory


def code(caught: pytest.ExceptionInfo[ClumsiesError]) -> str:
    return caught.value.code


def desired(memory: LocalMemory) -> int:
    job = index_job(memory.database, memory.project_id)
    assert job is not None
    return job.desired_sequence


def rows(memory: LocalMemory) -> list[object]:
    """Everything a store may change."""
    with memory.database.reader() as connection:
        return [
            all_rows(connection, f"SELECT * FROM {table}")
            for table in ("local_drafts", "local_draft_operations", "index_jobs")
        ]


def refused(memory: LocalMemory, op: StoreOperation, **options: str) -> ClumsiesError:
    """The error; the store must have changed nothing."""
    before = rows(memory)
    with pytest.raises(ClumsiesError) as caught:
        memory.store(op, **options)  # type: ignore[arg-type]
    assert rows(memory) == before
    return caught.value


def test_golden_operations() -> None:
    content = MemoryContent(content="a\nb", description="d")
    made = StoreOperation(create=Create(path="ü.md", content=content))
    golden = {
        '{"create":{"path":"ü.md","content":{"content":"a\\nb","description":"d"}}}': made,
        '{"update":{"id":"m","content":{"content":"t"}}}': update("m", "t"),
        '{"update":{"id":"m","content":{"content":"t","description":""}}}': update("m", "t", ""),
        '{"rename":{"id":"m","new_path":"x/y.md"}}': rename("m", "x/y.md"),
        '{"delete":{"id":"m"}}': delete("m"),
        '{"discard":{"id":"draft_1"}}': discard("draft_1"),
    }
    for text, operation in golden.items():
        assert encode_operation(operation).decode() == text


def test_golden_rows(filled: LocalMemory) -> None:
    receipt = filled.store(create("n.md", "new", "why"))
    assert (receipt.local_operation_id, receipt.draft_id) == ("op_1", "draft_1")
    assert (receipt.queued, receipt.sync_status) == (True, "queued")
    with filled.database.reader() as connection:
        [draft] = all_rows(connection, "SELECT * FROM local_drafts")
        [operation] = all_rows(connection, "SELECT * FROM local_draft_operations")
    base = draft[4]
    assert draft == (
        "draft_1", "proj_1", None, 0, base, base, "current", 0, "unknown", None, "org", "memory",
        None, "n.md", "open", draft[15], draft[15], None, None,
    )  # fmt: skip
    assert operation == (
        1, "op_1", "draft_1", None, "memory",
        '{"create":{"path":"n.md","content":{"content":"new","description":"why"}}}',
        "mcp_store", "queued", None, draft[15], draft[15],
    )  # fmt: skip


def test_create_is_seen_at_once_under_its_drafts_id(filled: LocalMemory) -> None:
    before = desired(filled)
    receipt = filled.store(create("new/n.md", "new", "why"))
    found = filled.load("new/n.md")
    assert (found.resource_id, found.draft_id) == (receipt.draft_id, receipt.draft_id)
    assert (found.content, found.description, found.scope) == ("new", "why", "org")
    assert desired(filled) == before + 1
    assert filled.contents() == {**TEXTS, "new/n.md": "new"}


def test_update_by_replacements(filled: LocalMemory) -> None:
    loaded = filled.load("a.md")
    receipt = filled.store(replace_in(loaded, "beta", "BETA"))
    found = filled.load(loaded.resource_id)
    assert found.content == "# A\n\nalpha BETA\n"
    assert found.draft_id == receipt.draft_id
    assert found.source_commit_id is not None
    detail = get_draft(filled.database, receipt.draft_id)
    assert detail.draft.target_id == loaded.resource_id
    assert detail.operations[0].op == update(loaded.resource_id, "# A\n\nalpha BETA\n")


def test_successive_edits_reuse_one_draft(filled: LocalMemory) -> None:
    first = filled.store(replace_in(filled.load("a.md"), "alpha", "one"))
    second = filled.store(replace_in(filled.load("a.md"), "beta", "two"))
    third = filled.store(rename(filled.id_of("a.md"), "renamed.md"))
    assert first.draft_id == second.draft_id == third.draft_id
    assert filled.contents()["renamed.md"] == "# A\n\none two\n"
    assert "a.md" not in filled.contents()
    operations = get_draft(filled.database, first.draft_id).operations
    assert [o.local_operation_id for o in operations] == ["op_1", "op_2", "op_3"]
    assert count_pending(filled.database, filled.project_id) == 3


def test_edits_of_a_creation_stay_in_its_draft(filled: LocalMemory) -> None:
    receipt = filled.store(create("n.md", "new text"))
    edited = filled.store(replace_in(filled.load("n.md"), "text", "words"))
    moved = filled.store(rename(receipt.draft_id, "m.md"))
    assert edited.draft_id == moved.draft_id == receipt.draft_id
    assert filled.load(receipt.draft_id).path == "m.md"
    assert filled.load("m.md").content == "new words"


def test_two_edits_from_one_base_conflict_and_lose_neither(filled: LocalMemory) -> None:
    loaded = filled.load("a.md")
    filled.store(replace_in(loaded, "alpha", "first"))
    error = refused(filled, replace_in(loaded, "beta", "second"))
    assert isinstance(error, Conflict)
    assert error.code == "memory_content_changed"
    current = filled.load("a.md")
    assert error.details == {"id": loaded.resource_id, "content_hash": current.content_hash}
    assert current.content == "# A\n\nfirst beta\n"
    filled.store(replace_in(current, "beta", "second"))
    assert filled.load("a.md").content == "# A\n\nfirst second\n"


def test_two_edits_at_once_one_wins(filled: LocalMemory) -> None:
    loaded = filled.load("a.md")
    outcomes: list[str] = []
    start = threading.Barrier(4)

    def edit(number: int) -> None:
        start.wait(30)
        try:
            filled.store(replace_in(loaded, "alpha", f"writer{number}"))
            outcomes.append(f"writer{number}")
        except Conflict as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=edit, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [winner] = [outcome for outcome in outcomes if outcome.startswith("writer")]
    assert outcomes.count("memory_content_changed") == 3
    assert filled.load("a.md").content == f"# A\n\n{winner} beta\n"


def test_delete_keeps_an_open_draft(filled: LocalMemory) -> None:
    name = filled.id_of("a.md")
    receipt = filled.store(delete(name))
    assert filled.contents() == {"b/c.md": TEXTS["b/c.md"]}
    detail = get_draft(filled.database, receipt.draft_id)
    assert (detail.draft.status, detail.operations[0].op) == ("open", delete(name))
    assert refused(filled, update(name, "x"), source="cli").code == "memory_resource_not_found"
    filled.store(discard(name))
    assert filled.contents() == TEXTS


def test_delete_of_a_creation_is_a_discard(filled: LocalMemory) -> None:
    receipt = filled.store(create("n.md", "new"))
    filled.store(delete(receipt.draft_id))
    detail = get_draft(filled.database, receipt.draft_id)
    assert detail.draft.status == "discarded"
    assert detail.operations[-1].op == discard(receipt.draft_id)
    assert filled.contents() == TEXTS
    assert refused(filled, discard(receipt.draft_id)).code == "not_found"


def test_discard_by_draft_or_by_memory(filled: LocalMemory) -> None:
    name = filled.id_of("a.md")
    for given in ("draft", "memory"):
        receipt = filled.store(update(name, "changed"), source="cli")
        before = desired(filled)
        filled.store(discard(receipt.draft_id if given == "draft" else name))
        assert filled.contents() == TEXTS
        assert desired(filled) == before + 1
    other = filled.store(update(name, "changed"), source="cli")
    assert refused(filled, discard("mem_x"), draft_id=other.draft_id).code == "invalid_request"
    filled.store(discard(name), draft_id=other.draft_id)
    assert filled.contents() == TEXTS


def test_a_description_goes_with_create_and_update(filled: LocalMemory) -> None:
    name = filled.id_of("a.md")
    filled.store(update(name, "one", "told"), source="desktop")
    filled.store(update(name, "two"), source="desktop")
    assert filled.load(name).description == "told"
    text = filled.load(name)
    replacements = [Replacement(old_text="two", new_text="three")]
    change = Update(
        id=name, expected_hash=text.content_hash, replacements=replacements, description="new"
    )
    filled.store(StoreOperation(update=change))
    assert filled.load(name).description == "new"
    filled.store(update(name, "four", ""), source="desktop")
    assert filled.load(name).description == ""


SHAPES = {
    "nothing": StoreOperation(),
    "two": StoreOperation(delete=Delete(id="a"), discard=Discard(id="a")),
    "blank": create("n.md", " \n\t"),
    "large": create("n.md", "x" * (8 * 1024 * 1024 + 1)),
    "surrogate": create("n.md", "\udc80"),
    "surrogate in a description": create("n.md", "x", "\udc80"),
    "no id": delete(""),
    "surrogate id": delete("\udc80"),
    "outside": create("../../etc/passwd", "x"),
    "absolute": create("/etc/passwd", "x"),
    "backslash": create("..\\x.md", "x"),
    "no content": StoreOperation(update=Update(id="mem_1")),
    "no hash": StoreOperation(
        update=Update(id="mem_1", replacements=[Replacement(old_text="a", new_text="b")])
    ),
    "no replacement": StoreOperation(update=Update(id="mem_1", expected_hash="x", replacements=[])),
    "empty old text": StoreOperation(
        update=Update(
            id="mem_1", expected_hash="x", replacements=[Replacement(old_text="", new_text="b")]
        )
    ),
    "content from an agent": update("mem_1", "whole"),
}


@pytest.mark.parametrize("what", SHAPES)
def test_a_wrong_shape_is_refused(filled: LocalMemory, what: str) -> None:
    error = refused(filled, SHAPES[what])
    assert isinstance(error, InvalidRequest)
    assert error.code == "invalid_request"
    error.message.encode("utf-8")


def test_wire_shapes_refuse_unknown_fields_by_name() -> None:
    for text, name in (
        ('{"update":{"id":"a","contents":{"content":"x"}}}', "contents"),
        ('{"replace":{}}', "replace"),
        ('{"create":{"path":"a","content":{"content":"x","desc":"y"}}}', "desc"),
    ):
        with pytest.raises(msgspec.ValidationError, match=name):
            msgspec.json.decode(text, type=StoreOperation)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("../x.md", "invalid_request"),
        ("A.MD", "draft_conflict"),
        ("a.md/x.md", "draft_conflict"),
        ("b/c.md", "invalid_request"),
    ],
)
def test_a_rename_to_a_path_that_cannot_be(filled: LocalMemory, path: str, expected: str) -> None:
    assert refused(filled, rename(filled.id_of("b/c.md"), path)).code == expected


def test_unknown_ids_and_paths_as_ids(filled: LocalMemory) -> None:
    error = refused(filled, rename("mem_unknown", "x.md"))
    assert isinstance(error, NotFound)
    assert error.details == {"missing": ["mem_unknown"]}
    error = refused(filled, rename("a.md", "x.md"))
    assert error.code == "invalid_request"
    assert filled.id_of("a.md") in error.message
    for outside in ("../../etc/passwd", "/etc/passwd"):
        assert refused(filled, delete(outside)).code == "memory_resource_not_found"


def test_a_taken_path_is_refused_for_a_creation(filled: LocalMemory) -> None:
    for path in ("a.md", "A.md", "b", "a.md/x.md"):
        error = refused(filled, create(path, "x"))
        assert error.code == "draft_conflict"
    filled.store(rename(filled.id_of("a.md"), "free.md"))
    filled.store(create("a.md", "x"))
    assert filled.load("a.md").content == "x"


def test_named_drafts(filled: LocalMemory) -> None:
    a, c = filled.id_of("a.md"), filled.id_of("b/c.md")
    first = filled.store(update(a, "x"), source="cli")
    filled.store(update(a, "y"), source="cli", draft_id=first.draft_id)
    assert refused(filled, update(c, "z"), source="cli", draft_id=first.draft_id).code == (
        "invalid_request"
    )
    assert refused(filled, update(a, "z"), source="cli", draft_id="draft_9").code == "not_found"
    assert refused(filled, create("n.md", "z"), draft_id=first.draft_id).code == "invalid_request"
    filled.store(discard(first.draft_id))
    closed = refused(filled, update(a, "z"), source="cli", draft_id=first.draft_id)
    assert closed.code == "invalid_request"
    assert "discarded" in closed.message


def test_bases(filled: LocalMemory) -> None:
    a, c = filled.id_of("a.md"), filled.id_of("b/c.md")
    first = filled.store(update(a, "x"), source="cli")
    base = get_draft(filled.database, first.draft_id).draft.base_commit_id
    assert base is not None
    filled.bring_in({"b/c.md": "newer"})
    filled.store(update(a, "y"), source="cli", base_commit_id=base)
    second = filled.store(update(c, "from the old"), source="cli", base_commit_id=base)
    draft = get_draft(filled.database, second.draft_id).draft
    assert (draft.base_commit_id, draft.freshness) == (base, "behind")
    assert draft.has_upstream_resource_changes
    current = draft.current_commit_id
    assert current is not None
    error = refused(filled, update(a, "z"), source="cli", base_commit_id=current)
    assert error.code == "draft_conflict"
    assert refused(filled, create("n.md", "x"), base_commit_id="0" * 64).code == "invalid_request"


def test_a_draft_on_an_empty_ref_has_no_base(memory: LocalMemory) -> None:
    receipt = memory.store(create("n.md", "first"))
    assert get_draft(memory.database, receipt.draft_id).draft.base_commit_id is None
    memory.bring_in(TEXTS)
    draft = get_draft(memory.database, receipt.draft_id).draft
    assert (draft.base_commit_id, draft.freshness) == (None, "behind")
    assert memory.contents() == {**TEXTS, "n.md": "first"}


def test_the_project_scope_and_foreign_projects_are_refused(filled: LocalMemory) -> None:
    for project, scope, op in (
        (filled.project_id, "project", create("n.md", "x")),
        ("../x", "org", create("n.md", "x")),
        ("proj_other", "org", delete(filled.id_of("a.md"))),
    ):
        request = StoreRequest(project_id=project, scope=scope, op=op, source="cli")  # type: ignore[arg-type]
        with pytest.raises(ClumsiesError) as caught:
            filled.drafts.store_draft_operation(request)
        assert code(caught) in ("invalid_request", "memory_resource_not_found")


def test_a_draft_of_project_memory_is_only_discarded_by_its_own_id(filled: LocalMemory) -> None:
    name = filled.id_of("a.md")
    receipt = filled.store(update(name, "x"), source="cli")
    with filled.database.writer() as connection:  # as an old installation left it
        connection.execute("UPDATE local_drafts SET resource_scope = 'project'")
    assert refused(filled, discard(name)).code == "not_found"
    assert refused(filled, discard(name), draft_id=receipt.draft_id).code == "invalid_request"
    request = StoreRequest(
        project_id=filled.project_id,
        scope="project",
        op=discard(receipt.draft_id),
        draft_id=receipt.draft_id,
        source="desktop",
    )
    filled.drafts.store_draft_operation(request)
    assert filled.contents() == TEXTS


def test_a_broken_draft_is_named_and_can_be_discarded(filled: LocalMemory) -> None:
    receipt = filled.store(update(filled.id_of("a.md"), "x"), source="cli")
    with filled.database.writer() as connection:
        connection.execute("UPDATE local_drafts SET base_commit_id = NULL")
    with pytest.raises(Conflict) as caught:
        filled.view()
    assert caught.value.details == {"draft_id": receipt.draft_id}
    assert refused(filled, create("n.md", "x")).code == "draft_conflict"
    filled.store(discard(receipt.draft_id))
    assert filled.contents() == TEXTS


def test_a_missing_base_commit_says_so(filled: LocalMemory) -> None:
    filled.store(update(filled.id_of("a.md"), "x"), source="cli")
    with filled.database.writer() as connection:
        connection.execute("UPDATE local_drafts SET base_commit_id = 'gone'")
    with pytest.raises(ClumsiesError) as caught:
        filled.view()
    assert code(caught) == "search_index_not_ready"


def test_stores_do_not_need_the_generation(filled: LocalMemory) -> None:
    place = filled.storage.location("local:", filled.project_id)
    place.managed_root.rename(place.managed_root.with_name("gone"))
    filled.store(replace_in_database(filled), source="mcp_store")
    with pytest.raises(ClumsiesError) as caught:
        filled.view()
    assert code(caught) == "commit_generation_missing"


def replace_in_database(memory: LocalMemory) -> StoreOperation:
    with memory.database.reader() as connection:
        entry = memory.effective.view_in(connection, memory.project_id).find("a.md")
    assert entry is not None
    replacements = [Replacement(old_text="alpha", new_text="omega")]
    return StoreOperation(
        update=Update(
            id=entry.resource_id, expected_hash=entry.content_hash, replacements=replacements
        )
    )


def test_everything_is_there_after_a_restart(filled: LocalMemory) -> None:
    filled.store(replace_in(filled.load("a.md"), "beta", "BETA"))
    filled.store(create("n.md", "new"))
    filled.store(delete(filled.id_of("b/c.md")))
    before, hashed = filled.contents(), filled.view().effective_hash
    filled.close()
    again = LocalMemory(filled.directory)
    assert again.contents() == before
    assert again.view().effective_hash == hashed
    again.close()


def test_a_full_disk_acknowledges_nothing_and_loses_nothing(filled: LocalMemory) -> None:
    filled.store(create("first.md", "kept"))
    with filled.database.writer() as connection:  # a limit in pages stands in for the disk's end
        [(pages,)] = connection.execute("PRAGMA page_count").fetchall()
    filled.database._writer.execute(f"PRAGMA max_page_count = {pages}")
    error = refused(filled, create("n.md", "x" * 100_000))
    assert isinstance(error, IoFailed)
    assert error.code == "insufficient_space"
    filled.database._writer.execute("PRAGMA max_page_count = 1000000")
    filled.store(create("n.md", "x" * 100_000))
    assert filled.load("first.md").content == "kept"
    assert filled.database.problems() == []


def test_lists_page_in_order_and_filter(filled: LocalMemory) -> None:
    receipts = [filled.store(create(f"n{n}.md", "x")) for n in range(5)]
    filled.store(rename(receipts[1].draft_id, "moved.md"))
    filled.store(discard(receipts[3].draft_id))
    wanted = [receipts[n].draft_id for n in (3, 1, 4, 2, 0)]
    found: list[str] = []
    cursor = None
    pages = 0
    while True:
        page = list_drafts(filled.database, cursor=cursor, limit=2)
        found += [draft.draft_id for draft in page.drafts]
        pages += 1
        cursor = page.next_cursor
        if cursor is None:
            break
    assert (found, pages) == (wanted, 3)
    for filters, expected in (
        (DraftFilter(status="open"), [wanted[n] for n in (1, 2, 3, 4)]),
        (DraftFilter(status="discarded", resource="memory"), wanted[:1]),
        (DraftFilter(project_id="proj_other"), []),
        (DraftFilter(resource="rule"), []),
    ):
        page = list_drafts(filled.database, filters)
        assert [draft.draft_id for draft in page.drafts] == expected
    assert list_drafts(filled.database).drafts[1].path == "moved.md"


@pytest.mark.parametrize("cursor", ["", "!", "e30", "eyJ4IjoxfQ", "ü", "AAAA"])
def test_other_cursors_and_limits_are_refused(memory: LocalMemory, cursor: str) -> None:
    with pytest.raises(InvalidRequest):
        list_drafts(memory.database, cursor=cursor)
    for limit in (0, 501):
        with pytest.raises(InvalidRequest):
            list_drafts(memory.database, limit=limit)
    with pytest.raises(InvalidRequest):
        list_drafts(memory.database, DraftFilter(status="odd"))


def test_an_unknown_draft(memory: LocalMemory) -> None:
    with pytest.raises(NotFound):
        get_draft(memory.database, "draft_9")


def test_a_rename_into_its_own_folder_or_case_is_allowed(filled: LocalMemory) -> None:
    name = filled.id_of("b/c.md")
    filled.store(StoreOperation(rename=Rename(id=name, new_path="B/C.md")))
    filled.store(rename(name, "B/C.md/d.md"))
    assert filled.load(name).path == "B/C.md/d.md"


def test_memory_text_is_in_no_message(filled: LocalMemory, tmp_path: Path) -> None:
    loaded = filled.load("a.md")
    for op in (replace_in(loaded, "alpha beta!", "secret"), replace_in(loaded, "a", "secret")):
        message = refused(filled, op).message
        assert "alpha" not in message
        assert "secret" not in message
