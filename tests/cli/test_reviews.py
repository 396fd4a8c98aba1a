"""Proposing, judging and merging at a shell, by one person without a Server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Shell
from tests.daemon.running import wait_for

FILES = {
    "money.md": "# Money\n\nAmounts are integers of cents.\n",
    "guides/deploy.md": "# Deploying\n\nThe rollout needs the blue key.\n",
}


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, FILES)
    shell.json("init")
    shell.json("import", ".")
    yield shell
    shell.stop()


def edited(shell: Shell, path: str, old: str, new: str) -> str:
    """The draft of an edit."""
    [loaded] = shell.json("load", path)["resources"]
    edit = shell.json("store", "update", loaded["resource_id"], "--old", old, "--new", new)
    return str(edit["draft_id"])


def test_a_proposal_is_reviewed_and_merged(own: Shell) -> None:
    blue = edited(own, "guides/deploy.md", "blue", "green")
    made = own.json("store", "create", "retry.md", text="# Retry\n\nAt most five times.\n")
    shown = own.run("drafts", "show", blue).stdout
    assert "-The rollout needs the blue key." in shown
    assert "+The rollout needs the green key." in shown
    review = own.json("drafts", "submit", "--title", "Keys", "-m", "why")["review"]
    assert review["draft_ids"] != []
    name = review["review_id"]
    assert {d["status"] for d in own.json("drafts")["drafts"]} == {"submitted"}
    assert "Keys" in own.run("review").stdout
    own.json("review", "comment", name, "Which key?", "--on", "guides/deploy.md:3")
    seen = own.run("review", "show", name).stdout
    for part in (
        "Keys",
        "why",
        "+At most five times.",
        "new retry.md",
        "Which key?",
        "deploy.md:3",
    ):
        assert part in seen
    own.json("review", "approve", name, "-m", "good")
    merged = own.json("review", "merge", name)
    assert merged["applied_operation_count"] == 2
    assert merged["installed"] is True
    assert own.json("drafts", "--status", "open")["drafts"] == []
    assert {d["status"] for d in own.json("drafts")["drafts"]} == {"merged"}
    [loaded] = own.json("load", "retry.md")["resources"]
    assert loaded["resource_id"].startswith("mem_")
    assert loaded["resource_id"] != made["draft_id"]
    assert "At most five times" in own.run("activate", "how often retry").stdout
    assert "green key" in own.run("load", "guides/deploy.md").stdout
    assert own.error(2, "drafts", "submit")["code"] == "invalid_request"


def test_a_rejected_review_loses_nothing_and_is_asked_again(own: Shell) -> None:
    edited(own, "guides/deploy.md", "blue", "green")
    name = own.json("drafts", "submit")["review"]["review_id"]
    own.json("review", "reject", name, "-m", "red, please")
    assert [d["status"] for d in own.json("drafts")["drafts"]] == ["open"]
    assert "green key" in own.run("load", "guides/deploy.md").stdout
    edited(own, "guides/deploy.md", "green", "red")
    own.json("review", "resubmit", name)
    own.json("review", "merge", name)
    assert "red key" in own.run("load", "guides/deploy.md").stdout


def test_a_conflict_is_shown_and_decided(own: Shell) -> None:
    draft = edited(own, "guides/deploy.md", "blue", "green")
    wait_for(lambda: own.json("status")["sync"]["pending_operation_count"] == 0, "sent")
    deploy = own.directory / "guides" / "deploy.md"
    deploy.write_text("# Deploying\n\nThe rollout needs the red key.\n", "utf-8")
    own.json("import", ".")
    assert "green key" in own.run("load", "guides/deploy.md").stdout
    assert "behind" in own.run("drafts").stdout
    refusal = own.error(4, "drafts", "submit")
    assert refusal["code"] == "reconciliation_required"
    assert refusal["details"]["draft_id"] == draft
    assert f"clumsies drafts rebase {draft}" in refusal["message"]
    result = own.run("drafts", "rebase", draft, "--write", "both.md")
    assert result.returncode == 4
    for side in ("blue", "red", "green"):
        assert f"The rollout needs the {side} key." in result.stdout
    both = own.directory / "both.md"
    text = both.read_text("utf-8")
    assert text.count("<<<<<<<") == text.count(">>>>>>>") == 1
    refused = own.run("drafts", "rebase", draft, "--file", "both.md")
    assert (refused.returncode, "markers" in refused.stderr) == (4, True)
    both.write_text("# Deploying\n\nThe rollout needs both keys.\n", "utf-8")
    assert own.run("drafts", "rebase", draft, "--file", "both.md").returncode == 0
    assert "both keys" in own.run("load", "guides/deploy.md").stdout
    name = own.json("drafts", "submit")["review"]["review_id"]
    own.json("review", "merge", name)
    assert "both keys" in own.run("load", "guides/deploy.md").stdout
    assert own.run("drafts", "rebase", draft).returncode != 0


def test_one_side_can_be_taken(own: Shell) -> None:
    draft = edited(own, "guides/deploy.md", "blue", "green")
    deploy = own.directory / "guides" / "deploy.md"
    deploy.write_text("# Deploying\n\nThe rollout needs the red key.\n", "utf-8")
    own.json("import", ".")
    assert own.run("drafts", "rebase", draft, "--take", "draft").returncode == 0
    assert "green key" in own.run("load", "guides/deploy.md").stdout
    other = own.run("drafts", "rebase", draft, "--take", "both")
    assert other.returncode == 2
