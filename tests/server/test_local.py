"""The local authority: the same application in-process, and what an older one leaves to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import select

from clumsies.api.commits import CommitState
from clumsies.errors import Conflict, NotFound, StoreFailed
from clumsies.memory.refs import organization_key, project_key, read_ref
from clumsies.server.local import LocalProject, LocalServer, local_user_id
from clumsies.server.memory.imports import ImportedText
from clumsies.server.memory.objects import payload_of
from clumsies.server.schema import project_members, projects, resources, users
from clumsies.storage.object_store import read_payload
from clumsies.storage.objects import CommitPayload
from clumsies.storage.payload_checks import Authority, verify_payload
from tests.memory.local_memory import LocalMemory
from tests.server.memories import check_everything, paths, ref_at

SECRET = b"s" * 32
CREATED = "2026-01-01T00:00:00.000000Z"


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalServer]:
    made = LocalServer(tmp_path / "authority.db", SECRET)
    yield made
    made.close()


def bring(local: LocalServer, project: str = "p", **texts: str) -> str | None:
    given = [ImportedText(f"{name}.md", text) for name, text in texts.items()]
    return local.import_texts(f"proj_{project}", f"org_{project}", given, False).commit_id


def stands_at(local: LocalServer, key: str) -> str | None:
    return ref_at(local._database, key).commit_id


def older(memory: LocalMemory) -> tuple[CommitPayload | None, CommitPayload | None]:
    """What the older authority's Refs name."""
    with memory.database.reader() as connection:
        keys = organization_key(memory.project.org_id), project_key(memory.project_id)
        names = [ref.commit_id if ref else None for ref in (read_ref(connection, k) for k in keys)]
        org, project = (read_payload(connection, name) if name else None for name in names)
    return org, project


def adopt(local: LocalServer, memory: LocalMemory, **options) -> None:
    project = memory.project
    local.ensure_project(project.project_id, project.org_id, project.name, project.created_at)
    local.adopt(project.project_id, project.org_id, *older(memory), **options)


def test_a_project_is_made_once(local: LocalServer) -> None:
    for name in ("Notes", "Other name"):
        local.ensure_project("proj_p", "org_p", name, CREATED)
    local.ensure_project("proj_a", "org_a", "Atlas", CREATED)
    assert local.projects() == [
        LocalProject("proj_a", "org_a", "Atlas", CREATED),
        LocalProject("proj_p", "org_p", "Notes", CREATED),
    ]
    with pytest.raises(Conflict):
        local.ensure_project("proj_p", "org_a", "Notes", CREATED)
    with local._database.read() as connection:
        assert len(connection.execute(select(users)).all()) == 2
        assert len(connection.execute(select(project_members)).all()) == 2
    assert stands_at(local, "project:proj_p") is None


def test_everything_is_there_after_a_restart(tmp_path: Path, local: LocalServer) -> None:
    local.ensure_project("proj_p", "org_p", "Notes", CREATED)
    commit = bring(local, a="A")
    local.close()
    again = LocalServer(tmp_path / "authority.db", b"t" * 32)
    assert [project.name for project in again.projects()] == ["Notes"]
    assert stands_at(again, "project:proj_p") == commit
    assert (tmp_path / "authority.db").stat().st_mode & 0o777 == 0o600
    again.close()


def test_the_application_serves_the_owner(local: LocalServer, connect) -> None:
    local.ensure_project("proj_p", "org_p", "Notes", CREATED)
    local.ensure_project("proj_q", "org_q", "Others", CREATED)
    commit = bring(local, a="A")
    client = connect(local.app, local.token("org_p"))
    answer = client.get("/api/v1/projects/proj_p/commit-state")
    assert answer.status_code == 200, answer.text
    state = msgspec.json.decode(answer.content, type=CommitState)
    assert state.ref.commit_id == commit
    [project] = client.get("/api/v1/projects").json()["items"]
    assert (project["project_id"], project["name"]) == ("proj_p", "Notes")
    [member] = client.get("/api/v1/projects/proj_p/members").json()["items"]
    assert (member["role"], member["user"]["role"]) == ("admin", "owner")
    assert client.get("/api/v1/projects/proj_q").status_code == 404
    body = {"files": [{"path": "b.md", "content": "B"}]}
    made = client.post("/api/v1/projects/proj_p/memory-imports", json=body)
    assert (made.status_code, made.json()["created"]) == (200, 1)


@pytest.mark.parametrize(
    "bearer",
    [
        "",
        "org_p",
        "org_p.",
        "org_p." + "0" * 64,
        "org_none",
        "ä.ö",
        pytest.param("other secret", id="other"),
        pytest.param("unknown org", id="unknown"),
    ],
)
def test_a_bearer_of_another_maker_is_nobody(
    local: LocalServer, tmp_path: Path, bearer: str
) -> None:
    local.ensure_project("proj_p", "org_p", "Notes", CREATED)
    if bearer == "other secret":
        other = LocalServer(tmp_path / "authority.db", b"x" * 32)
        bearer = other.token("org_p")
        other.close()
    elif bearer == "unknown org":
        bearer = local.token("org_none")
    assert local._authenticator.authenticate(bearer) is None
    principal = local._authenticator.authenticate(local.token("org_p"))
    assert principal is not None
    assert (principal.user_id, principal.role) == (local_user_id("org_p"), "owner")


def test_an_older_authority_is_taken_over(tmp_path: Path, local: LocalServer) -> None:
    memory = LocalMemory(tmp_path)
    memory.bring_in({"a.md": "# A\n", "d/b.md": "B"})
    memory.bring_in({"a.md": "# A2\n"})
    org, project = older(memory)
    assert org is not None
    assert project is not None
    adopt(local, memory)
    adopt(local, memory)  # A repeat is no change.
    assert stands_at(local, f"org:{memory.project.org_id}") == org.commit.commit_id
    assert stands_at(local, f"project:{memory.project_id}") == project.commit.commit_id
    with local._database.read() as connection:
        found = payload_of(connection, project.commit.commit_id)
        rows = {row.path: row for row in connection.execute(select(resources))}
    owner = Authority("project", memory.project.org_id, memory.project_id)
    verify_payload(found, owner, project.commit)
    assert found.project_org_selection == project.project_org_selection
    assert {path: row.name for path, row in rows.items()} == {"a.md": "A2", "d/b.md": "b"}
    assert rows["a.md"].resource_id == memory.id_of("a.md")


def test_work_goes_on_from_what_was_taken_over(tmp_path: Path, local: LocalServer) -> None:
    memory = LocalMemory(tmp_path)
    memory.bring_in({"a.md": "A", "b.md": "B"})
    _, before = older(memory)
    assert before is not None
    adopt(local, memory)
    report = local.import_texts(
        memory.project_id, memory.project.org_id, [ImportedText("a.md", "A2")], False
    )
    assert report.updated == ("a.md",)
    assert paths(local._database, report.commit_id) == {"a.md": "A2", "b.md": "B"}
    with local._database.read() as connection:
        after = payload_of(connection, report.commit_id or "")
    assert after.commit.parent_commit_id == before.commit.commit_id
    assert after.commit.version == before.commit.version + 1
    assert after.project_org_selection == before.project_org_selection
    assert {e.item_id for e in after.tree.entries} == {e.item_id for e in before.tree.entries}
    check_everything(local._database)
    adopt(local, memory)  # The older state is known: the Refs stay where they went.
    assert stands_at(local, f"project:{memory.project_id}") == report.commit_id


def test_bases_of_drafts_come_along(tmp_path: Path, local: LocalServer) -> None:
    memory = LocalMemory(tmp_path)
    memory.bring_in({"a.md": "A"})
    bases = [payload for payload in older(memory) if payload]
    memory.bring_in({"a.md": "A2"})
    adopt(local, memory, bases=bases)
    with local._database.read() as connection:
        for base in bases:
            assert payload_of(connection, base.commit.commit_id).commit == base.commit
    check_everything(local._database)


def test_an_older_authority_without_memory(tmp_path: Path, local: LocalServer) -> None:
    memory = LocalMemory(tmp_path)
    adopt(local, memory)
    assert stands_at(local, f"project:{memory.project_id}") is None


def test_what_is_not_genuine_is_not_taken_over(tmp_path: Path, local: LocalServer) -> None:
    memory = LocalMemory(tmp_path)
    memory.bring_in({"a.md": "A"})
    org, project = older(memory)
    assert org is not None
    assert project is not None
    forged = msgspec.structs.replace(
        org, blobs=[msgspec.structs.replace(blob, content="B") for blob in org.blobs]
    )
    local.ensure_project("proj_p", "org_p", "Notes", CREATED)
    local.ensure_project(memory.project_id, memory.project.org_id, "Courier", CREATED)
    for name, org_id, given in (
        (memory.project_id, memory.project.org_id, forged),
        ("proj_p", "org_p", org),
    ):
        with pytest.raises(StoreFailed) as caught:
            local.adopt(name, org_id, given, project)
        assert caught.value.code == "object_corrupt"
    assert stands_at(local, f"org:{memory.project.org_id}") is None


def test_a_ref_that_stands_elsewhere_is_not_moved(tmp_path: Path, local: LocalServer) -> None:
    memory = LocalMemory(tmp_path)
    memory.bring_in({"a.md": "A"})
    project = memory.project
    local.ensure_project(project.project_id, project.org_id, project.name, CREATED)
    made = local.import_texts(
        project.project_id, project.org_id, [ImportedText("z.md", "Z")], False
    )
    with pytest.raises(Conflict):
        local.adopt(project.project_id, project.org_id, *older(memory))
    assert stands_at(local, f"project:{project.project_id}") == made.commit_id
    check_everything(local._database)


def test_a_project_that_is_not_there_takes_nothing(tmp_path: Path, local: LocalServer) -> None:
    memory = LocalMemory(tmp_path)
    with pytest.raises(NotFound):
        local.adopt(memory.project_id, memory.project.org_id, None, None)
    with local._database.read() as connection:
        assert connection.execute(select(projects)).all() == []
