"""Projects, their members and selections, and personal bundles, over HTTP."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import select

from clumsies.api.projects import CreateProject
from clumsies.server.memory import projects as service
from clumsies.server.schema import audit_events, drafts, project_creations
from clumsies.server.schema import projects as table
from tests.server.memories import (
    As,
    check_everything,
    deleted,
    memory_id,
    paths,
    publish,
    put,
    ref_at,
)
from tests.server.world import World

PROJECTS = "/api/v1/projects"
BUNDLES = "/api/v1/me/bundles"


def create(client: Any, key: str | None = "key-1", **body: Any) -> Any:
    headers = {} if key is None else {"idempotency-key": key}
    return client.post(PROJECTS, json={"name": "New"} | body, headers=headers)


def code_of(answer: Any) -> str:
    return answer.json()["error"]["code"]


def actions(world: World) -> list[str]:
    with world.database.read() as connection:
        query = select(audit_events.c.action).order_by(audit_events.c.sequence)
        return list(connection.scalars(query))


class TestProjects:
    def test_each_sees_their_own(self, world: World, client) -> None:
        def named(user: str) -> list[str]:
            return [item["name"] for item in client(user).get(PROJECTS).json()["items"]]

        assert named("ann") == ["Alpha", "Beta"]
        assert named("admin") == ["Alpha"]
        assert named("guest") == []
        alpha = f"{PROJECTS}/{world.projects['alpha']}"
        assert client("ann").get(alpha).json()["name"] == "Alpha"
        for user in ("ben", "stranger"):
            assert client(user).get(alpha).status_code == 404

    def test_a_new_project(self, world: World, client) -> None:
        answer = create(client("ann"), description="For tests")
        assert answer.status_code == 201, answer.text
        made = answer.json()
        assert answer.headers["location"] == f"{PROJECTS}/{made['project_id']}"
        assert answer.headers["etag"] == '"1"'
        assert (made["name"], made["description"], made["revision"]) == ("New", "For tests", 1)
        assert client("ann").get(answer.headers["location"]).json() == made
        assert client("owner").get(answer.headers["location"]).status_code == 404
        members = client("ann").get(f"{answer.headers['location']}/members").json()["items"]
        assert [(item["user"]["user_id"], item["role"]) for item in members] == [
            (world.users["ann"], "admin")
        ]
        state = client("ann").get(f"{answer.headers['location']}/commit-state")
        assert state.headers["etag"] == '"ref-none"'
        selection = client("ann").get(f"{answer.headers['location']}/org-selections").json()
        assert (selection["memories"], selection["revision"]) == ([], 1)
        assert actions(world) == ["project.created"]

    def test_a_repeat_makes_no_second(self, world: World, client) -> None:
        first = create(client("ann"), " key ")
        again = create(client("ann"), "key")
        assert (again.status_code, again.json()) == (201, first.json())
        assert again.headers["location"] == first.headers["location"]
        other = create(client("ann"), "key", name="Another")
        assert (other.status_code, code_of(other)) == (409, "already_exists")
        assert create(client("ben"), "key").json()["project_id"] != first.json()["project_id"]
        assert actions(world) == ["project.created"] * 2

    def test_repeats_side_by_side_make_one(self, world: World, acting: As) -> None:
        made: list[str] = []

        def run() -> None:
            data = CreateProject(name="New")
            project = acting("ann").write(lambda act: service.create_project(act, data, "key"))
            made.append(project.project_id)

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 4
        assert len(set(made)) == 1
        with world.database.read() as connection:
            assert len(connection.execute(select(project_creations)).all()) == 1

    @pytest.mark.parametrize("key", [None, "", "  ", "x" * 201])
    def test_a_key_is_needed(self, world: World, client, key: str | None) -> None:
        answer = create(client("ann"), key)
        assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
        assert create(client("ann"), "x" * 200).status_code == 201

    def test_a_change_names_its_revision(self, world: World, client) -> None:
        alpha = f"{PROJECTS}/{world.projects['alpha']}"
        owner = client("owner")
        made = owner.patch(alpha, json={"name": "Renamed"}, headers={"if-match": '"1"'})
        assert made.status_code == 200, made.text
        assert (made.json()["name"], made.json()["revision"]) == ("Renamed", 2)
        assert made.headers["etag"] == '"2"'
        assert owner.get(alpha).json() == made.json()
        late = owner.patch(alpha, json={"name": "Late"}, headers={"if-match": "1"})
        assert (late.status_code, code_of(late)) == (409, "version_conflict")
        assert late.json()["error"]["details"] == {
            "entity": "project",
            "expected_version": 1,
            "actual_version": 2,
        }
        same = owner.patch(alpha, json={"name": "Renamed"}, headers={"if-match": "2"})
        assert same.json() == made.json()
        assert actions(world) == ["project.changed"]
        assert owner.patch(alpha, json={"name": "x"}).status_code == 400
        assert (
            owner.patch(alpha, json={"name": "x"}, headers={"if-match": "W/1"}).status_code == 400
        )

    def test_who_may_change(self, world: World, client) -> None:
        alpha, beta = (f"{PROJECTS}/{world.projects[name]}" for name in ("alpha", "beta"))
        for user, url, status in (
            ("ann", alpha, 403),
            ("ben", beta, 403),
            ("ben", alpha, 404),
            ("admin", beta, 404),
            ("stranger", alpha, 404),
            ("admin", alpha, 200),
            ("ann", beta, 200),
        ):
            for path, ask in (
                (url, client(user).patch),
                (f"{url}/org-selections", client(user).put),
            ):
                body = {"resource_ids": []} if path != url else {"description": "d"}
                answer = ask(path, json=body, headers={"if-match": "1"})
                assert answer.status_code == status, (user, path)
            if status != 200:
                gone = client(user).delete(url, headers={"if-match": "1"})
                assert gone.status_code == status

    def test_a_deleted_project_keeps_its_rows(self, world: World, client, acting: As) -> None:
        alpha = f"{PROJECTS}/{world.projects['alpha']}"
        publish(acting("ann"), put("a.md", "A"), carrying=world.projects["alpha"])
        made = client("ann").post(
            "/api/v1/drafts",
            json={
                "daemon_installation_id": "inst",
                "project_id": world.projects["alpha"],
                "title": "t",
                "resource": {"scope": "org", "path": "x.md"},
            },
        )
        assert made.status_code == 201, made.text
        assert client("admin").delete(alpha, headers={"if-match": "2"}).status_code == 409
        gone = client("admin").delete(alpha, headers={"if-match": "1"})
        assert (gone.status_code, gone.content) == (204, b"")
        for path in ("", "/members", "/org-selections", "/memories", "/commit-state"):
            assert client("ann").get(alpha + path).status_code == 404, path
        assert client("admin").delete(alpha, headers={"if-match": "2"}).status_code == 404
        names = [item["name"] for item in client("ann").get(PROJECTS).json()["items"]]
        assert names == ["Beta"]
        with world.database.read() as connection:
            assert len(connection.execute(select(drafts)).all()) == 1
            assert len(connection.execute(select(table)).all()) == 3

    def test_members_are_listed(self, world: World, client) -> None:
        found = client("ben").get(f"{PROJECTS}/{world.projects['beta']}/members").json()["items"]
        assert {(item["user"]["display_name"], item["role"]) for item in found} == {
            ("Owner", "admin"),
            ("Ann", "admin"),
            ("Ben", "member"),
        }
        answer = client("admin").get(f"{PROJECTS}/{world.projects['beta']}/members")
        assert answer.status_code == 404


class TestSelections:
    def test_a_selection_is_replaced_as_a_whole(self, world: World, acting: As, client) -> None:
        publish(acting("ann"), put("b.md", "B"), put("a.md", "A"), put("c.md", "C"))
        beta = world.projects["beta"]
        url = f"{PROJECTS}/{beta}/org-selections"
        ids = [memory_id("b.md"), memory_id("a.md"), memory_id("a.md")]
        made = client("ann").put(url, json={"resource_ids": ids}, headers={"if-match": "1"})
        assert made.status_code == 200, made.text
        assert [item["path"] for item in made.json()["memories"]] == ["a.md", "b.md"]
        assert made.json()["revision"] == 2
        assert client("ben").get(url).json() == made.json()
        key = f"project:{beta}"
        assert paths(world.database, ref_at(world.database, key).commit_id) == {
            "a.md": "A",
            "b.md": "B",
        }
        same = client("ann").put(url, json={"resource_ids": ids}, headers={"if-match": "2"})
        assert same.json() == made.json()
        late = client("ann").put(url, json={"resource_ids": []}, headers={"if-match": "1"})
        assert (late.status_code, code_of(late)) == (409, "version_conflict")
        empty = client("ann").put(url, json={"resource_ids": []}, headers={"if-match": "2"})
        assert (empty.json()["memories"], empty.json()["revision"]) == ([], 3)
        assert paths(world.database, ref_at(world.database, key).commit_id) == {}
        assert actions(world) == ["project.selection_replaced"] * 2
        check_everything(world.database)

    def test_ids_of_no_memory_are_named(self, world: World, acting: As, client) -> None:
        publish(acting("ann"), put("a.md", "A"))
        publish(acting("stranger"), put("a.md", "A", "theirs"))
        url = f"{PROJECTS}/{world.projects['beta']}/org-selections"
        ids = [memory_id("a.md"), "mem_none", memory_id("theirs")]
        answer = client("ann").put(url, json={"resource_ids": ids}, headers={"if-match": "1"})
        assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
        assert "mem_none" in answer.json()["error"]["message"]
        details = answer.json()["error"]["details"]
        assert details["unknown_resource_ids"] == ["mem_none", "mem_theirs"]
        assert client("ann").get(url).json()["revision"] == 1


class TestBundles:
    def test_a_bundle_lives(self, world: World, acting: As, client) -> None:
        publish(acting("ann"), put("a.md", "A"), put("b.md", "B"), put("c.md", "C"))
        ids = [memory_id("b.md"), memory_id("a.md"), memory_id("b.md")]
        made = client("ann").post(BUNDLES, json={"name": "Mine", "resource_ids": ids})
        assert made.status_code == 201, made.text
        url = made.headers["location"]
        assert [item["path"] for item in made.json()["memories"]] == ["b.md", "a.md"]
        assert made.json()["bundle"]["resource_count"] == 2
        assert made.json()["bundle"]["owner_user_id"] == world.users["ann"]
        assert client("ann").get(url).json() == made.json()
        etag = made.json()["etag"]
        body = {"description": "d", "resource_ids": [memory_id("c.md")]}
        changed = client("ann").patch(url, json=body, headers={"if-match": etag})
        assert changed.status_code == 200, changed.text
        assert (changed.json()["bundle"]["name"], changed.json()["bundle"]["revision"]) == (
            "Mine",
            2,
        )
        assert [item["path"] for item in changed.json()["memories"]] == ["c.md"]
        late = client("ann").patch(url, json={"name": "x"}, headers={"if-match": etag})
        assert (late.status_code, code_of(late)) == (409, "version_conflict")
        [listed] = client("ann").get(BUNDLES).json()["items"]
        assert listed == changed.json()["bundle"]
        assert client("ann").delete(url, headers={"if-match": "1"}).status_code == 409
        assert client("ann").delete(url, headers={"if-match": "2"}).status_code == 204
        assert client("ann").get(url).status_code == 404
        assert client("ann").get(BUNDLES).json()["items"] == []

    def test_a_bundle_is_its_owner_s_alone(self, world: World, client) -> None:
        url = client("ann").post(BUNDLES, json={"name": "Mine"}).headers["location"]
        for user in ("owner", "ben", "stranger"):
            assert client(user).get(url).status_code == 404
            assert client(user).delete(url, headers={"if-match": "1"}).status_code == 404
            answer = client(user).patch(url, json={"name": "x"}, headers={"if-match": "1"})
            assert answer.status_code == 404
            assert client(user).get(BUNDLES).json()["items"] == []

    def test_memories_that_are_no_more_do_not_count(self, world: World, acting: As, client) -> None:
        publish(acting("ann"), put("a.md", "A"), put("b.md", "B"))
        ids = [memory_id("a.md"), memory_id("b.md")]
        url = (
            client("ann").post(BUNDLES, json={"name": "M", "resource_ids": ids}).headers["location"]
        )
        publish(acting("ann"), deleted("a.md"))
        detail = client("ann").get(url).json()
        assert [item["path"] for item in detail["memories"]] == ["b.md"]
        [listed] = client("ann").get(BUNDLES).json()["items"]
        assert listed["resource_count"] == detail["bundle"]["resource_count"] == 1

    def test_ids_of_no_memory_are_named(self, world: World, client) -> None:
        answer = client("ann").post(BUNDLES, json={"name": "M", "resource_ids": ["mem_none"]})
        assert (answer.status_code, code_of(answer)) == (400, "invalid_request")
        assert client("ann").get(BUNDLES).json()["items"] == []
