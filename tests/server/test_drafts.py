"""Drafts over HTTP: what is taken, what is refused, and that a repeat is no second one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.memories import put
from tests.server.team import Team, code, create, delete, good, rename, update

GUIDE = "mem_guide_md"


@pytest.fixture
def team(world, client, acting) -> Team:  # type: ignore[no-untyped-def]
    made = Team(world, client, acting)
    made.publish(put("guide.md", "# Guide\n"))
    return made


def test_a_draft_comes_back_as_it_was_sent(team: Team) -> None:
    body = team.draft_body(update(GUIDE, "# Guide 2\n"), title="Better", description="Why\nso")
    detail = good(team.post("ann", "/drafts", body), 201)
    draft = detail["draft"]
    assert draft["resource"] == {"scope": "org", "id": GUIDE, "path": "guide.md"}
    assert (draft["status"], draft["version"], draft["title"]) == ("open", 1, "Better")
    assert draft["author"]["user_id"] == "user_ann"
    assert draft["coordination"] == {
        "freshness": "current",
        "current_commit_id": team.commit_id,
        "has_upstream_resource_changes": False,
        "reconciliation": "unknown",
        "candidate_id": None,
    }
    assert [item["content"]["content"] for item in detail["operations"]] == ["# Guide 2\n"]
    assert team.read("ann", draft["draft_id"]) == detail
    assert team.events("ann") == [("created", draft["draft_id"], 1)]


def test_a_creation_that_is_repeated_is_answered_with_the_draft(team: Team) -> None:
    body = team.draft_body(create("new.md", "# New\n"), client_draft_id="draft_local")
    first = good(team.post("ann", "/drafts", body), 201)
    team.publish(put("other.md", "# Other\n"))
    again = good(team.post("ann", "/drafts", body), 200)
    assert again["draft"]["draft_id"] == first["draft"]["draft_id"]
    assert len(team.events("ann")) == 1
    assert code(team.post("ann", "/drafts", body | {"title": "Else"})) == (409, "already_exists")
    others = good(team.post("admin", "/drafts", body), 201)
    assert others["draft"]["draft_id"] != first["draft"]["draft_id"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"base_commit_id": "0" * 64}, "not a commit of this organisation"),
        ({"resource": {"scope": "project", "path": "a.md"}}, "scope"),
        ({"resource": {"scope": "org"}, "operations": []}, "memory's id, or the path"),
        ({"resource": {"scope": "org", "path": "../a.md"}, "operations": []}, "path"),
        ({"resource": {"scope": "org", "id": "mem_none"}, "operations": []}, "no such memory"),
        ({"operations": [create("CON.md", "x")]}, "path"),
        ({"operations": [create("a.md", " \n")]}, "blank"),
        ({"operations": [create("a.md", "x"), create("b.md", "x")]}, "first operation"),
        (
            {"operations": [create("a.md", "x"), update(GUIDE, "x"), update("mem_b", "x")]},
            "another",
        ),
        ({"operations": [update("mem_none", "x")]}, "no such memory"),
        ({"operations": [delete(GUIDE), update(GUIDE, "x")]}, "cannot be applied"),
        ({"operations": [update(GUIDE, "x"), update("mem_b", "x")]}, "another memory"),
        ({"operations": [{**update(GUIDE, "x"), "new_path": "b.md"}]}, "takes"),
        ({"operations": [{**rename(GUIDE, "b.md"), "new_path": None}]}, "takes"),
        (
            {
                "operations": [
                    update(GUIDE, "x", local_operation_id="op_1"),
                    update(GUIDE, "y", local_operation_id="op_1"),
                ]
            },
            "same local_operation_id",
        ),
    ],
)
def test_what_cannot_be_drafted_is_refused(team: Team, changed: dict[str, Any], words: str) -> None:
    resource = {"scope": "org", "path": "guide.md"}
    answer = team.post("ann", "/drafts", team.draft_body(resource=resource) | changed)
    assert code(answer) == (400, "invalid_request")
    assert words in answer.json()["error"]["message"]
    assert good(team.get("ann", "/drafts"))["items"] == []
    assert team.events("ann") == []


def test_a_base_must_be_the_organisations_own_commit(team: Team) -> None:
    projection = team.acts().read(
        lambda act: act.connection.exec_driver_sql(
            "SELECT commit_id FROM commits WHERE scope = 'project'"
        ).scalar()
    )
    body = team.draft_body(create("a.md", "x"), base_commit_id=projection)
    assert code(team.post("ann", "/drafts", body)) == (400, "invalid_request")


def test_operations_follow_each_other_by_version(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "one"))
    detail = good(team.append("ann", draft, rename(GUIDE, "b.md")), 201)
    assert detail["draft"]["version"] == 2
    stale = team.append("ann", draft, update(GUIDE, "two"))
    assert code(stale) == (409, "version_conflict")
    assert stale.json()["error"]["details"] == {
        "entity": "draft",
        "expected_version": 1,
        "actual_version": 2,
    }
    assert [item["action"] for item in team.read("ann", draft["draft_id"])["operations"]] == [
        "update",
        "rename",
    ]
    assert [event[0] for event in team.events("ann")] == ["created", "operation_appended"]


def test_an_operation_that_is_repeated_is_taken_once(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "one", local_operation_id="op_1"))
    second = update(GUIDE, "two", local_operation_id="op_2")
    after = good(team.append("ann", draft, second), 201)
    for repeated in (second, update(GUIDE, "one", local_operation_id="op_1")):
        assert good(team.append("ann", draft, repeated), 201) == after
    other = update(GUIDE, "three", local_operation_id="op_2")
    assert code(team.append("ann", after["draft"], other)) == (409, "already_exists")


def test_a_draft_that_creates_is_called_by_any_of_its_names(team: Team) -> None:
    draft = team.draft("ann", create("new.md", "one"), client_draft_id="draft_local")
    for name, text in (("draft_local", "two"), (draft["draft_id"], "three")):
        draft = good(team.append("ann", draft, update(name, text)), 201)["draft"]
    operations = team.read("ann", draft["draft_id"])["operations"]
    assert [item["resource"].get("id") for item in operations] == [None, *["draft_local"] * 2]
    assert code(team.append("ann", draft, update(GUIDE, "x"))) == (400, "invalid_request")


def batch(*items: tuple[str, str, int, dict[str, Any]]) -> dict[str, Any]:
    return {
        "daemon_installation_id": "machine_2",
        "operations": [
            {
                "local_operation_id": name,
                "draft_id": draft_id,
                "expected_draft_version": version,
                "operation": operation,
            }
            for name, draft_id, version, operation in items
        ],
    }


def test_a_batch_is_taken_whole_or_not_at_all(team: Team) -> None:
    one, two = team.draft("ann", update(GUIDE, "one")), team.draft("ann", create("n.md", "new"))
    first = ("op_a", one["draft_id"], 1, update(GUIDE, "a"))
    second = ("op_b", two["draft_id"], 1, update("prov", "b"))
    third = ("op_c", one["draft_id"], 2, rename(GUIDE, "c.md"))
    wrong = ("op_d", two["draft_id"], 1, update("prov", "d"))
    refused = team.post("ann", "/draft-operation-batches", batch(first, second, third, wrong))
    assert code(refused) == (409, "version_conflict")
    assert team.read("ann", one["draft_id"])["draft"]["version"] == 1
    body = batch(first, second, third)
    taken = good(team.post("ann", "/draft-operation-batches", body), 201)
    assert [
        (item["local_operation_id"], item["draft_id"], item["draft_version"])
        for item in taken["accepted_operations"]
    ] == [
        ("op_a", one["draft_id"], 3),
        ("op_b", two["draft_id"], 2),
        ("op_c", one["draft_id"], 3),
    ]
    assert good(team.post("ann", "/draft-operation-batches", body), 201) == taken
    assert len(team.events("ann")) == 5
    last = good(team.get("ann", "/draft-events", after_cursor="4"))["events"][-1]
    assert last["daemon_installation_id"] == "machine_2"
    assert taken["cursor"] == "5"


def test_words_change_and_a_discard_ends_a_draft(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "one"))
    url = f"/api/v1/drafts/{draft['draft_id']}"
    ann = team.client("ann")
    changed = good(ann.patch(url, json={"title": "Other"}, headers={"if-match": '"1"'}))["draft"]
    assert (changed["title"], changed["version"]) == ("Other", 2)
    assert code(team.discard("ann", draft)) == (409, "version_conflict")
    gone = good(team.discard("ann", changed))
    assert gone["draft"]["status"] == "discarded"
    assert good(team.discard("ann", draft)) == gone
    assert code(team.append("ann", gone["draft"], update(GUIDE, "x"))) == (400, "invalid_request")
    refused = ann.patch(url, json={"title": "No"}, headers={"if-match": "3"})
    assert code(refused) == (400, "invalid_request")
    assert code(ann.delete(url)) == (400, "invalid_request")
    assert [event[0] for event in team.events("ann")] == ["created", "updated", "discarded"]


def test_a_list_is_the_authors_own_page_by_page(team: Team) -> None:
    names = [team.draft("ann", create(f"{n}.md", "x"))["draft_id"] for n in range(5)]
    team.draft("admin", create("a.md", "x"))
    beta = team.draft("ann", create("b.md", "x"), project_id="proj_beta")["draft_id"]
    seen, cursor = [], None
    while True:
        query = {"limit": 2, "project_id": "proj_alpha"} | ({"cursor": cursor} if cursor else {})
        page = good(team.get("ann", "/drafts", **query))
        seen += [item["draft_id"] for item in page["items"]]
        cursor = page["page_info"]["next_cursor"]
        assert page["page_info"]["has_more"] == (cursor is not None)
        if cursor is None:
            break
    assert seen == names[::-1]
    everything = good(team.get("ann", "/drafts"))["items"]
    assert [item["draft_id"] for item in everything] == [beta, *names[::-1]]
    assert good(team.get("ann", "/drafts", status="merged"))["items"] == []
    for bad in ({"cursor": "x"}, {"cursor": "WyIAIiwiYSJd"}, {"limit": 0}, {"status": "gone"}):
        assert code(team.get("ann", "/drafts", **bad)) == (400, "invalid_request")


def test_a_draft_shows_how_far_the_ref_went(team: Team) -> None:
    mine = team.draft("ann", update(GUIDE, "# Mine\n"))
    new = team.draft("ann", create("new.md", "x"))
    team.publish(put("other.md", "# Other\n"))
    near = team.read("ann", mine["draft_id"])["draft"]["coordination"]
    assert (near["freshness"], near["has_upstream_resource_changes"]) == ("behind", False)
    team.publish(put("guide.md", "# Theirs\n"))
    far = {
        item["draft_id"]: item["coordination"] for item in good(team.get("ann", "/drafts"))["items"]
    }
    assert far[mine["draft_id"]]["has_upstream_resource_changes"]
    assert far[mine["draft_id"]]["current_commit_id"] == team.commit_id
    assert not far[new["draft_id"]]["has_upstream_resource_changes"]


def test_a_draft_without_a_base_stands_on_nothing(team: Team) -> None:
    body = team.draft_body(create("new.md", "x"), base_commit_id=None)
    draft = good(team.post("ann", "/drafts", body), 201)["draft"]
    assert (draft["base_commit_id"], draft["coordination"]["freshness"]) == (None, "behind")
    nothing = team.draft_body(update(GUIDE, "x"), base_commit_id=None)
    assert code(team.post("ann", "/drafts", nothing)) == (400, "invalid_request")


def test_who_may_see_and_change_a_draft(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "# Ann's\n"))
    path = f"/drafts/{draft['draft_id']}"
    for user in ("owner", "admin", "ben", "stranger"):
        assert code(team.get(user, path)) == (404, "not_found")
        assert code(team.append(user, draft, update(GUIDE, "x"))) == (404, "not_found")
        assert code(team.discard(user, draft)) == (404, "not_found")
    assert team.get(None, path).status_code == 401  # type: ignore[arg-type]
    body = team.draft_body(create("a.md", "x"))
    for user, project in (("ben", "proj_alpha"), ("ann", "proj_gamma"), ("ann", "proj_none")):
        answer = team.post(user, "/drafts", body | {"project_id": project})
        assert code(answer) == (404, "not_found")
    team.acts().write(
        lambda act: act.connection.exec_driver_sql(
            "DELETE FROM project_members WHERE user_id = 'user_ann' AND project_id = 'proj_alpha'"
        )
    )
    assert code(team.get("ann", path)) == (404, "not_found")
    assert code(team.append("ann", draft, update(GUIDE, "x"))) == (404, "not_found")
    assert good(team.get("ann", "/drafts"))["items"] == []
    assert [event[1] for event in team.events("ann")] == [draft["draft_id"]]
