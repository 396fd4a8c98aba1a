"""SIGKILL at random points of a stream of stores, the short form."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.memory.local_memory import LocalMemory, create
from tests.memory.store_crash import Run, check, read_run

KILLS = 20


def test_killed_writers_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.memory.store_crash", str(tmp_path), str(KILLS), "4"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["kills"] == KILLS
    assert result["acknowledged"] >= KILLS


def test_output_that_was_cut_off_counts_as_not_said() -> None:
    lines = [b'{"begin": "a"}\n', b'{"done": "a", "operation_id": "op_1"}\n', b'{"begin": "b"']
    assert read_run(lines) == Run(["a"], {"a": "op_1"})


def test_the_check_notices_loss_and_repetition(memory: LocalMemory) -> None:
    memory.bring_in({"a.md": "a"})
    receipt = memory.store(create("t1-1-.md", "text of t1-1-"))
    run = Run(["t1-1-"], {"t1-1-": receipt.local_operation_id})
    with memory.database.reader() as connection:
        [(desired,)] = connection.execute("SELECT desired_sequence FROM index_jobs").fetchall()
    requests = desired - 1
    assert check(memory, [run], requests) == 0
    for wrong, words in (
        (Run(["t1-1-", "t1-2-"], {**run.acknowledged, "t1-2-": "op_lost"}), "lost"),
        (Run(["t1-1-"], {}), None),
        (Run([], {}), "nobody asked"),
    ):
        if words is None:
            assert check(memory, [wrong], requests) == 1
        else:
            with pytest.raises(AssertionError, match=words):
                check(memory, [wrong], requests)
    with pytest.raises(AssertionError, match="index request"):
        check(memory, [run], requests - 1)
    memory.store(create("again.md", "text of t1-1-"))
    with pytest.raises(AssertionError, match="twice"):
        check(memory, [run, Run(["t2-1-"], {})], requests)
