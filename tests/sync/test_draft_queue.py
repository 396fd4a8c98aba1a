"""Operations arrive once, in order, whatever happens on the way."""

from __future__ import annotations

import pytest

from clumsies.errors import ClumsiesError
from tests.memory.local_memory import create, delete, discard, rename, update
from tests.sync.fault_server import Asked, Fault, Reply, html, reset, status
from tests.sync.homes import PROJECT, Home, TestServer

DRAFTS = "/api/v1/drafts"
BATCHES = "/api/v1/draft-operation-batches"


def failing_run(home: Home, *, tick: bool = True) -> str:
    """A cycle that must fail; the code."""
    with pytest.raises(ClumsiesError) as caught:
        home.sync.run_once(tick=tick)
    return caught.value.code


def test_a_draft_arrives_with_its_operations_in_order(home: Home, server: TestServer) -> None:
    server.publish_texts(a="A")
    home.run()
    receipt = home.store(create("n.md", "one", "about n"))
    home.store(update(receipt.draft_id, "two"))
    home.store(rename(receipt.draft_id, "m.md"))
    home.run()
    assert home.statuses(receipt.draft_id) == ["synced"] * 3
    draft = home.draft(receipt.draft_id)
    assert draft.draft.server_version == 3
    assert [op.source for op in draft.operations] == ["cli"] * 3
    [there] = server.drafts()
    assert there.draft.client_draft_id == receipt.draft_id
    assert there.draft.title == "Draft for n.md"
    assert [op.operation_id for op in there.operations] == [
        op.server_operation_id for op in draft.operations
    ]
    assert server.texts() == ["one", "two", "m.md"]
    assert home.contents() == {"a.md": "A", "m.md": "two"}
    assert len(home.script.of("POST", DRAFTS)) == len(home.script.of("POST", BATCHES)) == 1
    home.run()
    assert len(home.script.of("POST", DRAFTS)) == len(home.script.of("POST", BATCHES)) == 1


def test_changes_of_a_memory_name_it_and_its_base(home: Home, server: TestServer) -> None:
    server.publish_texts(a="A", b="B")
    home.run()
    first = home.store(update("mem_a_md", "A2"))
    second = home.store(delete("mem_b_md"))
    home.run()
    assert server.texts() == ["A2", "delete"]
    assert [d.draft.title for d in server.drafts()] == ["Draft for a.md", "Draft for b.md"]
    assert [d.draft.resource.id for d in server.drafts()] == ["mem_a_md", "mem_b_md"]
    for receipt in (first, second):
        assert home.draft(receipt.draft_id).draft.freshness == "current"


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("make", [reset, html, lambda after: status(503, after=after)])
def test_a_creation_of_unknown_outcome_is_repeated_as_it_was(
    home: Home, server: TestServer, make: object, after: bool
) -> None:
    server.publish_texts(a="A")
    home.run()
    receipt = home.store(update("mem_a_md", "one"))
    fault: Fault = make(after=after)  # type: ignore[operator]
    home.script.plan(fault, method="POST", path=DRAFTS)
    assert failing_run(home) == "server_request_failed" or fault.name == "503"
    assert home.statuses(receipt.draft_id) == ["retrying"]
    home.store(update("mem_a_md", "two"))
    home.store(rename("mem_a_md", "b.md"))
    home.run()
    assert server.texts() == ["one", "two", "b.md"]
    assert home.statuses(receipt.draft_id) == ["synced"] * 3
    first, *others = home.script.of("POST", DRAFTS)
    assert [request.body for request in others] == [first.body]


@pytest.mark.parametrize("after", [False, True])
def test_a_batch_of_unknown_outcome_is_repeated(
    home: Home, server: TestServer, after: bool
) -> None:
    server.publish_texts(a="A")
    home.run()
    receipt = home.store(update("mem_a_md", "one"))
    home.run()
    home.store(update("mem_a_md", "two"))
    home.store(update("mem_a_md", "three"))
    home.script.plan(reset(after=after), method="POST", path=BATCHES)
    failing_run(home)
    assert home.statuses(receipt.draft_id) == ["synced", "retrying", "retrying"]
    home.run()
    assert server.texts() == ["one", "two", "three"]
    assert home.draft(receipt.draft_id).draft.server_version == 3


@pytest.mark.parametrize("after", [False, True])
def test_a_discard_of_unknown_outcome_is_repeated(
    home: Home, server: TestServer, after: bool
) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.run()
    home.store(discard(receipt.draft_id))
    home.script.plan(reset(after=after), method="DELETE")
    failing_run(home)
    assert home.statuses(receipt.draft_id) == ["synced", "retrying"]
    assert home.contents() == {}
    home.run()
    assert home.statuses(receipt.draft_id) == ["synced", "synced"]
    assert [d.draft.status for d in server.drafts()] == ["discarded"]
    assert home.draft(receipt.draft_id).draft.status == "discarded"


def test_what_waits_for_the_interval_is_not_woken_by_a_store(
    home: Home, server: TestServer
) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.script.plan(reset(), method="POST")
    failing_run(home)
    other = home.store(create("m.md", "two"))
    home.sync.run_once(tick=False)
    assert home.statuses(receipt.draft_id) == ["retrying"]
    assert home.statuses(other.draft_id) == ["synced"]
    home.run()
    assert sorted(server.texts()) == ["one", "two"]


def test_another_configuration_sends_at_once(home: Home, server: TestServer) -> None:
    home.run()
    home.store(create("n.md", "one"))
    home.script.plan(reset(), method="POST")
    failing_run(home)
    home.sync.set_accounts([home.account])
    home.sync.run_once(tick=False)
    assert server.texts() == ["one"]


def test_what_the_server_refuses_waits_for_a_retry(home: Home, server: TestServer) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.store(update(receipt.draft_id, "two"))
    home.store(create("m.md", "other"))
    home.script.plan(status(403), method="POST", path=DRAFTS)
    home.run()
    assert home.statuses(receipt.draft_id) == ["failed", "queued"]
    [failed, _] = home.draft(receipt.draft_id).operations
    assert failed.last_error == "forbidden"
    assert server.texts() == ["other"]
    home.run()
    assert home.statuses(receipt.draft_id) == ["failed", "queued"]
    retry = home.sync.retry("drafts")
    assert not retry.started
    home.run()
    assert home.statuses(receipt.draft_id) == ["synced", "synced"]
    assert sorted(server.texts()) == ["one", "other", "two"]
    assert [row[1:3] for row in home.rows("SELECT * FROM sync_retries")] == [("drafts", None)]


def test_a_retry_of_commits_sends_no_refused_operation(home: Home) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.script.plan(status(403), method="POST", path=DRAFTS)
    home.run()
    home.sync.retry("commits")
    home.run()
    assert home.statuses(receipt.draft_id) == ["failed"]
    home.sync.retry("all", "proj_other")
    home.run()
    assert home.statuses(receipt.draft_id) == ["failed"]
    home.sync.retry("all", PROJECT)
    home.run()
    assert home.statuses(receipt.draft_id) == ["synced"]


def test_what_was_on_its_way_when_the_process_ended_is_sent_again(
    home: Home, server: TestServer
) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.run()
    home.store(update(receipt.draft_id, "two"))
    with home.database.writer() as connection:
        connection.execute(
            "UPDATE local_draft_operations SET sync_status = 'syncing' WHERE sync_status = 'queued'"
        )
    home.restart()
    assert home.statuses(receipt.draft_id) == ["synced", "queued"]
    home.run()
    assert server.texts() == ["one", "two"]


def test_a_fault_of_ours_leaves_nothing_on_its_way(home: Home, server: TestServer) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))

    def wrong(asked: Asked) -> Reply:
        if asked.method == "POST":
            raise ZeroDivisionError
        return server.answers(asked)

    home.transport.answer = wrong
    with pytest.raises(ZeroDivisionError):
        home.run()
    home.transport.answer = server.answers
    home.sync.run_once(tick=False)
    home.run()
    assert home.statuses(receipt.draft_id) == ["synced"]
    assert server.texts() == ["one"]


def test_two_machines_add_to_one_draft(home: Home, other: Home, server: TestServer) -> None:
    server.publish_texts(a="A")
    home.run()
    receipt = home.store(update("mem_a_md", "one"))
    home.run()
    other.run()
    home.store(update("mem_a_md", "from home"))
    other.store(update("mem_a_md", "from other"))
    home.run()
    other.run()
    home.run()
    assert server.texts() == ["one", "from home", "from other"]
    assert home.contents() == other.contents() == {"a.md": "from other"}
    for machine in (home, other):
        [draft] = machine.all_drafts()
        assert draft.draft.draft_id == receipt.draft_id
        texts = [op.op.update.content.content for op in draft.operations]  # type: ignore[union-attr]
        assert texts == ["one", "from home", "from other"]
        assert machine.statuses(receipt.draft_id) == ["synced"] * 3


def test_a_created_memory_has_one_id_on_every_machine(
    home: Home, other: Home, server: TestServer
) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.run()
    other.run()
    assert other.id_of("n.md") == receipt.draft_id
    other.store(update(receipt.draft_id, "two"))
    other.run()
    home.run()
    assert home.contents() == other.contents() == {"n.md": "two"}


def test_a_version_that_moves_all_the_time_is_tried_again_later(
    home: Home, server: TestServer
) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.run()
    home.store(update(receipt.draft_id, "two"))
    with home.database.writer() as connection:
        connection.execute("UPDATE local_drafts SET server_version = 0")
    home.script.plan(status(409), method="POST", path=BATCHES, times=2)
    home.sync.run_once()
    assert home.statuses(receipt.draft_id) == ["synced", "retrying"]
    home.run()
    assert server.texts() == ["one", "two"]


def test_a_draft_that_was_never_sent_is_given_up_at_the_server_too(
    home: Home, server: TestServer
) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.store(delete(receipt.draft_id))
    home.run()
    assert home.statuses(receipt.draft_id) == ["synced", "synced"]
    assert [d.draft.status for d in server.drafts()] == ["discarded"]
    assert home.contents() == {}


def test_a_refused_draft_can_be_discarded(home: Home, server: TestServer) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.script.plan(status(403), method="POST", path=DRAFTS)
    home.run()
    home.store(discard(receipt.draft_id))
    home.run()
    assert home.statuses(receipt.draft_id) == ["synced", "synced"]
    assert server.drafts() == []
    assert home.sync.status().failed_operation_count == 0


def test_a_draft_that_arrived_unheard_is_discarded_there_too(
    home: Home, server: TestServer
) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.script.plan(reset(after=True), method="POST", path=DRAFTS)
    failing_run(home)
    home.script.plan(status(403), method="POST", path=DRAFTS)
    home.script.plan(status(503), method="GET", path="/api/v1/draft-events")
    failing_run(home)
    assert home.statuses(receipt.draft_id) == ["failed"]
    home.store(discard(receipt.draft_id))
    home.run()
    assert home.contents() == {}
    home.run()
    assert [d.draft.status for d in server.drafts()] == ["discarded"]
    assert home.statuses(receipt.draft_id) == ["synced", "synced"]
    assert home.draft(receipt.draft_id).draft.status == "discarded"


def test_a_discard_takes_what_another_machine_added(
    home: Home, other: Home, server: TestServer
) -> None:
    home.run()
    receipt = home.store(create("n.md", "one"))
    home.run()
    other.run()
    other.store(update(receipt.draft_id, "two"))
    other.run()
    home.store(discard(receipt.draft_id))
    home.run()
    other.run()
    assert home.contents() == other.contents() == {}
    assert [d.draft.status for d in server.drafts()] == ["discarded"]
    assert home.statuses(receipt.draft_id)[-1] == "synced"


def test_a_base_that_the_server_does_not_know_is_said_and_nothing_is_lost(
    home: Home, server: TestServer
) -> None:
    server.publish_texts(a="A")
    home.run()
    receipt = home.store(update("mem_a_md", "kept"))
    base = home.draft(receipt.draft_id).draft.base_commit_id
    with home.database.writer() as connection:
        connection.execute(
            "INSERT INTO cached_commits SELECT ?, scope, org_id, project_id, tree_id, "
            "parent_commit_id, version, created_at, payload_json FROM cached_commits "
            "WHERE commit_id = ?",
            ("0" * 64, base),
        )
        connection.execute("UPDATE local_drafts SET base_commit_id = ?", ("0" * 64,))
    home.run()
    [operation] = home.draft(receipt.draft_id).operations
    assert (operation.sync_status, operation.last_error) == ("failed", "invalid_request")
    assert home.contents() == {"a.md": "kept"}
    assert server.drafts() == []


def test_one_refused_operation_holds_up_what_comes_after_it_alone(
    home: Home, server: TestServer
) -> None:
    server.publish_texts(a="A")
    home.run()
    receipt = home.store(update("mem_a_md", "one"))
    home.run()
    home.store(update("mem_a_md", "two"))
    home.store(update("mem_a_md", "three"))
    home.store(update("mem_a_md", "four"))
    home.script.plan(status(400), method="POST", path=BATCHES)  # the three together
    home.run()
    assert server.texts() == ["one", "two", "three", "four"]
    home.store(update("mem_a_md", "five"))
    home.store(update("mem_a_md", "six"))
    home.script.plan(status(400), method="POST", path=BATCHES, times=2)
    home.run()
    assert home.statuses(receipt.draft_id)[-2:] == ["failed", "queued"]


def test_an_edit_goes_on_where_another_machine_deleted(
    home: Home, other: Home, server: TestServer
) -> None:
    server.publish_texts(a="A")
    home.run()
    receipt = home.store(update("mem_a_md", "one"))
    home.run()
    other.run()
    other.store(delete("mem_a_md"))
    home.store(update("mem_a_md", "still wanted"))
    other.run()
    home.run()
    home.run()
    other.run()
    assert home.contents() == other.contents() == {"a.md": "still wanted"}
    assert server.texts() == ["one", "delete", "still wanted"]
    assert home.statuses(receipt.draft_id) == ["synced", "synced"]
    assert home.sync.status().failed_operation_count == 0


def test_an_edit_goes_on_where_another_machine_discarded(
    home: Home, other: Home, server: TestServer
) -> None:
    server.publish_texts(a="A")
    home.run()
    home.store(update("mem_a_md", "one"))
    created = home.store(create("n.md", "new"))
    home.run()
    other.run()
    other.store(discard("mem_a_md"))
    other.store(discard(created.draft_id))
    home.store(update("mem_a_md", "still wanted"))
    home.store(rename(created.draft_id, "m.md"))
    home.store(update(created.draft_id, "new too"))
    other.run()
    home.run()
    home.run()
    other.run()
    assert home.contents() == other.contents() == {"a.md": "still wanted", "m.md": "new too"}
    assert home.sync.status().pending_operation_count == 0
    assert home.sync.status().failed_operation_count == 0


def test_a_rename_has_nothing_to_stand_on_where_its_creation_was_discarded(
    home: Home, other: Home, server: TestServer
) -> None:
    home.run()
    created = home.store(create("n.md", "new"))
    home.run()
    other.run()
    other.store(discard(created.draft_id))
    home.store(rename(created.draft_id, "m.md"))
    other.run()
    home.run()
    assert home.contents() == {}
    assert home.draft(created.draft_id).operations[-1].last_error == "draft_conflict"
    assert home.statuses(created.draft_id) == ["synced", "failed"]
