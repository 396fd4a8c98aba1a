"""Two machines of a team, a Server on PostgreSQL, and the commands that people type."""

from __future__ import annotations

from tests.team.conftest import Team


def test_one_proposes_the_other_merges_and_both_find_it(team: Team) -> None:
    ann, olga = team.ann, team.olga
    assert "Ann <ann@acme.example>, member of Acme" in ann.login.stdout
    deploy = "# Deploying\n\nThe rollout needs the blue key.\n"
    olga.directory.joinpath("deploy.md").write_text(deploy, "utf-8")
    assert olga.json("import", "deploy.md")["added"] == 1
    assert ann.run("sync").returncode == 0

    [loaded] = ann.json("load", "deploy.md")["resources"]
    ann.json("store", "update", loaded["resource_id"], "--old", "blue", "--new", "green")
    retry = "# Retry\n\nA parcel is sent again at most five times.\n"
    ann.json("store", "create", "retry.md", text=retry)
    review = ann.json("drafts", "submit", "--title", "Keys", "-m", "why")["review"]["review_id"]

    shown = olga.run("review", "show", review).stdout
    for part in ("Keys", "by Ann", "new retry.md", "-The rollout needs the blue key."):
        assert part in shown
    assert ann.run("review", "merge", review).returncode != 0  # a member may not
    olga.json("review", "approve", review[:15], "-m", "good")  # its beginning will do
    assert olga.json("review", "merge", review)["installed"] is True

    assert ann.run("sync").returncode == 0
    assert (
        ann.contents()
        == olga.contents()
        == {
            "deploy.md": deploy.replace("blue", "green"),
            "retry.md": retry,
        }
    )
    by_ann, by_olga = (each.json("load", "retry.md", "deploy.md") for each in (ann, olga))
    assert by_ann == by_olga
    for each in (ann, olga):
        assert "at most five times" in each.run("activate", "how often is a parcel sent").stdout
        assert each.drafts("open") == each.drafts("submitted") == []
        assert each.open_to_others() == []
    assert [draft["status"] for draft in ann.drafts("merged")] == ["merged", "merged"]

    own = ann.home / "own"
    own.mkdir()
    ann.json("init", str(own), "--name", "notes")
    listed = ann.run("projects").stdout.splitlines()[1:]
    assert [("notes" in line, "this machine" in line) for line in listed] == [
        (True, True),
        (False, False),
    ]
    assert ann.network.url in listed[1]
    assert {"local.db", "authority.db"} <= {path.name for path in ann.files()}
    assert ann.open_to_others() == []

    secrets = ["five times", "blue key", "green key", "how often", "Retry", ann.token, olga.token]
    for log in (team.server.log(), ann.daemon.logs(), olga.daemon.logs()):
        assert [secret for secret in secrets if secret in log] == []
