"""Everything an index holds, free of row numbers, so that two ways of building it compare equal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clumsies.engine.index import DATABASE_NAME
from clumsies.engine.pipeline import Answer
from clumsies.storage.database import all_rows, connect, only_row

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class Contents:
    """`postings` is the whole inverted index: (unit key, column, place, term)."""

    head: Rows
    resources: Rows
    units: Rows
    postings: Rows


def contents(directory: Path) -> Contents:
    """What the live revision in `directory` consists of."""
    connection = connect(directory / DATABASE_NAME)
    try:
        connection.execute(
            "CREATE VIRTUAL TABLE temp.instances USING fts5vocab(main, unit_terms, instance)"
        )
        return Contents(
            *(
                all_rows(connection, sql)
                for sql in (
                    "SELECT revision, effective_hash, rules, embedding_revision, profile, "
                    "dimensions, resource_count, unit_count FROM head",
                    "SELECT resource_id, kind, scope, path, title, description, content, "
                    "content_hash, source_commit_id, draft_id, draft_revision, id_key, path_key, "
                    "title_key FROM resources ORDER BY 1",
                    "SELECT unit_key, resource_id, ordinal, heading_path, start_byte, end_byte, "
                    "token_count, text_hash, text, input_hash, vector FROM units "
                    "JOIN resources USING (resource_rowid) JOIN vectors USING (vector_id) "
                    "ORDER BY resource_id, ordinal",
                    "SELECT unit_key, col, offset, term FROM temp.instances "
                    "LEFT JOIN units ON unit_rowid = doc ORDER BY unit_key, col, offset",
                )
            )
        )
    finally:
        connection.close()


def ranked(answer: Answer) -> list[tuple[Any, ...]]:
    """What an answer says of each candidate, in final order."""
    return [
        (
            candidate.unit_key,
            candidate.text,
            candidate.exact_rank,
            candidate.bm25_rank,
            candidate.bm25_score,
            candidate.vector_rank,
            candidate.vector_score,
            candidate.rrf_rank,
            candidate.final_rank,
            candidate.exclusion_reason,
        )
        for candidate in answer.trace.candidates
    ]


def count(directory: Path, table: str) -> int:
    """Rows of a table."""
    connection = connect(directory / DATABASE_NAME)
    try:
        return int(only_row(connection, f"SELECT count(*) FROM {table}")[0])
    finally:
        connection.close()
