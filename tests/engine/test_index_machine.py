"""Any sequence of changes leaves what a build from scratch would have made, and answers like it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from clumsies.engine import commit
from clumsies.engine.pipeline import Engine
from clumsies.types import Resource, ResourceId
from tests.engine.contents import contents, ranked
from tests.engine.fake_models import ArithmeticModels, open_engine

PARAGRAPHS = [
    "The courier app retries an upload for two hours.",
    "POL-358 says that parcels are kept for seven days. " * 12,
    "部署失败时先回滚，再重跑gen-itgc。",
    "- one\n- two\n- three",
    "```\n# not a heading\nretry_budget = 3\n```",
    "zebra zebra zebra",
    "depot " * 200,
]
HEADINGS = ["# Rules", "# Rules", "## Retry policy", "## 部署", "### Notes", "#"]
QUERIES = ["how long are parcels kept?", "retry policy", "部署失败", "notes/n1.md", "zebra depot"]

NAMES = st.sampled_from(["n1", "n2", "n3", "n4"])
BODIES = st.lists(st.sampled_from([*HEADINGS, *PARAGRAPHS]), max_size=8).map("\n\n".join)
MODELS = ArithmeticModels()


def teardown_module() -> None:
    MODELS.close()


class ChangingMemory(RuleBasedStateMachine):
    """`wanted` is the memory as it should be; the engine holds the index under test."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.wanted: dict[str, Resource] = {}
        self.builds = 0

    @initialize()
    def open(self) -> None:
        self.engine = open_engine(self.root / "index", MODELS)
        self.engine.index([])

    @rule(name=NAMES, body=BODIES, folder=st.sampled_from(["notes", "rules"]))
    def write(self, name: str, body: str, folder: str) -> None:
        self._update(Resource(ResourceId(name), f"{folder}/{name}.md", body))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data(), body=BODIES)
    def extend(self, data: st.DataObject, body: str) -> None:
        old = self._any(data)
        self._update(replace(old, content=f"{old.content}\n\n{body}"))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data())
    def shorten(self, data: st.DataObject) -> None:
        old = self._any(data)
        self._update(replace(old, content=old.content[: len(old.content) // 2]))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data(), text=st.sampled_from(["", "what zebras do", "部署说明"]))
    def describe(self, data: st.DataObject, text: str) -> None:
        self._update(replace(self._any(data), description=text))

    @precondition(lambda self: self.wanted)
    @rule(data=st.data(), path=st.sampled_from(["notes/moved.md", "a/very/deep/path.md"]))
    def rename(self, data: st.DataObject, path: str) -> None:
        self._update(replace(self._any(data), path=path))

    @precondition(lambda self: len(self.wanted) > 1)
    @rule(data=st.data())
    def copy_text(self, data: st.DataObject) -> None:
        source, target = self._any(data), self._any(data)
        self._update(replace(target, content=source.content))

    @rule(names=st.lists(NAMES, max_size=2))
    def remove(self, names: list[str]) -> None:
        self.engine.update(removed=names)
        for name in names:
            self.wanted.pop(name, None)

    @rule(names=st.lists(NAMES, unique=True), body=BODIES)
    def replace_all(self, names: list[str], body: str) -> None:
        kept = {name: self.wanted[name] for name in names if name in self.wanted}
        kept["n5"] = Resource(ResourceId("n5"), "notes/n5.md", body)
        self.wanted = kept
        self.engine.index(reversed(kept.values()))

    @rule()
    def reopen(self) -> None:
        self.engine.close()
        self.engine = open_engine(self.root / "index", MODELS)

    @rule(query=st.sampled_from(QUERIES))
    def ask(self, query: str) -> None:
        """Loads the vectors, so that later changes are followed in memory."""
        self.engine.activate(query)

    @rule()
    def compare(self) -> None:
        self.builds += 1
        with open_engine(self.root / f"scratch{self.builds}", MODELS) as scratch:
            scratch.index(self.wanted[name] for name in sorted(self.wanted))
            for query in QUERIES:
                assert ranked(self.engine.activate(query)) == ranked(scratch.activate(query))
        assert contents(self.root / "index") == contents(self.root / f"scratch{self.builds}")

    @invariant()
    def sound(self) -> None:
        assert self.engine.verify() == []

    def teardown(self) -> None:
        try:
            self.compare()
        finally:
            self.engine.close()
            shutil.rmtree(self.root)

    def _any(self, data: st.DataObject) -> Resource:
        return self.wanted[data.draw(st.sampled_from(sorted(self.wanted)))]

    def _update(self, resource: Resource) -> None:
        self.engine.update([resource])
        self.wanted[resource.resource_id] = resource


TestChangingMemory = ChangingMemory.TestCase
TestChangingMemory.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


def test_changes_with_next_to_no_room_for_idle_vectors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every vector that goes idle is dropped at once: none may be dropped that is in use."""
    monkeypatch.setattr(commit, "IDLE_VECTOR_LIMIT", 0)
    monkeypatch.setattr(commit, "TOKEN_VECTOR_BYTES", 0)
    engine: Engine = open_engine(tmp_path / "index", MODELS)
    resources: dict[str, Resource] = {}
    for step in range(24):
        name = f"n{step % 5}"
        body = "\n\n".join(
            HEADINGS[(step + i) % 6] + "\n\n" + PARAGRAPHS[(step * i) % 7] for i in range(4)
        )
        resources[name] = Resource(ResourceId(name), f"notes/{step % 3}/{name}.md", body)
        engine.update([resources[name]])
        assert engine.verify() == []
    with open_engine(tmp_path / "scratch", MODELS) as scratch:
        scratch.index(resources.values())
        for query in QUERIES:
            assert ranked(engine.activate(query)) == ranked(scratch.activate(query))
    assert contents(tmp_path / "index") == contents(tmp_path / "scratch")
    engine.close()
