"""Many processes and many sessions at one daemon."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.mixed_calls import END, SHARED
from tests.daemon.resident import Resident
from tests.daemon.running import LONG_S, ROOT, wait_for

PROCESSES = 8
CALLS = 50
SESSIONS = 200
GROWTH_BYTES = 48 * 1024 * 1024
"""Far below what a leak of a model, an index or a connection a session would add up to."""


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Resident]:
    running = Resident(tmp_path / "r")
    yield running
    assert running.end() == 0


def test_eight_processes_of_mixed_calls_lose_nothing(own: Resident, tmp_path: Path) -> None:
    project = own.project(tmp_path / "w", {SHARED: f"# Shared\n\n{END}\n"})
    command = [sys.executable, "-m", "tests.daemon.mixed_calls", str(own.places.socket)]
    agents = [
        subprocess.Popen(
            [*command, project.project_id, f"agent{number}", str(CALLS)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    found = [json.loads(agent.communicate(timeout=5 * LONG_S)[0]) for agent in agents]
    assert [error for each in found for error in each["errors"]] == []
    contents = project.contents()
    marks = [line[2:] for line in contents.pop(SHARED).splitlines() if line.startswith("- ")]
    assert sorted(marks) == sorted(mark for each in found for mark in each["shared"])
    assert set(contents) == {path for each in found for path in each["own"]}
    assert "is locked" not in own.logs()
    assert "internal_error" not in own.logs()
    [path, *_] = contents
    heading = contents[path].splitlines()[0].removeprefix("# ")
    assert heading in project.texts(heading)


def status_of(pid: int) -> dict[str, int]:
    """Resident bytes, threads, open files and processor seconds of a process."""
    place = Path("/proc") / str(pid)
    if not place.is_dir():
        pytest.skip("reads /proc, which this system does not have")
    lines = dict(
        line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line
    )
    times = (place / "stat").read_text().rpartition(")")[2].split()
    return {
        "resident": int(lines["VmRSS"].split()[0]) * 1024,
        "threads": int(lines["Threads"]),
        "files": len(list((place / "fd").iterdir())),
        "ticks": int(times[11]) + int(times[12]),
    }


def session(own: Resident, project_id: str, directory: Path) -> None:
    """What an agent does in one session, on a connection of its own."""
    with own.client("session") as client:
        client.call("resolve_project_binding", {"directory": str(directory)})
        client.call("activate_memory", {"project_id": project_id, "query": "where do herons nest?"})
        client.call("load_memory", {"project_id": project_id, "ids": ["heron.md"]})


def test_sessions_leave_memory_threads_and_files_flat(own: Resident, tmp_path: Path) -> None:
    project = own.project(tmp_path / "w", {"heron.md": "# Heron\n\nHerons nest at the mill.\n"})
    for _ in range(SESSIONS // 4):
        session(own, project.project_id, tmp_path / "w")
    before = status_of(own.process.pid)
    for _ in range(SESSIONS):
        session(own, project.project_id, tmp_path / "w")
    wait_for(lambda: status_of(own.process.pid)["files"] <= before["files"] + 4, "files are closed")
    after = status_of(own.process.pid)
    assert after["threads"] <= before["threads"] + 8  # pools may still fill up
    assert after["resident"] - before["resident"] < GROWTH_BYTES
    children = Path(f"/proc/{own.process.pid}/task/{own.process.pid}/children")
    assert not children.exists() or children.read_text() == ""


def test_an_idle_daemon_does_nothing(own: Resident, tmp_path: Path) -> None:
    """Processor time of the process, not of the clock: a busy machine does not change it."""
    project = own.project(tmp_path / "w", {"heron.md": "# Heron\n\nHerons nest at the mill.\n"})
    project.activate("where do herons nest?")
    wait_for(
        lambda: project.call("search_index_status")["build_state"] == "ready", "the index is ready"
    )
    time.sleep(1.0)
    before = status_of(own.process.pid)["ticks"]
    time.sleep(3.0)
    assert status_of(own.process.pid)["ticks"] - before <= 15  # of 300 ticks
