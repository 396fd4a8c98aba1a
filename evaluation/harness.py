"""Runs a set against an engine: one activation a query, four variants from its one trace.

The index of a set (of each scope, where queries have one) stands in a cache directory and is
brought up to date on every run; an unchanged set embeds nothing again. Queries are asked side by
side on a small pool, as the engine allows many readers, and reported in the set's own order.
Latency is measured apart, afterwards: the first queries again, warm and one at a time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from clumsies.engine.plan import Progress, ProgressCallback
from clumsies.engine.trace import StageTimes, Trace
from clumsies.types import Resource, ResourceId
from evaluation.datasets import EvaluationSet, PathStyle, Query, resources_of
from evaluation.term_coverage import TermCoverage, term_coverage
from evaluation.traces import VARIANTS, KeptTrace, Variant, keep

DEFAULT_CACHE = Path(__file__).resolve().parents[1] / ".eval-cache"
DEFAULT_JOBS = 2
DEFAULT_WARM = 50


class Answer(Protocol):
    """What an activation returns, as far as evaluation reads it."""

    @property
    def trace(self) -> Trace: ...


class ActivationEngine(Protocol):
    """The part of the engine that evaluation needs; safe for several readers."""

    def index(
        self, resources: Iterable[Resource], *, progress: ProgressCallback | None = None
    ) -> object: ...

    def activate(self, query: str) -> Answer: ...


OpenEngine = Callable[[Path, str], AbstractContextManager[ActivationEngine]]
OnStep = Callable[[str, int, int], None]
"""Called with what is being done, how many are done, and of how many."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a run is carried out; only `profile`, `paths` and `rerank_limit` can change its numbers.

    `rerank_limit` candidates are reranked instead of as many as the profile says.
    """

    profile: str = "compact"
    cache: Path = DEFAULT_CACHE
    jobs: int = DEFAULT_JOBS
    warm: int = DEFAULT_WARM
    paths: PathStyle = "neutral"
    rerank_limit: int | None = None


@dataclass(frozen=True, slots=True)
class SetRun:
    """A finished run: the kept trace of every query in the set's order, and the warm times.

    `documents` and `units` are the size of the corpus, None where only its traces are at hand.
    """

    set_name: str
    profile: str
    traces: tuple[KeptTrace, ...]
    warm: tuple[StageTimes, ...] = ()
    documents: int | None = None
    units: int | None = None


def open_engine(directory: Path, profile: str) -> AbstractContextManager[ActivationEngine]:
    """The real engine on a directory."""
    from clumsies.engine.pipeline import Engine

    return Engine.open(directory, profile=profile)


def opener_with(rerank_limit: int) -> OpenEngine:
    """Opens the real engine with another number of reranked candidates than the profile has."""

    @contextmanager
    def opened(directory: Path, profile: str) -> Iterator[ActivationEngine]:
        from clumsies.engine.pipeline import Engine
        from clumsies.models.choice import profile_named
        from clumsies.models.runtime import ModelRuntime

        models = ModelRuntime.for_profile(
            replace(profile_named(profile), rerank_limit=rerank_limit)
        )
        with closing(models), Engine.open(directory, models=models) as engine:
            yield engine

    return opened


def run_set(
    evaluation_set: EvaluationSet,
    settings: Settings,
    *,
    opener: OpenEngine | None = None,
    on_step: OnStep | None = None,
) -> SetRun:
    """Ask every query of the set; the traces come in the set's order."""
    step = on_step or _silent
    if opener is None:
        limit = settings.rerank_limit
        opener = open_engine if limit is None else opener_with(limit)
    kept: dict[str, KeptTrace] = {}
    warm: list[StageTimes] = []
    units = 0
    for scope in evaluation_set.scopes:
        mapped = resources_of(evaluation_set.documents_of(scope), settings.paths)
        resources = [resource for resource, _ in mapped.values()]
        directory = index_directory(evaluation_set, scope, settings)
        queries = evaluation_set.queries_of(scope)
        with opener(directory, settings.profile) as engine:
            _build(engine, resources, step)
            with term_coverage(directory) as terms:
                asked = _Asked(engine, evaluation_set, mapped, terms)
                for trace in asked.all_of(queries, settings.jobs):
                    kept[trace.query_id] = trace
                    step("asking", len(kept), len(evaluation_set.queries))
            units += engine.activate(queries[0].text).trace.unit_count
            warm += _warm_times(engine, queries[: max(settings.warm - len(warm), 0)], step)
    return SetRun(
        set_name=evaluation_set.name,
        profile=settings.profile,
        documents=len(evaluation_set.documents),
        units=units,
        traces=tuple(kept[query.query_id] for query in evaluation_set.queries),
        warm=tuple(warm),
    )


def runs_of(traces: Iterable[KeptTrace]) -> list[SetRun]:
    """Kept traces as the runs they came from, one a set and profile, first occurrence first."""
    grouped: dict[tuple[str, str], list[KeptTrace]] = {}
    for trace in traces:
        grouped.setdefault((trace.set_name, trace.profile), []).append(trace)
    return [SetRun(*names, tuple(found)) for names, found in grouped.items()]


def index_directory(evaluation_set: EvaluationSet, scope: str | None, settings: Settings) -> Path:
    """Where the index of these documents stands: another text, path or profile, another place."""
    digest = hashlib.sha256(settings.paths.encode())
    for document in evaluation_set.documents_of(scope):
        for part in (document.document_id, document.title, document.text):
            digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    name = f"{evaluation_set.corpus_name}-{digest.hexdigest()[:16]}"
    return settings.cache / settings.profile / name


def variant_times(times: StageTimes) -> dict[Variant, int]:
    """Microseconds that each variant needs: the stages on its way, the whole for the last."""
    common = times.index_ensure_us
    lexical, vector = times.bm25_us, times.embedding_us + times.vector_us
    return {
        "b1_bm25": common + lexical,
        "b2_dense_vector": common + vector,
        "b3_hybrid_rrf": common + lexical + vector + times.rrf_us,
        "b4_reranked": times.total_us,
    }


def latency(warm: Sequence[StageTimes]) -> dict[str, dict[str, float]]:
    """p50 and p95 of each variant over warm activations, milliseconds."""
    rows = [variant_times(times) for times in warm]
    return {
        variant: {
            "p50_ms": percentile([row[variant] for row in rows], 0.50) / 1000.0,
            "p95_ms": percentile([row[variant] for row in rows], 0.95) / 1000.0,
        }
        for variant in VARIANTS
        if rows
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value at index ceil((n - 1) * share) of the sorted values."""
    return sorted(values)[math.ceil((len(values) - 1) * share)]


def run_lines(traces: Iterable[KeptTrace], variant: Variant, tag: str) -> Iterable[str]:
    """TREC run format: `query Q0 document rank score tag`; the score only repeats the order."""
    for trace in traces:
        for rank, document in enumerate(trace.document_order(variant), start=1):
            yield f"{_word(trace.query_id)} Q0 {_word(document)} {rank} {1.0 / rank:.8f} {tag}"


def write_run_files(file: Path, run: SetRun) -> list[Path]:
    """One run file a variant: `name.b1_bm25.trec` for `name.trec`, and so on."""
    written = []
    for variant in VARIANTS:
        target = file.with_name(f"{file.stem}.{variant}{file.suffix}")
        lines = run_lines(run.traces, variant, f"{run.profile}-{variant}")
        target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        written.append(target)
    return written


@dataclass(frozen=True, slots=True)
class _Asked:
    engine: ActivationEngine
    evaluation_set: EvaluationSet
    corpus: dict[ResourceId, tuple[Resource, str]]
    terms: TermCoverage

    def one(self, query: Query) -> KeptTrace:
        trace = self.engine.activate(query.text).trace
        return keep(
            trace,
            set_name=self.evaluation_set.name,
            query_id=query.query_id,
            judgments=self.evaluation_set.judgments.get(query.query_id, {}),
            corpus=self.corpus,
            coverage=self.terms.of(trace),
        )

    def all_of(self, queries: Sequence[Query], jobs: int) -> Iterable[KeptTrace]:
        with ThreadPoolExecutor(jobs, thread_name_prefix="evaluation") as pool:
            yield from pool.map(self.one, queries)


def _build(engine: ActivationEngine, resources: list[Resource], step: OnStep) -> None:
    def progress(report: Progress) -> None:
        step(report.stage, report.done, report.total)

    engine.index(resources, progress=progress)


def _warm_times(
    engine: ActivationEngine, queries: Sequence[Query], step: OnStep
) -> list[StageTimes]:
    times = []
    for number, query in enumerate(queries, start=1):
        times.append(engine.activate(query.text).trace.times)
        step("timing", number, len(queries))
    return times


def _word(text: str) -> str:
    """The text with blanks escaped, as the run format separates its fields by them."""
    return "".join(f"%{ord(letter):02X}" if letter.isspace() else letter for letter in text)


def _silent(_doing: str, _done: int, _total: int) -> None:
    return None
