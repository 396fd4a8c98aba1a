"""Activations in this process, recorded: what fails is kept, and no failure of history is felt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from clumsies.daemon import messages as m
from clumsies.daemon.activation_history import RecordedActivations
from clumsies.engine.pipeline import Answer, Engine
from clumsies.errors import NotReady
from clumsies.history.recorder import RunRecorder
from clumsies.history.records import RunDetail
from clumsies.history.runs import RunStore
from clumsies.logs import EventLog, LogFile
from clumsies.memory.effective_view import EffectiveView
from tests.engine.fake_models import ArithmeticModels
from tests.memory.local_memory import LocalMemory, create

TEXTS = {"a.md": "# Deploy\n\nRoll back with shipctl undo.\n", "b.md": "# Lunch\n\nSoup.\n"}
QUERY = "roll back the zanzibar release"
LONG_S = 60.0


class Activations:
    """A memory, its index and a recorder, without a daemon."""

    def __init__(self, directory: Path, models: ArithmeticModels):
        self.memory = LocalMemory(directory / "memory")
        self.memory.bring_in(TEXTS)
        self.engine = Engine.open(
            directory / "index", models=models, project_id=self.memory.project_id
        )
        self.index()
        self.file = directory / "daemon.log"
        self._log = LogFile(self.file)
        self.runs = RunStore(self.memory.database)
        self.recorder = RunRecorder(self.runs, EventLog(self._log))
        self.recorder.start()
        self.recorded = RecordedActivations(self.recorder, self.memory.effective)
        self.deadline_s = LONG_S

    def index(self) -> None:
        view = self.memory.view()
        resources = self.memory.effective.resources(view)
        self.engine.index(resources, base_commit_id=view.commit_id)

    def ask(self, _view: EffectiveView) -> Answer:
        return self.engine.activate(QUERY, deadline_s=self.deadline_s)

    def activate(self) -> m.Activation:
        request = m.ActivateMemory(project_id=self.memory.project_id, query=QUERY)
        return self.recorded.activate(request, self.memory.effective.view, self.ask)

    def only_run(self) -> RunDetail:
        assert self.recorder.flush(LONG_S)
        [run] = self.runs.page(self.memory.project_id).runs
        return self.runs.get(run.run_id)

    def close(self) -> None:
        self.recorder.close(LONG_S)
        self.engine.close()
        self.memory.close()
        self._log.close()


@pytest.fixture
def activations(tmp_path: Path) -> Iterator[Activations]:
    models = ArithmeticModels()
    made = Activations(tmp_path, models)
    yield made
    made.close()
    models.close()


def test_the_manifest_is_the_searched_view(activations: Activations) -> None:
    run_id = activations.activate().run_id
    detail = activations.only_run()
    view = activations.memory.view()
    assert detail.run.run_id == run_id
    assert detail.run.effective_hash == view.effective_hash
    rows = [(r.resource_id, r.path, r.content_hash) for r in detail.resources]
    assert rows == [
        (e.resource_id, e.path, e.content_hash) for _, e in sorted(view.entries.items())
    ]
    assert {r.title for r in detail.resources} == {"Deploy", "Lunch"}


def test_a_deadline_is_a_failed_run_that_names_its_stage(activations: Activations) -> None:
    activations.deadline_s = 1e-9
    with pytest.raises(NotReady):
        activations.activate()
    run = activations.only_run().run
    assert (run.status, run.error_code) == ("failed", "activation_deadline")
    assert run.error_stage in {"bm25", "embedding"}
    assert not activations.runs.blobs.root.exists()


def test_an_unforeseen_error_is_a_failed_run_too(activations: Activations) -> None:
    def broken(_view: EffectiveView) -> Answer:
        raise RuntimeError(QUERY)

    request = m.ActivateMemory(project_id=activations.memory.project_id, query=QUERY)
    with pytest.raises(RuntimeError):
        activations.recorded.activate(request, activations.memory.effective.view, broken)
    run = activations.only_run().run
    assert (run.error_code, run.error_summary) == ("internal_error", "An unforeseen error.")


def test_an_answer_of_a_later_memory_is_kept_with_that_memory(activations: Activations) -> None:
    """A store and its build came between the view and the question."""

    def store_first(_view: EffectiveView) -> Answer:
        activations.memory.store(create("new.md", "# New\n\nRoll back the zanzibar release.\n"))
        activations.index()
        return activations.engine.activate(QUERY)

    request = m.ActivateMemory(project_id=activations.memory.project_id, query=QUERY)
    activations.recorded.activate(request, activations.memory.effective.view, store_first)
    detail = activations.only_run()
    assert "new.md" in {resource.path for resource in detail.resources}
    assert detail.run.resource_count == len(detail.resources)


def test_a_memory_that_has_moved_on_is_not_made_up(activations: Activations) -> None:
    """The index is of a memory that is neither the view's nor the one of now."""

    def store_after(_view: EffectiveView) -> Answer:
        activations.memory.store(create("new.md", "# New\n\nText.\n"))
        activations.index()
        answer = activations.engine.activate(QUERY)
        activations.memory.store(create("newer.md", "# Newer\n\nText.\n"))
        return answer

    request = m.ActivateMemory(project_id=activations.memory.project_id, query=QUERY)
    activations.recorded.activate(request, activations.memory.effective.view, store_after)
    detail = activations.only_run()
    assert detail.run.status == "succeeded"
    assert detail.resources == ()
    assert len(detail.candidates) > 0


def test_history_that_cannot_be_written_is_not_felt(activations: Activations) -> None:
    assert activations.recorder.flush(LONG_S)
    database = activations.memory.database
    with database._writer_mutex:
        database._writer.pragma("query_only", True)
    answer = activations.activate()
    assert activations.recorder.flush(LONG_S)
    with database._writer_mutex:
        database._writer.pragma("query_only", False)
    assert answer.run_id is None
    assert answer.fragments
    assert activations.runs.page(activations.memory.project_id).runs == ()
    text = activations.file.read_text("utf-8")
    assert "permission_required" in text
    assert "zanzibar" not in text
