"""What `clumsies doctor` says of a daemon, an index or a binding that is not as it should be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clumsies.cli.doctor_daemon import RESTART, binding_findings, index_finding, version_findings
from clumsies.daemon.wire import PROTOCOL_REVISION
from clumsies.version import VERSION


def health(version: str, revision: int) -> dict[str, Any]:
    runtime = {"protocol_revision": revision, "build_id": version}
    return {"daemon_version": version, "agent_runtime": runtime}


@pytest.mark.parametrize(
    ("version", "revision", "level", "remedy"),
    [
        (VERSION, PROTOCOL_REVISION, "ok", None),
        ("0.0.1", PROTOCOL_REVISION, "warning", RESTART),
        (VERSION, PROTOCOL_REVISION + 1, "failure", RESTART),
    ],
)
def test_a_daemon_of_another_version(
    version: str, revision: int, level: str, remedy: str | None
) -> None:
    [found] = version_findings(17, health(version, revision))
    assert (found.level, found.remedy) == (level, remedy)
    assert version in found.message


@pytest.mark.parametrize(
    ("facts", "level", "remedy"),
    [
        ({"ready": True, "model_status": "ready"}, "ok", None),
        ({"ready": False, "model_status": "ready"}, "warning", None),
        ({"ready": False, "model_status": "missing"}, "warning", "clumsies models prepare"),
        (
            {"ready": False, "model_status": "ready", "last_error": "io_error"},
            "failure",
            "clumsies rebuild --project p",
        ),
    ],
)
def test_an_index_that_is_not_ready(facts: dict[str, Any], level: str, remedy: str | None) -> None:
    found = index_finding("shop", {"project_id": "p", **facts})
    assert (found.level, found.remedy) == (level, remedy)
    assert "shop" in found.message


def test_a_binding_that_binds_nothing(tmp_path: Path) -> None:
    there = {"workspace_root": str(tmp_path), "project_id": "p"}
    assert list(binding_findings(there, {"p"})) == []
    [stranger] = binding_findings(there, {"q"})
    gone = tmp_path / "gone"
    [lost] = binding_findings({"workspace_root": str(gone), "project_id": "p"}, {"p"})
    assert (stranger.level, lost.level) == ("failure", "warning")
    assert lost.remedy == f"clumsies unbind {gone}"
