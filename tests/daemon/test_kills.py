"""The short form of the kill harness; the long one is `python -m tests.daemon.kill_harness`."""

from __future__ import annotations

from pathlib import Path

from tests.daemon.kill_harness import run

KILLS = 12


def test_kills_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    ledger = run(tmp_path, KILLS)
    assert len(ledger.operation_ids) >= KILLS
    assert ledger.unanswered
