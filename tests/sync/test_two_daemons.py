"""Two machines of one person and a Server, at random: nothing stored is lost, nothing is doubled.

Every text that is stored is a word never used before. A word is *kept* once the store returned:
from then on it is in exactly one operation here that the Server has not confirmed, or in exactly
one of the Server's, or in a draft that was rebased into a later text. At the end, with every fault
gone, both machines show the same memory, and nothing waits or has failed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from clumsies.api.drafts import Draft
from clumsies.errors import ClumsiesError
from clumsies.memory.operations import StoreOperation
from clumsies.sync.reviews import Reviews
from tests.effort import at_least
from tests.memory.local_memory import create, delete, discard, rename, update
from tests.server.memories import put
from tests.sync.fault_server import Break, Fault, broken, html, status
from tests.sync.homes import Clock, Home, TestServer

PATHS = [f"{folder}{name}.md" for folder in ("", "x/") for name in "abc"]
FAULTS = [
    *(broken(how, after=after) for how in (Break.RESET, Break.STALL) for after in (False, True)),
    broken(Break.CUT, after=True),
    *(status(code, after=after) for code in (429, 503, 401) for after in (False, True)),
    html(),
    html(after=True),
]
MACHINES = st.sampled_from([0, 1])


class TwoDaemons(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.server = TestServer(self.directory / "server", Clock())
        self.homes = [Home(self.directory / name, self.server) for name in ("one", "two")]
        self.words = 0
        self.kept: Counter[str] = Counter()
        self.reviews: list[str] = []

    @initialize()
    def begin(self) -> None:
        self.server.publish(put("a.md", self.word()), put("x/b.md", self.word()))
        for home in self.homes:
            home.run()

    def word(self) -> str:
        """Three lines that were never there before, so that edits can meet without a conflict."""
        self.words += 1
        return f"word {self.words}\n"

    def stored(self, home: Home, op: StoreOperation) -> None:
        """Store; what cannot be stored here and now is refused and changes nothing."""
        before = self.waiting(home)
        refusal = refusal_of(home, op)
        if refusal is not None:
            assert refusal in REFUSALS
            assert self.waiting(home) == before
            return
        part = op.create or op.update
        if part is not None:
            assert part.content is not None
            self.kept[part.content.content] += 1

    @staticmethod
    def waiting(home: Home) -> list[str]:
        """The texts of operations here that the Server has not confirmed."""
        return [
            str(row[0])
            for row in home.rows(
                "SELECT coalesce(json_extract(operation_json, '$.create.content.content'), "
                "json_extract(operation_json, '$.update.content.content')) "
                "FROM local_draft_operations WHERE sync_status <> 'synced' "
                "AND json_extract(operation_json, '$.discard') IS NULL "
                "AND json_extract(operation_json, '$.delete') IS NULL "
                "AND json_extract(operation_json, '$.rename') IS NULL"
            )
        ]

    def some(self, home: Home, pick: int) -> str | None:
        """The id of one of the memories that this machine shows."""
        names = sorted(home.effective.view("proj_alpha").entries)
        return names[pick % len(names)] if names else None

    @rule(machine=MACHINES, path=st.sampled_from(PATHS))
    def creates(self, machine: int, path: str) -> None:
        self.stored(self.homes[machine], create(path, self.word()))

    @rule(machine=MACHINES, pick=st.integers(0, 7))
    def updates(self, machine: int, pick: int) -> None:
        home = self.homes[machine]
        if (name := self.some(home, pick)) is not None:
            self.stored(home, update(name, self.word()))

    @rule(machine=MACHINES, pick=st.integers(0, 7), path=st.sampled_from(PATHS))
    def renames(self, machine: int, pick: int, path: str) -> None:
        home = self.homes[machine]
        if (name := self.some(home, pick)) is not None:
            self.stored(home, rename(name, path))

    @rule(machine=MACHINES, pick=st.integers(0, 7))
    def deletes(self, machine: int, pick: int) -> None:
        home = self.homes[machine]
        if (name := self.some(home, pick)) is not None:
            self.stored(home, delete(name))

    @rule(machine=MACHINES, pick=st.integers(0, 7))
    def discards(self, machine: int, pick: int) -> None:
        home = self.homes[machine]
        active = [d.draft.draft_id for d in home.all_drafts() if d.draft.is_active]
        if active:
            self.stored(home, discard(active[pick % len(active)]))

    @rule(machine=MACHINES, tick=st.booleans())
    def syncs(self, machine: int, tick: bool) -> None:
        with suppress(ClumsiesError):
            self.homes[machine].sync.run_once(tick=tick)

    @rule(machine=MACHINES, fault=st.sampled_from(FAULTS), times=st.integers(1, 3))
    def next_requests_fail(self, machine: int, fault: Fault, times: int) -> None:
        self.homes[machine].script.plan(fault, times=times)

    @rule(machine=MACHINES, fault=st.sampled_from(FAULTS))
    def next_change_fails(self, machine: int, fault: Fault) -> None:
        self.homes[machine].script.plan(fault, method="POST")

    @rule(machine=MACHINES)
    def is_cut_off(self, machine: int) -> None:
        self.homes[machine].script.plan(broken(Break.RESET), times=1_000)

    @rule(machine=MACHINES)
    def is_back(self, machine: int) -> None:
        self.homes[machine].script.clear()

    @rule(machine=MACHINES)
    def restarts(self, machine: int) -> None:
        self.homes[machine].restart()

    @rule(machine=MACHINES)
    def retries(self, machine: int) -> None:
        self.homes[machine].sync.retry()

    def open_drafts(self, wanted: str) -> list[Draft]:
        return [d.draft for d in self.server.drafts() if d.draft.status == wanted and d.operations]

    @rule(pick=st.integers(0, 7), count=st.integers(1, 3))
    def submits(self, pick: int, count: int) -> None:
        drafts = self.open_drafts("open")
        chosen = [drafts[(pick + n) % len(drafts)].draft_id for n in range(count)] if drafts else []
        with suppress(ClumsiesError):
            self.reviews.append(self.server.submit(*dict.fromkeys(chosen)))

    @precondition(lambda self: self.reviews)
    @rule(pick=st.integers(0, 7))
    def merges(self, pick: int) -> None:
        with suppress(ClumsiesError):
            self.server.merge(self.reviews[pick % len(self.reviews)])

    @rule(pick=st.integers(0, 7))
    def rebases(self, pick: int) -> None:
        """Of a draft that is behind, with conflicts decided for the draft."""
        drafts = self.open_drafts("open") + self.open_drafts("submitted")
        behind = [draft for draft in drafts if draft.coordination.freshness == "behind"]
        if not behind:
            return
        with self.server.client("ann") as client, suppress(ClumsiesError):
            reviews = Reviews(client)
            candidate = reviews.candidate(behind[pick % len(behind)])
            if candidate is not None and candidate.status == "clean":
                reviews.rebase(candidate)

    @rule(path=st.sampled_from(PATHS[:4]))
    def team_publishes(self, path: str) -> None:
        if not any(known.lower() == path for known in self.server.memory):
            return
        with suppress(ClumsiesError):
            self.server.publish(put(path, self.word()))

    @invariant()
    def every_machine_shows_its_memory(self) -> None:
        for home in self.homes:
            home.effective.view("proj_alpha")

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        waiting = Counter(self.waiting(self.homes[0])) + Counter(self.waiting(self.homes[1]))
        there = Counter(self.server.texts())
        history = self.server.taken()
        for word, count in self.kept.items():
            assert count == 1
            assert there[word] <= 1, f"{word!r} was taken twice"
            assert waiting[word] <= 1, f"{word!r} waits twice"
            assert waiting[word] or history[word], f"{word!r} is lost"

    def teardown(self) -> None:
        try:
            self.heal()
        finally:
            for home in self.homes:
                home.close()
            self.server.close()
            shutil.rmtree(self.directory)

    def heal(self) -> None:
        """No more faults, and as many cycles as it takes: everything arrives everywhere."""
        for home in self.homes:
            home.script.clear()
            home.sync.retry()
        for _ in range(4):
            for home in self.homes:
                home.run()
        self.nothing_is_lost_or_doubled()
        shown = [self.shown(home) for home in self.homes]
        assert shown[0] == shown[1]
        history = self.server.taken()
        for home in self.homes:
            assert home.database.problems() == []
            assert home.sync.status().pending_operation_count == 0
            assert self.waiting(home) == []
        assert all(history[word] for word in self.kept)

    @staticmethod
    def shown(home: Home) -> list[tuple[str, str, str]]:
        view = home.effective.view("proj_alpha")
        return sorted(
            (resource.resource_id, resource.path, resource.content)
            for resource in home.effective.resources(view)
        )


def refusal_of(home: Home, op: StoreOperation) -> str | None:
    """The code with which a store is refused; None where it is done."""
    try:
        home.store(op)
    except ClumsiesError as error:
        return error.code
    return None


REFUSALS = {
    "draft_conflict",
    "invalid_request",
    "memory_resource_not_found",
    "not_found",
    "project_ref_not_synced",
}
TestTwoDaemons = TwoDaemons.TestCase
TestTwoDaemons.settings = settings(
    max_examples=at_least(12),
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
