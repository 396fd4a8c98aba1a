"""Effective Memory against a plain dict, and its caches against a reader that has none."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clumsies.engine.pipeline import Engine
from clumsies.errors import ClumsiesError, NotFound, NotReady, StoreFailed
from clumsies.memory.effective import EffectiveMemory
from clumsies.memory.effective_view import EffectiveView
from clumsies.memory.operations import encode_operation
from clumsies.storage.project_storage import LOCAL_AUTHORITY
from clumsies.types import Resource
from tests.engine.fake_models import ArithmeticModels
from tests.memory.local_memory import (
    LocalMemory,
    create,
    delete,
    discard,
    rename,
    replace_in,
    update,
)

TEXTS = {"a.md": "# A\n\nalpha\n", "b.md": "# B\n\nbeta\n", "c/d.md": "gamma"}


def test_a_view_without_drafts(memory: LocalMemory) -> None:
    report = memory.bring_in(TEXTS)
    view = memory.view()
    assert view.commit_id == report.commit_id
    assert memory.contents() == TEXTS
    first = next(memory.effective.resources(view))
    assert first == Resource(
        view.find("a.md").resource_id,  # type: ignore[union-attr]
        "a.md",
        TEXTS["a.md"],
        scope="org",
        source_commit_id=report.commit_id,
    )
    assert [r.resource_id for r in memory.effective.resources(view)] == sorted(view.entries)


def test_golden_effective_hash(memory: LocalMemory) -> None:
    memory.bring_in({"a.md": "hello"})
    memory.store(update(memory.id_of("a.md"), "hello again"), source="cli")
    assert memory.view().effective_hash == (
        "sha256:df95b727d6b28a04c4f9353bf24cbf5cdfecc9250c59c11eb7e661a41a118149"
    )


def test_a_store_builds_only_what_it_touched(memory: LocalMemory) -> None:
    memory.bring_in(TEXTS)
    memory.store(update(memory.id_of("b.md"), "drafted"), source="cli")
    before = memory.view()
    assert memory.view() is before
    memory.store(update(memory.id_of("a.md"), "drafted too"), source="cli")
    after = memory.view()
    [changed] = after.changes_since(before).changed
    assert changed == memory.id_of("a.md")
    for name in before.entries:
        assert (after.entries[name] is before.entries[name]) == (name != changed)


def test_a_draft_stays_on_its_base_while_everything_else_moves(memory: LocalMemory) -> None:
    memory.bring_in(TEXTS)
    memory.store(replace_in(memory.load("a.md"), "alpha", "drafted"))
    before = memory.view()
    memory.bring_in({"a.md": "upstream a", "b.md": "upstream b"})
    assert memory.contents() == {**TEXTS, "a.md": "# A\n\ndrafted\n", "b.md": "upstream b"}
    assert memory.view().changes_since(before).changed == (memory.id_of("b.md"),)
    memory.store(discard(memory.id_of("a.md")))
    assert memory.contents()["a.md"] == "upstream a"


def test_load(memory: LocalMemory) -> None:
    memory.bring_in(TEXTS)
    name = memory.id_of("a.md")
    found = memory.effective.load(memory.project_id, [name, "b.md", "a.md"])
    assert [resource.path for resource in found] == ["a.md", "b.md"]
    with pytest.raises(NotFound) as caught:
        memory.effective.load(memory.project_id, ["a.md", "x", "../../etc/passwd", "/etc/passwd"])
    assert caught.value.code == "memory_resource_not_found"
    assert caught.value.details == {"missing": ["x", "../../etc/passwd", "/etc/passwd"]}


def test_a_drafts_path_goes_before_an_installed_one(memory: LocalMemory) -> None:
    memory.store(create("a.md", "drafted"))
    memory.bring_in({"a.md": "installed"})
    assert memory.load("a.md").content == "drafted"
    assert len(memory.view().entries) == 2


def test_readiness(memory: LocalMemory) -> None:
    with pytest.raises(NotReady) as caught:
        memory.effective.view("proj_other")
    assert caught.value.code == "project_ref_not_synced"
    assert memory.effective.cache_state("proj_other").state == "project_ref_not_synced"
    report = memory.bring_in(TEXTS)
    view = memory.view()
    place = memory.storage.location(LOCAL_AUTHORITY, memory.project_id).generations
    marker = place / str(report.commit_id) / "commit-payload.json"
    good = marker.read_bytes()
    ready = memory.effective.cache_state(memory.project_id)
    assert (ready.state, ready.commit_id, ready.diagnostic) == ("ready", report.commit_id, None)
    assert ready.active_generation_path == str(marker.parent)
    marker.write_bytes(b"{}")
    with pytest.raises(StoreFailed) as damaged:
        memory.view()
    assert damaged.value.code == "commit_generation_corrupt"
    assert memory.effective.cache_state(memory.project_id).state == "generation_corrupt"
    marker.write_bytes(good)
    assert memory.view() is view
    shutil.rmtree(place)
    with pytest.raises(NotReady) as caught:
        memory.view()
    assert caught.value.code == "commit_generation_missing"
    gone = memory.effective.cache_state(memory.project_id)
    assert (gone.state, gone.active_generation_path) == ("generation_missing", None)
    assert gone.diagnostic is not None
    memory.authority.restore_generation(memory.project_id)
    assert memory.view() is view


def test_a_text_that_differs_from_its_hash_is_never_given(memory: LocalMemory) -> None:
    memory.bring_in(TEXTS)
    with memory.database.writer() as connection:
        connection.execute("UPDATE cached_blobs SET content = 'forged' WHERE content LIKE '%beta%'")
    with pytest.raises(StoreFailed) as caught:
        memory.contents()
    assert caught.value.code == "object_corrupt"


def test_a_missing_blob_is_said(memory: LocalMemory) -> None:
    memory.bring_in(TEXTS)
    with memory.database.writer() as connection:
        connection.execute("DELETE FROM cached_blobs WHERE content LIKE '%beta%'")
    with pytest.raises(StoreFailed) as caught:
        memory.view()
    assert caught.value.code == "object_corrupt"


def test_a_rolled_back_store_leaves_no_trace_in_the_caches(memory: LocalMemory) -> None:
    memory.bring_in(TEXTS)
    before = memory.view()
    with pytest.raises(ZeroDivisionError), memory.database.writer() as connection:
        store_half_way(memory, connection)
    assert memory.contents() == TEXTS
    memory.store(create("y.md", "y"))
    assert memory.contents() == {**TEXTS, "y.md": "y"}
    assert len(memory.view().changes_since(before).changed) == 1


def store_half_way(memory: LocalMemory, connection: apsw.Connection) -> None:
    """Add a draft, look at the memory with it, and fail."""
    connection.execute(
        "INSERT INTO local_drafts(draft_id, project_id, resource_scope, resource_kind, path, "
        "created_at, updated_at) VALUES ('d', ?, 'org', 'memory', 'x.md', '', '')",
        (memory.project_id,),
    )
    connection.execute(
        "INSERT INTO local_draft_operations(local_operation_id, draft_id, resource_kind, "
        "operation_json, source, created_at, updated_at) VALUES ('op_x', 'd', 'memory', "
        "?, 'cli', '', '')",
        (encode_operation(create("x.md", "x")).decode(),),
    )
    seen = memory.effective.view_in(connection, memory.project_id)
    assert seen.find("x.md") is not None
    raise ZeroDivisionError


def test_the_engine_follows_by_changes_alone(memory: LocalMemory, tmp_path: Path) -> None:
    memory.bring_in(TEXTS)
    models = ArithmeticModels()
    with Engine.open(
        tmp_path / "index", models=models.runtime, project_id=memory.project_id
    ) as engine:
        view: EffectiveView | None = None
        for step in range(5):
            if step == 1:
                memory.store(create("n.md", "# New\n\nwords"))
            elif step == 2:
                memory.store(replace_in(memory.load("a.md"), "alpha", "omega"))
            elif step == 3:
                memory.store(delete(memory.id_of("b.md")))
                memory.store(rename(memory.id_of("c/d.md"), "e.md"))
            elif step == 4:
                memory.bring_in({"a.md": "upstream", "z.md": "more"})
            now = memory.view()
            changes = now.changes_since(view)
            changed = list(memory.effective.resources(now, changes.changed))
            report = engine.update(changed, changes.removed, base_commit_id=now.commit_id)
            assert report.effective_hash == now.effective_hash
            assert report.resources == len(now.entries)
            view = now
    models.close()


class Memory(RuleBasedStateMachine):
    """Any mixture of imports and stores, beside a dict of what each memory is.

    The model: `installed` by id, and one overlay a draft: None where it deletes.
    """

    @initialize()
    def begin(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.memory = LocalMemory(Path(self.place.name))
        self.installed: dict[str, tuple[str, str]] = {}
        self.drafted: dict[str, tuple[str, str] | None] = {}
        self.drafts: dict[str, str] = {}
        self.views: list[EffectiveView] = []
        self.number = 0

    def expected(self) -> dict[str, tuple[str, str]]:
        kept = {n: v for n, v in self.installed.items() if n not in self.drafted}
        return kept | {n: v for n, v in self.drafted.items() if v is not None}

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.expected())))

    def fresh(self) -> str:
        self.number += 1
        return f"{self.number}"

    @rule(data=st.data())
    def import_one(self, data: st.DataObject) -> None:
        paths = {path: name for name, (path, _) in self.installed.items()}
        path = data.draw(st.sampled_from([*sorted(paths), f"i{self.fresh()}.md"]))
        text = f"imported {self.fresh()}"
        self.memory.bring_in({path: text})
        if path not in paths:
            with self.memory.database.reader() as connection:
                view = self.memory.effective.view_in(connection, self.memory.project_id)
            [paths[path]] = [e.resource_id for e in view.entries.values() if e.path == path]
        self.installed[paths[path]] = (path, text)

    @rule()
    def create(self) -> None:
        path, text = f"n{self.fresh()}.md", f"created {self.fresh()}"
        receipt = self.memory.store(create(path, text))
        self.drafted[receipt.draft_id] = (path, text)
        self.drafts[receipt.draft_id] = receipt.draft_id

    @precondition(lambda self: self.expected())
    @rule(data=st.data(), moves=st.booleans())
    def edit(self, data: st.DataObject, moves: bool) -> None:
        name = self.pick(data)
        path, text = self.expected()[name]
        if moves:
            path = f"m{self.fresh()}.md"
            receipt = self.memory.store(rename(name, path))
        else:
            text = f"edited {self.fresh()}"
            receipt = self.memory.store(update(name, text), source="cli")
        self.drafted[name] = (path, text)
        assert self.drafts.setdefault(name, receipt.draft_id) == receipt.draft_id

    @precondition(lambda self: self.expected())
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        name = self.pick(data)
        receipt = self.memory.store(delete(name))
        if receipt.draft_id == name:
            del self.drafted[name], self.drafts[name]
        else:
            self.drafted[name] = None
            self.drafts[name] = receipt.draft_id

    @precondition(lambda self: self.drafts)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.drafts)))
        self.memory.store(discard(self.drafts.pop(name)))
        del self.drafted[name]

    @invariant()
    def the_view_is_the_models(self) -> None:
        memory = self.memory
        view = memory.view()
        found = {
            r.resource_id: (r.path, r.content, r.draft_id) for r in memory.effective.resources(view)
        }
        assert found == {
            name: (*value, self.drafts.get(name)) for name, value in self.expected().items()
        }
        uncached = EffectiveMemory(memory.database, memory.storage, lambda _: LOCAL_AUTHORITY)
        again = uncached.view(memory.project_id)
        assert again.effective_hash == view.effective_hash
        for earlier in [None, *self.views[-2:]]:
            changes = view.changes_since(earlier)
            facts = {n: e.facts for n, e in (earlier.entries if earlier else {}).items()}
            for name in changes.removed:
                del facts[name]
            facts |= {name: view.entries[name].facts for name in changes.changed}
            assert facts == {name: entry.facts for name, entry in view.entries.items()}
        self.views.append(view)

    def teardown(self) -> None:
        self.memory.close()
        self.place.cleanup()


TestMemory = Memory.TestCase
TestMemory.settings = settings(max_examples=6, stateful_step_count=12)


def test_errors_of_a_view_are_ours(memory: LocalMemory) -> None:
    with pytest.raises(ClumsiesError):
        memory.effective.view("../../etc")
