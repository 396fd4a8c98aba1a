"""A real Server under load: daemons that ask where their project stands, and people who write.

    python -m benchmarks.server_load [--postgresql URL] [--seconds 20] [--short]
    python -m benchmarks.server_load --beside CHECKOUT

Each database is filled alike, and its Server is started anew for every half; the halves alternate
(A B B A), so that what else the machine does falls on all. Every daemon and every writer keeps a
pace of its own and a connection of its own, so that the offered load is what is said; a latency
counts from when the request was due. With `--beside` the Server of another checkout takes turns
with this one's on the same databases. Clients and the Server share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.http_clients import Client, Record, Step, at_a_pace
from benchmarks.results import figure, table
from benchmarks.server_world import Person, fill, text
from tests.postgresql import DURABLE, program_directory, running_cluster

HERE = Path(__file__).resolve().parents[1]
OPERATIONS_A_DRAFT = 9
WARM_UP_S = 2.0
START_TIMEOUT_S = 60.0
KINDS = ("commit-state", "create draft", "append operation")


@dataclass(frozen=True, slots=True)
class Load:
    """How much there is, and what is offered, in requests a second of all clients together."""

    projects: int = 50
    memories: int = 2_000
    daemons: int = 500
    writers: int = 50
    polls_per_s: float = 100.0
    writes_per_s: float = 20.0
    seconds: float = 20.0


USUAL = Load()
SHORT = Load(5, 50, 20, 5, 20.0, 5.0, 3.0)


@dataclass
class Measured:
    """Both halves of one Server."""

    record: Record = field(default_factory=Record)
    seconds: float = 0.0
    processor_s: float = 0.0
    resident_mb: float = 0.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A Server that is measured: a checkout over a database with people in it."""

    name: str
    database_url: str
    people: Sequence[Person]
    checkout: Path = HERE


def polling(person: Person) -> Step:
    """What a daemon asks at every interval while nothing has changed."""
    path = f"/api/v1/projects/{person.project_id}/commit-state?local_commit_id={person.commit_id}"

    async def step(client: Client) -> tuple[str, int, bytes]:
        return "commit-state", *await client.request("GET", path)

    return step


def writing(person: Person, number: int) -> Step:
    """A draft, then OPERATIONS_A_DRAFT changes of a memory in it, and so on."""
    draft_id, version, count = "", 0, 0
    resource = {"scope": "org", "id": person.memory_id}

    async def step(client: Client) -> tuple[str, int, bytes]:
        nonlocal draft_id, version, count
        count += 1
        if count % (OPERATIONS_A_DRAFT + 1) == 1:
            kind, path, headers = "create draft", "/api/v1/drafts", ""
            body: dict[str, object] = {
                "daemon_installation_id": f"load_{number}",
                "project_id": person.project_id,
                "base_commit_id": person.org_commit_id,
                "title": f"Draft {count}",
                "resource": resource,
            }
        else:
            kind, path = "append operation", f"/api/v1/drafts/{draft_id}/operations"
            headers = f"if-match: {version}\r\n"
            content = {"content": text(number * 1_000_000 + count)}
            body = {"operation": {"action": "update", "resource": resource, "content": content}}
        status, answer = await client.request("POST", path, body, headers)
        if status < 300:
            draft = json.loads(answer)["draft"]
            draft_id, version = draft["draft_id"], draft["version"]
        return kind, status, answer

    return step


async def offer(address: str, people: Sequence[Person], load: Load) -> Record:
    """Every client at its pace for the load's time; what happens while it warms up is left out,
    but for failures."""
    host, port = urlsplit(address).hostname or "", urlsplit(address).port or 0
    began, warm, measured = time.monotonic(), Record(), Record()
    jobs: list[tuple[Client, Step, float, float]] = []
    kinds: tuple[tuple[int, float, Callable[[int], Step]], ...] = (
        (load.daemons, load.polls_per_s, lambda number: polling(people[number])),
        (load.writers, load.writes_per_s, lambda number: writing(people[number], number)),
    )
    for count, rate, make in kinds:
        period = count / rate
        for number in range(count):
            client = Client(host, port, people[number].token)
            jobs.append((client, make(number), period * number / count, period))

    async def run(client: Client, step: Step, offset: float, period: float) -> None:
        first = began + offset
        turns = max(0, int(-(-(WARM_UP_S - offset) // period)))
        start = first + turns * period
        await at_a_pace(client, step, first, period, start, warm)
        await at_a_pace(client, step, start, period, began + WARM_UP_S + load.seconds, measured)

    await asyncio.gather(*(run(*job) for job in jobs))
    for client, *_ in jobs:
        client.close()
    measured.failures += warm.failures
    return measured


@contextmanager
def running_server(subject: Subject, home: Path) -> Iterator[tuple[str, int]]:
    """(address, process id) of `clumsies server run`, as a user runs it."""
    environ = os.environ | {
        "PYTHONPATH": str(subject.checkout),
        "CLUMSIES_HOME": str(home / "clumsies"),
        "CLUMSIES_DATABASE_URL": subject.database_url,
    }
    log = home / "server.log"
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "clumsies", "server", "run", "--port", "0"],
            env=environ,
            cwd=subject.checkout,
            stderr=stream,
        )
    try:
        yield _address(process, log), process.pid
    finally:
        process.terminate()
        process.wait(START_TIMEOUT_S)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until and process.poll() is None:
        found = re.search(r"running on (http://[^ ]+)", log.read_text("utf-8"))
        if found:
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"the Server did not start: {log.read_text('utf-8')[-2_000:]}")


def processor_s(pid: int) -> float:
    """Seconds of processor time of a process so far; 0 where the system has no /proc."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def resident_mb(pid: int) -> float:
    """Resident memory of a process; 0 where the system has no /proc."""
    status = Path(f"/proc/{pid}/status")
    found = re.search(r"VmRSS:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else 0.0


def measure_half(subject: Subject, load: Load, into: Measured) -> None:
    with tempfile.TemporaryDirectory() as home, running_server(subject, Path(home)) as server:
        address, pid = server
        before, began = processor_s(pid), time.monotonic()
        into.record.add(asyncio.run(offer(address, subject.people, load)))
        into.seconds += load.seconds
        # Of the warm-up too, so by its share of the time.
        share = load.seconds / max(time.monotonic() - began, load.seconds)
        into.processor_s += (processor_s(pid) - before) * share
        into.resident_mb = max(into.resident_mb, resident_mb(pid))


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile of at least one value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(measured: dict[str, Measured], load: Load) -> str:
    """What was offered, and a table of what came of it."""
    rows = []
    for name, found in measured.items():
        for kind in KINDS:
            times = found.record.latencies_ms[kind]
            if times:
                shares = [figure(percentile(times, share)) for share in (0.5, 0.95, 0.99)]
                rows.append([name, kind, figure(len(times) / found.seconds), *shares])
    costs = []
    for name, found in measured.items():
        count = sum(map(len, found.record.latencies_ms.values()))
        each = 1000 * found.processor_s / max(count, 1)
        memory = f"{found.resident_mb:.0f}"
        failed = str(len(found.record.failures))
        costs.append([name, str(count), failed, f"{found.processor_s:.1f}", figure(each), memory])
    return "\n\n".join(
        (
            f"{load.daemons} daemons offer {load.polls_per_s:g} polls/s and {load.writers} writers "
            f"{load.writes_per_s:g} writes/s, {load.seconds:g} s in each half; {load.projects} "
            f"projects, {load.memories:,} memories.",
            table(["Server", "request", "per s", "p50 ms", "p95 ms", "p99 ms"], rows),
            table(["Server", "requests", "failed", "processor s", "ms each", "resident MB"], costs),
        )
    )


def subjects(
    stack: ExitStack, load: Load, postgresql: str | None, beside: Path | None
) -> Iterator[Subject]:
    """What is measured: each database there is, with each checkout."""
    root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    urls = {"SQLite": f"sqlite:///{root / 'server.db'}"}
    programs = program_directory()
    if postgresql is not None:
        urls["PostgreSQL"] = postgresql
    elif programs is not None:
        cluster = stack.enter_context(running_cluster(programs, DURABLE))
        urls["PostgreSQL"] = stack.enter_context(cluster.database())
    for name, url in urls.items():
        people = fill(url, load.projects, load.memories, load.daemons)
        yield Subject(name, url, people)
        if beside is not None:
            yield Subject(f"{name}, other checkout", url, people, beside.resolve())


def run(
    load: Load, postgresql: str | None = None, beside: Path | None = None
) -> dict[str, Measured]:
    """Both halves of every subject, in one order and then in the other."""
    with ExitStack() as stack:
        all_of_them = list(subjects(stack, load, postgresql, beside))
        measured = {subject.name: Measured() for subject in all_of_them}
        for order in (all_of_them, all_of_them[::-1]):
            for subject in order:
                measure_half(subject, load, measured[subject.name])
    return measured


def main(write: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.server_load")
    parser.add_argument("--postgresql", help="URL of an empty database; default: a server of ours")
    parser.add_argument("--beside", type=Path, help="another checkout, in turns with this one")
    parser.add_argument("--seconds", type=float, default=USUAL.seconds)
    parser.add_argument("--polls", type=float, default=USUAL.polls_per_s)
    parser.add_argument("--writes", type=float, default=USUAL.writes_per_s)
    parser.add_argument("--short", action="store_true", help="a few seconds, a small organisation")
    given = parser.parse_args()
    load = (
        SHORT
        if given.short
        else Load(polls_per_s=given.polls, writes_per_s=given.writes, seconds=given.seconds)
    )
    before = os.getloadavg()[0]
    measured = run(load, given.postgresql, given.beside)
    write(report(measured, load))
    write(f"\n{os.cpu_count()} processors, load average {before:.1f} before the run.")
    failures = [failure for found in measured.values() for failure in found.record.failures]
    if failures:
        raise SystemExit("\n".join(failures[:20]))


if __name__ == "__main__":
    main()
