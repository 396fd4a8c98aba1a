"""Imports: many texts become a project's memory in one commit."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from clumsies.errors import Conflict, InvalidRequest, NotFound, Refused
from clumsies.server.memory.imports import ImportedText, ImportReport, import_texts
from clumsies.server.schema import audit_events
from tests.server.memories import As, check_everything, paths, ref_at
from tests.server.world import World


def texts(**named: str) -> list[ImportedText]:
    return [ImportedText(f"{name}.md", text) for name, text in named.items()]


def bring(
    world: World, acting: As, *given: ImportedText, project: str = "alpha", user: str = "owner",
    remove_others: bool = False,
) -> ImportReport:  # fmt: skip
    return acting(user).write(
        lambda act: import_texts(act, world.projects[project], given, remove_others)
    )


def shown(world: World, project: str) -> dict[str, str]:
    return paths(
        world.database, ref_at(world.database, f"project:{world.projects[project]}").commit_id
    )


def of_org(world: World) -> dict[str, str]:
    return paths(world.database, ref_at(world.database, f"org:{world.orgs['acme']}").commit_id)


def test_a_first_import(world: World, acting: As) -> None:
    report = bring(world, acting, *texts(a="A", b="B"))
    ref = ref_at(world.database, f"project:{world.projects['alpha']}")
    assert report == ImportReport(ref.commit_id, created=("a.md", "b.md"))
    assert shown(world, "alpha") == of_org(world) == {"a.md": "A", "b.md": "B"}
    assert shown(world, "beta") == {}
    check_everything(world.database)


def test_a_repeat_changes_nothing(world: World, acting: As) -> None:
    first = bring(world, acting, *texts(a="A"))
    again = bring(world, acting, *texts(a="A"))
    assert again == ImportReport(first.commit_id, unchanged=("a.md",))
    with world.database.read() as connection:
        query = select(audit_events.c.action)
        assert list(connection.scalars(query)) == ["project.memory_imported"]


def test_a_description_stays_unless_it_is_given(world: World, acting: As) -> None:
    bring(world, acting, ImportedText("a.md", "A", "about"))
    assert bring(world, acting, ImportedText("a.md", "A")).unchanged == ("a.md",)
    assert bring(world, acting, ImportedText("a.md", "A2")).updated == ("a.md",)
    assert bring(world, acting, ImportedText("a.md", "A2", "about")).unchanged == ("a.md",)
    assert bring(world, acting, ImportedText("a.md", "A2", "")).updated == ("a.md",)
    check_everything(world.database)


def test_others_may_be_removed(world: World, acting: As) -> None:
    bring(world, acting, *texts(a="A", b="B", c="C"))
    report = bring(world, acting, *texts(a="A2", d="D"), remove_others=True)
    assert (report.created, report.updated, report.removed) == (
        ("d.md",),
        ("a.md",),
        ("b.md", "c.md"),
    )
    assert shown(world, "alpha") == of_org(world) == {"a.md": "A2", "d.md": "D"}
    empty = bring(world, acting, remove_others=True)
    assert empty.removed == ("a.md", "d.md")
    assert of_org(world) == shown(world, "alpha") == {}
    check_everything(world.database)


def test_what_another_project_has_only_leaves_this_one(world: World, acting: As) -> None:
    bring(world, acting, *texts(a="A", b="B"))
    joined = bring(world, acting, *texts(a="A"), project="beta")
    assert joined.unchanged == ("a.md",)
    assert shown(world, "beta") == {"a.md": "A"}
    report = bring(world, acting, *texts(c="C"), remove_others=True)
    assert report.removed == ("a.md", "b.md")
    assert shown(world, "alpha") == {"c.md": "C"}
    assert shown(world, "beta") == {"a.md": "A"}
    assert of_org(world) == {"a.md": "A", "c.md": "C"}
    check_everything(world.database)


def test_a_folder_may_take_the_place_of_a_file(world: World, acting: As) -> None:
    bring(world, acting, ImportedText("notes", "N"))
    report = bring(world, acting, ImportedText("Notes/a.md", "A"), remove_others=True)
    assert (report.created, report.removed) == (("Notes/a.md",), ("notes",))


@pytest.mark.parametrize(
    "given",
    [
        [ImportedText("../a.md", "A")],
        [ImportedText("a.md", "  ")],
        [ImportedText("a.md", "A\ud800")],
        [ImportedText("a.md", "A"), ImportedText("A.md", "A")],
        [ImportedText("a.md", "A"), ImportedText("a.md", "B")],
        [ImportedText("a", "A"), ImportedText("a/b", "B")],
    ],
)
def test_what_cannot_be_kept_is_refused(
    world: World, acting: As, given: list[ImportedText]
) -> None:
    with pytest.raises(InvalidRequest):
        bring(world, acting, ImportedText("fine.md", "F"), *given)
    assert of_org(world) == {}


def test_a_collision_with_what_is_there_is_a_conflict(world: World, acting: As) -> None:
    bring(world, acting, *texts(a="A"))
    with pytest.raises(Conflict) as caught:
        bring(world, acting, ImportedText("A.md", "A"))
    assert caught.value.code == "already_exists"
    assert of_org(world) == {"a.md": "A"}


def test_who_may_import(world: World, acting: As) -> None:
    with pytest.raises(Refused):
        bring(world, acting, *texts(a="A"), user="ann")
    for user in ("ben", "stranger", "guest"):
        with pytest.raises(NotFound):
            bring(world, acting, *texts(a="A"), user=user)
    with pytest.raises(NotFound):  # An admin of the organisation who is not a member.
        bring(world, acting, *texts(a="A"), user="admin", project="beta")
    assert bring(world, acting, *texts(a="A"), user="admin").created == ("a.md",)


def test_an_import_over_http(world: World, client) -> None:
    url = f"/api/v1/projects/{world.projects['alpha']}/memory-imports"
    body = {"files": [{"path": "a.md", "content": "A", "description": "d"}]}
    answer = client("owner").post(url, json=body)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert made == {
        "created": 1,
        "updated": 0,
        "unchanged": 0,
        "removed": 0,
        "commit_id": ref_at(world.database, f"project:{world.projects['alpha']}").commit_id,
    }
    again = client("owner").post(url, json=body | {"remove_others": True}).json()
    assert again == made | {"created": 0, "unchanged": 1}
    assert client("ann").post(url, json=body).status_code == 403
    assert client("ben").post(url, json=body).status_code == 404
    assert client("owner").post(url, json={"files": [{"path": "a.md"}]}).status_code == 400
    assert client("owner").post(url, json=body | {"more": 1}).status_code == 400
