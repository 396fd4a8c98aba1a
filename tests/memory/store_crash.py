"""Killing a writer at any moment of a stream of stores, and what must be true afterwards.

    python -m tests.memory.store_crash DIRECTORY KILLS SEED

Everything is imported once; each writer is a fork that opens the database itself, stores without
end and says on a pipe what it begins and what was acknowledged. It is killed with SIGKILL after a
random time. `Run`, `read_run` and `check` know nothing of how the writer was started or reached,
so that a writer behind a socket can be held to the same.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from clumsies.memory.drafts import StoreReceipt
from clumsies.memory.index_jobs import index_job
from clumsies.memory.operations import StoreOperation
from clumsies.storage.database import all_rows
from tests.memory.local_memory import (
    LocalMemory,
    create,
    delete,
    discard,
    rename,
    replace_in,
)

LONGEST_LIFE_S = 0.4
TOKEN = re.compile(r"\b[a-z]+\d+-\d+-")
"""A run's name (letters, then digits) and the number of an operation in it."""
Say = Callable[[dict[str, str]], None]
Store = Callable[[StoreOperation], StoreReceipt]


@dataclass(slots=True)
class Run:
    """What one writer said before it died. A token stands in the text or path of its operation."""

    begun: list[str] = field(default_factory=list)
    acknowledged: dict[str, str] = field(default_factory=dict)
    """Token to operation id."""


def read_run(lines: Sequence[bytes]) -> Run:
    """The run of a writer's output; a last line that was cut off counts as not said."""
    run = Run()
    for line in lines:
        if not line.endswith(b"\n"):
            break
        said = json.loads(line)
        if "begin" in said:
            run.begun.append(said["begin"])
        else:
            run.acknowledged[said["done"]] = said["operation_id"]
    return run


def stream(memory: LocalMemory, store: Store, name: str, chance: random.Random, say: Say) -> None:
    """Store without end: creations, edits, renames, deletions, discards, each with its token."""
    number = 0
    while True:
        number += 1
        token = f"{name}-{number}-"
        operation = next_operation(memory, token, chance)
        say({"begin": token})
        receipt = store(operation)
        say({"done": token, "operation_id": receipt.local_operation_id})


def next_operation(memory: LocalMemory, token: str, chance: random.Random) -> StoreOperation:
    entries = sorted(memory.view().entries.values(), key=lambda entry: entry.resource_id)
    kind = chance.choice(["create", "update", "update", "rename", "delete", "discard"])
    if len(entries) > 12:
        kind = "delete"
    if kind == "create" or not entries:
        return create(f"{token}.md", f"text of {token}")
    entry = chance.choice(entries)
    if kind == "rename":
        return rename(entry.resource_id, f"moved/{token}.md")
    if kind == "delete":
        return delete(entry.resource_id)
    if kind == "discard" and entry.draft_id is not None:
        return discard(entry.draft_id)
    resource = memory.load(entry.resource_id)
    return replace_in(resource, resource.content, f"edited by {token}")


def write_until_killed(directory: Path, name: str, seed: int, pipe: int) -> None:
    """The writer: reaches the end only by an error."""

    def say(message: dict[str, str]) -> None:
        os.write(pipe, json.dumps(message).encode() + b"\n")

    memory = LocalMemory(directory, clock=time.time_ns)
    stream(memory, memory.store, name, random.Random(seed), say)


def kill_a_writer(directory: Path, name: str, seed: int, life_s: float) -> Run:
    """Fork a writer, kill it after `life_s`, and read what it had said."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            write_until_killed(directory, name, seed, writing)
        finally:
            sys.stderr.flush()
            os._exit(1)
    os.close(writing)
    time.sleep(life_s)
    os.kill(child, signal.SIGKILL)
    with os.fdopen(reading, "rb") as stream_end:
        lines = stream_end.readlines()
    status = os.waitpid(child, 0)[1]
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "the writer ended by itself"
    return read_run(lines)


def check(memory: LocalMemory, runs: Sequence[Run], requests_before: int) -> int:
    """Assert that nothing acknowledged is lost, nothing is there twice, and all of it is sound.

    `requests_before` is the index job's desired sequence before the first run. Returns how many
    operations were kept though their answer never left.
    """
    assert memory.database.problems() == []
    with memory.database.reader() as connection:
        rows = all_rows(
            connection,
            "SELECT local_operation_id, operation_json, draft_id FROM local_draft_operations "
            "ORDER BY operation_rowid",
        )
        drafts = {row[0] for row in all_rows(connection, "SELECT draft_id FROM local_drafts")}
    kept = Counter(row[0] for row in rows)
    acknowledged = [name for run in runs for name in run.acknowledged.values()]
    assert set(kept.values()) <= {1}
    assert set(acknowledged) <= kept.keys(), "an acknowledged operation is lost"
    assert {row[2] for row in rows} == drafts, "a draft has no operation"
    extra = kept.keys() - set(acknowledged)
    unanswered = [run for run in runs if len(run.begun) > len(run.acknowledged)]
    assert len(extra) <= len(unanswered), "an operation was applied that nobody asked for"
    texts = [row[1] for row in rows]
    applied = Counter(token for text in texts for token in set(TOKEN.findall(text)))
    begun = {token for run in runs for token in run.begun}
    assert applied.keys() & begun == applied.keys(), "an operation was never begun"
    assert set(applied.values()) <= {1}, "an operation was applied twice"
    job = index_job(memory.database, memory.project_id)
    assert job is not None
    assert job.desired_sequence == requests_before + len(rows), "an index request is lost"
    for resource in memory.effective.resources(memory.view()):
        assert resource.content.strip()
    return len(extra)


def main(directory: Path, kills: int, seed: int) -> dict[str, int]:
    chance = random.Random(seed)
    memory = LocalMemory(directory)
    memory.bring_in({f"imported{n}.md": f"imported {n}" for n in range(3)})
    job = index_job(memory.database, memory.project_id)
    assert job is not None
    before = job.desired_sequence
    memory.close()
    runs: list[Run] = []
    kept = 0
    for number in range(kills):
        life_s = chance.uniform(0.01, LONGEST_LIFE_S)
        runs.append(kill_a_writer(directory, f"w{number}", chance.randrange(2**32), life_s))
        memory = LocalMemory(directory)
        kept = check(memory, runs, before)
        memory.close()
    acknowledged = sum(len(run.acknowledged) for run in runs)
    return {"kills": kills, "acknowledged": acknowledged, "kept_unanswered": kept}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
