"""Access that ends and comes back: what was stored is kept, said, and sent afterwards."""

from __future__ import annotations

import pytest

from tests.daemon.running import wait_for
from tests.team.conftest import Team

RETRY = "# Retry\n\nA parcel is sent again at most five times.\n"


@pytest.fixture
def begun(team: Team) -> Team:
    """Both have one memory of the team's."""
    (team.olga.directory / "deploy.md").write_text("# Deploying\n\nThe blue key.\n", "utf-8")
    team.olga.json("import", "deploy.md")
    team.ann.sync()
    return team


def waits(team: Team) -> int:
    return int(team.ann.status()["pending_operation_count"])


def test_a_membership_is_withdrawn_and_returned(begun: Team) -> None:
    ann, server = begun.ann, begun.server
    server.keep_out()
    ann.json("store", "create", "retry.md", text=RETRY)
    said = ann.run("sync")
    assert server.project_id in said.stdout
    assert "1 draft of it is kept here" in said.stdout
    assert "not available to you any more" in said.stdout
    assert "clumsies sync" in said.stdout
    [away] = ann.status()["unavailable_projects"]
    assert [b["workspace_root"] for b in away["bindings"]] == [str(ann.directory.resolve())]
    assert ann.contents()["retry.md"] == RETRY  # here one works on, with what is here
    assert "deploy.md" in ann.contents()
    found = ann.run("doctor").stdout
    assert "not available to you any more" in found
    assert begun.server.ask("GET", "/drafts", token=ann.token)["items"] == []
    ann.kill()
    ann.start()
    server.let_in("ann")
    assert ann.run("sync").returncode == 0
    ann.converge()
    assert ann.status()["unavailable_projects"] == []
    [draft] = server.ask("GET", "/drafts", token=ann.token)["items"]
    assert draft["resource"]["path"] == "retry.md"


def test_a_revoked_token_stops_nothing_but_the_sending(begun: Team) -> None:
    ann, server = begun.ann, begun.server
    user, path = server.member["user_id"], f"/admin/members/{server.member['user_id']}"
    [token] = [t for t in server.ask("GET", "/admin/tokens")["items"] if t["user_id"] == user]
    server.ask("DELETE", f"/admin/tokens/{token['token_id']}")
    ann.json("store", "create", "retry.md", text=RETRY)
    wait_for(lambda: ann.status()["draft_sync"].get("last_error") == "unauthorized", "refused")
    said = ann.run("sync")
    assert said.returncode == 3
    assert "unauthorized" in said.stdout
    assert "CLUMSIES_TOKEN" in said.stdout
    assert "1 stored change waits" in said.stdout
    assert "unauthorized" in ann.run("status").stdout
    assert "CLUMSIES_TOKEN" in ann.run("whoami").stderr
    found = ann.run("doctor")
    assert found.returncode == 1
    assert "CLUMSIES_TOKEN" in found.stdout
    assert ann.contents()["retry.md"] == RETRY
    made = server.ask("POST", "/admin/tokens", {"user_id": user, "name": "new"})
    ann.daemon.end()
    ann.token = made["secret"]
    ann.start()
    ann.converge()
    assert waits(begun) == 0
    assert len(server.ask("GET", "/drafts", token=ann.token)["items"]) == 1
    server.ask("PATCH", path, {"status": "disabled"})
    assert ann.run("whoami").returncode != 0
    server.ask("PATCH", path, {"status": "active"})
    for log in (server.log(), ann.daemon.logs()):
        assert [s for s in (made["secret"], ann.token, "five times", "Retry") if s in log] == []
