"""Queries of history asked again: of a fixture's own memory, or of the memory as it is now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import groupby
from typing import Protocol

import msgspec

from clumsies.engine.trace import Trace
from clumsies.history.fixtures import Fixture, FixtureCase
from clumsies.history.records import Run, RunCandidate
from clumsies.history.report import Report, case_report, summarised
from clumsies.history.run_rows import candidates_of, trace_columns
from clumsies.types import Resource, ResourceId


class Answer(Protocol):
    """What an activation returns, as far as a replay reads it."""

    @property
    def trace(self) -> Trace: ...


class ActivationEngine(Protocol):
    """The part of the engine that a replay needs."""

    def index(self, resources: Sequence[Resource]) -> object: ...

    def activate(self, query: str) -> Answer: ...


OpenEngine = Callable[[str], AbstractContextManager[ActivationEngine]]
"""An engine on an empty or a kept index for the memory with this corpus id."""


class RankChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """A unit that stands elsewhere than before; None where it is no candidate."""

    unit_key: str
    resource_id: str
    path: str
    heading_path: tuple[str, ...]
    before_selected: bool
    after_selected: bool
    text_changed: bool
    before_rank: int | None = None
    after_rank: int | None = None


class Replay(msgspec.Struct, frozen=True):
    """A run beside the same query now; `same_memory` where the searched memory is the same."""

    run_id: str
    query: str
    same_memory: bool
    changes: tuple[RankChange, ...]


def resources_of(case: FixtureCase) -> list[Resource]:
    """The memory of a case as the engine takes it."""
    return [
        Resource(
            ResourceId(item.metadata.resource_id),
            item.metadata.path,
            item.content,
            description=item.metadata.description,
            kind=item.metadata.kind,
            scope=item.metadata.scope,
            source_commit_id=item.metadata.source_commit_id,
            draft_id=item.metadata.draft_id,
            draft_revision=item.metadata.draft_revision,
        )
        for item in case.resources
    ]


def replay_fixture(
    fixture: Fixture, open_engine: OpenEngine, on_case: Callable[[], None] = lambda: None
) -> Iterator[tuple[FixtureCase, Trace]]:
    """Each case with a new trace; every memory is indexed once, cases come by their memories."""

    def corpus(case: FixtureCase) -> str:
        return case.evaluation_case.corpus_id

    for corpus_id, cases in groupby(sorted(fixture.cases, key=corpus), corpus):
        group = list(cases)
        with open_engine(corpus_id) as engine:
            engine.index(resources_of(group[0]))
            for case in group:
                query = case.evaluation_case.query
                engine.activate(query)  # so that the times of the next are warm
                yield case, engine.activate(query).trace
                on_case()


def replayed_report(replayed: Sequence[tuple[FixtureCase, Trace]]) -> Report:
    """The report of cases whose queries were asked again."""
    return summarised(
        [
            case_report(case.detail, candidates_of(trace), _run_of(case.source_run, trace))
            for case, trace in replayed
        ]
    )


def _run_of(run: Run, trace: Trace) -> Run:
    columns = msgspec.to_builtins(trace_columns(trace))
    return msgspec.structs.replace(run, effective_memory_us=0, **columns)


def rank_changes(
    before: Sequence[RunCandidate], after: Sequence[RunCandidate]
) -> tuple[RankChange, ...]:
    """Units that were returned before or are now, and whose final rank, text or outcome differs.

    In order of the new rank, those that are no candidates any more last.
    """
    old = {candidate.unit_key: candidate for candidate in before}
    new = {candidate.unit_key: candidate for candidate in after}
    changes = []
    for key in dict.fromkeys([*new, *old]):
        was, now = old.get(key), new.get(key)
        shown = now if now is not None else was
        selected = [found is not None and found.selected for found in (was, now)]
        ranks = [found.final_rank if found is not None else None for found in (was, now)]
        texts = {found.content_hash for found in (was, now) if found is not None}
        if shown is None or not any(selected):
            continue
        if ranks[0] == ranks[1] and selected[0] == selected[1] and len(texts) == 1:
            continue
        changes.append(
            RankChange(
                key,
                shown.resource_id,
                shown.path,
                shown.heading_path,
                selected[0],
                selected[1],
                len(texts) > 1,
                ranks[0],
                ranks[1],
            )
        )
    last = len(new) + len(old)
    return tuple(sorted(changes, key=lambda c: (c.after_rank or last, c.before_rank or last)))
