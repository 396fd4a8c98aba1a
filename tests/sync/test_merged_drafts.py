"""A merge is seen without a moment in which its text is nowhere, or twice."""

from __future__ import annotations

import pytest

from clumsies.errors import ClumsiesError
from tests.memory.local_memory import create, delete, rename, update
from tests.sync.fault_server import Asked, Reply, reset, status
from tests.sync.homes import PROJECT, Home, TestServer

STATE = f"/api/v1/projects/{PROJECT}/commit-state"


def test_a_merged_draft_is_shown_until_its_commit_is_here(
    home: Home, other: Home, server: TestServer
) -> None:
    server.publish_texts(a="A", b="B")
    home.run()
    changed = home.store(update("mem_a_md", "A2"))
    created = home.store(create("n.md", "N"))
    gone = home.store(delete("mem_b_md"))
    wanted = {"a.md": "A2", "n.md": "N"}
    home.run()
    other.run()
    ids = [home.server_id(receipt.draft_id) for receipt in (changed, created, gone)]
    review = server.submit(*ids)
    home.run()
    assert home.draft(changed.draft_id).draft.status == "submitted"
    server.merge(review)
    for fault in (status(503), reset()):
        home.script.plan(fault, path=STATE)
        with pytest.raises(ClumsiesError):
            home.run()
        assert home.contents() == wanted
        assert home.draft(created.draft_id).draft.status == "submitted"
    home.restart()
    assert home.contents() == wanted
    home.run()
    other.run()
    for machine in (home, other):
        assert machine.contents() == wanted == server.memory
        assert {d.draft.status for d in machine.all_drafts()} == {"merged"}
        assert machine.id_of("n.md").startswith("mem_")
        assert machine.draft(created.draft_id).draft.target_id == machine.id_of("n.md")


def test_a_merge_between_feed_and_commits_is_seen_once(home: Home, server: TestServer) -> None:
    home.run()
    created = home.store(create("n.md", "N"))
    home.run()
    review = server.submit(home.server_id(created.draft_id))
    merged: list[str] = []

    def merge_then_answer(asked: Asked) -> Reply:
        if asked.path.startswith("/api/v1/org/commit-state") and not merged:
            merged.append(review)
            server.merge(review)
        return server.answers(asked)

    home.transport.answer = merge_then_answer
    home.run()
    assert merged
    assert home.contents() == {"n.md": "N"}  # which also sees that no path is there twice
    assert home.draft(created.draft_id).draft.status == "merged"


def test_a_merge_after_the_commits_were_asked_for_is_seen_later(
    home: Home, server: TestServer
) -> None:
    server.publish_texts(a="A")
    home.run()
    created = home.store(create("n.md", "N"))
    home.run()
    server.publish_texts(b="B")
    review = server.submit(home.server_id(created.draft_id))
    merged: list[str] = []

    def answer_then_merge(asked: Asked) -> Reply:
        reply = server.answers(asked)
        if asked.path.startswith(STATE) and not merged:
            merged.append(review)
            server.merge(review)
        return reply

    home.transport.answer = answer_then_merge
    home.run()
    assert home.contents() == {"a.md": "A", "b.md": "B", "n.md": "N"}
    home.run()
    assert home.contents() == {"a.md": "A", "b.md": "B", "n.md": "N"}
    assert home.draft(created.draft_id).draft.status == "merged"


def test_an_edit_after_the_merge_goes_on_in_a_draft_of_its_own(
    home: Home, other: Home, server: TestServer
) -> None:
    server.publish_texts(a="A")
    home.run()
    changed = home.store(update("mem_a_md", "A2"))
    created = home.store(create("n.md", "N"))
    home.run()
    server.merge(server.submit(*(home.server_id(r.draft_id) for r in (changed, created))))
    home.store(update("mem_a_md", "A3"))
    home.store(update(created.draft_id, "N2"))
    home.store(rename(created.draft_id, "m.md"))
    wanted = {"a.md": "A3", "m.md": "N2"}
    home.script.plan(status(503), path=STATE)
    with pytest.raises(ClumsiesError):
        home.run()
    assert home.contents() == wanted
    home.run()
    assert home.contents() == wanted
    home.run()
    other.run()
    assert home.contents() == other.contents() == wanted
    assert home.sync.status().pending_operation_count == 0
    assert home.sync.status().failed_operation_count == 0
    carried = [d for d in home.all_drafts() if d.draft.status == "open"]
    assert sorted(len(d.operations) for d in carried) == [1, 2]
    assert {d.draft.target_id for d in carried} == {"mem_a_md", home.id_of("m.md")}
    server.merge(server.submit(*(d.draft.server_draft_id or "" for d in carried)))
    home.run()
    assert home.contents() == server.memory == wanted


def test_an_edit_of_unknown_outcome_is_not_carried_on_where_the_merge_took_it(
    home: Home, server: TestServer
) -> None:
    server.publish_texts(a="A")
    home.run()
    changed = home.store(update("mem_a_md", "A2"))
    home.run()
    home.store(update("mem_a_md", "A3"))
    home.script.plan(status(503, after=True), method="POST", path="/api/v1/draft-operation-batches")
    with pytest.raises(ClumsiesError):
        home.run()
    server.merge(server.submit(home.server_id(changed.draft_id)))
    home.run()
    assert home.contents() == server.memory == {"a.md": "A3"}
    assert [d.draft.status for d in home.all_drafts()] == ["merged"]
    assert home.statuses(changed.draft_id) == ["synced", "synced"]


def test_an_edit_of_what_a_merge_deleted_creates_it_again(
    home: Home, other: Home, server: TestServer
) -> None:
    server.publish_texts(a="A", b="B")
    home.run()
    changed = home.store(update("mem_a_md", "A2"))
    home.run()
    other.run()
    other.store(delete("mem_a_md"))
    other.run()
    server.merge(server.submit(home.server_id(changed.draft_id)))
    home.store(update("mem_a_md", "still wanted"))
    home.run()
    assert server.memory == {"b.md": "B"}
    home.run()
    other.run()
    assert home.contents() == other.contents() == {"a.md": "still wanted", "b.md": "B"}
    assert server.texts() == ["A2", "delete", "still wanted"]


def test_a_discard_that_comes_after_the_merge_has_nothing_to_do(
    home: Home, server: TestServer
) -> None:
    home.run()
    created = home.store(create("n.md", "N"))
    home.run()
    server.merge(server.submit(home.server_id(created.draft_id)))
    home.store(delete(created.draft_id))
    assert home.contents() == {}
    home.run()
    assert home.contents() == server.memory == {"n.md": "N"}
    assert home.draft(created.draft_id).draft.status == "merged"
    assert home.statuses(created.draft_id) == ["synced", "synced"]
    assert home.sync.status().failed_operation_count == 0


def test_a_merge_that_another_change_came_before_is_shown_as_the_server_has_it(
    home: Home, server: TestServer
) -> None:
    server.publish_texts(a="one\ntwo\nthree\n")
    home.run()
    changed = home.store(update("mem_a_md", "one\ntwo\nTHREE\n"))
    home.run()
    server.publish_texts(a="ONE\ntwo\nthree\n")
    server.merge(server.submit(home.server_id(changed.draft_id)))
    home.run()
    assert home.contents() == server.memory == {"a.md": "ONE\ntwo\nTHREE\n"}
