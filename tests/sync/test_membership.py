"""Who is signed in and what they may see is asked anew in every cycle, or there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clumsies.errors import ClumsiesError, SyncFailed
from clumsies.memory.projects import ProjectDirectory
from clumsies.sync.accounts import Account
from clumsies.sync.membership import SELECTED_KEY
from tests.memory.local_memory import create
from tests.sync.fault_server import html, reset, status
from tests.sync.homes import PROJECT, SERVER_URL, Home, TestServer, altered

ME = "/api/v1/me"


def available(home: Home) -> dict[str, bool]:
    rows = home.rows("SELECT project_id, available FROM server_projects")
    return {str(name): bool(flag) for name, flag in rows}


def test_membership_is_kept_with_names(home: Home) -> None:
    home.run()
    assert available(home) == {PROJECT: True, "proj_beta": True}
    project = ProjectDirectory(home.database).project(PROJECT)
    assert (project.server_url, project.org_id, project.name) == (SERVER_URL, "org_acme", "Alpha")


def test_a_project_that_membership_lost_stays_known(home: Home, server: TestServer) -> None:
    home.run()
    server.set_member(False)
    home.run()
    assert available(home) == {PROJECT: False, "proj_beta": True}
    [away] = home.sync.status().unavailable
    assert (away.project_id, away.workspace_roots, away.draft_count) == (PROJECT, ("/w",), 0)
    assert home.contents() == {}
    server.set_member(True)
    home.run()
    assert available(home)[PROJECT]


def no_projects(me: Any) -> None:
    del me["projects"]


def twice(me: Any) -> None:
    me["projects"].append(me["projects"][0])


def traversing(me: Any) -> None:
    me["projects"][0]["project_id"] = "../x"


def no_user(me: Any) -> None:
    me["user"]["user_id"] = ""


def odd_org(me: Any) -> None:
    me["org"]["org_id"] = "a/b"


FAULTS = [
    *(status(code) for code in (401, 403, 404, 429, 500)),
    reset(),
    html(),
    *(altered(f.__name__, f) for f in (no_projects, twice, traversing, no_user, odd_org)),
]


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_failure_is_not_an_empty_list(home: Home, server: TestServer, fault: object) -> None:
    home.run()
    home.store(create("n.md", "N"))
    before = available(home)
    asked = len(home.script.requests)
    home.script.plan(fault, path=ME)  # type: ignore[arg-type]
    with pytest.raises(ClumsiesError) as caught:
        home.run()
    assert available(home) == before
    assert len(home.script.requests) == asked + 1
    assert home.sync.status().unavailable == ()
    for channel in (home.sync.status().draft_sync, home.sync.status().commit_sync):
        assert channel.last_error == caught.value.code
    home.run()
    assert server.texts() == ["N"]
    assert home.sync.status().draft_sync.last_error is None


def set_project(project_id: str) -> Callable[[Any], None]:
    def change(me: Any) -> None:
        me["projects"][0]["project_id"] = project_id

    return change


def test_a_project_of_another_authority_is_not_taken_over(home: Home) -> None:
    home.run()
    with home.database.writer() as connection:
        connection.execute("INSERT INTO local_projects VALUES ('proj_mine', 'org_1', 'n', 'x')")
    home.script.plan(altered("taken", set_project("proj_mine")), path=ME)
    with pytest.raises(SyncFailed, match="another authority"):
        home.run()
    assert "proj_mine" not in available(home)
    with home.database.writer() as connection:
        connection.execute(
            "INSERT INTO server_projects VALUES ('https://x', 'proj_theirs', 'o', 'n', 1, 'x')"
        )
    home.script.plan(altered("taken", set_project("proj_theirs")), path=ME)
    with pytest.raises(SyncFailed, match="another authority"):
        home.run()


def test_a_local_account_has_its_own_organisation_and_project(home: Home) -> None:
    for account in (
        Account("local:", home.client, "proj_beta", "org_other"),
        Account("local:", home.client, "proj_beta", "org_acme"),
    ):
        home.sync.set_accounts([account])
        with pytest.raises(SyncFailed):
            home.sync.run_once("proj_beta")
    assert available(home) == {}


def test_a_selection_that_is_not_available_is_cleared(home: Home, server: TestServer) -> None:
    home.run()
    home.database.set_meta(SELECTED_KEY, PROJECT)
    home.run()
    assert home.database.meta(SELECTED_KEY) == PROJECT
    server.set_member(False)
    home.run()
    assert home.database.meta(SELECTED_KEY) is None
    with home.database.writer() as connection:
        connection.execute("INSERT INTO local_projects VALUES ('proj_mine', 'org_1', 'n', 'x')")
    home.database.set_meta(SELECTED_KEY, "proj_mine")
    home.run()
    assert home.database.meta(SELECTED_KEY) == "proj_mine"


def test_only_what_is_used_here_is_kept_in_step(home: Home) -> None:
    home.run()
    assert home.rows("SELECT project_id FROM cached_refs WHERE scope = 'project'") == [(PROJECT,)]
    home.database.set_meta(SELECTED_KEY, "proj_beta")
    home.run()
    found = home.rows("SELECT project_id FROM cached_refs WHERE scope = 'project' ORDER BY 1")
    assert found == [(PROJECT,), ("proj_beta",)]


def test_the_organisations_ref_follows_where_no_project_is_left(
    home: Home, server: TestServer
) -> None:
    server.publish_texts(a="A")
    server.set_member(False)
    home.run()
    assert home.rows("SELECT ref_key FROM cached_refs") == [("org:org_acme",)]
