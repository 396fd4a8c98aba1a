"""Local projects of an older version, which had no authority of their own, are taken over whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clumsies.daemon.local_projects import LocalProjects
from clumsies.memory.projects import ProjectDirectory
from clumsies.sync.reviews import Reviews
from clumsies.sync.synchroniser import Synchroniser
from tests.memory.local_memory import LocalMemory, create, rename, update


class Upgraded:
    """A home as the older version left it, opened by this one."""

    def __init__(self, directory: Path):
        self.memory = LocalMemory(directory)
        self.memory.bring_in({"a.md": "A", "b.md": "B"})
        self.memory.store(update(self.memory.id_of("a.md"), "A2"), source="cli")
        self.memory.bring_in({"c.md": "C"})  # the draft of a.md is behind now
        self.created = self.memory.store(create("n.md", "N"))
        self.memory.store(rename(self.created.draft_id, "m.md"))
        self.before = self.memory.contents()
        self.commit_id = self.memory.view().commit_id
        self.open()

    def open(self) -> None:
        self.local = LocalProjects(self.memory.database)
        self.sync = Synchroniser(self.memory.database, self.memory.storage)
        self.sync.set_accounts(self.local.accounts())

    def pending(self) -> int:
        return self.sync.status(self.memory.project_id).pending_operation_count

    def close(self) -> None:
        self.local.close()
        self.memory.close()


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Upgraded]:
    made = Upgraded(tmp_path)
    yield made
    made.close()


def test_commits_ids_and_drafts_stay_what_they_were(home: Upgraded) -> None:
    assert not home.local.path.exists()
    ids = {path: home.memory.id_of(path) for path in home.before}
    home.sync.run_once(home.memory.project_id)
    assert home.local.path.exists()
    assert home.memory.view().commit_id == home.commit_id
    assert home.memory.contents() == home.before
    assert {path: home.memory.id_of(path) for path in home.before} == ids
    assert home.pending() == 0


def test_what_was_stored_before_is_reviewed_and_merged_now(home: Upgraded) -> None:
    project = ProjectDirectory(home.memory.database).project(home.memory.project_id)
    home.sync.run_once(project.project_id)
    with home.memory.database.reader() as connection:
        rows = connection.execute("SELECT server_draft_id FROM local_drafts ORDER BY created_at")
        names = [str(row[0]) for row in rows]
    reviews = Reviews(home.local.client(project.project_id, project.org_id))
    review = reviews.submit(names, "All", None)
    assert reviews.merge(review.review_id).applied_operation_count == 3
    home.sync.run_once(project.project_id)
    assert home.memory.contents() == {"a.md": "A2", "b.md": "B", "c.md": "C", "m.md": "N"}
    assert home.memory.load("m.md").draft_id is None


def test_opening_again_changes_nothing(home: Upgraded) -> None:
    home.sync.run_once(home.memory.project_id)
    home.local.close()
    home.open()
    home.sync.run_once(home.memory.project_id)
    assert home.memory.contents() == home.before
    assert len(home.local.accounts()) == 1


def test_a_crash_between_the_two_databases_leaves_nothing_half(home: Upgraded) -> None:
    made = home.local.create("Second")
    with home.memory.database.writer() as connection:  # as if the row had not been written
        connection.execute("DELETE FROM local_projects WHERE project_id = ?", (made.project_id,))
    home.local.close()
    home.open()
    assert [account.project_id for account in home.local.accounts()] == [home.memory.project_id]
    home.sync.run_once()
    assert home.memory.contents() == home.before
