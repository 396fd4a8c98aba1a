"""Small sets written to disk, and a tiny engine of the same protocol as the real one.

The tiny engine scores by shared words in plain Python, so that what evaluation makes of a trace can
be worked out by hand; the real engine runs in `test_real_engine.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clumsies.engine.plan import ProgressCallback
from clumsies.engine.trace import Candidate, Skipped, StageTimes, Trace
from clumsies.types import IndexRevision, Locator, Resource, UnitKey, content_hash

Record = dict[str, object]

DOCUMENTS: tuple[Record, ...] = (
    {"id": "deploy#1", "title": "Deploying", "text": "Push the tag and wait for the green build."},
    {"id": "rollback", "title": "Rollback", "text": "Rollback undoes a release.\n\nKeep the tag."},
    {"id": "style", "text": "Names are nouns. Comments say why."},
    {"id": "retry", "text": "A failed upload waits five seconds, then doubles the wait."},
)
QUERIES: tuple[Record, ...] = (
    {"id": "q1", "text": "which tag starts a release"},
    {"id": "q2", "text": "failed upload seconds"},
    {"id": "q3", "text": "who painted the ceiling"},
)
JUDGMENTS = (("q1", "deploy#1", 2), ("q1", "rollback", 1), ("q2", "retry", 1), ("q3", "style", 0))

WriteSet = Callable[..., Path]


@pytest.fixture
def write_set(tmp_path: Path) -> WriteSet:
    """Writes a set below the test's folder and returns where."""

    def write(
        name: str = "small",
        documents: Sequence[Record] = DOCUMENTS,
        queries: Sequence[Record] = QUERIES,
        judgments: Sequence[tuple[str, str, int]] = JUDGMENTS,
    ) -> Path:
        folder = tmp_path / "sets" / name
        folder.mkdir(parents=True)
        _write_lines(folder / "corpus.jsonl", map(json.dumps, documents))
        _write_lines(folder / "queries.jsonl", map(json.dumps, queries))
        _write_lines(folder / "qrels.tsv", (f"{q}\t{d}\t{grade}" for q, d, grade in judgments))
        return folder

    return write


def _write_lines(file: Path, lines: Iterable[str]) -> None:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


@dataclass
class TinyAnswer:
    trace: Trace


@dataclass
class TinyEngine:
    """A paragraph is a unit. Lexical: shared words. Vector: shared letters, always all units."""

    profile: str
    units: list[tuple[Resource, int, str]] = field(default_factory=list)

    def index(
        self, resources: Iterable[Resource], *, progress: ProgressCallback | None = None
    ) -> int:
        self.units = [
            (resource, number, text)
            for resource in resources
            for number, text in enumerate(resource.content.split("\n\n"))
        ]
        return len(self.units)

    def activate(self, query: str) -> TinyAnswer:
        words = set(query.lower().split())
        candidates = [_candidate(*unit) for unit in self.units]
        for candidate in candidates:
            shared = len(words.intersection(candidate.text.lower().split()))
            candidate.bm25_score = float(shared) or None
            candidate.vector_score = len(set(query) & set(candidate.text)) / 100.0
        _rank(candidates, "bm25")
        _rank(candidates, "vector")
        for candidate in candidates:
            candidate.rrf_score = sum(
                1.0 / (10 + rank)
                for rank in (candidate.bm25_rank, candidate.vector_rank)
                if rank is not None
            )
        _rank(candidates, "rrf")
        for candidate in candidates:
            candidate.final_score = candidate.bm25_score or 0.0
            candidate.late_score = candidate.vector_score
            candidate.reranker_logit = (candidate.bm25_score or 0.0) - 1.0
            candidate.selected = bool(candidate.bm25_score)
        _rank(candidates, "final")
        candidates.sort(key=lambda candidate: candidate.final_rank or 0)
        return TinyAnswer(_trace(query, self.profile, candidates, len(self.units)))


@pytest.fixture
def open_tiny() -> Callable[..., object]:
    """Opens a tiny engine as the harness opens the real one."""

    @contextmanager
    def opener(directory: Path, profile: str) -> Iterator[TinyEngine]:
        yield TinyEngine(profile)

    return opener


def _candidate(resource: Resource, number: int, text: str) -> Candidate:
    return Candidate(
        unit_key=UnitKey(f"{resource.resource_id}/root/0/{number}"),
        resource_id=resource.resource_id,
        scope=resource.scope,
        kind=resource.kind,
        path=resource.path,
        heading_path=(),
        locator=Locator(0, len(text.encode())),
        content_hash=content_hash(text),
        resource_content_hash=resource.content_hash,
        token_count=len(text.split()),
        text=text,
    )


def _rank(candidates: list[Candidate], stage: str) -> None:
    scored = [c for c in candidates if getattr(c, f"{stage}_score") is not None]
    scored.sort(key=lambda c: (-getattr(c, f"{stage}_score"), c.unit_key))
    for rank, candidate in enumerate(scored, start=1):
        setattr(candidate, f"{stage}_rank", rank)


def _trace(query: str, profile: str, candidates: list[Candidate], units: int) -> Trace:
    return Trace(
        query=query,
        profile=profile,
        ranking_profile="tiny",
        index_revision=IndexRevision("search_tiny"),
        effective_hash="sha256:tiny",
        parser_version="1",
        chunker_version="1",
        terms_version="1",
        embedding_revision="tiny",
        resource_count=units,
        unit_count=units,
        candidates=candidates,
        skipped=[Skipped("late_interaction", "script")] if "painted" in query else [],
        times=StageTimes(1, 200, 3000, 40, 5, 600, 7000, 8, 11000),
    )
