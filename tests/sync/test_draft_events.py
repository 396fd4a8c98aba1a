"""The author's feed: what other machines and reviews did, kept whole page by page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clumsies.api.drafts import ResourceState
from clumsies.errors import ClumsiesError, SyncFailed
from clumsies.sync import draft_events
from tests.memory.local_memory import create, delete, discard, rename, update
from tests.server.memories import deleted, put
from tests.sync.fault_server import Asked, Reply, status
from tests.sync.homes import PROJECT, Home, TestServer, altered

FEED = "/api/v1/draft-events"
DRAFT = "/api/v1/drafts/*"
STATE = f"/api/v1/projects/{PROJECT}/commit-state"


def cursor_of(home: Home) -> str | None:
    return home.database.meta("draft_events_cursor")


def test_drafts_of_another_machine_appear_as_they_are(
    home: Home, other: Home, server: TestServer
) -> None:
    server.publish_texts(a="A", b="B", c="C")
    home.run()
    home.store(update("mem_a_md", "A2"))
    home.store(delete("mem_b_md"))
    home.store(rename("mem_c_md", "d/c.md"))
    home.store(create("n.md", "N"))
    home.run()
    other.run()
    wanted = {"a.md": "A2", "d/c.md": "C", "n.md": "N"}
    assert home.contents() == other.contents() == wanted
    for detail in other.all_drafts():
        assert [op.source for op in detail.operations] == ["server"]
        [operation] = detail.operations
        assert operation.local_operation_id == f"server_{operation.server_operation_id}"
        assert detail.draft.freshness == "current"
    ids = {detail.draft.draft_id for detail in home.all_drafts()}
    assert {detail.draft.draft_id for detail in other.all_drafts()} == ids
    for draft_id in ids:
        mine, theirs = home.draft(draft_id).draft, other.draft(draft_id).draft
        assert (mine.path, mine.target_id, mine.created_at) == (
            theirs.path,
            theirs.target_id,
            theirs.created_at,
        )


def test_a_base_that_is_not_installed_here_is_fetched(
    home: Home, other: Home, server: TestServer
) -> None:
    server.publish_texts(a="A", b="B")
    home.run()
    home.store(update("mem_a_md", "A2"))
    home.run()
    server.publish_texts(b="B2")
    other.run()
    assert other.contents() == {"a.md": "A2", "b.md": "B2"}
    [detail] = other.all_drafts()
    assert detail.draft.freshness == "behind"
    assert not detail.draft.has_upstream_resource_changes


def test_a_discard_reaches_the_other_machine(home: Home, other: Home, server: TestServer) -> None:
    home.run()
    receipt = home.store(create("n.md", "N"))
    home.run()
    other.run()
    assert other.contents() == {"n.md": "N"}
    home.store(discard(receipt.draft_id))
    home.run()
    other.run()
    assert other.contents() == {}
    assert other.draft(receipt.draft_id).draft.status == "discarded"


def test_an_idle_feed_costs_one_request_and_no_draft(home: Home) -> None:
    home.run()
    home.store(create("n.md", "N"))
    home.run()
    before = len(home.script.requests)
    home.run()
    asked = [(a.method, a.path.partition("?")[0]) for a in home.script.requests[before:]]
    assert asked == [
        ("GET", "/api/v1/me"),
        ("GET", FEED),
        ("GET", "/api/v1/org/commit-state"),
        ("GET", STATE),
    ]


def test_pages_are_read_to_the_end(
    home: Home, other: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_events, "PAGE_EVENTS", 2)
    home.run()
    for number in range(5):
        home.store(create(f"{number}.md", f"text {number}"))
    home.run()
    other.run()
    assert other.contents() == {f"{n}.md": f"text {n}" for n in range(5)}
    assert other.rows("SELECT count(*) FROM remote_draft_events") == [(5,)]
    pages = [asked.path.partition("after_cursor=")[2] for asked in other.script.of("GET", FEED)]
    # The last one is the look before a Ref moves.
    assert [page.partition("&")[0] for page in pages] == ["", "2", "4", "5"]


def test_a_failure_between_pages_keeps_the_pages_before_it(
    home: Home, other: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft_events, "PAGE_EVENTS", 2)
    home.run()
    for number in range(5):
        home.store(create(f"{number}.md", f"text {number}"))
    home.run()

    def second_page(asked: Asked) -> Reply:
        if asked.path.startswith(FEED) and "after_cursor=2" in asked.path:
            return Reply(503)
        return other.server.answers(asked)

    other.transport.answer = second_page
    with pytest.raises(SyncFailed):
        other.run()
    assert cursor_of(other) == "2"
    assert len(other.contents()) == 2
    other.transport.answer = other.server.answers
    other.run()
    assert len(other.contents()) == 5


def no_events(page: Any) -> None:
    page["events"] = []
    page["has_more"] = True


def no_cursor(page: Any) -> None:
    page["next_cursor"] = None


def same_cursor(page: Any) -> None:
    page["next_cursor"] = "1"


def newer_events(page: Any) -> None:
    for event in page["events"]:
        event["version"] += 5


@pytest.mark.parametrize("change", [no_events, no_cursor, same_cursor, newer_events])
def test_a_feed_that_cannot_be_true_changes_nothing(
    home: Home, other: Home, change: Callable[[Any], object]
) -> None:
    home.run()
    home.store(create("n.md", "N"))
    home.run()
    other.run()
    home.store(create("m.md", "M"))
    home.run()
    other.script.plan(altered(change.__name__, change), path=FEED)
    with pytest.raises(SyncFailed) as caught:
        other.run()
    assert caught.value.code == "server_sync_failed"
    assert cursor_of(other) == "1"
    assert other.contents() == {"n.md": "N"}
    assert other.sync.status().draft_sync.state == "degraded"
    other.run()
    assert other.contents() == home.contents() == {"n.md": "N", "m.md": "M"}
    assert other.sync.status().draft_sync.state == "idle"


def another_id(detail: Any) -> None:
    detail["draft"]["draft_id"] = "draft_other"


def another_project(detail: Any) -> None:
    detail["draft"]["project_id"] = "proj_gamma"


def older(detail: Any) -> None:
    detail["draft"]["version"] = 0


def twice(detail: Any) -> None:
    detail["operations"] *= 2


def traversing(detail: Any) -> None:
    detail["operations"][0]["resource"]["path"] = "../../etc/passwd"


def blank(detail: Any) -> None:
    detail["operations"][0]["content"]["content"] = " "


def shapeless(detail: Any) -> None:
    detail["operations"][0]["content"] = None


def inapplicable(detail: Any) -> None:
    detail["operations"][0] = {
        **detail["operations"][0],
        "action": "update",
        "resource": {"scope": "org", "id": "mem_none"},
    }
    detail["draft"]["resource"]["id"] = "mem_none"


FAULTY = [another_id, another_project, older, twice, traversing, blank, shapeless, inapplicable]


@pytest.mark.parametrize("change", FAULTY)
def test_a_draft_that_cannot_be_true_changes_nothing(
    home: Home, other: Home, change: Callable[[Any], object]
) -> None:
    other.run()
    home.run()
    home.store(create("n.md", "N"))
    home.run()
    other.script.plan(altered(change.__name__, change), method="GET", path=DRAFT)
    with pytest.raises(SyncFailed) as caught:
        other.run()
    assert caught.value.code == "server_sync_failed"
    assert other.all_drafts() == []
    assert other.contents() == {}
    other.run()
    assert other.contents() == {"n.md": "N"}


def test_a_version_never_goes_back(home: Home, other: Home, server: TestServer) -> None:
    home.run()
    receipt = home.store(create("n.md", "N"))
    home.run()
    with home.database.writer() as connection:
        connection.execute("UPDATE local_drafts SET server_version = 7")
    other.run()
    other.store(update(receipt.draft_id, "N2"))
    other.run()
    with pytest.raises(SyncFailed, match="version went back"):
        home.run()
    assert home.contents() == {"n.md": "N"}


def test_a_project_without_access_is_kept_and_read_again_when_access_returns(
    home: Home, other: Home, server: TestServer
) -> None:
    other.run()
    home.run()
    receipt = home.store(create("n.md", "N"))
    home.run()
    server.set_member(False)
    other.run()
    assert other.all_drafts() == []
    marker = f"draft_events_deferred:{PROJECT}"
    assert other.database.meta(marker) is not None
    cursor = cursor_of(other)
    assert cursor is not None
    other.restart()
    other.run()
    server.set_member(True)
    other.run()
    assert other.contents() == {"n.md": "N"}
    assert other.database.meta(marker) is None
    assert cursor_of(other) == cursor
    before = len(other.script.of("GET", f"/api/v1/drafts/{home.server_id(receipt.draft_id)}"))
    other.run()
    after = len(other.script.of("GET", f"/api/v1/drafts/{home.server_id(receipt.draft_id)}"))
    assert before == after == 1


def test_stored_meanwhile_goes_when_access_returns(home: Home, server: TestServer) -> None:
    home.run()
    server.set_member(False)
    home.run()
    receipt = home.store(create("n.md", "N"))
    home.run()
    assert home.statuses(receipt.draft_id) == ["queued"]
    assert server.drafts() == []
    status_now = home.sync.status()
    assert status_now.pending_operation_count == 0
    [away] = status_now.unavailable
    assert (away.project_id, away.workspace_roots, away.draft_count) == (PROJECT, ("/w",), 1)
    server.set_member(True)
    home.run()
    assert server.texts() == ["N"]
    assert home.sync.status().unavailable == ()


def test_another_person_reads_the_feed_from_its_beginning(home: Home, server: TestServer) -> None:
    home.run()
    home.store(create("n.md", "N"))
    home.run()
    assert cursor_of(home) == "1"
    with home.database.writer() as connection:
        connection.execute(
            "UPDATE daemon_meta SET value = 'https://memory.example user_ben' "
            "WHERE key = 'sync_identity'"
        )
        connection.execute("UPDATE daemon_meta SET value = '99' WHERE key LIKE '%_cursor'")
    home.run()
    assert cursor_of(home) == "1"


def test_a_rebase_replaces_base_and_operations_and_keeps_what_is_not_sent(
    home: Home, other: Home, server: TestServer
) -> None:
    server.publish(put("a.md", "one\ntwo\nthree\n"))
    home.run()
    receipt = home.store(update("mem_a_md", "one\ntwo\nTHREE\n"))
    home.run()
    old_base = home.draft(receipt.draft_id).draft.base_commit_id
    server.publish(put("a.md", "ONE\ntwo\nthree\n"))
    server.rebase(home.server_id(receipt.draft_id))
    home.store(rename("mem_a_md", "b.md"))
    home.run()
    other.run()
    draft = home.draft(receipt.draft_id)
    assert draft.draft.base_commit_id != old_base
    assert draft.draft.freshness == "current"
    assert home.contents() == other.contents() == {"b.md": "ONE\ntwo\nTHREE\n"}
    assert [op.source for op in draft.operations] == ["server", "cli"]
    assert home.statuses(receipt.draft_id) == ["synced", "synced"]


def test_what_was_sent_before_a_rebase_is_not_sent_again_after_it(
    home: Home, server: TestServer
) -> None:
    server.publish(put("a.md", "one\ntwo\nthree\n"))
    home.run()
    receipt = home.store(update("mem_a_md", "one\ntwo\n3\n"))
    home.run()
    home.store(update("mem_a_md", "one\ntwo\nTHREE\n"))
    home.script.plan(status(503, after=True), method="POST", path="/api/v1/draft-operation-batches")
    with pytest.raises(ClumsiesError):
        home.run()
    server.publish(put("a.md", "ONE\ntwo\nthree\n"))
    server.rebase(home.server_id(receipt.draft_id))
    home.run()
    assert home.contents() == {"a.md": "ONE\ntwo\nTHREE\n"}
    assert server.texts() == ["ONE\ntwo\nTHREE\n"]
    assert set(home.statuses(receipt.draft_id)) == {"synced"}


def test_an_edit_goes_on_where_a_rebase_gave_its_memory_up(
    home: Home, other: Home, server: TestServer
) -> None:
    server.publish_texts(a="A", b="B")
    home.run()
    receipt = home.store(update("mem_a_md", "A2"))
    home.run()
    server.publish(deleted("a.md"))
    server.rebase(home.server_id(receipt.draft_id), ResourceState(exists=False))
    home.store(rename("mem_a_md", "c.md"))
    home.store(update("mem_a_md", "still wanted"))
    home.run()
    home.run()
    other.run()
    assert home.contents() == other.contents() == {"b.md": "B", "c.md": "still wanted"}
    assert home.sync.status().failed_operation_count == 0
    assert home.sync.status().pending_operation_count == 0
