"""A history in one directory, and traces and memories made up for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clumsies.engine.trace import Candidate, Skipped, StageTimes, Trace
from clumsies.history.cases import CaseStore
from clumsies.history.corpora import CorpusEntry
from clumsies.history.fixtures import FixtureStore
from clumsies.history.runs import Finished, RunStore
from clumsies.storage.database import all_rows
from clumsies.storage.local_database import LocalDatabase
from clumsies.types import (
    IndexRevision,
    Locator,
    ResourceId,
    UnitKey,
    content_hash,
)
from tests.memory.local_memory import Clock

PROJECT = "proj_1"
QUERY = "how is a release rolled back"
TEXTS = {
    "mem_a": "# Deploy\n\nRoll back with shipctl undo.\n",
    "mem_b": "# Lunch\n\nSoup on Mondays.\n",
    "mem_c": "# Release\n\n" + "Tag the commit first. " * 80,
}


@dataclass
class TextCorpus:
    """A memory of texts by resource id; `reads` counts how often a text was asked for."""

    texts: Mapping[str, str]
    name: str = ""
    reads: list[str] = field(default_factory=list)

    @property
    def effective_hash(self) -> str:
        return content_hash(self.name + repr(sorted(self.texts.items())))

    @property
    def entries(self) -> Sequence[CorpusEntry]:
        return [
            CorpusEntry(key, "org", "memory", f"{key}.md", content_hash(text), "commit_1")
            for key, text in sorted(self.texts.items())
        ]

    def read(self, resource_id: str) -> tuple[str, str]:
        self.reads.append(resource_id)
        return f"Title of {resource_id}", self.texts[resource_id]


def candidate(resource_id: str, text: str, **ranks: Any) -> Candidate:
    """The whole text as one unit."""
    return Candidate(
        unit_key=UnitKey(f"unit_{resource_id}"),
        resource_id=ResourceId(resource_id),
        scope="org",
        kind="memory",
        path=f"{resource_id}.md",
        heading_path=("Part", "Section"),
        locator=Locator(0, len(text.encode())),
        content_hash=content_hash(text),
        resource_content_hash=content_hash(text),
        token_count=7,
        text=text,
        **ranks,
    )


def candidates(texts: Mapping[str, str] = TEXTS) -> list[Candidate]:
    """A: everything found it and it was returned. B: too irrelevant. C: never reranked."""
    return [
        candidate(
            "mem_a",
            texts["mem_a"],
            identity="prefix",
            exact_rank=1,
            bm25_rank=1,
            bm25_score=3.5,
            vector_rank=2,
            vector_score=0.5,
            rrf_rank=1,
            rrf_score=0.25,
            late_rank=1,
            late_score=0.75,
            reranker_rank=1,
            reranker_logit=4.25,
            coverage=1.0,
            relevance=0.9,
            final_rank=1,
            final_score=1.1,
            superseded_by="mem_z.md",
            selected=True,
            exclusion_reason="selected",
            delta_action="add",
        ),
        candidate(
            "mem_b",
            texts["mem_b"],
            vector_rank=1,
            vector_score=0.625,
            rrf_rank=2,
            rrf_score=0.1,
            reranker_rank=2,
            reranker_logit=-2.0,
            relevance=0.01,
            final_rank=2,
            final_score=0.1,
            exclusion_reason="below_relevance",
        ),
        candidate(
            "mem_c", texts["mem_c"], bm25_rank=2, bm25_score=1.0, rrf_rank=3, rrf_score=0.05,
            final_rank=3,
        ),
    ]  # fmt: skip


def trace_of(corpus: TextCorpus, found: Iterable[Candidate] | None = None) -> Trace:
    return Trace(
        query=QUERY,
        profile="compact",
        ranking_profile="ranking.v9",
        index_revision=IndexRevision("search_1"),
        effective_hash=corpus.effective_hash,
        parser_version="parser.v9",
        chunker_version="chunker.v9",
        terms_version="terms.v9",
        embedding_revision="embedding.v9",
        resource_count=len(corpus.texts),
        unit_count=17,
        candidates=candidates() if found is None else list(found),
        skipped=[Skipped("rerank", "script")],
        times=StageTimes(1, 20, 300, 40, 5, 6, 70, 8, 600),
        returned_tokens=7,
    )


class History:
    """Stores over one directory, with counted run ids."""

    def __init__(self, directory: Path, **options: Any):
        self.database = LocalDatabase(directory)
        numbers = itertools.count(1)
        self.runs = RunStore(
            self.database,
            clock_ns=Clock(),
            new_id=lambda: f"{next(numbers):04d}",
            **options,
        )
        self.cases = CaseStore(self.runs)
        self.fixtures = FixtureStore(self.runs, self.cases)

    def begin(self, project_id: str = PROJECT, query: str = QUERY) -> str:
        activation = self.runs.new_activation(project_id, query, None)
        self.runs.begin(activation)
        return activation.run_id

    def record(
        self,
        corpus: TextCorpus | None = None,
        *,
        project_id: str = PROJECT,
        found: Iterable[Candidate] | None = None,
    ) -> str:
        run_id = self.begin(project_id)
        corpus = corpus or TextCorpus(TEXTS)
        self.runs.finish(run_id, Finished(trace_of(corpus, found), corpus, 1000, 200))
        return run_id

    def case(self, run_id: str | None = None) -> str:
        detail = self.cases.create(run_id or self.record(), f"case_{run_id}")
        return detail.evaluation_case.case_id

    def run_ids(self, project_id: str = PROJECT) -> list[str]:
        return [run.run_id for run in self.runs.page(project_id, limit=1000).runs]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self.database.reader() as connection:
            return all_rows(connection, sql)

    def files(self) -> set[str]:
        return {place.name for place in self.runs.blobs.root.rglob("*") if place.is_file()}
