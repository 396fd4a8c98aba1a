"""The network is cut at any request and processes are killed: nothing is lost, nothing is doubled.

`ann` keeps storing and proposing behind a network that breaks before a request, after it took
effect, and in the middle of its answer. What counts in the end is what the Server has.
"""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product

import httpx

from clumsies.errors import ClumsiesError
from tests.daemon.running import wait_for
from tests.team.conftest import Team
from tests.team.cut_network import Cut


def note(number: int) -> str:
    return f"# Note {number}\n\nParcel {number} waits at gate {number * 7}.\n"


def stored(team: Team, numbers: range) -> list[str]:
    """Drafts of these notes on Ann's machine; each is acknowledged."""
    return [team.ann.project.create(f"n{n:02}.md", note(n))["draft_id"] for n in numbers]


def submitted(team: Team) -> str:
    """A review of everything open, asked for until it is there."""

    def asked() -> bool:
        with suppress(ClumsiesError):  # It may have taken effect, unheard.
            team.ann.project.call("submit_drafts")
        return bool(open_reviews(team))

    wait_for(asked, "submitted")
    [name] = open_reviews(team)
    return name


def created_at_server(team: Team) -> list[str]:
    """Paths that the operations of Ann's drafts create, as often as the Server has them."""
    token = team.ann.token
    drafts = team.server.ask("GET", "/drafts?limit=200", token=token)["items"]
    details = [team.server.ask("GET", f"/drafts/{d['draft_id']}", token=token) for d in drafts]
    operations = [each for detail in details for each in detail["operations"]]
    assert {each["action"] for each in operations} == {"create"}
    return sorted(each["resource"]["path"] for each in operations)


def open_reviews(team: Team) -> list[str]:
    path = f"/reviews?project_id={team.server.project_id}&status=open"
    return [review["review_id"] for review in team.server.ask("GET", path)["items"]]


def merged(team: Team, review: str) -> None:
    """Merge, and ask again until the review says so."""

    def asked() -> bool:
        with suppress(ClumsiesError):
            team.olga.project.call("merge_review", review_id=review)
        with suppress(httpx.TransportError):
            found = team.server.ask("GET", f"/reviews/{review}")["review"]
            return bool(found["status"] == "merged")
        return False

    wait_for(asked, "merged")


def agree(team: Team, numbers: range) -> None:
    """Server and both machines have exactly these notes."""
    expected = {f"n{n:02}.md": note(n) for n in numbers}
    assert team.server.memories() == sorted(expected)
    team.olga.sync()
    wait_for(lambda: team.ann.contents() == expected, "Ann's memory is the team's")
    team.ann.converge()
    assert team.olga.contents() == expected
    assert team.ann.drafts("open") == team.ann.drafts("submitted") == []
    assert len(team.ann.drafts("merged")) == len(expected)
    names = sorted(expected)
    assert team.ann.project.load(*names) == team.olga.project.load(*names)


REQUESTS = {
    "stores": "POST /api/v1/(drafts$|drafts/[^/]*/operations|draft-operation-batches)",
    "submit": "POST /api/v1/reviews$",
    "feed": "GET /api/v1/draft-events",
    "membership": "GET /api/v1/me$",
    "state": "GET /api/v1/projects/[^/]*/commit-state",
    "download": "GET /api/v1/commits/",
}


def test_the_network_breaks_at_every_request(team: Team) -> None:
    numbers = range(0)
    for (name, pattern), cut in product(REQUESTS.items(), Cut):
        broken = team.ann.network.cut_at(pattern, cut)
        numbers = range(numbers.stop + 1)
        stored(team, numbers[-1:])
        merged(team, submitted(team))
        team.ann.project.call("project_retry_sync")
        wait_for(broken.is_set, f"{name} is cut {cut.value}")
    for cut in Cut:
        broken = team.olga.network.cut_at("POST /api/v1/reviews/[^/]*/merges", cut)
        numbers = range(numbers.stop + 1)
        stored(team, numbers[-1:])
        merged(team, submitted(team))
        assert broken.is_set()
    agree(team, numbers)


def test_processes_are_killed_and_the_network_is_away(team: Team) -> None:
    team.ann.network.down()
    stored(team, range(5))
    assert set(team.ann.contents()) == {f"n{n:02}.md" for n in range(5)}
    team.ann.kill()
    team.ann.network.up()
    team.ann.start()
    for first in range(5, 17, 3):
        stored(team, range(first, first + 3))
        team.ann.kill()  # while what was stored is on its way
        team.ann.start()
    for number in range(17, 19):
        stored(team, range(number, number + 1))
        team.server.end(signal.SIGKILL)
        team.server.start()
    team.ann.sync()
    assert created_at_server(team) == sorted(team.ann.contents())
    review = submitted(team)
    with ThreadPoolExecutor(1) as executor:
        asked = executor.submit(merged, team, review)
        wait_for(lambda: "merges" in " ".join(team.olga.network.requests), "a merge is asked for")
        team.server.end(signal.SIGKILL)
        team.server.start()
        asked.result()
    agree(team, range(19))
