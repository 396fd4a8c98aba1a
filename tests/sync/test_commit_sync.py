"""Refs move last, and only to what was verified; everything else leaves them where they are."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from clumsies.errors import ClumsiesError, NotReady
from clumsies.memory.refs import organization_key, project_key, read_ref
from clumsies.storage.generations import GenerationStore
from tests.memory.local_memory import create, update
from tests.server.memories import deleted, put
from tests.sync.fault_server import Asked, Fault, Reply, without_header
from tests.sync.homes import ORG, PROJECT, SERVER_URL, Home, TestServer, altered

ORG_STATE = "/api/v1/org/commit-state"
STATE = f"/api/v1/projects/{PROJECT}/commit-state"
COMMITS = "/api/v1/commits/*"


def refs_of(home: Home) -> tuple[str | None, str | None]:
    """Where the organisation's and the project's Ref stand here; None also where they do not."""
    with home.database.reader() as connection:
        organization = read_ref(connection, organization_key(ORG))
        project = read_ref(connection, project_key(PROJECT))
    return (
        None if organization is None else organization.commit_id,
        None if project is None else project.commit_id,
    )


def generations_of(home: Home) -> GenerationStore:
    return GenerationStore(home.storage.location(SERVER_URL, PROJECT).generations, PROJECT)


def names_of(home: Home) -> list[str]:
    return sorted(path.name for path in generations_of(home).directory.iterdir())


def test_nothing_is_there_before_the_first_cycle(home: Home) -> None:
    with pytest.raises(NotReady) as caught:
        home.contents()
    assert caught.value.code == "project_ref_not_synced"


def test_an_empty_ref_is_installed_as_one(home: Home) -> None:
    home.run()
    assert refs_of(home) == (None, None)
    assert names_of(home) == ["ref-none"]
    assert home.contents() == {}
    receipt = home.store(create("n.md", "first"))
    assert home.draft(receipt.draft_id).draft.base_commit_id is None


def test_the_teams_memory_comes_and_follows(home: Home, server: TestServer) -> None:
    server.publish_texts(a="A", b="B")
    home.run()
    assert home.contents() == server.memory == {"a.md": "A", "b.md": "B"}
    first = refs_of(home)
    server.publish(put("a.md", "A2"), deleted("b.md"), put("c.md", "C"))
    assert home.contents() == {"a.md": "A", "b.md": "B"}
    home.run()
    assert home.contents() == server.memory == {"a.md": "A2", "c.md": "C"}
    assert refs_of(home) != first
    assert names_of(home) == [str(refs_of(home)[1])]
    jobs = home.rows("SELECT project_id FROM index_jobs WHERE desired_sequence > 1")
    assert jobs == [(PROJECT,)]


def test_only_what_is_new_is_transferred(home: Home, server: TestServer) -> None:
    server.publish_texts(**{f"f{n}": f"text {n}" for n in range(5)})
    home.run()
    installed = generations_of(home)
    old = installed.path(refs_of(home)[1]) / "cache" / "memory" / "f1.md"
    inode = old.stat().st_ino
    sizes: list[int] = []

    def count_blobs(value: Any) -> None:
        sizes.append(len(value["blobs"]))

    server.publish(put("f0.md", "changed"))
    home.script.plan(altered("count", count_blobs), path=COMMITS, times=2)
    home.run()
    assert sorted(sizes) == [1, 1]
    assert home.contents() == server.memory
    new = installed.path(refs_of(home)[1]) / "cache" / "memory" / "f1.md"
    assert new.stat().st_ino == inode
    installed.verify_files(refs_of(home)[1])


def test_a_part_that_cannot_be_completed_is_fetched_whole(home: Home, server: TestServer) -> None:
    server.publish_texts(a="A", b="B")
    home.run()
    with home.database.writer() as connection:
        connection.execute("PRAGMA defer_foreign_keys = ON")
        connection.execute("DELETE FROM cached_blobs WHERE content = 'B'")
    server.publish(put("a.md", "A2"))
    home.run()
    assert home.contents() == server.memory == {"a.md": "A2", "b.md": "B"}
    asked = [a.path for a in home.script.requests if a.path.startswith("/api/v1/commits/")]
    assert [("have=" in path) for path in asked[-2:]] in ([True, False], [False, True])


def test_a_generation_that_is_gone_or_damaged_is_made_anew_without_a_transfer(
    home: Home, server: TestServer
) -> None:
    server.publish_texts(a="A")
    home.run()
    place = generations_of(home).path(refs_of(home)[1])
    before = len([a for a in home.script.requests if "/commits/" in a.path])
    shutil.rmtree(place)
    home.run()
    assert home.contents() == {"a.md": "A"}
    (place / "manifest.json").write_bytes(b"{}")
    home.run()
    generations_of(home).verify_files(refs_of(home)[1])
    assert home.contents() == {"a.md": "A"}
    assert len([a for a in home.script.requests if "/commits/" in a.path]) == before


def test_a_base_is_fetched_again_where_it_was_lost(home: Home, server: TestServer) -> None:
    server.publish_texts(a="A", b="B")
    home.run()
    home.store(update("mem_a_md", "A2"))
    base = refs_of(home)[0]
    server.publish(put("b.md", "B2"))
    home.run()
    with home.database.writer() as connection:
        connection.execute("DELETE FROM cached_commits WHERE commit_id = ?", (base,))
    home.restart()
    with pytest.raises(NotReady):
        home.contents()
    home.run()
    assert home.contents() == {"a.md": "A2", "b.md": "B2"}


def test_a_base_that_cannot_be_had_leaves_its_project_where_it_is(
    home: Home, server: TestServer
) -> None:
    server.publish_texts(a="A")
    home.run()
    home.store(update("mem_a_md", "A2"))
    base, installed = refs_of(home)
    server.publish(put("b.md", "B"))
    home.run()
    with home.database.writer() as connection:
        connection.execute("DELETE FROM cached_commits WHERE commit_id = ?", (base,))
    server.publish(put("b.md", "B2"))
    before = refs_of(home)
    home.script.plan(Fault("gone", False, lambda _: not_found()), path=f"/api/v1/commits/{base}")
    with pytest.raises(ClumsiesError) as caught:
        home.run()
    assert caught.value.code == "commit_sync_failed"
    assert refs_of(home)[1] == before[1] != installed
    home.run()
    assert home.contents() == {"a.md": "A2", "b.md": "B2"}


def not_found() -> Reply:
    body = b'{"error":{"code":"not_found","message":"m","request_id":"r","details":{}}}'
    return Reply(404, {"content-type": "application/json"}, body)


def set_in(*keys: str, to: object) -> Callable[[Any], None]:
    """Set a value inside the JSON of an answer."""

    def change(value: Any) -> None:
        for key in keys[:-1]:
            value = value[int(key) if key.isdigit() else key]
        value[int(keys[-1]) if keys[-1].isdigit() else keys[-1]] = to

    change.__name__ = "_".join(keys)
    return change


def etag_of(text: str) -> Fault:
    def alter(reply: Reply | None) -> Reply:
        assert reply is not None
        return Reply(reply.status, {**reply.headers, "etag": text}, reply.body)

    return Fault(f"etag {text}", True, alter)


def changed(*keys: str, to: object) -> Fault:
    return altered("_".join(keys), set_in(*keys, to=to))


STATE_FAULTS = [
    without_header("etag"),
    etag_of('"ref-none"'),
    etag_of('"' + "0" * 64 + '"'),
    changed("ref", "name", to="refs/heads/other"),
    changed("ref", "scope", to="daemon"),
    changed("ref", "org_id", to="org_other"),
    changed("ref", "project_id", to="proj_gamma"),
    changed("ref", "commit_id", to="0" * 64),
    changed("ref", "commit_id", to=None),
    changed("latest", to=None),
    changed("latest", "commit_id", to="0" * 64),
    changed("update_available", to=False),
    changed("download_url", to=None),
    changed("download_url", to="https://elsewhere.example/x"),
    changed("download_url", to="/api/v1/commits/../../etc/passwd"),
]
PAYLOAD_FAULTS = [
    changed("commit", "commit_id", to="0" * 64),
    changed("commit", "org_id", to="org_other"),
    changed("commit", "project_id", to="proj_gamma"),
    changed("commit", "version", to=0),
    changed("commit", "created_at", to="2026-01-01T00:00:00Z"),
    changed("commit", "created_at", to="yesterday"),
    changed("tree", "tree_id", to="0" * 64),
    changed("tree", "entries", "0", "path", to="../../../../etc/passwd"),
    changed("tree", "entries", "0", "path", to="/etc/passwd"),
    changed("tree", "entries", "0", "path", to="B.md"),
    changed("tree", "entries", "0", "path", to="b.md/x"),
    changed("tree", "entries", "0", "blob_id", to="0" * 64),
    changed("tree", "entries", "0", "scope", to="project"),
    changed("tree", "entries", "0", "source", to="config"),
    changed("blobs", "0", "content", to="another text"),
    changed("blobs", "0", "blob_id", to="0" * 64),
    changed("blobs", to=[]),
    changed("base_commit_id", to="0" * 64),
]
REFUSED = {"server_sync_failed", "commit_sync_failed", "server_request_failed"}


@pytest.mark.parametrize("scope", ["org", "project"])
@pytest.mark.parametrize("fault", STATE_FAULTS, ids=str)
def test_a_state_that_cannot_be_true_moves_nothing(
    home: Home, server: TestServer, fault: Fault, scope: str
) -> None:
    check_refused(home, server, fault, ORG_STATE if scope == "org" else STATE)


@pytest.mark.parametrize("fault", PAYLOAD_FAULTS, ids=str)
def test_a_payload_that_is_not_the_commits_moves_nothing(
    home: Home, server: TestServer, fault: Fault
) -> None:
    check_refused(home, server, fault, COMMITS)


def check_refused(home: Home, server: TestServer, fault: Fault, path: str) -> None:
    """The fault, as long as it lasts, leaves Ref, files and memory; without it they follow."""
    server.publish_texts(a="A", b="B")
    home.run()
    before, kept = refs_of(home), home.contents()
    home.store(create("n.md", "stored here"))
    server.publish(put("a.md", "A2"))
    home.script.plan(fault, path=path, times=10)
    with pytest.raises(ClumsiesError) as caught:
        home.run()
    assert caught.value.code in REFUSED, caught.value.code
    assert home.script.acted
    assert refs_of(home)[1] == before[1]
    generations_of(home).verify_files(before[1])
    assert home.contents() == {**kept, "n.md": "stored here"}
    assert server.texts() == ["stored here"]
    state = home.sync.status(PROJECT).commit_sync
    assert state.state in ("failed", "retrying")
    assert state.last_error == caught.value.code
    home.script.clear()
    home.run()
    assert home.contents() == {"a.md": "A2", "b.md": "B", "n.md": "stored here"}
    assert home.sync.status(PROJECT).commit_sync.state == "idle"
    assert home.sync.status(PROJECT).commit_sync.last_error is None


def test_one_projects_failure_stops_no_other(home: Home, server: TestServer) -> None:
    with home.database.writer() as connection:
        connection.execute(
            "INSERT INTO project_bindings VALUES (?, '/beta', 'proj_beta', 1, 'x', 'x')",
            (SERVER_URL,),
        )
    server.publish_texts(a="A")
    home.script.plan(without_header("etag"), path=STATE)
    with pytest.raises(ClumsiesError):
        home.run()
    with home.database.reader() as connection:
        assert read_ref(connection, project_key("proj_beta")) is not None
        assert read_ref(connection, project_key(PROJECT)) is None
    assert home.sync.status(PROJECT).commit_sync.state == "failed"
    assert home.sync.status("proj_beta").commit_sync.state == "degraded"
    home.run()
    assert home.contents() == {"a.md": "A"}


def test_a_project_behind_the_team_takes_no_edit_that_would_undo_the_teams(
    home: Home, server: TestServer
) -> None:
    server.publish_texts(a="A", b="B")
    home.run()
    server.publish(put("a.md", "A2"))
    home.script.plan(without_header("etag"), path=STATE)
    with pytest.raises(ClumsiesError):
        home.run()
    assert home.contents() == {"a.md": "A", "b.md": "B"}
    with pytest.raises(NotReady) as caught:
        home.store(update("mem_a_md", "A, edited"))
    assert caught.value.code == "project_ref_not_synced"
    home.store(update("mem_b_md", "B, edited"))
    home.run()
    home.store(update("mem_a_md", "A2, edited"))
    assert home.contents() == {"a.md": "A2, edited", "b.md": "B, edited"}


def test_a_place_that_changes_while_the_memory_comes_keeps_its_ref(
    home: Home, server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.publish_texts(a="A")
    home.run()
    before = refs_of(home)
    server.publish(put("a.md", "A2"))
    location = home.storage.location
    prepared = home.storage.prepare

    def moved_meanwhile(server_url: str, project_id: str) -> object:
        place = prepared(server_url, project_id)
        monkeypatch.setattr(
            home.storage, "location", lambda url, name: type(place)("custom", place.managed_root, 2)
        )
        return place

    monkeypatch.setattr(home.storage, "prepare", moved_meanwhile)
    with pytest.raises(ClumsiesError) as caught:
        home.run()
    assert caught.value.code == "storage_move_conflict"
    assert refs_of(home)[1] == before[1]
    monkeypatch.setattr(home.storage, "location", location)
    monkeypatch.setattr(home.storage, "prepare", prepared)
    home.run()
    assert home.contents() == {"a.md": "A2"}


def test_what_nothing_needs_is_removed_a_cycle_later(home: Home, server: TestServer) -> None:
    server.publish_texts(a="A", b="B")
    home.run()
    drafted = home.store(update("mem_b_md", "B2"))
    base = refs_of(home)[0]
    home.run()
    for number in range(3):
        server.publish(put("a.md", f"A{number}"))
        home.run()
    assert home.rows("SELECT 1 FROM cached_blobs WHERE content = 'A1'") == [(1,)]
    home.run()
    kept = {row[0] for row in home.rows("SELECT commit_id FROM cached_commits")}
    assert kept == {*refs_of(home), base}
    texts = {row[0] for row in home.rows("SELECT content FROM cached_blobs")}
    assert {"A", "B", "A2"} <= texts
    assert not {"A0", "A1"} & texts
    assert home.rows("SELECT count(*) FROM cached_trees") == [(3,)]
    assert home.database.problems() == []
    assert home.contents() == {"a.md": "A2", "b.md": "B2"}
    server.merge(server.submit(home.server_id(drafted.draft_id)))
    home.run()
    home.run()
    kept = {row[0] for row in home.rows("SELECT commit_id FROM cached_commits")}
    assert kept == set(refs_of(home))
    assert names_of(home) == [str(refs_of(home)[1])]
    assert home.contents() == server.memory == {"a.md": "A2", "b.md": "B2"}


def test_projects_are_asked_for_side_by_side_and_bounded(home: Home, server: TestServer) -> None:
    asked: list[str] = []

    def note(request: Asked) -> Reply:
        asked.append(request.path.partition("?")[0])
        return server.answers(request)

    home.transport.answer = note
    home.run()
    assert asked.index(ORG_STATE) < asked.index(STATE)
