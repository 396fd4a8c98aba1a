"""Two machines of one person and a Server, at random: nothing stored is lost, nothing is doubled.

Every text that is stored is a word never used before. A word is *kept* once the store returned:
from then on it is in an operation here that the Server has not confirmed, or was taken by the
Server, once, unless its draft was given up here. At the end, with every fault
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
    rule,
)

from clumsies.api.drafts import Draft, ResourceState
from clumsies.errors import ClumsiesError
from clumsies.memory.drafts import StoreReceipt
from clumsies.memory.operations import StoreOperation
from clumsies.sync.reviews import Reviews
from tests.memory.local_memory import create, delete, discard, rename, update
from tests.server.memories import put
from tests.sync.fault_server import Break, broken, html, status
from tests.sync.homes import Clock, Home, TestServer, said

PATHS = ["a.md", "b.md", "x/a.md", "x/b.md"]
FAULTS = [
    *(broken(how, after=after) for how in (Break.RESET, Break.STALL) for after in (False, True)),
    broken(Break.CUT, after=True),
    *(status(code, after=after) for code in (429, 503, 401) for after in (False, True)),
    html(),
    html(after=True),
]
NUMBERS = st.integers(0, 7)
ACTIONS = [
    *["create", "rename", "delete", "discard"],
    *["update"] * 4,
    *["sync"] * 6,
    *["sync with a fault"] * 4,
    *["review", "publish"],
    *["merge"] * 2,
    *["is cut off", "is back", "is back", "restart", "retry"],
]


class TwoDaemons(RuleBasedStateMachine):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.server = TestServer(self.directory / "server", Clock())
        self.homes = [Home(self.directory / name, self.server) for name in ("one", "two")]
        self.words = 0
        self.kept: Counter[str] = Counter()
        self.given_up: set[str] = set()
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
        """Store; what cannot be stored here and now is refused and changes nothing.

        What a person gives up with a draft need not arrive any more.
        """
        before = self.waiting(home)
        receipt = stored_or_refused(home, op)
        if isinstance(receipt, str):
            assert receipt in REFUSALS
            assert self.waiting(home) == before
            return
        draft = home.draft(receipt.draft_id)
        words = [said(operation.op) for operation in draft.operations]
        if draft.draft.status == "discarded":
            self.given_up.update(words)
        elif op.create or op.update:
            self.kept[words[-1]] += 1

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

    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        """One thing that happens. (Of several rules, a run would be given only some.)"""
        home = self.homes[data.draw(st.integers(0, 1), "machine")]
        pick, path = data.draw(NUMBERS, "pick"), data.draw(st.sampled_from(PATHS), "path")
        action = data.draw(st.sampled_from(ACTIONS), "action")
        if action in ("create", "update", "rename", "delete"):
            self.store(home, action, pick, path)
        elif action == "discard":
            self.discard(home, pick)
        elif action == "sync":
            self.sync(home, tick=pick > 0)
        elif action == "sync with a fault":
            fault = data.draw(st.sampled_from(FAULTS), "fault")
            method = data.draw(st.sampled_from(["POST", "DELETE", "GET", None]), "method")
            home.script.plan(fault, method=method, times=1 + pick % 3)
            self.sync(home)
        elif action in ("review", "merge"):
            self.review(pick, merges=action == "merge")
        elif action == "publish":
            self.publish(path, pick)
        else:
            self.happen(home, action)

    def store(self, home: Home, action: str, pick: int, path: str) -> None:
        names = sorted(home.effective.view("proj_alpha").entries)
        name = names[pick % len(names)] if names else None
        if action == "create" or name is None:
            self.stored(home, create(path, self.word()))
        elif action == "update":
            self.stored(home, update(name, self.word()))
        else:
            self.stored(home, rename(name, path) if action == "rename" else delete(name))

    def discard(self, home: Home, pick: int) -> None:
        active = [d.draft.draft_id for d in home.all_drafts() if d.draft.is_active]
        if active:
            self.stored(home, discard(active[pick % len(active)]))

    @staticmethod
    def sync(home: Home, *, tick: bool = True) -> None:
        with suppress(ClumsiesError):
            home.sync.run_once(tick=tick)

    @staticmethod
    def happen(home: Home, action: str) -> None:
        """To a machine and its network."""
        if action == "is cut off":
            home.script.plan(broken(Break.RESET), times=1_000)
        elif action == "is back":
            home.script.clear()
        elif action == "restart":
            home.restart()
        else:
            home.sync.retry()

    def drafts_there(self, *statuses: str) -> list[Draft]:
        found = [detail.draft for detail in self.server.drafts() if detail.operations]
        return [draft for draft in found if draft.status in statuses]

    def review(self, pick: int, *, merges: bool) -> None:
        """Some drafts are submitted as one; one that was submitted before, or these, is merged."""
        drafts = self.drafts_there("open")
        chosen = [drafts[(pick + n) % len(drafts)].draft_id for n in range(1 + pick % 3) if drafts]
        with suppress(ClumsiesError):
            if chosen:
                self.reviews.append(self.server.submit(*dict.fromkeys(chosen)))
        with suppress(ClumsiesError):
            if merges and self.reviews:
                self.server.merge(self.reviews[-1 - pick % min(2, len(self.reviews))])

    def publish(self, path: str, pick: int) -> None:
        """The team changes a memory, and a draft that fell behind is rebased."""
        known = [name for name in (path, "a.md") if name in self.server.memory]
        if known:
            with suppress(ClumsiesError):
                self.server.publish(put(known[0], self.word()))
        drafts = self.drafts_there("open", "submitted")
        behind = [draft for draft in drafts if draft.coordination.freshness == "behind"]
        if behind:
            self.rebase(behind[pick % len(behind)], gives_up=pick == 0)

    def rebase(self, draft: Draft, *, gives_up: bool) -> None:
        """Conflicts are decided for a new text, or for there being no memory."""
        with self.server.client("ann") as client, suppress(ClumsiesError):
            reviews = Reviews(client)
            candidate = reviews.candidate(draft)
            resolved = None
            if candidate is not None and candidate.status == "conflicts":
                path = f"decided/{self.words}.md"
                resolved = ResourceState(exists=True, path=path, content=self.word())
                if gives_up:
                    resolved = ResourceState(exists=False)
            if candidate is not None:
                reviews.rebase(candidate, resolved)

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
            is_here = waiting[word] or history[word] or word in self.given_up
            assert is_here, f"{word!r} is lost"

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
        assert all(history[word] for word in self.kept if word not in self.given_up)

    @staticmethod
    def shown(home: Home) -> list[tuple[str, str, str]]:
        view = home.effective.view("proj_alpha")
        return sorted(
            (resource.resource_id, resource.path, resource.content)
            for resource in home.effective.resources(view)
        )


def stored_or_refused(home: Home, op: StoreOperation) -> StoreReceipt | str:
    """The receipt, or the code with which the store is refused."""
    try:
        return home.store(op)
    except ClumsiesError as error:
        return error.code


REFUSALS = {
    "draft_conflict",
    "invalid_request",
    "memory_resource_not_found",
    "not_found",
    "project_ref_not_synced",
}
TestTwoDaemons = TwoDaemons.TestCase
TestTwoDaemons.settings = settings(
    max_examples=settings().max_examples // 2,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
