"""The table of all candidates of one activation: each stage's rank and score, and the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

WIDE_COLUMNS = 140
SEPARATOR = " › "
_STAGES = (
    ("exact", "ex", "exact_rank", None, 0),
    ("BM25", "bm", "bm25_rank", "bm25_score", 1),
    ("vector", "ve", "vector_rank", "vector_score", 2),
    ("RRF", "rrf", "rrf_rank", "rrf_score", 3),
    ("late", "la", "late_rank", "late_score", 2),
    ("rerank", "ce", "reranker_rank", "reranker_logit", 1),
)


def candidate_table(
    candidates: Iterable[Mapping[str, Any]], width: int, *, relevance: str, deltas: bool
) -> Table:
    """The candidates in the order given; a console too narrow for scores shows ranks alone.

    `relevance` names the field of the calibrated relevance; `deltas` adds what the answer did with
    each fragment.
    """
    wide = width >= WIDE_COLUMNS
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column("fragment", overflow="fold", ratio=1, min_width=20)
    for name, short, *_ in _STAGES:
        table.add_column(name if wide else short, justify="right", no_wrap=True)
    table.add_column("relev.", justify="right", no_wrap=True)
    table.add_column("final", justify="right", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    if deltas:
        table.add_column("delta", no_wrap=True)
    for candidate in candidates:
        cells = _cells(candidate, wide, relevance)
        if deltas:
            cells.append(candidate.get("delta_action") or "")
        table.add_row(*cells, style=None if candidate["selected"] else "dim")
    return table


def _cells(candidate: Mapping[str, Any], wide: bool, relevance: str) -> list[str | Text]:
    place = candidate["path"]
    if candidate["heading_path"]:
        place += SEPARATOR + candidate["heading_path"][-1]
    selected = candidate["selected"]
    fragment = Text(place)
    if candidate.get("superseded_by"):
        fragment.append(f" (superseded by {candidate['superseded_by']})", style="warning")
    return [
        str(candidate.get("final_rank") or ""),
        fragment,
        *(
            _cell(candidate.get(rank), candidate.get(score) if wide and score else None, digits)
            for _, _, rank, score, digits in _STAGES
        ),
        _number(candidate.get(relevance)),
        _number(candidate.get("final_score")),
        Text(candidate["exclusion_reason"], style="score" if selected else ""),
    ]


def _cell(rank: int | None, score: float | None, digits: int) -> str:
    if score is None:
        return str(rank or "")
    return f"{rank or '–'} ({score:.{digits}f})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
