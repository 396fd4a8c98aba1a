"""Publication: the organisation's commit and every project's that shows it, in one transaction."""

from __future__ import annotations

import threading

import msgspec
import pytest
from sqlalchemy import event, insert, select, update

from clumsies.errors import Conflict
from clumsies.server.memory import objects, publication, refs, selection_rows
from clumsies.server.memory.publication import ResourceChange, publish_org, publish_project
from clumsies.server.memory.selection_rows import SelectionChange
from clumsies.server.schema import draft_reconciliation_candidates, drafts, projects, resources
from tests.server.memories import (
    As,
    check_everything,
    deleted,
    memory_id,
    paths,
    payload,
    publish,
    put,
    ref_at,
)
from tests.server.world import BEGAN, World


def project_paths(world: World, name: str) -> dict[str, str]:
    return paths(
        world.database, ref_at(world.database, f"project:{world.projects[name]}").commit_id
    )


def org_ref(world: World, name: str = "acme") -> refs.RefRow:
    return ref_at(world.database, f"org:{world.orgs[name]}")


def select_memories(acting: As, world: World, project: str, *names: str, user: str = "ann") -> None:
    change = SelectionChange(world.projects[project], frozenset(map(memory_id, names)))
    acting(user).write(lambda act: publish_org(act, [], None, change))


def row_of(world: World, name: str):
    with world.database.read() as connection:
        query = select(resources).where(resources.c.resource_id == memory_id(name))
        return connection.execute(query).one()


def test_the_first_publication(world: World, acting: As) -> None:
    alpha = world.projects["alpha"]
    commit = publish(acting("ann"), put("a.md", "# Über\n", description="d"), carrying=alpha)
    assert commit is not None
    assert (commit.version, commit.parent_commit_id, commit.scope) == (1, None, "org")
    assert org_ref(world).commit_id == commit.commit_id
    assert paths(world.database, commit.commit_id) == {"a.md": "# Über\n"}
    assert project_paths(world, "alpha") == {"a.md": "# Über\n"}
    shown = ref_at(world.database, f"project:{alpha}").commit_id
    assert payload(world.database, shown or "").project_org_selection == {
        "project_id": alpha,
        "revision": 2,
        "resource_ids": [memory_id("a.md")],
    }
    assert ref_at(world.database, f"project:{world.projects['beta']}").commit_id is None
    row = row_of(world, "a.md")
    assert (row.name, row.revision, row.status, row.path) == ("Über", 1, "active", "a.md")
    check_everything(world.database)


def test_each_kind_of_change(world: World, acting: As) -> None:
    alpha = world.projects["alpha"]
    first = [put("a.md", "A", description="keep"), put("b.md", "B"), put("c.md", "C")]
    publish(acting("ann"), *first, carrying=alpha)
    commit = publish(
        acting("admin"),
        put("a.md", "# New\n"),
        ResourceChange(memory_id("b.md"), path="d/my-b.md"),
        deleted("c.md"),
        put("e.md", "E"),
        carrying=alpha,
    )
    assert commit is not None
    assert commit.version == 2
    expected = {"a.md": "# New\n", "d/my-b.md": "B", "e.md": "E"}
    assert paths(world.database, commit.commit_id) == expected
    assert project_paths(world, "alpha") == expected
    assert [row_of(world, name).revision for name in ("a.md", "b.md", "e.md")] == [2, 2, 1]
    assert row_of(world, "a.md").description == "keep"
    assert row_of(world, "b.md").name == "my b"
    assert row_of(world, "b.md").created_at < row_of(world, "b.md").updated_at
    check_everything(world.database)


def test_memories_exchange_their_paths(world: World, acting: As) -> None:
    publish(acting("ann"), put("a.md", "A"), put("b.md", "B"))
    publish(
        acting("ann"),
        ResourceChange(memory_id("a.md"), path="b.md"),
        ResourceChange(memory_id("b.md"), path="a.md"),
    )
    assert paths(world.database, org_ref(world).commit_id) == {"a.md": "B", "b.md": "A"}
    check_everything(world.database)


def test_nothing_different_makes_no_commit(world: World, acting: As) -> None:
    assert publish(acting("ann")) is None
    assert publish(acting("ann"), deleted("a.md")) is None
    first = publish(acting("ann"), put("a.md", "A"), carrying=world.projects["alpha"])
    before = row_of(world, "a.md"), ref_at(world.database, f"project:{world.projects['alpha']}")
    again = publish(acting("ann"), put("a.md", "A"), carrying=world.projects["alpha"])
    assert again == first
    assert before == (
        row_of(world, "a.md"),
        ref_at(world.database, f"project:{world.projects['alpha']}"),
    )


def test_every_project_that_has_a_memory_follows(world: World, acting: As) -> None:
    alpha, beta = world.projects["alpha"], world.projects["beta"]
    publish(acting("ann"), put("a.md", "A"), put("b.md", "B"), carrying=alpha)
    select_memories(acting, world, "beta", "a.md")
    assert project_paths(world, "beta") == {"a.md": "A"}
    beta_before = ref_at(world.database, f"project:{beta}").commit_id
    publish(acting("ann"), put("b.md", "B2"))
    assert ref_at(world.database, f"project:{beta}").commit_id == beta_before
    assert project_paths(world, "alpha")["b.md"] == "B2"
    publish(acting("ann"), put("a.md", "A2"))
    assert project_paths(world, "beta") == {"a.md": "A2"}
    publish(acting("ann"), deleted("a.md"))
    assert project_paths(world, "beta") == {}
    assert project_paths(world, "alpha") == {"b.md": "B2"}
    with world.database.read() as connection:
        act = acting("ann")._act(connection)
        found = selection_rows.read_selections(act, [alpha, beta])
    assert (found[alpha].revision, found[beta].revision) == (3, 3)
    assert found[alpha].resource_ids == {memory_id("b.md")}
    check_everything(world.database)


def test_other_organisations_are_left_alone(world: World, acting: As) -> None:
    publish(acting("stranger"), put("a.md", "theirs", "x"), carrying=world.projects["gamma"])
    publish(acting("ann"), put("a.md", "ours"), carrying=world.projects["alpha"])
    assert project_paths(world, "gamma") == {"a.md": "theirs"}
    assert project_paths(world, "alpha") == {"a.md": "ours"}
    check_everything(world.database)


def test_a_deleted_project_gets_no_more_commits(world: World, acting: As) -> None:
    alpha = world.projects["alpha"]
    publish(acting("ann"), put("a.md", "A"), carrying=alpha)
    world.database.write(
        lambda c: c.execute(
            update(projects).where(projects.c.project_id == alpha).values(deleted_at=BEGAN)
        )
    )
    publish(acting("ann"), put("a.md", "A2"))
    assert project_paths(world, "alpha") == {"a.md": "A"}


@pytest.mark.parametrize(
    "change",
    [
        put("A.MD", "x", "new"),
        put("a.md", "x", "new"),
        put("a.md/b", "x", "new"),
        ResourceChange("mem_b_md", path="a.md"),
        ResourceChange("mem_b_md", path="A.md/x.md"),
    ],
)
def test_paths_that_collide_are_refused(world: World, acting: As, change: ResourceChange) -> None:
    first = publish(acting("ann"), put("a.md", "A"), put("b.md", "B"))
    with pytest.raises(Conflict) as caught:
        publish(acting("ann"), put("c.md", "C"), change)
    assert caught.value.code == "already_exists"
    assert "a.md" in [path.lower() for path in caught.value.details["paths"]]  # type: ignore[attr-defined]
    assert first is not None
    assert org_ref(world).commit_id == first.commit_id
    check_everything(world.database)


def test_a_title_with_nul_is_kept_without_it(world: World, acting: As) -> None:
    publish(acting("ann"), put("a.md", "# A\x00B\n"))
    assert "\x00" not in row_of(world, "a.md").name
    assert paths(world.database, org_ref(world).commit_id) == {"a.md": "# A\x00B\n"}


def test_a_selection_alone_moves_the_project_alone(world: World, acting: As) -> None:
    publish(acting("ann"), put("a.md", "A"))
    before = org_ref(world)
    beta = world.projects["beta"]

    def choose(act):
        refs.read_ref(act, refs.org_key(act.principal.org_id), lock=True)
        change = SelectionChange(beta, frozenset({memory_id("a.md")}))
        assert selection_rows.change_selection(act, change)
        selection_rows.count_revisions(act, [beta])
        return publish_project(act, beta)

    commit = acting("ann").write(choose)
    assert (commit.version, commit.project_id) == (1, beta)
    assert acting("ann").write(lambda act: publish_project(act, beta)) == commit
    assert org_ref(world) == before
    assert project_paths(world, "beta") == {"a.md": "A"}
    alpha = world.projects["alpha"]
    assert acting("ann").write(lambda act: publish_project(act, alpha)) is None
    check_everything(world.database)


def test_candidates_of_drafts_on_a_moved_ref_are_void(world: World, acting: As) -> None:
    alpha, beta = world.projects["alpha"], world.projects["beta"]
    wanted = {
        "org_open": ("acme", "alpha", "org", "open"),
        "org_submitted": ("acme", "beta", "org", "submitted"),
        "alpha_project": ("acme", "alpha", "project", "open"),
        "beta_project": ("acme", "beta", "project", "open"),
        "other_org": ("other", "gamma", "org", "open"),
    }

    def work(connection):
        for name, (org, project, scope, status) in wanted.items():
            author = "ann" if org == "acme" else "stranger"
            connection.execute(
                insert(drafts).values(
                    draft_id=name,
                    org_id=world.orgs[org],
                    project_id=world.projects[project],
                    author_id=world.users[author],
                    scope=scope,
                    title="t",
                    description="",
                    status=status,
                    version=1,
                    created_at=BEGAN,
                    updated_at=BEGAN,
                )
            )
            connection.execute(
                insert(draft_reconciliation_candidates).values(
                    candidate_id=f"cand_{name}",
                    draft_id=name,
                    draft_version=1,
                    status="clean",
                    states_json="{}",
                    conflicts_json="[]",
                    created_at=BEGAN,
                )
            )

    world.database.write(work)
    table = draft_reconciliation_candidates

    def void() -> set[str]:
        with world.database.read() as connection:
            query = select(table.c.draft_id).where(table.c.invalidated_at.is_not(None))
            return set(connection.scalars(query))

    publish(acting("ann"))
    assert void() == set()
    publish(acting("ann"), put("a.md", "A"), carrying=alpha)
    assert void() == {"org_open", "org_submitted", "alpha_project"}
    change = SelectionChange(beta, frozenset({memory_id("a.md")}))
    acting("ann").write(lambda act: publish_org(act, [], None, change))
    assert void() == {"org_open", "org_submitted", "alpha_project", "beta_project"}


def test_a_ref_that_moved_is_no_precondition(world: World, acting: As) -> None:
    ref = org_ref(world)
    acting("ann").write(lambda act: refs.require_ref_at(act, ref, None))
    commit = publish(acting("ann"), put("a.md", "A"))
    assert commit is not None
    acting("ann").write(lambda act: refs.require_ref_at(act, ref, commit.commit_id))
    with pytest.raises(Conflict) as caught:
        acting("ann").write(lambda act: refs.require_ref_at(act, ref, None))
    assert caught.value.code == "precondition_failed"
    assert caught.value.details == {
        "expected_commit_id": None,
        "current_commit_id": commit.commit_id,
    }


def test_publications_side_by_side_lose_nothing(world: World, acting: As) -> None:
    failures: list[BaseException] = []
    names = {"alpha": "ann", "beta": "owner"}

    def run(project: str) -> None:
        try:
            for number in range(6):
                publish(
                    acting(names[project]),
                    put(f"{project}-{number}.md", "text"),
                    carrying=world.projects[project],
                )
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(paths(world.database, org_ref(world).commit_id)) == 12
    assert len(project_paths(world, "alpha")) == len(project_paths(world, "beta")) == 6
    check_everything(world.database)


def test_the_number_of_statements_does_not_grow(world: World, acting: As) -> None:
    alpha = world.projects["alpha"]

    def count(number: int) -> int:
        changes = [put(f"{number}/{i}.md", f"{number} {i}") for i in range(number)]
        changes += [deleted("gone.md"), put("kept.md", str(number))]
        publish(acting("ann"), put("gone.md", "x"), put("kept.md", "x"), carrying=alpha)
        statements: list[str] = []
        listener = lambda *args: statements.append(args[2])  # noqa: E731
        event.listen(world.database._engine, "before_cursor_execute", listener)
        publish(acting("ann"), *changes, carrying=alpha)
        event.remove(world.database._engine, "before_cursor_execute", listener)
        return len(statements)

    few = count(2)
    assert count(400) == few < 45


def test_the_author_of_a_commit_is_kept(world: World, acting: As) -> None:
    commit = publish(acting("admin"), put("a.md", "A"))
    assert commit is not None
    with world.database.read() as connection:
        table = objects.commits
        query = select(table.c.author_id).where(table.c.commit_id == commit.commit_id)
        assert connection.scalar(query) == world.users["admin"]


def test_a_selection_is_text_of_known_bytes() -> None:
    chosen = selection_rows.Selection(7, frozenset({"mem_b", "mem_a"}))
    text = publication.selection_text("proj_1", chosen)
    assert text == '{"project_id":"proj_1","revision":7,"resource_ids":["mem_a","mem_b"]}'
    assert msgspec.json.decode(text)["revision"] == 7
