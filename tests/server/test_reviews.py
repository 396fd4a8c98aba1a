"""Reviews over HTTP: from a proposal to the commit, and every way back."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from clumsies.server.schema import audit_events, review_merges
from tests.server.memories import check_everything, deleted, put
from tests.server.team import Json, Team, code, create, delete, good, picked, rename, update

GUIDE = "mem_guide_md"
OTHER = "mem_other_md"
NO_REF = {"if_match": '"ref-none"'}


@pytest.fixture
def team(world, client, acting) -> Team:  # type: ignore[no-untyped-def]
    made = Team(world, client, acting)
    made.publish(put("guide.md", "# Guide\n"), put("other.md", "# Other\n"))
    return made


def test_a_group_of_drafts_becomes_one_commit(team: Team) -> None:
    drafts = [
        team.draft("ann", update(GUIDE, "# Guide 2\n"), rename(GUIDE, "guides/one.md")),
        team.draft("ann", delete(OTHER)),
        team.draft("ann", create("new.md", "# New\n"), client_draft_id="draft_local"),
    ]
    before = team.commit_id
    detail = good(team.submit("ann", *drafts, title="All", description="at once"), 201)
    review = detail["review"]
    assert (review["status"], review["version"], review["title"]) == ("open", 1, "All")
    assert review["draft_ids"] == [draft["draft_id"] for draft in drafts]
    assert detail["draft"]["draft_id"] == review["draft_id"] == drafts[0]["draft_id"]
    assert len(detail["operations"]) == 2
    assert {item["draft"]["status"] for item in detail["drafts"]} == {"submitted"}
    assert {item["draft"]["review_id"] for item in detail["drafts"]} == {review["review_id"]}
    assert review["coordination"]["freshness"] == "current"
    assert team.commit_id == before
    answer = good(team.merge("owner", review), 201)
    assert (answer["commit_id"], answer["applied_operation_count"]) == (team.commit_id, 4)
    assert (answer["review"]["status"], answer["review"]["version"]) == ("merged", 2)
    assert team.memory == {"guides/one.md": "# Guide 2\n", "new.md": "# New\n"}
    created = team.read("ann", drafts[2]["draft_id"])["draft"]
    assert created["status"] == "merged"
    assert created["resource"]["id"].startswith("mem_")
    assert created["resource"]["path"] == "new.md"
    kinds = [event[0] for event in team.events("ann")]
    assert kinds == ["created"] * 3 + ["submitted"] * 3 + ["merged"] * 3
    assert team.events("owner") == []
    check_everything(team.world.database)
    merges = team.acts().read(lambda act: act.connection.execute(select(review_merges)).all())
    assert [(row.review_id, row.commit_id, row.merged_by) for row in merges] == [
        (review["review_id"], team.commit_id, "user_owner")
    ]


def test_what_a_merge_creates_is_selected_for_its_project(team: Team) -> None:
    good(team.merge("owner", team.review("ann", create("new.md", "# New\n"))), 201)
    found = team.acts().read(
        lambda act: act.connection.exec_driver_sql(
            "SELECT project_id, path FROM project_org_resource_selections "
            "JOIN resources USING (resource_id) WHERE path = 'new.md'"
        ).all()
    )
    assert [tuple(row) for row in found] == [("proj_alpha", "new.md")]


def test_the_first_merge_fills_an_empty_ref(world, client, acting) -> None:  # type: ignore[no-untyped-def]
    team = Team(world, client, acting)
    assert team.commit_id is None
    review = team.review("ann", create("a.md", "# A\n"))
    answer = good(team.merge("owner", review), 201)
    assert answer["commit_id"] == team.commit_id
    assert team.memory == {"a.md": "# A\n"}
    check_everything(world.database)


def test_a_draft_that_creates_nothing_merges_to_nothing(world, client, acting) -> None:  # type: ignore[no-untyped-def]
    team = Team(world, client, acting)
    review = team.review("ann", create("a.md", "# A\n"))
    draft = team.read("ann", review["draft_id"])["draft"]
    good(team.append("ann", draft, delete(draft["draft_id"])), 201)
    answer = good(team.merge("owner", team.review_now(review)["review"]), 201)
    assert (answer["commit_id"], answer["review"]["status"]) == (None, "merged")


def test_before_and_after_of_every_draft(team: Team) -> None:
    drafts = team.draft("ann", rename(GUIDE, "b.md")), team.draft("ann", create("n.md", "# N\n"))
    review = good(team.submit("ann", *drafts), 201)["review"]
    path = f"/reviews/{review['review_id']}/changes"
    changes = good(team.get("admin", path))["changes"]
    assert [change["draft_id"] for change in changes] == review["draft_ids"]
    assert [change["before"]["exists"] for change in changes] == [True, False]
    assert [change["after"]["resource"]["path"] for change in changes] == ["b.md", "n.md"]
    good(team.merge("owner", review), 201)
    merged = good(team.get("admin", path))["changes"]
    assert [change["before"] for change in merged] == [change["before"] for change in changes]
    assert [change["after"]["content"] for change in merged] == [
        change["after"]["content"] for change in changes
    ]


def test_paths_may_be_exchanged_within_a_group(team: Team) -> None:
    drafts = [
        team.draft("ann", rename(GUIDE, "other.md")),
        team.draft("ann", rename(OTHER, "guide.md")),
    ]
    assert code(team.submit("ann", drafts[0])) == (409, "already_exists")
    review = good(team.submit("ann", *drafts), 201)["review"]
    good(team.merge("owner", review), 201)
    assert team.memory == {"guide.md": "# Other\n", "other.md": "# Guide\n"}
    check_everything(team.world.database)


def submission_refusals(team: Team) -> list[tuple[list[Json], tuple[int, str]]]:
    mine = picked(team.draft("ann", update(GUIDE, "# Mine\n")))
    twin = picked(team.draft("ann", update(GUIDE, "# Twin\n")))
    empty = picked(team.draft("ann"))
    others = picked(team.draft("admin", create("a.md", "x")))
    beta = picked(team.draft("ann", create("b.md", "x"), project_id="proj_beta"))
    gone = good(team.discard("ann", team.draft("ann", create("c.md", "x"))))["draft"]
    case = picked(team.draft("ann", create("GUIDE.md", "x")))
    below = picked(team.draft("ann", create("guide.md/x", "x")))
    state = {"exists": False}
    return [
        ([], (400, "invalid_request")),
        (mine + mine, (400, "invalid_request")),
        (mine + twin, (400, "invalid_request")),
        (empty, (400, "invalid_request")),
        (others, (404, "not_found")),
        (mine + beta, (400, "invalid_request")),
        (picked(gone), (400, "invalid_request")),
        (case, (409, "already_exists")),
        (below, (409, "already_exists")),
        ([mine[0] | {"expected_draft_version": 2}], (409, "version_conflict")),
        ([mine[0] | {"candidate_id": "cand_none"}], (400, "invalid_request")),
        ([mine[0] | {"resolved_state": state}], (400, "invalid_request")),
        ([mine[0] | {"draft_id": "draft_none"}], (404, "not_found")),
    ]


def test_what_cannot_be_submitted_is_refused(team: Team) -> None:
    for drafts, expected in submission_refusals(team):
        answer = team.post("ann", "/reviews", {"drafts": drafts}, **team.at_ref)
        assert code(answer) == expected, drafts
    assert good(team.get("ann", "/reviews"))["items"] == []
    assert {event[0] for event in team.events("ann")} == {"created", "discarded"}


def test_the_ref_that_a_request_names_must_be_strong_and_stand(team: Team) -> None:
    drafts = picked(team.draft("ann", update(GUIDE, "# Mine\n")))
    for header in ({}, {"if_match": "3"}, {"if_match": f'W/"{team.commit_id}"'}):
        answer = team.post("ann", "/reviews", {"drafts": drafts}, **header)
        assert code(answer) == (400, "invalid_request")
    answer = team.post("ann", "/reviews", {"drafts": drafts}, **NO_REF)
    assert code(answer) == (412, "precondition_failed")
    review = good(team.post("ann", "/reviews", {"drafts": drafts}, **team.at_ref), 201)["review"]
    body = {"expected_review_version": 1}
    answer = team.post("owner", f"/reviews/{review['review_id']}/merges", body, **NO_REF)
    assert code(answer) == (412, "precondition_failed")


def test_a_draft_that_is_behind_is_reconciled_on_the_way(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "# Mine\n"))
    team.publish(put("other.md", "# Else\n"))
    asked = team.submit("ann", draft)
    assert code(asked) == (409, "reconciliation_required")
    details = asked.json()["error"]["details"]
    assert (details["draft_id"], details["current_commit_id"]) == (
        draft["draft_id"],
        team.commit_id,
    )
    seen = team.read("ann", draft["draft_id"])["draft"]
    assert seen["coordination"]["candidate_id"] == details["candidate_id"]
    drafts = [picked(draft)[0] | {"candidate_id": details["candidate_id"]}]
    review = good(team.post("ann", "/reviews", {"drafts": drafts}, **team.at_ref), 201)["review"]
    assert [event[0] for event in team.events("ann")] == ["created", "rebased", "submitted"]
    good(team.merge("owner", review), 201)
    assert team.memory == {"guide.md": "# Mine\n", "other.md": "# Else\n"}


def test_a_conflict_is_decided_with_the_submission(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "# Mine\n"))
    team.publish(put("guide.md", "# Theirs\n"))
    candidate = team.candidate("ann", draft)["candidate_id"]
    named = picked(draft)[0] | {"candidate_id": candidate}
    undecided = team.post("ann", "/reviews", {"drafts": [named]}, **team.at_ref)
    assert code(undecided) == (400, "invalid_request")
    decided = named | {
        "resolved_state": {"exists": True, "path": "guide.md", "content": "# Both\n"}
    }
    review = good(team.post("ann", "/reviews", {"drafts": [decided]}, **team.at_ref), 201)["review"]
    good(team.merge("owner", review), 201)
    assert team.memory["guide.md"] == "# Both\n"


def test_a_rebase_to_nothing_is_no_submission(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "# Same\n"))
    team.publish(put("guide.md", "# Same\n"))
    candidate = team.candidate("ann", draft)
    drafts = [picked(draft)[0] | {"candidate_id": candidate["candidate_id"]}]
    answer = team.post("ann", "/reviews", {"drafts": drafts}, **team.at_ref)
    assert code(answer) == (400, "invalid_request")
    assert team.read("ann", draft["draft_id"])["draft"]["version"] == 1
    rebased = good(team.rebase("ann", candidate), 201)["draft"]
    assert team.read("ann", rebased["draft_id"])["operations"] == []


def test_a_merge_waits_for_what_fell_behind(team: Team) -> None:
    review = team.review("ann", update(GUIDE, "# Mine\n"))
    team.publish(put("other.md", "# Else\n"))
    now = team.review_now(review)["review"]
    assert now["coordination"]["freshness"] == "behind"
    assert now["coordination"]["reconciliation"] == "unknown"
    answer = team.merge("owner", review)
    assert code(answer) == (409, "reconciliation_required")
    details = answer.json()["error"]["details"]
    now = team.review_now(review)["review"]
    assert now["version"] == 1
    assert now["coordination"]["reconciliation"] == "clean"
    assert now["coordination"]["candidate_id"] == details["candidate_id"]
    draft = team.read("ann", review["draft_id"])["draft"]
    rebased = good(team.rebase("ann", team.candidate("ann", draft)), 201)
    good(team.merge("owner", rebased["review"]), 201)
    assert team.memory == {"guide.md": "# Mine\n", "other.md": "# Else\n"}


def test_an_approval_is_for_what_was_seen(team: Team) -> None:
    review = team.review("ann", update(GUIDE, "# Mine\n"))
    approved = good(team.decide("admin", review, "approved", body="fine"), 201)["review"]
    assert (approved["status"], approved["version"]) == ("approved", 2)
    assert approved["decision_body"] == "fine"
    assert approved["approved_result_hash"].startswith("sha256:")
    assert approved["decided_by"]["user_id"] == "user_admin"
    assert code(team.decide("admin", approved, "approved")) == (400, "invalid_request")
    draft = team.read("ann", review["draft_id"])["draft"]
    good(team.append("ann", draft, update(GUIDE, "# Later\n")), 201)
    now = team.review_now(review)["review"]
    assert (now["status"], now["version"]) == ("open", 3)
    assert (now["approved_result_hash"], now["decided_by"]) == (None, None)
    assert code(team.merge("owner", approved)) == (409, "version_conflict")
    assert code(team.decide("owner", approved, "approved")) == (409, "version_conflict")
    again = good(team.decide("owner", now, "approved"), 201)["review"]
    assert again["approved_result_hash"] != approved["approved_result_hash"]
    good(team.merge("owner", again), 201)
    assert team.memory["guide.md"] == "# Later\n"


def test_a_rejected_review_can_be_submitted_again(team: Team) -> None:
    review = team.review("ann", update(GUIDE, "# Mine\n"))
    rejected = good(team.decide("owner", review, "rejected", body="no"), 201)["review"]
    assert rejected["status"] == "rejected"
    assert code(team.merge("owner", rejected)) == (400, "invalid_request")
    assert code(team.decide("owner", rejected, "approved")) == (400, "invalid_request")
    draft = team.read("ann", review["draft_id"])["draft"]
    assert draft["status"] == "open"
    draft = good(team.append("ann", draft, update(GUIDE, "# Better\n")), 201)["draft"]
    extra = team.draft("ann", create("extra.md", "# Extra\n"))
    path = f"/reviews/{review['review_id']}/submissions"
    body = {"expected_review_version": 2, "drafts": picked(draft, extra), "title": "Again"}
    assert code(team.post("admin", path, body, **team.at_ref)) == (403, "forbidden")
    assert code(team.post("ann", path, body, **NO_REF)) == (412, "precondition_failed")
    stale = body | {"expected_review_version": 1}
    assert code(team.post("ann", path, stale, **team.at_ref)) == (409, "version_conflict")
    again = good(team.post("ann", path, body, **team.at_ref), 201)["review"]
    assert (again["status"], again["version"], again["title"]) == ("open", 3, "Again")
    assert (again["decision_body"], again["decided_at"]) == (None, None)
    assert again["draft_ids"] == [draft["draft_id"], extra["draft_id"]]
    assert code(team.post("ann", path, body, **team.at_ref)) == (400, "invalid_request")
    good(team.merge("owner", again), 201)
    assert team.memory["guide.md"] == "# Better\n"
    kinds = [event[0] for event in team.events("ann") if event[1] == draft["draft_id"]]
    assert kinds == [
        "created",
        "submitted",
        "reopened",
        "operation_appended",
        "submitted",
        "merged",
    ]


def test_a_discard_leaves_the_group(team: Team) -> None:
    drafts = [team.draft("ann", update(GUIDE, "# Mine\n")), team.draft("ann", delete(OTHER))]
    review = good(team.submit("ann", *drafts), 201)["review"]
    good(team.decide("owner", review, "approved"), 201)
    second = team.read("ann", drafts[1]["draft_id"])["draft"]
    good(team.discard("ann", second))
    now = team.review_now(review)["review"]
    assert (now["status"], now["version"]) == ("open", 3)
    answer = good(team.merge("owner", now), 201)
    assert answer["applied_operation_count"] == 1
    assert team.memory == {"guide.md": "# Mine\n", "other.md": "# Other\n"}
    assert team.read("ann", second["draft_id"])["draft"]["status"] == "discarded"


def test_a_review_whose_drafts_are_all_discarded_is_over(team: Team) -> None:
    review = team.review("ann", update(GUIDE, "# Mine\n"))
    draft = team.read("ann", review["draft_id"])["draft"]
    good(team.discard("ann", draft))
    now = team.review_now(review)["review"]
    assert (now["status"], now["decided_by"]["user_id"]) == ("rejected", "user_ann")
    assert code(team.merge("owner", now)) == (400, "invalid_request")
    new = team.draft("ann", update(GUIDE, "# New\n"))
    body = {"expected_review_version": now["version"], "drafts": picked(new)}
    path = f"/reviews/{review['review_id']}/submissions"
    again = good(team.post("ann", path, body, **team.at_ref), 201)["review"]
    good(team.merge("owner", again), 201)


def test_paths_that_came_to_collide_are_refused_by_the_merge(team: Team) -> None:
    one, two = team.draft("ann", create("a.md", "A")), team.draft("ann", create("b.md", "B"))
    review = good(team.submit("ann", one, two), 201)["review"]
    draft = team.read("ann", two["draft_id"])["draft"]
    good(team.append("ann", draft, rename(draft["draft_id"], "A.md")), 201)
    before = team.commit_id
    now = team.review_now(review)["review"]
    assert code(team.merge("owner", now)) == (409, "already_exists")
    assert team.commit_id == before
    assert team.review_now(review)["review"] == now


def test_comments_stand_at_lines_of_the_version_that_was_seen(team: Team) -> None:
    review = team.review("ann", update(GUIDE, "# Mine\n"), rename(GUIDE, "b.md"))
    path = f"/reviews/{review['review_id']}/comments"
    seen: dict[str, Any] = {"expected_review_version": 1}
    for anchor in ({}, {"anchor_path": "b.md", "anchor_line": 1}, {"anchor_path": "guide.md"}):
        whole = {"anchor_line": 3} | anchor if anchor else {}
        comment = good(team.post("admin", path, seen | {"body": "Hm\n"} | whole), 201)
        assert comment["anchor_path"] == whole.get("anchor_path")
        assert comment["review_version"] == 1
    for bad in (
        {"body": "x", "anchor_path": "b.md"},
        {"body": "x", "anchor_line": 1},
        {"body": "x", "anchor_path": "else.md", "anchor_line": 1},
        {"body": "x", "anchor_path": "b.md", "anchor_line": 0},
        {"body": " "},
        {"body": ""},
    ):
        assert code(team.post("admin", path, seen | bad)) == (400, "invalid_request")
    stale = {"expected_review_version": 2, "body": "x"}
    assert code(team.post("admin", path, stale)) == (409, "version_conflict")
    good(team.decide("owner", review, "rejected"), 201)
    late = good(team.post("ann", path, stale), 201)
    listed = good(team.get("ann", path))
    assert [item["author"]["user_id"] for item in listed["items"]] == ["user_admin"] * 3 + [
        "user_ann"
    ]
    assert listed["items"][-1] == late
    assert listed["page_info"] == {"next_cursor": None, "has_more": False}
    assert team.review_now(review)["comments"] == listed["items"]


def test_a_list_has_the_reviews_of_ones_projects(team: Team) -> None:
    reviews = [team.review("ann", create(f"{n}.md", "x"))["review_id"] for n in range(3)]
    draft = team.draft("ann", create("b.md", "x"), project_id="proj_beta")
    beta = good(team.submit("ann", draft), 201)["review"]["review_id"]
    assert [r["review_id"] for r in good(team.get("ben", "/reviews"))["items"]] == [beta]
    everything = [r["review_id"] for r in good(team.get("ann", "/reviews"))["items"]]
    assert everything == [beta, *reviews[::-1]]
    seen: list[str] = []
    cursor = None
    while cursor is not None or not seen:
        query = {"limit": 2, "project_id": "proj_alpha"} | ({"cursor": cursor} if cursor else {})
        page = good(team.get("admin", "/reviews", **query))
        seen += [item["review_id"] for item in page["items"]]
        cursor = page["page_info"]["next_cursor"]
    assert seen == reviews[::-1]
    assert good(team.get("ann", "/reviews", status="merged"))["items"] == []
    assert code(team.get("ben", "/reviews", project_id="proj_alpha")) == (404, "not_found")
    assert code(team.get("ben", "/reviews", project_id="a\x00b")) == (400, "invalid_request")
    assert good(team.get("stranger", "/reviews"))["items"] == []


def test_who_may_see_decide_and_merge(team: Team) -> None:
    review = team.review("ann", update(GUIDE, "# Mine\n"))
    path = f"/reviews/{review['review_id']}"
    comment = {"body": "x", "expected_review_version": 1}
    for user in ("ben", "stranger", "guest"):
        for found in ("", "/comments", "/changes"):
            assert code(team.get(user, path + found)) == (404, "not_found")
        assert code(team.post(user, f"{path}/comments", comment)) == (404, "not_found")
        assert code(team.decide(user, review, "approved")) == (404, "not_found")
        assert code(team.merge(user, review)) == (404, "not_found")
    assert code(team.decide("ann", review, "approved")) == (403, "forbidden")
    assert code(team.merge("ann", review)) == (403, "forbidden")
    draft = review["draft_id"]
    assert good(team.get("admin", f"/drafts/{draft}"))["draft"]["status"] == "submitted"
    assert code(team.append("admin", {"draft_id": draft, "version": 2}, update(GUIDE, "x"))) == (
        403,
        "forbidden",
    )
    assert good(team.get("admin", path))["review"] == review


def test_one_person_may_do_it_all(team: Team) -> None:
    review = team.review("owner", update(GUIDE, "# Mine\n"))
    approved = good(team.decide("owner", review, "approved"), 201)["review"]
    good(team.merge("owner", approved), 201)
    rows = team.acts().read(
        lambda act: act.connection.execute(
            select(audit_events.c.action, audit_events.c.actor_id)
            .where(audit_events.c.target_id == review["review_id"])
            .order_by(audit_events.c.sequence)
        ).all()
    )
    assert [tuple(row) for row in rows] == [
        ("review.created", "user_owner"),
        ("review.approved", "user_owner"),
        ("review.merged", "user_owner"),
    ]


def test_a_memory_that_was_deleted_and_another_in_its_place(team: Team) -> None:
    drafts = [team.draft("ann", delete(GUIDE)), team.draft("ann", create("guide.md", "# New\n"))]
    review = good(team.submit("ann", *drafts), 201)["review"]
    team.publish(deleted("other.md"))
    for draft_id in review["draft_ids"]:
        draft = team.read("ann", draft_id)["draft"]
        candidate = team.candidate("ann", draft)
        resolved = None
        if candidate["status"] == "conflicts":
            assert [item["kind"] for item in candidate["conflicts"]] == ["path_occupied"]
            resolved = {"exists": True, "path": "guide2.md", "content": "# New\n"}
        good(team.rebase("ann", candidate, resolved), 201)
    good(team.merge("owner", team.review_now(review)["review"]), 201)
    assert team.memory == {"guide2.md": "# New\n"}
