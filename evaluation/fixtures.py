"""A fixture of judged cases as a run of this harness: asked again, or from its stored traces.

The harness ranks documents, so a case's judgments are brought to its resources: each has the best
grade of what was judged of it. The report of the fixture itself ranks units.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from clumsies.engine.trace import StageTimes, Trace
from clumsies.history.fixtures import Fixture, FixtureCase
from clumsies.history.records import Judgment, RunCandidate
from clumsies.history.replay import ActivationEngine, replay_fixture
from clumsies.history.run_rows import candidates_of
from evaluation.harness import SetRun, Settings
from evaluation.traces import COLUMNS, Floats, KeptTrace

_NAMES = {"relevance": "reranker_relevance"}

Opener = Callable[[Path, str], AbstractContextManager[ActivationEngine]]


def stored_run(name: str, fixture: Fixture) -> SetRun:
    """The fixture as it was recorded; without latency, as what was recorded was not warm."""
    profiles = {case.source_run.profile or "" for case in fixture.cases}
    traces = [
        _kept(name, case, case.candidates, case.source_run.profile or "", _times(case))
        for case in fixture.cases
    ]
    return _set_run(name, ", ".join(sorted(profiles)), fixture, traces, [])


def replayed_run(name: str, fixture: Fixture, settings: Settings, opener: Opener) -> SetRun:
    """Every query asked anew of the memory it was asked of; the times are warm."""

    def opened(corpus_id: str) -> AbstractContextManager[ActivationEngine]:
        return opener(settings.cache / settings.profile / corpus_id, settings.profile)

    replayed = list(replay_fixture(fixture, opened))
    traces = [
        _kept(name, case, candidates_of(trace), trace.profile, trace.times)
        for case, trace in replayed
    ]
    return _set_run(name, settings.profile, fixture, traces, [trace for _, trace in replayed])


def _set_run(
    name: str,
    profile: str,
    fixture: Fixture,
    traces: Sequence[KeptTrace],
    warm: Sequence[Trace],
) -> SetRun:
    memories = {case.evaluation_case.corpus_id: len(case.resources) for case in fixture.cases}
    return SetRun(
        set_name=name,
        profile=profile,
        traces=tuple(traces),
        warm=tuple(trace.times for trace in warm),
        documents=sum(memories.values()),
    )


def _kept(
    name: str,
    case: FixtureCase,
    candidates: Sequence[RunCandidate],
    profile: str,
    times: StageTimes,
) -> KeptTrace:
    return KeptTrace(
        set_name=name,
        profile=profile,
        query_id=case.evaluation_case.case_id,
        judgments=document_grades(case.judgments),
        skipped=tuple(case.source_run.skipped.split()),
        times=times,
        unit_keys=tuple(candidate.unit_key for candidate in candidates),
        documents=tuple(candidate.resource_id for candidate in candidates),
        columns=_columns(case, candidates),
    )


def document_grades(judgments: Sequence[Judgment]) -> dict[str, int]:
    """The best grade of each resource that was judged, or a unit of it."""
    grades: dict[str, int] = {}
    for judgment in judgments:
        known = grades.get(judgment.resource_id, 0)
        grades[judgment.resource_id] = max(known, judgment.relevance)
    return grades


def _columns(case: FixtureCase, candidates: Sequence[RunCandidate]) -> dict[str, Floats]:
    hashes = {r.metadata.resource_id: r.metadata.content_hash for r in case.resources}
    derived = {
        "identity_equal": [c.identity == "equal" for c in candidates],
        "outside_corpus": [c.resource_id not in hashes for c in candidates],
        "stale": [
            hashes.get(c.resource_id, c.resource_content_hash) != c.resource_content_hash
            for c in candidates
        ],
    }
    stored = {name: _column(candidates, name) for name in COLUMNS if name not in derived}
    return stored | {name: np.array(flags, np.float64) for name, flags in derived.items()}


def _column(candidates: Sequence[RunCandidate], column: str) -> Floats:
    values = [getattr(candidate, _NAMES.get(column, column)) for candidate in candidates]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _times(case: FixtureCase) -> StageTimes:
    run = case.source_run
    return StageTimes(
        index_ensure_us=run.effective_memory_us + run.index_ensure_us,
        bm25_us=run.bm25_us,
        embedding_us=run.embedding_us,
        vector_us=run.vector_us,
        rrf_us=run.rrf_us,
        late_us=run.late_us,
        rerank_us=run.rerank_us,
        assembly_us=run.assembly_us,
        total_us=run.total_us,
    )
