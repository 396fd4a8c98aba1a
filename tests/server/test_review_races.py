"""Writers at once, in threads of their own, on each database: one wins, and nothing is doubled."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from clumsies.api.drafts import (
    AppendOperation,
    CreateDraft,
    DraftDetail,
    DraftEvent,
    DraftEvents,
    Operation,
    OperationContent,
    ResourceReference,
)
from clumsies.api.reviews import CreateReview, Merge, MergeAnswer, ReviewDetail, ReviewDraft
from clumsies.errors import ClumsiesError, Conflict
from clumsies.server.proposals.draft_events import list_events
from clumsies.server.proposals.draft_operations import append_operation
from clumsies.server.proposals.drafts import create_draft, discard_draft, get_draft
from clumsies.server.proposals.review_merges import merge_review
from clumsies.server.proposals.reviews import create_review, get_review
from tests.server.memories import As, check_everything, paths, publish, put, ref_at
from tests.server.world import World

GUIDE = "mem_guide_md"
ROUNDS = 4


def at_once(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each work gave, or the error that it raised, when all began together."""
    gate = threading.Barrier(len(works))

    def run(work: Callable[[], Any]) -> Any:
        gate.wait(60)
        try:
            return work()
        except ClumsiesError as error:
            return error

    with ThreadPoolExecutor(len(works)) as threads:
        return list(threads.map(run, works))


class Bench:
    """Services as ann uses them; `merge` as the owner does."""

    def __init__(self, world: World, acting: As):
        self.world, self.acting = world, acting

    @property
    def commit_id(self) -> str | None:
        return ref_at(self.world.database, "org:org_acme").commit_id

    def body(self, *operations: Operation, name: str | None = None) -> CreateDraft:
        return CreateDraft(
            daemon_installation_id="machine",
            project_id="proj_alpha",
            base_commit_id=self.commit_id,
            title="A change",
            resource=operations[0].resource,
            operations=list(operations),
            client_draft_id=name,
        )

    def create(self, body: CreateDraft) -> tuple[DraftDetail, bool]:
        return self.acting("ann").write(lambda act: create_draft(act, body))

    def append(self, draft_id: str, version: int, operation: Operation) -> DraftDetail:
        data = AppendOperation(operation=operation)
        return self.acting("ann").write(lambda act: append_operation(act, draft_id, version, data))

    def read(self, draft_id: str) -> DraftDetail:
        return self.acting("ann").read(lambda act: get_draft(act, draft_id))

    def submit(self, *details: DraftDetail) -> ReviewDetail:
        drafts = [
            ReviewDraft(draft_id=d.draft.draft_id, expected_draft_version=d.draft.version)
            for d in details
        ]
        at, data = self.commit_id, CreateReview(drafts=drafts)
        made = self.acting("ann").write(lambda act: create_review(act, at, data))
        assert isinstance(made, ReviewDetail)
        return made

    def events(self, cursor: str | None) -> DraftEvents:
        return self.acting("ann").read(lambda act: list_events(act, cursor, 5))

    def end(self, detail: DraftDetail, review: ReviewDetail) -> None:
        """Discard the only draft of a review."""
        name, version = detail.draft.draft_id, detail.draft.version
        self.acting("ann").write(lambda act: discard_draft(act, name, version))
        ended = self.acting("ann").read(lambda act: get_review(act, review.review.review_id))
        assert ended.review.status == "rejected"

    def merge(self, review: ReviewDetail, at: str | None) -> MergeAnswer:
        data = Merge(expected_review_version=review.review.version)
        made = self.acting("owner").write(
            lambda act: merge_review(act, review.review.review_id, at, data)
        )
        if isinstance(made, Conflict):
            raise made
        return made


@pytest.fixture
def bench(world: World, acting: As) -> Bench:
    publish(acting("owner"), put("guide.md", "# Guide\n"), carrying="proj_alpha")
    return Bench(world, acting)


def creates(path: str, text: str) -> Operation:
    return Operation(
        action="create",
        resource=ResourceReference(scope="org", path=path),
        content=OperationContent(content=text),
    )


def updates(text: str, name: str | None = None) -> Operation:
    return Operation(
        action="update",
        resource=ResourceReference(scope="org", id=GUIDE),
        content=OperationContent(content=text),
        local_operation_id=name,
    )


def codes(results: Sequence[Any]) -> list[str]:
    """Codes of the errors among the results, in order of text."""
    return sorted(item.code for item in results if isinstance(item, ClumsiesError))


def test_of_two_merges_from_one_place_one_wins(bench: Bench) -> None:
    for number in range(ROUNDS):
        reviews = [
            bench.submit(bench.create(bench.body(creates(f"{number}/{side}.md", side)))[0])
            for side in ("a", "b", "c")
        ]
        at = bench.commit_id
        results = at_once([partial(bench.merge, review, at) for review in reviews])
        assert codes(results) == ["precondition_failed"] * 2
        [won] = [item for item in results if isinstance(item, MergeAnswer)]
        assert bench.commit_id == won.commit_id
        memory = paths(bench.world.database, won.commit_id)
        assert len([path for path in memory if path.startswith(f"{number}/")]) == 1
    check_everything(bench.world.database)


def test_a_review_that_is_merged_twice_at_once_is_merged_once(bench: Bench) -> None:
    for number in range(ROUNDS):
        review = bench.submit(bench.create(bench.body(creates(f"{number}.md", "x")))[0])
        at = bench.commit_id
        results = at_once([partial(bench.merge, review, at)] * 3)
        assert codes(results) == ["precondition_failed"] * 2
        [won] = [item for item in results if isinstance(item, MergeAnswer)]
        assert won.applied_operation_count == 1
    check_everything(bench.world.database)


def test_a_creation_that_is_repeated_at_once_makes_one_draft(bench: Bench) -> None:
    body = bench.body(updates("one", "op_1"), name="draft_local")
    results = at_once([partial(bench.create, body)] * 6)
    assert codes(results) == []
    assert [created for _, created in results].count(True) == 1
    assert len({detail.draft.draft_id for detail, _ in results}) == 1
    feed = bench.acting("ann").read(lambda act: list_events(act, None))
    assert [event.event_type for event in feed.events] == ["created"]


def test_operations_at_once_are_each_taken_once(bench: Bench) -> None:
    draft_id = bench.create(bench.body(updates("zero")))[0].draft.draft_id

    def until_taken(number: int) -> None:
        operation = updates(f"text {number}", f"op_{number}")
        for _ in range(2):  # The second time is a repeat.
            while not is_taken(operation):
                pass

    def is_taken(operation: Operation) -> bool:
        try:
            bench.append(draft_id, bench.read(draft_id).draft.version, operation)
        except Conflict as error:
            if error.code != "version_conflict":
                raise
            return False
        return True

    results = at_once([partial(until_taken, number) for number in range(5)])
    assert codes(results) == []
    detail = bench.read(draft_id)
    assert detail.draft.version == 6
    assert sorted(str(item.local_operation_id) for item in detail.operations[1:]) == [
        f"op_{number}" for number in range(5)
    ]


def test_an_edit_and_a_merge_at_once_do_not_miss_each_other(bench: Bench) -> None:
    for number in range(ROUNDS):
        made, _ = bench.create(bench.body(updates(f"first {number}")))
        review = bench.submit(made)
        draft_id, version = made.draft.draft_id, made.draft.version + 1
        at = bench.commit_id
        edit, merge = at_once(
            [
                partial(bench.append, draft_id, version, updates(f"second {number}")),
                partial(bench.merge, review, at),
            ]
        )
        text = paths(bench.world.database, bench.commit_id)["guide.md"]
        if isinstance(merge, MergeAnswer):
            assert codes([edit]) == ["invalid_request"]
            assert text == f"first {number}"
        else:
            assert codes([merge]) == ["version_conflict"]
            assert isinstance(edit, DraftDetail)
            assert not text.endswith(str(number))
            bench.end(edit, review)


def test_a_reader_of_the_feed_misses_nothing_while_it_is_written(bench: Bench) -> None:
    names = [bench.create(bench.body(creates(f"{n}.md", "x")))[0].draft.draft_id for n in range(3)]
    left = threading.Semaphore(0)
    read: list[DraftEvent] = []

    def write(draft_id: str) -> None:
        for version in range(1, 8):
            operation = Operation(
                action="update",
                resource=ResourceReference(scope="org", id=draft_id),
                content=OperationContent(content=f"text {version}"),
            )
            bench.append(draft_id, version, operation)
        left.release()

    def follow() -> None:
        cursor, ended = None, 0
        while True:
            ended += left.acquire(blocking=False)
            page = bench.events(cursor)
            read.extend(page.events)
            cursor = page.next_cursor
            if ended == len(names) and not page.events:
                return

    works: list[Callable[[], None]] = [follow]
    works += [partial(write, name) for name in names]
    assert codes(at_once(works)) == []
    whole = bench.acting("ann").read(lambda act: list_events(act, None, 200))
    assert read == whole.events
    assert len(read) == 3 + 3 * 7
    for name in names:
        assert [event.version for event in read if event.draft_id == name] == list(range(1, 9))
