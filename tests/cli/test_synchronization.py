"""What `clumsies sync` and `clumsies doctor` say of a state that is not as it should be."""

from __future__ import annotations

from typing import Any

import pytest

from clumsies.cli.doctor_daemon import sign_in_failure, sync_findings
from clumsies.cli.synchronization import explained, unavailable_words, waiting
from clumsies.errors import CredentialsFailed, Refused, SyncFailed

BY_KEYRING = {"server_url": "https://memory.example", "has_personal_token": False}
BY_TOKEN = BY_KEYRING | {"has_personal_token": True}


def status(**more: Any) -> dict[str, Any]:
    counts = {
        "pending_operation_count": 0,
        "failed_operation_count": 0,
        "behind_draft_count": 0,
        "reconciliation_conflict_count": 0,
    }
    channels = {"draft_sync": {"state": "idle"}, "commit_sync": {"state": "idle"}}
    return {**counts, **channels, "unavailable_projects": [], **more}


def test_a_refused_sign_in_names_what_signs_in_here() -> None:
    words, remedy = explained("unauthorized", BY_KEYRING)
    assert "signed in" in words
    assert remedy == "`clumsies login`"
    words, remedy = explained("unauthorized", BY_TOKEN)
    assert "token" in words
    assert "CLUMSIES_TOKEN" in remedy
    assert "clumsies daemon restart" in remedy


def test_an_error_nobody_foresaw_keeps_its_code() -> None:
    words, remedy = explained("commit_sync_failed", BY_TOKEN)
    assert "commit_sync_failed" in words
    assert "clumsies daemon logs" in remedy


def test_one_and_several_are_told_apart() -> None:
    assert waiting(status()) == []
    assert waiting(status(pending_operation_count=1)) == ["1 stored change waits to be sent"]
    assert waiting(status(pending_operation_count=2)) == ["2 stored changes wait to be sent"]
    away = {"project_id": "proj_1", "name": "shop", "draft_count": 1}
    assert "shop (proj_1)" in unavailable_words(away)[0]
    assert "1 draft of it is kept here" in unavailable_words(away)[0]
    assert "kept" not in unavailable_words(away | {"draft_count": 0})[0]


@pytest.mark.parametrize(
    ("error", "level", "remedy"),
    [
        (Refused("unauthorized", "no"), "failure", "clumsies login"),
        (CredentialsFailed("credential_store_failed", "locked"), "failure", "CLUMSIES_TOKEN"),
        (SyncFailed("server_request_failed", "away"), "warning", ""),
    ],
)
def test_why_the_server_does_not_know_who_one_is(error: Any, level: str, remedy: str) -> None:
    found = sign_in_failure("https://memory.example", error, BY_KEYRING)
    assert found.level == level
    assert remedy in (found.remedy or "")
    assert error.code in found.message
    assert "https://memory.example" in found.message


def test_the_doctor_is_content_only_where_nothing_is_held_up() -> None:
    [fine] = sync_findings(status(), BY_KEYRING)
    assert (fine.level, fine.message) == ("ok", "in step")
    [refused] = sync_findings(status(failed_operation_count=1), BY_KEYRING)
    assert (refused.level, refused.remedy) == ("failure", "clumsies drafts")
    away = [{"project_id": "proj_1", "name": None, "draft_count": 2}]
    [kept] = sync_findings(status(unavailable_projects=away), BY_KEYRING)
    assert kept.level == "warning"
    assert "proj_1" in kept.message
    held = {"state": "retrying", "last_error": "server_request_failed"}
    [later] = sync_findings(status(commit_sync=held, pending_operation_count=1), BY_KEYRING)
    assert later.level == "warning"
