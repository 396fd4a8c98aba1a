"""Writing what an activation did into history, beside its answer and never in its way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from clumsies.daemon import messages as m
from clumsies.engine.pipeline import Answer
from clumsies.engine.trace import Trace
from clumsies.engine.units import title_of
from clumsies.errors import ClumsiesError
from clumsies.history.corpora import Corpus, CorpusEntry
from clumsies.history.recorder import Recording, RunRecorder, elapsed_us, error_stage
from clumsies.history.runs import Finished
from clumsies.memory.effective import EffectiveMemory
from clumsies.memory.effective_view import EffectiveView
from clumsies.storage.objects import MEMORY

ReadView = Callable[[str], EffectiveView]


@dataclass(frozen=True)
class ViewCorpus:
    """A view of Effective Memory as history keeps it; texts are read when they are asked for."""

    view: EffectiveView
    memory: EffectiveMemory

    @property
    def effective_hash(self) -> str:
        return self.view.effective_hash

    @cached_property
    def entries(self) -> tuple[CorpusEntry, ...]:
        return tuple(
            CorpusEntry(
                entry.resource_id,
                entry.scope,
                MEMORY,
                entry.path,
                entry.content_hash,
                entry.source_commit_id,
                entry.draft_id,
                entry.draft_revision,
                entry.description,
            )
            for _, entry in sorted(self.view.entries.items())
        )

    def read(self, resource_id: str) -> tuple[str, str]:
        [resource] = self.memory.resources(self.view, [resource_id])
        return title_of(resource), resource.content


class RecordedActivations:
    """Runs activations and hands each one's trace, or its error, to the recorder."""

    def __init__(self, recorder: RunRecorder, memory: EffectiveMemory):
        self._recorder = recorder
        self._memory = memory

    def activate(
        self,
        request: m.ActivateMemory,
        read_view: ReadView,
        ask: Callable[[EffectiveView], Answer],
    ) -> m.Activation:
        """The answer, with the id of its run where the run's row could be written."""
        recording = self._recorder.begin(request.project_id, request.query, request.state)
        started = time.perf_counter_ns()
        try:
            view = read_view(request.project_id)
            viewed_us = elapsed_us(started)
            answer = ask(view)
            response = msgspec.convert(msgspec.to_builtins(answer.response), m.Activation)
        except ClumsiesError as error:
            recording.failed(error_stage(error), error.code, error.message)
            raise
        except Exception:
            recording.failed("assembly", "internal_error", "An unforeseen error.")
            raise
        waited_us = elapsed_us(started) - viewed_us - answer.trace.times.total_us
        self._finish(recording, answer.trace, (view, read_view), (viewed_us, max(0, waited_us)))
        response.run_id = recording.run_id()
        return response

    def _finish(
        self,
        recording: Recording,
        trace: Trace,
        views: tuple[EffectiveView, ReadView],
        early_us: tuple[int, int],
    ) -> None:
        corpus = self._corpus(trace, views)
        recording.succeeded(Finished(trace, corpus, *early_us))

    def _corpus(self, trace: Trace, views: tuple[EffectiveView, ReadView]) -> Corpus | None:
        """The memory of the trace: the caller's view, else the one of now if that is it.

        The index may have been of a later memory than the view, never of an earlier one.
        """
        view, read_view = views
        for found in _views(view, read_view):
            if found.effective_hash == trace.effective_hash:
                return ViewCorpus(found, self._memory)
        return None


def _views(view: EffectiveView, read_view: ReadView) -> Iterable[EffectiveView]:
    yield view
    try:
        yield read_view(view.project_id)
    except ClumsiesError:  # the answer stands; the run is kept without a memory
        return
