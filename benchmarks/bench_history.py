"""What recording an activation costs, against a warm activation of the compact profile.

Each round measures an activation, what its answer waits for (`in_the_way`, wall time: handing over
the begin and the end, and the run's id) and what the recorder's thread spends (`beside`, processor
time of both writes against that of the activation), so that a machine that is busy for a while is
busy for all. Both ratios have to stay under 0.05. `first_memory` is the first run of a memory, all
of whose bodies are written; `changed_memory` the first after one resource of it changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks.conftest import Indexes
from benchmarks.synthetic import read_memory, sample_directory
from clumsies.engine.pipeline import Engine
from clumsies.engine.trace import Trace
from clumsies.engine.units import title_of
from clumsies.history.corpora import CorpusEntry
from clumsies.history.recorder import RunRecorder
from clumsies.history.runs import Activation, Finished, RunStore
from clumsies.logs import EventLog, LogFile
from clumsies.models.runtime import ModelRuntime
from clumsies.storage.local_database import LocalDatabase
from clumsies.types import Resource

_CUES = (
    "two couriers were offline and their phones disagree about one parcel",
    "how do we roll back a release",
    "who is on call this week and how are they told",
    "what has to be in a postmortem",
)
_WAIT_S = 60.0


@dataclass(frozen=True)
class ResourceCorpus:
    """Resources as a searched memory."""

    effective_hash: str
    resources: dict[str, Resource]

    @property
    def entries(self) -> list[CorpusEntry]:
        return [
            CorpusEntry(key, r.scope, r.kind, r.path, r.content_hash)
            for key, r in sorted(self.resources.items())
        ]

    def read(self, resource_id: str) -> tuple[str, str]:
        resource = self.resources[resource_id]
        return title_of(resource), resource.content


class TimedRuns(RunStore):
    """Notes the processor time of its own thread for each write."""

    def __init__(self, database: LocalDatabase):
        super().__init__(database)
        self.spent: dict[str, list[float]] = {"begin": [], "finish": []}

    def begin(self, activation: Activation) -> None:
        started = time.thread_time()
        super().begin(activation)
        self.spent["begin"].append(time.thread_time() - started)

    def finish(
        self, run_id: str, finished: Finished, between: Callable[[], None] = lambda: None
    ) -> None:
        started = time.thread_time()
        super().finish(run_id, finished, between)
        self.spent["finish"].append(time.thread_time() - started)


@dataclass
class Recorded:
    """A recorder in a directory of its own, and what activations and answers took, seconds."""

    runs: TimedRuns
    recorder: RunRecorder
    activation_s: list[float] = field(default_factory=list)
    activation_cpu_s: list[float] = field(default_factory=list)
    waited_s: list[float] = field(default_factory=list)

    def one(self, query: str, activate: Callable[[str], Trace], corpus: ResourceCorpus) -> None:
        began = time.perf_counter()
        recording = self.recorder.begin("project", query, None)
        submitted = time.perf_counter() - began
        began, used = time.perf_counter(), time.process_time()
        trace = activate(query)
        self.activation_cpu_s.append(time.process_time() - used)
        self.activation_s.append(time.perf_counter() - began)
        began = time.perf_counter()
        recording.succeeded(Finished(trace, corpus))
        assert recording.run_id() is not None
        self.waited_s.append(submitted + time.perf_counter() - began)
        assert self.recorder.flush(_WAIT_S)

    def ratios(self) -> dict[str, float]:
        """Medians over a warm activation's; the first round, which writes the bodies, apart."""
        whole, used = median(self.activation_s[1:]), median(self.activation_cpu_s[1:])
        spent = [sum(pair) for pair in zip(*self.runs.spent.values(), strict=True)]
        return {
            "activation_ms": whole * 1000,
            "activation_cpu_ms": used * 1000,
            "in_the_way": median(self.waited_s[1:]) / whole,
            "beside": median(spent[1:-1]) / used,
            "first_memory": spent[0] / used,
            "changed_memory": spent[-1] / used,
        }


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Recorded]:
    database = LocalDatabase(tmp_path / "data")
    log = LogFile(tmp_path / "daemon.log")
    runs = TimedRuns(database)
    recorder = RunRecorder(runs, EventLog(log))
    recorder.start()
    yield Recorded(runs, recorder)
    recorder.close(_WAIT_S)
    database.close()
    log.close()


def bench_history_sample(
    benchmark: Any, models: ModelRuntime, recorded: Recorded, tmp_path: Path, short: bool
) -> None:
    """The sample memory with the real models."""
    resources = read_memory(sample_directory())
    engine = Engine.open(tmp_path / "index", models=models)
    engine.index(resources)
    corpus = _corpus(engine.activate(_CUES[0]).trace, resources)
    _measured(benchmark, recorded, lambda q: engine.activate(q).trace, corpus, short)
    engine.close()


def bench_history_large(
    benchmark: Any, models: ModelRuntime, recorded: Recorded, indexes: Indexes, short: bool
) -> None:
    """Traces of 10,000 units; the models' time on the same candidates stands for an activation."""
    built = indexes.index(10_000)
    traces = {query: built.engine.activate(query).trace for query in _CUES}
    corpus = _corpus(traces[_CUES[0]], built.memory.resources)

    def activate(query: str) -> Trace:
        trace = traces[query]
        documents = [c.text for c in trace.candidates if c.reranker_logit is not None]
        models.embed_query(query)
        models.reranker.score(query, documents, models.pool)
        return trace

    _measured(benchmark, recorded, activate, corpus, short)
    benchmark.extra_info["candidates"] = len(traces[_CUES[0]].candidates)
    benchmark.extra_info["resources"] = len(corpus.resources)


def _corpus(trace: Trace, resources: list[Resource]) -> ResourceCorpus:
    return ResourceCorpus(trace.effective_hash, {r.resource_id: r for r in resources})


def _measured(
    benchmark: Any,
    recorded: Recorded,
    activate: Callable[[str], Trace],
    corpus: ResourceCorpus,
    short: bool,
) -> None:
    for cue in _CUES:
        activate(cue)
    turn = cycle(_CUES)
    rounds = (3 if short else 10) * len(_CUES)
    benchmark.pedantic(lambda: recorded.one(next(turn), activate, corpus), rounds=rounds)
    recorded.one(next(turn), activate, _changed(corpus))
    benchmark.extra_info |= recorded.ratios()


def _changed(corpus: ResourceCorpus) -> ResourceCorpus:
    name = next(iter(corpus.resources))
    resource = replace(corpus.resources[name], content="# Changed\n\nA new text.\n")
    return ResourceCorpus(corpus.effective_hash + "+1", {**corpus.resources, name: resource})
