"""The author's feed over HTTP: every event once, in order, from any place."""

from __future__ import annotations

import pytest

from tests.server.memories import put
from tests.server.team import Team, code, create, good, update

GUIDE = "mem_guide_md"


@pytest.fixture
def team(world, client, acting) -> Team:  # type: ignore[no-untyped-def]
    made = Team(world, client, acting)
    made.publish(put("guide.md", "# Guide\n"))
    return made


def test_a_feed_is_read_page_by_page_from_any_place(team: Team) -> None:
    empty = good(team.get("ann", "/draft-events"))
    assert (empty["events"], empty["has_more"]) == ([], False)
    names = [team.draft("ann", create(f"{n}.md", "x"))["draft_id"] for n in range(5)]
    seen, cursor, more = [], empty["next_cursor"], True
    while more:
        page = good(team.get("ann", "/draft-events", limit=2, after_cursor=cursor))
        seen += [event["draft_id"] for event in page["events"]]
        cursor, more = page["next_cursor"], page["has_more"]
    assert seen == names
    end = good(team.get("ann", "/draft-events", after_cursor=cursor))
    assert (end["events"], end["next_cursor"]) == ([], cursor)
    team.draft("ann", create("late.md", "x"))
    [late] = good(team.get("ann", "/draft-events", after_cursor=cursor))["events"]
    assert (late["event_type"], late["version"]) == ("created", 1)
    assert late["daemon_installation_id"] == "machine_1"


def test_a_feed_is_its_authors_alone(team: Team) -> None:
    mine = team.draft("ann", create("a.md", "x"))
    theirs = team.draft("admin", create("b.md", "x"))
    assert [event[1] for event in team.events("ann")] == [mine["draft_id"]]
    assert [event[1] for event in team.events("admin")] == [theirs["draft_id"]]


def test_what_others_do_to_a_draft_is_in_its_authors_feed(team: Team) -> None:
    review = team.review("ann", update(GUIDE, "# Mine\n"))
    good(team.decide("owner", review, "rejected"), 201)
    draft = review["draft_id"]
    assert team.events("ann") == [
        ("created", draft, 1),
        ("submitted", draft, 2),
        ("reopened", draft, 3),
    ]
    assert team.events("owner") == []


def test_events_of_a_project_that_was_left_stay(team: Team) -> None:
    draft = team.draft("ann", create("a.md", "x"))
    team.acts().write(
        lambda act: act.connection.exec_driver_sql(
            "DELETE FROM project_members WHERE user_id = 'user_ann' AND project_id = 'proj_alpha'"
        )
    )
    assert team.events("ann") == [("created", draft["draft_id"], 1)]
    assert code(team.get("ann", f"/drafts/{draft['draft_id']}")) == (404, "not_found")


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.0", "９", "1" * 19, " 1"])
def test_a_cursor_that_no_feed_gave_is_refused(team: Team, cursor: str) -> None:
    answer = team.get("ann", "/draft-events", after_cursor=cursor)
    assert code(answer) == (400, "invalid_request")


def test_a_cursor_beyond_the_feed_finds_nothing(team: Team) -> None:
    page = good(team.get("ann", "/draft-events", after_cursor="9" * 18))
    assert (page["events"], page["next_cursor"]) == ([], "9" * 18)
