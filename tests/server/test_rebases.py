"""Candidates and rebases over HTTP: three ways, and nothing that was written is lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sqlalchemy import select

from clumsies.server.schema import draft_revisions
from tests.server.memories import deleted, put
from tests.server.team import Json, Team, code, create, delete, good, rename, update

GUIDE = "mem_guide_md"
BASE = "# Guide\n\none\n\ntwo\n"


@pytest.fixture
def team(world, client, acting) -> Team:  # type: ignore[no-untyped-def]
    made = Team(world, client, acting)
    made.publish(put("guide.md", BASE), put("other.md", "# Other\n"))
    return made


def state(path: str, text: str, **more: Any) -> Json:
    return {"exists": True, "path": path, "content": text, **more}


def text_of(message: Json) -> str:
    return str(message["content"]["content"])


def test_a_clean_candidate_merges_both_sides(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, BASE.replace("one", "mine")))
    team.publish(put("guide.md", BASE.replace("two", "theirs")))
    candidate = team.candidate("ann", draft)
    assert (candidate["status"], candidate["conflicts"], candidate["valid"]) == ("clean", [], True)
    assert [text_of(candidate[f"{side}_state"]) for side in ("base", "current", "draft")] == [
        BASE,
        BASE.replace("two", "theirs"),
        BASE.replace("one", "mine"),
    ]
    both = BASE.replace("one", "mine").replace("two", "theirs")
    assert text_of(candidate["proposed_state"]) == both
    seen = team.read("ann", draft["draft_id"])
    assert seen["draft"]["version"] == 1
    assert seen["draft"]["coordination"]["reconciliation"] == "clean"
    assert seen["draft"]["coordination"]["candidate_id"] == candidate["candidate_id"]
    assert team.candidate("ann", draft) == candidate
    answer = good(team.rebase("ann", candidate), 201)
    assert (answer["review"], answer["approval_invalidated"]) == (None, False)
    assert answer["draft"]["base_commit_id"] == team.commit_id
    assert answer["draft"]["coordination"]["freshness"] == "current"
    after = team.read("ann", draft["draft_id"])
    assert after["draft"]["version"] == 2
    assert [text_of(item) for item in after["operations"]] == [both]
    assert [event[0] for event in team.events("ann")] == ["created", "rebased"]


def test_the_draft_before_a_rebase_is_kept(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "# Mine\n", local_operation_id="op_1"))
    team.publish(put("other.md", "# Else\n"))
    answer = good(team.rebase("ann", team.candidate("ann", draft)), 201)
    query = select(draft_revisions).where(
        draft_revisions.c.revision_id == answer["previous_revision_id"]
    )
    kept = team.acts().read(lambda act: act.connection.execute(query).one())
    assert (kept.draft_id, kept.version, kept.base_commit_id) == (
        draft["draft_id"],
        1,
        draft["base_commit_id"],
    )
    [operation] = msgspec.json.decode(kept.operations_json)
    assert operation["local_operation_id"] == "op_1"
    assert operation["operation"]["update"]["content"]["content"] == "# Mine\n"


def test_an_operation_that_was_taken_before_a_rebase_is_not_taken_again(team: Team) -> None:
    first = update(GUIDE, BASE.replace("one", "mine"), local_operation_id="op_1")
    draft = team.draft("ann", first)
    taken = team.read("ann", draft["draft_id"])["operations"][0]["operation_id"]
    team.publish(put("guide.md", BASE.replace("two", "theirs")))
    good(team.rebase("ann", team.candidate("ann", draft)), 201)
    before = team.read("ann", draft["draft_id"])
    assert [item.get("local_operation_id") for item in before["operations"]] == [None]
    assert good(team.append("ann", draft, first), 201) == before
    body = {
        "daemon_installation_id": "machine_1",
        "operations": [
            {
                "local_operation_id": "op_1",
                "draft_id": draft["draft_id"],
                "expected_draft_version": 1,
                "operation": first,
            }
        ],
    }
    [accepted] = good(team.post("ann", "/draft-operation-batches", body), 201)[
        "accepted_operations"
    ]
    assert (accepted["operation_id"], accepted["draft_version"]) == (taken, 2)
    assert team.read("ann", draft["draft_id"]) == before


CONFLICTS: list[tuple[list[Json], list[Any], str, str]] = [
    ([update(GUIDE, "# Mine\n")], [put("guide.md", "# Theirs\n")], "content", "content"),
    ([rename(GUIDE, "m.md")], [put("t.md", BASE, "guide.md")], "path", "path"),
    ([update(GUIDE, "# Mine\n")], [deleted("guide.md")], "existence", "existence"),
    ([delete(GUIDE)], [put("guide.md", "# Theirs\n")], "existence", "existence"),
    ([create("new.md", "# Mine\n")], [put("new.md", "# Theirs\n")], "path_occupied", "path"),
    ([rename(GUIDE, "n/a.md")], [put("N", "# Folder\n")], "path_occupied", "path"),
]


@pytest.mark.parametrize(("operations", "changes", "kind", "field"), CONFLICTS)
def test_a_conflict_is_decided_by_a_person(
    team: Team, operations: list[Json], changes: list[Any], kind: str, field: str
) -> None:
    draft = team.draft("ann", *operations)
    team.publish(*changes)
    candidate = team.candidate("ann", draft)
    assert (candidate["status"], candidate["proposed_state"]) == ("conflicts", None)
    assert [(item["kind"], item["field"]) for item in candidate["conflicts"]] == [(kind, field)]
    coordination = team.read("ann", draft["draft_id"])["draft"]["coordination"]
    assert coordination["reconciliation"] == "conflicts"
    assert code(team.rebase("ann", candidate)) == (400, "invalid_request")
    wanted = state("decided.md", "# Decided\n", description="why")
    rebased = good(team.rebase("ann", candidate, wanted), 201)["draft"]
    review = good(team.submit("ann", rebased), 201)["review"]
    good(team.merge("owner", review), 201)
    assert team.memory["decided.md"] == "# Decided\n"


def test_a_deletion_that_is_agreed_on_leaves_an_empty_draft(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "# Mine\n"))
    team.publish(deleted("guide.md"))
    candidate = team.candidate("ann", draft)
    rebased = good(team.rebase("ann", candidate, {"exists": False}), 201)["draft"]
    assert rebased["status"] == "open"
    assert team.read("ann", draft["draft_id"])["operations"] == []
    assert code(team.submit("ann", rebased)) == (400, "invalid_request")


def test_a_memory_that_is_wanted_after_its_deletion_is_a_new_one(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "# Mine\n"))
    team.publish(deleted("guide.md"))
    rebased = good(
        team.rebase("ann", team.candidate("ann", draft), state("guide.md", "# Mine\n")), 201
    )["draft"]
    assert rebased["resource"] == {"scope": "org", "path": "guide.md"}
    more = good(team.append("ann", rebased, update(draft["draft_id"], "# More\n")), 201)["draft"]
    review = good(team.submit("ann", more), 201)["review"]
    good(team.merge("owner", review), 201)
    assert team.memory["guide.md"] == "# More\n"
    merged = team.read("ann", draft["draft_id"])["draft"]["resource"]["id"]
    assert merged.startswith("mem_")
    assert merged != GUIDE


@pytest.mark.parametrize(
    "resolved",
    [
        state("../up.md", "x"),
        state("other.md", "x"),
        state("OTHER.md/below.md", "x"),
        state("guide.md", " \n"),
        {"exists": True, "path": "guide.md"},
        {"exists": False, "path": "guide.md"},
        {"exists": True, "content": "x"},
    ],
)
def test_a_decision_that_cannot_be_is_refused(team: Team, resolved: Json) -> None:
    draft = team.draft("ann", update(GUIDE, "# Mine\n"))
    team.publish(put("guide.md", "# Theirs\n"))
    candidate = team.candidate("ann", draft)
    assert code(team.rebase("ann", candidate, resolved)) == (400, "invalid_request")
    assert team.read("ann", draft["draft_id"])["draft"]["version"] == 1


def test_a_clean_candidate_takes_no_decision(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "# Mine\n"))
    team.publish(put("other.md", "# Else\n"))
    candidate = team.candidate("ann", draft)
    answer = team.rebase("ann", candidate, state("guide.md", "x"))
    assert code(answer) == (400, "invalid_request")


def test_an_edit_and_an_advance_void_a_candidate(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "# Mine\n"))
    team.publish(put("other.md", "# Else\n"))
    old = team.candidate("ann", draft)
    edited = good(team.append("ann", draft, update(GUIDE, "# More\n")), 201)["draft"]
    url = f"/drafts/{draft['draft_id']}/reconciliation-candidates"
    seen = good(team.get("ann", f"{url}/{old['candidate_id']}"))
    assert (seen["valid"], seen["invalidated_at"] is None) == (False, False)
    assert code(team.rebase("ann", old)) == (409, "version_conflict")
    stale = team.rebase("ann", old | {"draft_version": 2})
    assert code(stale) == (409, "candidate_invalid")
    assert stale.json()["error"]["details"] == {"candidate_id": old["candidate_id"]}
    new = team.candidate("ann", edited)
    at_ref = team.at_ref
    team.publish(put("other.md", "# Further\n"))
    seen = good(team.get("ann", f"{url}/{new['candidate_id']}"))
    assert (seen["valid"], seen["invalidated_at"] is None) == (False, False)
    body = {"candidate_id": new["candidate_id"], "expected_draft_version": 2}
    moved = team.post("ann", f"/drafts/{draft['draft_id']}/rebases", body, **at_ref)
    assert code(moved) == (412, "precondition_failed")
    assert moved.json()["error"]["details"]["current_commit_id"] == team.commit_id
    assert code(team.rebase("ann", new)) == (409, "candidate_invalid")
    assert team.read("ann", draft["draft_id"])["draft"]["version"] == 2


def test_what_is_current_is_not_reconciled(team: Team) -> None:
    draft = team.draft("ann", update(GUIDE, "# Mine\n"))
    url = f"/drafts/{draft['draft_id']}"
    candidates = f"{url}/reconciliation-candidates"
    answer = team.post("ann", candidates, {"expected_draft_version": 1})
    assert code(answer) == (409, "draft_already_current")
    assert answer.json()["error"]["details"] == {"draft_id": draft["draft_id"]}
    stale = team.post("ann", candidates, {"expected_draft_version": 7})
    assert code(stale) == (409, "version_conflict")
    body = {"candidate_id": "cand_none", "expected_draft_version": 1}
    again = team.post("ann", f"{url}/rebases", body, **team.at_ref)
    assert code(again) == (409, "draft_already_current")
    assert code(team.get("ann", f"{candidates}/cand_none")) == (404, "not_found")
    gone = good(team.discard("ann", draft))["draft"]
    body = {"expected_draft_version": gone["version"]}
    assert code(team.post("ann", candidates, body)) == (400, "invalid_request")


def test_a_submitted_drafts_rebase_takes_the_approval_back(team: Team) -> None:
    review = team.review("ann", update(GUIDE, BASE.replace("one", "mine")))
    approved = good(team.decide("owner", review, "approved"), 201)["review"]
    team.publish(put("other.md", "# Else\n"))
    draft = team.read("ann", review["draft_id"])["draft"]
    assert code(team.rebase("ben", team.candidate("ann", draft))) == (404, "not_found")
    answer = good(team.rebase("admin", team.candidate("ann", draft)), 201)
    assert answer["approval_invalidated"]
    assert answer["draft"]["status"] == "submitted"
    assert (answer["review"]["status"], answer["review"]["version"]) == (
        "open",
        approved["version"] + 1,
    )
    assert answer["review"]["approved_result_hash"] is None
    good(team.merge("admin", answer["review"]), 201)
    assert team.memory["guide.md"] == BASE.replace("one", "mine")


def test_an_open_draft_is_rebased_by_its_author_alone(team: Team) -> None:
    review = team.review("ann", update(GUIDE, "# Mine\n"))
    good(team.decide("owner", review, "rejected"), 201)
    team.publish(put("other.md", "# Else\n"))
    draft = team.read("ann", review["draft_id"])["draft"]
    candidate = team.candidate("ann", draft)
    assert code(team.rebase("owner", candidate)) == (403, "forbidden")
    good(team.rebase("ann", candidate), 201)
