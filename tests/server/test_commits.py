"""Commit state and transfer: what the daemon asks, and who may."""

from __future__ import annotations

import httpx
import msgspec
import pytest
from sqlalchemy import event, update

from clumsies.api.commits import CommitState, CommitTransfer
from clumsies.server.memory.publication import publish_org
from clumsies.server.memory.selection_rows import SelectionChange
from clumsies.server.schema import projects
from clumsies.storage.objects import Blob, Commit, CommitPayload, blob_id
from clumsies.storage.payload_checks import Authority, verify_payload
from tests.server.memories import As, memory_id, payload, publish, put, ref_at
from tests.server.world import BEGAN, World

UNKNOWN = "0" * 64


def published(world: World, acting: As, *changes, carrying: str = "alpha") -> tuple[Commit, str]:
    """The organisation's commit and the carrying project's commit id."""
    commit = publish(acting("owner"), *changes, carrying=world.projects[carrying])
    ref = ref_at(world.database, f"project:{world.projects[carrying]}")
    assert commit is not None
    assert ref.commit_id is not None
    return commit, ref.commit_id


def state_of(answer: httpx.Response) -> CommitState:
    assert answer.status_code == 200, answer.text
    state = msgspec.json.decode(answer.content, type=CommitState)
    name = state.ref.commit_id
    assert answer.headers["etag"] == (f'"{name}"' if name else '"ref-none"')
    assert state.download_url == (f"/api/v1/commits/{name}" if name else None)
    assert (state.latest.commit_id if state.latest else None) == name
    assert state.incremental_supported
    return state


def fetch(client: httpx.Client, commit_id: str, have: str | None = None) -> CommitTransfer:
    answer = client.get(f"/api/v1/commits/{commit_id}", params={"have": have} if have else {})
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=CommitTransfer)


def whole(transfer: CommitTransfer, held: list[Blob] = ()) -> CommitPayload:  # type: ignore[assignment]
    wanted = {entry.blob_id for entry in transfer.tree.entries}
    blobs = {blob.blob_id: blob for blob in [*held, *transfer.blobs] if blob.blob_id in wanted}
    return CommitPayload(
        transfer.commit, transfer.tree, list(blobs.values()), transfer.project_org_selection
    )


def test_an_empty_ref(world: World, client) -> None:
    for path in ("/api/v1/org", f"/api/v1/projects/{world.projects['alpha']}"):
        state = state_of(client("ann").get(f"{path}/commit-state"))
        assert (state.update_available, state.latest) == (False, None)
        assert state_of(
            client("ann").get(f"{path}/commit-state", params={"local_commit_id": UNKNOWN})
        ).update_available
        assert client("ann").get(f"{path}/commits").json()["items"] == []


def test_state_of_a_ref_that_moved(world: World, acting: As, client) -> None:
    commit, shown = published(world, acting, put("a.md", "A"))
    alpha = f"/api/v1/projects/{world.projects['alpha']}"
    for path, name in (("/api/v1/org", commit.commit_id), (alpha, shown)):
        for local, available in ((None, True), (UNKNOWN, True), (name, False), ("x y", True)):
            params = {} if local is None else {"local_commit_id": local}
            state = state_of(client("ann").get(f"{path}/commit-state", params=params))
            assert state.update_available == available
            assert state.ref.commit_id == name
    org = state_of(client("ann").get("/api/v1/org/commit-state"))
    project = state_of(client("ann").get(f"{alpha}/commit-state"))
    assert org.latest == commit
    assert (org.ref.scope, org.ref.project_id) == ("org", None)
    assert (project.ref.scope, project.ref.project_id) == ("project", world.projects["alpha"])
    assert org.ref.org_id == project.ref.org_id == world.orgs["acme"]


def test_commits_are_listed_newest_first(world: World, acting: As, client) -> None:
    for number in range(3):
        published(world, acting, put("a.md", str(number)))
    for path in ("/api/v1/org", f"/api/v1/projects/{world.projects['alpha']}"):
        page = client("ann").get(f"{path}/commits").json()
        assert [item["version"] for item in page["items"]] == [3, 2, 1]
        assert page["page_info"] == {"next_cursor": None, "has_more": False}


def test_a_whole_payload_is_genuine(world: World, acting: As, client) -> None:
    commit, shown = published(world, acting, put("a.md", "A\x00ä"), put("b.md", "B"))
    org = fetch(client("ann"), commit.commit_id)
    verify_payload(whole(org), Authority("org", world.orgs["acme"]), commit)
    assert org.base_commit_id is None
    project = fetch(client("ann"), shown)
    verify_payload(
        whole(project), Authority("project", world.orgs["acme"], world.projects["alpha"])
    )


def test_a_transfer_leaves_out_what_the_client_has(world: World, acting: As, client) -> None:
    _, first = published(world, acting, put("a.md", "A"), put("b.md", "B"))
    _, second = published(world, acting, put("b.md", "B2"), put("c.md", "A"))
    transfer = fetch(client("ann"), second, have=first)
    assert transfer.base_commit_id == first
    sent = {blob.content for blob in transfer.blobs}
    assert "A" not in sent
    assert "B2" in sent
    assert len(sent) == 2  # and the selection
    held = payload(world.database, first).blobs
    verify_payload(
        whole(transfer, held), Authority("project", world.orgs["acme"], world.projects["alpha"])
    )
    same = fetch(client("ann"), second, have=second)
    assert (same.blobs, same.base_commit_id) == ([], second)
    assert same.project_org_selection is not None


def test_a_base_that_helps_nobody_means_the_whole(world: World, acting: As, client) -> None:
    commit, shown = published(world, acting, put("a.md", "A"))
    publish(acting("stranger"), put("a.md", "A", "x"), carrying=world.projects["gamma"])
    foreign = ref_at(world.database, f"org:{world.orgs['other']}").commit_id or ""
    for have in (UNKNOWN, foreign, "junk", "nul\x00", "ä"):
        transfer = fetch(client("ann"), commit.commit_id, have=have)
        assert transfer.base_commit_id is None
        assert [blob.blob_id for blob in transfer.blobs] == [blob_id("A")]
    # Ben is not of alpha: he may not learn what its commit holds.
    assert fetch(client("ben"), commit.commit_id, have=shown).base_commit_id is None
    assert fetch(client("ann"), commit.commit_id, have=shown).base_commit_id == shown


@pytest.mark.parametrize(
    ("user", "of_org", "of_alpha"),
    [("owner", 200, 200), ("admin", 200, 200), ("ann", 200, 200), ("ben", 200, 404),
     ("stranger", 404, 404), ("guest", 404, 404), (None, 401, 401)],
)  # fmt: skip
def test_who_may_read(world: World, acting: As, client, user, of_org: int, of_alpha: int) -> None:
    commit, shown = published(world, acting, put("a.md", "A"))
    alpha = f"/api/v1/projects/{world.projects['alpha']}"
    as_user = client(user)
    assert as_user.get(f"/api/v1/commits/{commit.commit_id}").status_code == of_org
    for path in (f"/api/v1/commits/{shown}", f"{alpha}/commits", f"{alpha}/commit-state"):
        assert as_user.get(path).status_code == of_alpha, path
    own = as_user.get("/api/v1/org/commit-state")
    assert own.status_code == (401 if user is None else 200)
    if of_org == 404:
        assert own.json()["ref"]["org_id"] == world.orgs["other"]


def test_a_deleted_project_is_not_there(world: World, acting: As, client) -> None:
    _, shown = published(world, acting, put("a.md", "A"))
    alpha = world.projects["alpha"]
    world.database.write(
        lambda c: c.execute(
            update(projects).where(projects.c.project_id == alpha).values(deleted_at=BEGAN)
        )
    )
    assert client("ann").get(f"/api/v1/commits/{shown}").status_code == 404
    assert client("ann").get(f"/api/v1/projects/{alpha}/commit-state").status_code == 404


def test_ids_that_are_none_are_answered_alike(world: World, client) -> None:
    for name in (UNKNOWN, "abc"):
        answer = client("ann").get(f"/api/v1/commits/{name}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_a_commit_state_is_one_statement(world: World, acting: As, client) -> None:
    published(world, acting, put("a.md", "A"))
    statements: list[str] = []
    listener = lambda *args: statements.append(args[2])  # noqa: E731
    as_ann = client("ann")
    event.listen(world.database._engine, "before_cursor_execute", listener)
    as_ann.get(f"/api/v1/projects/{world.projects['alpha']}/commit-state")
    event.remove(world.database._engine, "before_cursor_execute", listener)
    assert len([text for text in statements if text.startswith("SELECT")]) == 1


def test_a_long_payload_is_compressed(world: World, acting: As, client) -> None:
    commit, _ = published(world, acting, put("a.md", "word " * 5_000))
    answer = client("ann").get(f"/api/v1/commits/{commit.commit_id}")
    assert answer.headers["content-encoding"] == "gzip"
    assert b"word word" in answer.content


def test_a_selection_alone_is_a_new_state_of_the_project(world: World, acting: As, client) -> None:
    published(world, acting, put("a.md", "A"))
    beta = world.projects["beta"]
    change = SelectionChange(beta, frozenset({memory_id("a.md")}))
    acting("ann").write(lambda act: publish_org(act, [], None, change))
    state = state_of(client("ben").get(f"/api/v1/projects/{beta}/commit-state"))
    transfer = fetch(client("ben"), state.ref.commit_id or "")
    verify_payload(whole(transfer), Authority("project", world.orgs["acme"], beta), state.latest)
