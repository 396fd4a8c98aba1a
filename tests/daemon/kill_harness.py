"""`kill -9` of the daemon at random moments under a stream of stores, again and again.

Several clients append marks to memories of their own and to shared ones, make, rename, delete and
discard memories, and keep a ledger of what was acknowledged. After every kill the daemon is started
anew and asked for the whole memory: every acknowledged change is there once and in order; one whose
answer never came is there once or not at all. The database and the search index are checked by
SQLite's own means, and the newest mark is found by an activation.

    python -m tests.daemon.kill_harness --kills 500 [--clients 3] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from clumsies.config import daemon_places
from clumsies.daemon.client import DaemonClient
from clumsies.engine.index import IndexStore, read_head
from clumsies.errors import ClumsiesError, NotReady
from clumsies.storage.project_storage import LOCAL_AUTHORITY, ProjectStorage
from tests.daemon.resident import Project, launch_resident, resident_environment, write_files
from tests.daemon.running import LONG_S, wait_for

SHARED = 2
OWN_MEMORIES = 4
MARKS_OF_OWN = 24
MARKS_OF_SHARED = 60
END = "End of the notes."
LOST = frozenset({"daemon_ipc_failed", "daemon_unavailable", "daemon_busy", "request_deadline"})
"""How a call ends whose daemon died: its change may have been carried out."""


class Broken(AssertionError):
    """Something acknowledged is lost, doubled or unsound."""


@dataclass
class Memory:
    """What a client knows of one memory: its id, its path and the marks that were acknowledged."""

    resource_id: str
    path: str
    marks: list[str] = field(default_factory=list)


@dataclass
class Ledger:
    """All that was acknowledged, and how many calls never got their answer."""

    operation_ids: list[str] = field(default_factory=list)
    unanswered: int = 0
    carried_out: int = 0
    conflicts: int = 0
    mutex: threading.Lock = field(default_factory=threading.Lock)

    def acknowledged(self, receipt: dict[str, Any]) -> None:
        with self.mutex:
            self.operation_ids.append(receipt["local_operation_id"])


def new_text(title: str) -> str:
    return f"# {title}\n\n{END}\n"


def marks_in(text: str) -> list[str]:
    return [line[2:] for line in text.splitlines() if line.startswith("- mark")]


class Gate:
    """Clients work while it is open; `shut` returns once every one of them has stopped."""

    def __init__(self, clients: int):
        self._changed = threading.Condition()
        self._clients = clients
        self._parked = 0
        self._open = False
        self.ended = False

    def pass_through(self) -> bool:
        """Wait while the gate is shut; False at the end of the run."""
        with self._changed:
            if not self._open:
                self._parked += 1
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._open or self.ended)
                self._parked -= 1
            return not self.ended

    def open(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def shut(self) -> None:
        with self._changed:
            self._open = False
            done = self._changed.wait_for(lambda: self._parked == self._clients, LONG_S * 2)
        if not done:
            raise Broken("a client hangs though its daemon is gone")

    def end(self) -> None:
        with self._changed:
            self.ended = True
            self._changed.notify_all()


class Client:
    """One writer with memories of its own. `pending` settles a call whose answer never came."""

    def __init__(self, number: int, harness: Harness):
        self._harness = harness
        self._number = number
        self._count = 0
        self._random = random.Random(harness.seed * 1000 + number)
        self._client = DaemonClient(harness.socket, f"kill-{number}")
        self.project = Project(self._client, harness.project_id)
        self.memories: list[Memory] = []
        self.pending: Callable[[dict[str, dict[str, Any]]], bool] | None = None
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=f"client-{number}", daemon=True)

    def close(self) -> None:
        """End the thread and its connections, once the gate has ended."""
        if self.thread.ident is not None:
            self.thread.join(LONG_S)
        self._client.close()

    def _run(self) -> None:
        try:
            while self._harness.gate.pass_through():
                if self.pending is None:
                    self._step()
                else:
                    time.sleep(0.005)  # the daemon died; the harness will shut the gate
        except BaseException as error:
            self.error = error
            self._harness.gate.end()

    def _step(self) -> None:
        dice = self._random.random()
        full = [memory for memory in self.memories if len(memory.marks) >= MARKS_OF_OWN]
        if len(self.memories) < OWN_MEMORIES:
            self._create()
        elif full:
            self._delete(full[0], by_discard=dice < 0.5)
        elif dice < 0.25:
            self._append_shared(self._random.choice(self._harness.shared))
        elif dice < 0.35:
            self._rename(self._random.choice(self.memories))
        else:
            self._append_own(self._random.choice(self.memories))

    def _next(self) -> str:
        self._count += 1
        return f"mark{self._number}x{self._count}"

    def _attempt(
        self,
        store: Callable[[], dict[str, Any]],
        done: Callable[[dict[str, Any]], None],
        look: Callable[[dict[str, dict[str, Any]]], bool],
    ) -> None:
        """Store; `done` takes the receipt. Where the answer never comes, `look` says after the
        restart whether the change was carried out, and takes it into the ledger if it was."""
        try:
            receipt = store()
        except ClumsiesError as error:
            if error.code == "memory_content_changed":
                with self._harness.ledger.mutex:
                    self._harness.ledger.conflicts += 1
            elif error.code in LOST:
                with self._harness.ledger.mutex:
                    self._harness.ledger.unanswered += 1
                self.pending = look
            else:
                raise
        else:
            self._harness.ledger.acknowledged(receipt)
            done(receipt)

    def _create(self) -> None:
        path = f"own/{self._number}/{self._next()}.md"

        def done(receipt: dict[str, Any]) -> None:
            self.memories.append(Memory(receipt["draft_id"], path))

        def look(found: dict[str, dict[str, Any]]) -> bool:
            if path not in found:
                return False
            self.memories.append(Memory(found[path]["resource_id"], path))
            return True

        self._attempt(lambda: self.project.create(path, new_text(path)), done, look)

    def _append(self, name: str, accept: Callable[[str], None]) -> None:
        mark = self._next()
        try:
            [loaded] = self.project.load(name)
        except ClumsiesError as error:
            if error.code not in LOST:
                raise
            self.pending = lambda found: False  # nothing was sent
            return

        def look(found: dict[str, dict[str, Any]]) -> bool:
            [text] = [r["content"] for r in found.values() if r["resource_id"] == name]
            if mark not in marks_in(text):
                return False
            accept(mark)
            return True

        pair = (END, f"- {mark}\n{END}")
        self._attempt(
            lambda: self.project.replace(loaded, pair), lambda _receipt: accept(mark), look
        )

    def _append_own(self, memory: Memory) -> None:
        self._append(memory.resource_id, memory.marks.append)

    def _append_shared(self, memory: Memory) -> None:
        def accept(mark: str) -> None:
            with self._harness.ledger.mutex:
                memory.marks.append(mark)

        self._append(memory.resource_id, accept)

    def _rename(self, memory: Memory) -> None:
        path = f"own/{self._number}/{self._next()}.md"

        def done(_receipt: dict[str, Any]) -> None:
            memory.path = path

        def look(found: dict[str, dict[str, Any]]) -> bool:
            if path not in found:
                return False
            memory.path = path
            return True

        part = {"id": memory.resource_id, "new_path": path}
        self._attempt(lambda: self.project.store(rename=part), done, look)

    def _delete(self, memory: Memory, *, by_discard: bool) -> None:
        part = {"id": memory.resource_id}
        kind = "discard" if by_discard else "delete"

        def done(_receipt: dict[str, Any]) -> None:
            self.memories.remove(memory)

        def look(found: dict[str, dict[str, Any]]) -> bool:
            if memory.path in found:
                return False
            self.memories.remove(memory)
            return True

        self._attempt(lambda: self.project.store(**{kind: part}), done, look)


class Harness:
    """One home, one daemon at a time, some clients."""

    def __init__(self, home: Path, *, clients: int, seed: int):
        self.seed = seed
        self.ledger = Ledger()
        self.gate = Gate(clients)
        self._random = random.Random(seed)
        self._environment = resident_environment(home)
        self._places = daemon_places(self._environment)
        self.socket = self._places.socket
        self._process = launch_resident(self._environment)
        self._client = DaemonClient(self.socket, "kill-harness")
        self._await_health()
        self._notes = home / "notes"
        write_files(self._notes, {f"shared-{n}.md": new_text(f"S{n}") for n in range(SHARED)})
        made = self._client.call(
            "create_local_project", {"name": "kill", "workspace_root": str(self._notes)}
        )
        self.project_id = str(made["project"]["project_id"])
        self._project = Project(self._client, self.project_id)
        self._project.call("import_memory", paths=[str(self._notes)])
        self.shared = [Memory(r["resource_id"], r["path"]) for r in self._checkout().values()]
        self._clients = [Client(number, self) for number in range(clients)]

    def run(self, kills: int, report: Callable[[int], None]) -> None:
        """Raises Broken at the first thing that is lost, doubled or unsound."""
        for client in self._clients:
            client.thread.start()
        try:
            for kill in range(1, kills + 1):
                self._live_for_a_while()
                self._kill()
                self.gate.shut()
                self._raise_client_errors()
                self._restart()
                self._check(thorough=kill % 10 == 0 or kill == kills)
                report(kill)
        finally:
            self.gate.end()
            self._end()

    def _live_for_a_while(self) -> None:
        """A random time, counted from the first acknowledgement, so that slow machines kill
        daemons at work, too."""
        before = len(self.ledger.operation_ids)
        self.gate.open()
        wait_for(lambda: len(self.ledger.operation_ids) > before or self.gate.ended, "a store")
        time.sleep(self._random.uniform(0.0, 0.6))

    def _kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        _, said = self._process.communicate(timeout=LONG_S)
        if self._process.returncode != -signal.SIGKILL:
            raise Broken(f"the daemon had ended by itself ({self._process.returncode}): {said}")

    def _restart(self) -> None:
        """Start anew; in one of five cases the first start is killed on its way, too."""
        if self._random.random() < 0.2:
            self._process = launch_resident(self._environment)
            time.sleep(self._random.uniform(0.1, 1.2))
            self._process.kill()
            self._process.communicate(timeout=LONG_S)
        self._process = launch_resident(self._environment)
        self._await_health()

    def _await_health(self) -> None:
        def answers() -> bool:
            if self._process.poll() is not None:
                raise Broken(f"the daemon did not start: {self._process.communicate()[1]}")
            try:
                return bool(self._client.call("health", timeout_s=LONG_S))
            except ClumsiesError as error:
                if error.code not in LOST:
                    raise
                return False

        wait_for(answers, "the daemon answers")

    def _raise_client_errors(self) -> None:
        for client in self._clients:
            if client.error is not None:
                raise Broken(f"client: {client.error!r}") from client.error

    def _checkout(self) -> dict[str, dict[str, Any]]:
        resources = self._project.call("project_checkout")["resources"]
        found = {resource["path"]: resource for resource in resources}
        if len(found) != len(resources):
            raise Broken("two memories have one path")
        return found

    def _check(self, *, thorough: bool) -> None:
        """Everything that must hold after a restart, while no client works."""
        found = self._checkout()
        for client in self._clients:
            if client.pending is not None:
                self.ledger.carried_out += client.pending(found)
                client.pending = None
        self._check_memory(found)
        self._check_database()
        newest = self._random.choice(self._clients).memories
        if marked := [memory for memory in newest if memory.marks]:
            self._check_found(marked[-1].marks[-1])
        if thorough:
            self._check_index()
            self._check_authority()
            self._start_shared_anew()

    def _check_memory(self, found: dict[str, dict[str, Any]]) -> None:
        wanted = {memory.path: memory.marks for c in self._clients for memory in c.memories}
        if extra := found.keys() - wanted.keys() - {memory.path for memory in self.shared}:
            raise Broken(f"memories that nobody made, or that were deleted: {sorted(extra)}")
        for path, marks in wanted.items():
            if path not in found:
                raise Broken(f"{path} is lost")
            if marks_in(found[path]["content"]) != marks:
                raise Broken(f"{path}: {marks_in(found[path]['content'])} instead of {marks}")
        for memory in self.shared:  # acknowledged in an order that only the daemon knows
            marks = marks_in(found[memory.path]["content"])
            if sorted(marks) != sorted(memory.marks):
                raise Broken(f"{memory.path}: {sorted(marks)} instead of {sorted(memory.marks)}")

    def _check_database(self) -> None:
        """Sound, and with exactly the operations that were acknowledged or found carried out."""
        connection = apsw.Connection(
            str(self._places.root / "local.db"), flags=apsw.SQLITE_OPEN_READONLY
        )
        try:
            said = connection.execute("PRAGMA integrity_check").fetchall()
            broken = connection.execute("PRAGMA foreign_key_check").fetchall()
            rows = connection.execute("SELECT local_operation_id FROM local_draft_operations")
            stored = {row[0] for row in rows}
        finally:
            connection.close()
        if said != [("ok",)] or broken:
            raise Broken(f"local.db: {said} {broken}")
        acknowledged = set(self.ledger.operation_ids)
        if lost := acknowledged - stored:
            raise Broken(f"{len(lost)} acknowledged operations are lost")
        if len(stored) != len(acknowledged) + self.ledger.carried_out:
            raise Broken(
                f"{len(stored)} operations stored, {len(acknowledged)} acknowledged and "
                f"{self.ledger.carried_out} found carried out"
            )

    def _check_authority(self) -> None:
        """Once everything is sent: each operation is with the local authority, once, in the draft
        and at the place that it has here."""

        def sent() -> bool:
            self._project.client.call("retry_sync", {"channel": "drafts"})
            status = self._project.client.call("sync_status")
            return not status["pending_operation_count"] and not status["failed_operation_count"]

        wait_for(sent, "every operation is with the authority")
        here = self._rows(
            "local.db",
            "SELECT server_draft_id, local_operation_id FROM local_draft_operations "
            "JOIN local_drafts USING (draft_id) WHERE operation_json NOT LIKE '{\"discard\":%' "
            "ORDER BY server_draft_id, operation_rowid",
        )
        there = self._rows(
            "authority.db",
            "SELECT draft_id, local_operation_id FROM draft_operations ORDER BY draft_id, ordinal",
        )
        if here != there:
            raise Broken(
                f"{len(here)} operations here, {len(there)} with the authority, and not the same: "
                f"{sorted(set(here) ^ set(there))[:3]}"
            )

    def _rows(self, name: str, query: str) -> list[tuple[Any, ...]]:
        place = str(self._places.root / name)
        connection = apsw.Connection(place, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
                raise Broken(f"{name} is damaged")
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def _check_found(self, mark: str) -> None:
        found: list[str] = []

        def answered() -> bool:
            try:
                found.append(self._project.texts(mark))
            except NotReady:  # a machine this slow: the index is still being built
                return False
            return True

        wait_for(answered, "an activation")
        if mark not in found[-1]:
            raise Broken(f"{mark} was stored and is not found")

    def _check_index(self) -> None:
        """The search index is of the memory as it is, and sound."""
        status: dict[str, Any] = {}

        def ready() -> bool:
            status.update(self._project.call("search_index_status"))
            return bool(status["ready"]) and status["build_state"] == "ready"

        wait_for(ready, "the index is ready")
        cache = ProjectStorage(Path(self._environment["CLUMSIES_HOME"]) / "cache")
        store = IndexStore(cache.location(LOCAL_AUTHORITY, self.project_id).search)
        try:
            problems = store.integrity_problems()
            with store.reader() as connection:
                head = read_head(connection)
        finally:
            store.close()
        if problems:
            raise Broken(f"the search index: {problems}")
        if head is None or head.effective_hash != status["effective_hash"]:
            raise Broken("the search index is of another memory")

    def _start_shared_anew(self) -> None:
        """Discard what was appended to shared memories, where it is long."""
        for memory in self.shared:
            if len(memory.marks) >= MARKS_OF_SHARED:
                self.ledger.acknowledged(self._project.store(discard={"id": memory.resource_id}))
                memory.marks.clear()

    def last_words(self) -> str:
        """The end of the daemon's log."""
        lines = (self._places.logs / "daemon.log").read_text("utf-8").splitlines()
        return "\n".join(lines[-20:])

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate(timeout=LONG_S)
        self._client.close()
        for client in self._clients:
            client.close()


def run(home: Path, kills: int, *, clients: int = 3, seed: int = 1, quiet: bool = True) -> Ledger:
    """The ledger after so many kills; raises Broken."""
    harness = Harness(home, clients=clients, seed=seed)
    began = time.monotonic()

    def report(kill: int) -> None:
        if quiet or (kill % 10 and kill != kills):
            return
        ledger = harness.ledger
        sys.stdout.write(
            f"{kill} kills in {time.monotonic() - began:.0f} s: "
            f"{len(ledger.operation_ids)} operations acknowledged, {ledger.unanswered} unanswered "
            f"(of which {ledger.carried_out} carried out), {ledger.conflicts} conflicts; "
            "nothing lost, nothing twice, sound\n"
        )
        sys.stdout.flush()

    try:
        harness.run(kills, report)
    except Exception as error:
        error.add_note(harness.last_words())
        raise
    return harness.ledger


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.daemon.kill_harness")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="clumsies-kill-") as place:
        run(Path(place), given.kills, clients=given.clients, seed=given.seed, quiet=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
