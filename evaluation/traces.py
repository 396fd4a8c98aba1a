"""What is kept of a query's trace: every candidate's ranks and raw stage scores, as columns.

The four variants are read from it, and so are the sweeps and fits of `tuning` and `calibration`:
kept traces can be scored again and again without an engine. Texts are not kept.

One JSON object a line (gzip where the file's name ends in `.gz`):

| Field | Value |
| --- | --- |
| `set`, `profile`, `query` | names of the set, the model profile and the query |
| `judgments` | grade by document id; empty where the set holds no answer |
| `skipped` | `stage:reason` of every stage that did not run |
| `times` | microseconds by stage, the fields of the engine's `StageTimes` |
| `unit_keys`, `documents` | one text a candidate, in the engine's final order |
| `columns` | by name, one number or null a candidate: the ranks and scores of `Candidate` |

The column `identity_equal` is 1 where the query is the candidate's own id, path or title, and
`coverage` the share of the query's term weight that stands in the candidate. `outside_corpus` is 1
where its resource is none of those that were searched, `stale` 1 where it is, with another text;
both are absent from files of older versions.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Literal, cast

import numpy as np
from numpy.typing import NDArray

from clumsies.engine.trace import Candidate, StageTimes, Trace
from clumsies.errors import InvalidRequest, NotFound
from clumsies.types import Resource, ResourceId
from evaluation.metrics import Composition, composition, first_occurrences, is_answerable

Floats = NDArray[np.float64]
Variant = Literal["b1_bm25", "b2_dense_vector", "b3_hybrid_rrf", "b4_reranked"]
VARIANTS: tuple[Variant, ...] = ("b1_bm25", "b2_dense_vector", "b3_hybrid_rrf", "b4_reranked")

COLUMNS = (
    "exact_rank",
    "bm25_rank",
    "bm25_score",
    "vector_rank",
    "vector_score",
    "rrf_rank",
    "rrf_score",
    "late_rank",
    "late_score",
    "reranker_rank",
    "reranker_logit",
    "relevance",
    "final_rank",
    "final_score",
    "selected",
    "identity_equal",
    "coverage",
    "outside_corpus",
    "stale",
)

_DERIVED = ("identity_equal", "coverage", "outside_corpus", "stale")
_LATER = ("outside_corpus", "stale")

# What the engine takes a missing score for, where it is not the least of the others.
_ABSENT = {"bm25_score": 0.0}

_VARIANT_RANK: Mapping[Variant, str] = {
    "b2_dense_vector": "vector_rank",
    "b3_hybrid_rrf": "rrf_rank",
    "b4_reranked": "final_rank",
}


@dataclass(frozen=True, slots=True)
class KeptTrace:
    """One query's candidates. Each column is float64 (candidates,), NaN where there is no value."""

    set_name: str
    profile: str
    query_id: str
    judgments: Mapping[str, int]
    skipped: tuple[str, ...]
    times: StageTimes
    unit_keys: tuple[str, ...]
    documents: tuple[str, ...]
    columns: Mapping[str, Floats]

    @property
    def answerable(self) -> bool:
        """Whether any document of the searched corpus is relevant."""
        return is_answerable(self.judgments)

    @property
    def answered(self) -> bool:
        """Whether the activation returned any fragment."""
        return bool(np.any(self.columns["selected"] > 0))

    def filled(self, name: str) -> Floats:
        """A score column without holes, or NaN throughout where the stage scored nothing.

        A candidate without a BM25 score has no term of the query: 0. A vector stage gives no score
        to what stood below its cut, which is worth no more than the least that it did score. (The
        engine knows the true cosine there; the trace does not.)
        """
        column = self.columns[name]
        known = column[~np.isnan(column)]
        absent = _ABSENT.get(name, known.min() if known.size else np.nan)
        return np.where(np.isnan(column), absent, column)

    def unit_order(self, variant: Variant) -> list[int]:
        """Positions of the candidates that the variant ranks, best first, ties by unit key."""
        ranks = self._ranks(variant)
        ranked = np.flatnonzero(~np.isnan(ranks))
        return sorted(ranked.tolist(), key=lambda at: (ranks[at], self.unit_keys[at]))

    def document_order(self, variant: Variant) -> list[str]:
        """The variant's documents, each at the rank of its best unit."""
        return first_occurrences(self.documents[at] for at in self.unit_order(variant))

    def composition(self, variant: Variant) -> Composition | None:
        """Of the variant's first units; None where it has none, or the file does not say."""
        order = self.unit_order(variant)
        outside, stale = self.columns["outside_corpus"], self.columns["stale"]
        if not order or np.isnan(outside).any() or np.isnan(stale).any():
            return None
        return composition(
            [self.documents[at] for at in order],
            [bool(outside[at]) for at in order],
            [bool(stale[at]) for at in order],
        )

    def _ranks(self, variant: Variant) -> Floats:
        if variant == "b1_bm25":
            exact = self.columns["exact_rank"]
            return np.where(np.isnan(exact), self.columns["bm25_rank"], exact)
        return self.columns[_VARIANT_RANK[variant]]


def keep(
    trace: Trace,
    *,
    set_name: str,
    query_id: str,
    judgments: Mapping[str, int],
    corpus: Mapping[ResourceId, tuple[Resource, str]],
    coverage: Floats,
) -> KeptTrace:
    """The kept form of a trace; `corpus` holds what was searched, each with its document's id.

    A candidate of a resource that is not in it goes under the resource's own id.
    """
    candidates = trace.candidates
    documents = [
        corpus[candidate.resource_id][1]
        if candidate.resource_id in corpus
        else str(candidate.resource_id)
        for candidate in candidates
    ]
    return KeptTrace(
        set_name=set_name,
        profile=trace.profile,
        query_id=query_id,
        judgments=dict(judgments),
        skipped=tuple(f"{skipped.stage}:{skipped.reason}" for skipped in trace.skipped),
        times=trace.times,
        unit_keys=tuple(candidate.unit_key for candidate in candidates),
        documents=tuple(documents),
        columns=_columns(candidates) | {"coverage": coverage} | _faults(candidates, corpus),
    )


def write_traces(file: Path, traces: Iterable[KeptTrace]) -> None:
    """Write the traces, one line each, replacing the file."""
    with _open(file, "w") as stream:
        for trace in traces:
            stream.write(json.dumps(_as_record(trace), ensure_ascii=False) + "\n")


def read_traces(file: Path) -> Iterator[KeptTrace]:
    """The traces of a file. Raises NotFound, or InvalidRequest naming the line that is no trace."""
    if not file.is_file():
        raise NotFound("not_found", f"{file} is missing; `run --keep-traces {file}` writes it.")
    with _open(file, "r") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield _from_record(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise InvalidRequest(
                    "invalid_request",
                    f"{file}:{number}: is not a kept trace ({error}). Write the file again with"
                    " `run --keep-traces`.",
                ) from error


def _columns(candidates: list[Candidate]) -> dict[str, Floats]:
    columns = {name: _column(candidates, name) for name in COLUMNS if name not in _DERIVED}
    equal = [candidate.identity == "equal" for candidate in candidates]
    return columns | {"identity_equal": np.array(equal, dtype=np.float64)}


def _faults(
    candidates: list[Candidate], corpus: Mapping[ResourceId, tuple[Resource, str]]
) -> dict[str, Floats]:
    known = [corpus.get(candidate.resource_id) for candidate in candidates]
    stale = [
        found is not None and found[0].content_hash != candidate.resource_content_hash
        for found, candidate in zip(known, candidates, strict=True)
    ]
    outside = [found is None for found in known]
    return {
        "outside_corpus": np.array(outside, dtype=np.float64),
        "stale": np.array(stale, dtype=np.float64),
    }


def _column(candidates: list[Candidate], name: str) -> Floats:
    values = [getattr(candidate, name) for candidate in candidates]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _as_record(trace: KeptTrace) -> dict[str, object]:
    return {
        "set": trace.set_name,
        "profile": trace.profile,
        "query": trace.query_id,
        "judgments": trace.judgments,
        "skipped": trace.skipped,
        "times": asdict(trace.times),
        "unit_keys": trace.unit_keys,
        "documents": trace.documents,
        "columns": {name: _as_numbers(column) for name, column in trace.columns.items()},
    }


def _as_numbers(column: Floats) -> list[float | int | None]:
    return [
        None if np.isnan(value) else int(value) if value.is_integer() else value
        for value in column.tolist()
    ]


def _from_record(record: dict[str, object]) -> KeptTrace:
    columns = cast("dict[str, list[float | None]]", record["columns"])
    unit_keys = tuple(cast("list[str]", record["unit_keys"]))
    unsaid: list[float | None] = [None] * len(unit_keys)
    columns = dict.fromkeys(_LATER, unsaid) | columns
    arrays = {
        name: np.array([np.nan if value is None else value for value in columns[name]], np.float64)
        for name in COLUMNS
    }
    if any(array.shape != (len(unit_keys),) for array in arrays.values()):
        raise ValueError("columns of unequal length")
    known = {field.name for field in fields(StageTimes)}
    times = cast("dict[str, int]", record["times"])
    return KeptTrace(
        set_name=str(record["set"]),
        profile=str(record["profile"]),
        query_id=str(record["query"]),
        judgments=cast("dict[str, int]", record["judgments"]),
        skipped=tuple(cast("list[str]", record["skipped"])),
        times=StageTimes(**{name: value for name, value in times.items() if name in known}),
        unit_keys=unit_keys,
        documents=tuple(cast("list[str]", record["documents"])),
        columns=arrays,
    )


def _open(file: Path, mode: Literal["r", "w"]) -> IO[str]:
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".gz":
        return cast("IO[str]", gzip.open(file, mode + "t", encoding="utf-8", compresslevel=4))
    return file.open(mode, encoding="utf-8")
