"""Lexical search: identity matches and BM25 over search terms.

User text never reaches the FTS5 grammar: a query is analysed into terms, and each term stands as a
quoted string in an OR. Scores are FTS5's BM25 (k1 1.2, b 0.75) turned so that higher is better.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import apsw

from clumsies.engine.analysis import document_terms, query_terms
from clumsies.storage.database import all_rows, first_row, only_row

COLUMN_WEIGHTS = (1.0, 2.0, 2.0, 1.0)
"""BM25 weights of path, title, heading, body, chosen by measurement (evaluation/RESULTS.md)."""
MAX_TERMS = 64
"""Distinct terms a query may use; the rarest stay."""
MAX_POSTINGS = 1_000_000
"""Postings a query may read; terms are taken rarest first until this is reached."""
MIN_PREFIX_CHARS = 3
"""A shorter query is no identity prefix: it would match half the memory."""
UNITS_PER_IDENTITY = 4
"""Leading units of an identity match that are candidates: twice what an answer may show."""
FIRST_PAIRED_CHARACTER = "\u0e00"
"""Thai, the first script whose runs are indexed as pairs of characters."""
_PREFIX_END = "\U0010ffff"


def identity_key(text: str) -> str:
    """The form in which ids, paths, titles and queries are compared: composed, case folded, spaces
    joined. (Some file systems hand out decomposed names.)"""
    composed = unicodedata.normalize("NFC", text)
    return " ".join(unicodedata.normalize("NFC", composed.casefold()).split())


@dataclass(frozen=True, slots=True)
class IdentityHit:
    """A unit of a resource that the whole query names. `grade`: 0 id, 1 path or title, 2 prefix."""

    unit_rowid: int
    unit_key: str
    grade: int


@dataclass(frozen=True, slots=True)
class QueryTerms:
    """A query's terms with repeats, and each distinct term's document frequency and weight."""

    terms: tuple[str, ...]
    frequencies: dict[str, int]
    unit_count: int

    def weight(self, term: str) -> float:
        """Inverse document frequency, as BM25 has it but never below zero."""
        found = self.frequencies.get(term, 0)
        return math.log(1.0 + (self.unit_count - found + 0.5) / (found + 0.5))


def read_query(connection: apsw.Connection, query: str, unit_count: int) -> QueryTerms:
    """The query's terms, bounded: rarest first up to MAX_TERMS and MAX_POSTINGS."""
    terms = query_terms(query)
    frequencies = {term: _frequency(connection, term) for term in dict.fromkeys(terms)}
    repeats = Counter(terms)
    kept: set[str] = set()
    postings = 0
    for term in sorted(frequencies, key=lambda t: (frequencies[t], t)):
        postings += frequencies[term] * repeats[term]
        if len(kept) == MAX_TERMS or (kept and postings > MAX_POSTINGS):
            break
        kept.add(term)
    return QueryTerms(tuple(t for t in terms if t in kept), frequencies, unit_count)


def _frequency(connection: apsw.Connection, term: str) -> int:
    if _stands_for_pairs(term):
        (found,) = only_row(
            connection,
            "SELECT ifnull(sum(doc), 0) FROM unit_vocabulary WHERE term >= ? AND term < ?",
            (term, term + _PREFIX_END),
        )
        return int(found)
    row = first_row(connection, "SELECT doc FROM unit_vocabulary WHERE term = ?", (term,))
    return int(row[0]) if row else 0


def _stands_for_pairs(term: str) -> bool:
    """Whether a term is one character of a script that is indexed in pairs: it is then looked for
    as the beginning of any pair."""
    return len(term) == 1 and term >= FIRST_PAIRED_CHARACTER


def search_bm25(
    connection: apsw.Connection, query: QueryTerms, limit: int
) -> list[tuple[int, str, float]]:
    """(unit_rowid, unit_key, score), best first, ties by unit key; at most `limit`."""
    return best_scored(connection, bm25_scores(connection, query, limit), limit)


def bm25_scores(
    connection: apsw.Connection, query: QueryTerms, limit: int
) -> list[tuple[int, float]]:
    """(unit_rowid, score) of the `limit` best, best first, ties in no order."""
    present = [term for term in query.terms if query.frequencies[term]]
    if not present:
        return []
    expression = " OR ".join(f'"{t}"*' if _stands_for_pairs(t) else f'"{t}"' for t in present)
    return all_rows(
        connection,
        "SELECT found, -score FROM (SELECT rowid AS found, "
        "bm25(unit_terms, ?, ?, ?, ?) AS score FROM unit_terms WHERE unit_terms MATCH ? "
        "ORDER BY score LIMIT ?)",
        (*COLUMN_WEIGHTS, expression, limit),
    )


def best_scored(
    connection: apsw.Connection, scored: Sequence[tuple[int, float]], limit: int
) -> list[tuple[int, str, float]]:
    """(unit_rowid, unit_key, score) of the `limit` best of `scored`, which stands best first.

    Ties by unit key, also those at the cut; only rows that may be among the best are looked up.
    """
    least = scored[min(limit, len(scored)) - 1][1] if scored else 0.0
    rows = [
        (rowid, unit_key, score)
        for rowid, score in takewhile(lambda row: row[1] >= least, scored)
        for (unit_key,) in all_rows(
            connection, "SELECT unit_key FROM units WHERE unit_rowid = ?", (rowid,)
        )
    ]
    rows.sort(key=lambda row: (-row[2], row[1]))
    return rows[:limit]


def search_identity(connection: apsw.Connection, query: str, limit: int) -> list[IdentityHit]:
    """Units of the resources that the whole query names: equal id, then path or title, then
    prefixes; within a grade by unit key. At most UNITS_PER_IDENTITY leading units a resource."""
    key = identity_key(query)
    if not key:
        return []
    grades: dict[int, int] = {}
    for grade, condition, bindings in _identity_searches(key):
        for (rowid,) in all_rows(
            connection,
            f"SELECT resource_rowid FROM resources WHERE {condition} LIMIT ?",
            (*bindings, limit),
        ):
            grades.setdefault(rowid, grade)
    hits = [
        IdentityHit(unit_rowid, unit_key, grade)
        for rowid, grade in grades.items()
        for unit_rowid, unit_key in all_rows(
            connection,
            "SELECT unit_rowid, unit_key FROM units WHERE resource_rowid = ? "
            "ORDER BY ordinal LIMIT ?",
            (rowid, UNITS_PER_IDENTITY),
        )
    ]
    hits.sort(key=lambda hit: (hit.grade, hit.unit_key))
    return hits[:limit]


def _identity_searches(key: str) -> list[tuple[int, str, tuple[str, ...]]]:
    """(grade, SQL condition and order, bindings) of each way to name a resource, best first."""
    searches: list[tuple[int, str, tuple[str, ...]]] = [
        (0, "id_key = ? ORDER BY resource_id", (key,)),
        (1, "path_key = ? ORDER BY resource_id", (key,)),
        (1, "title_key = ? ORDER BY resource_id", (key,)),
    ]
    if len(key) >= MIN_PREFIX_CHARS:
        searches += [
            (
                2,
                f"{column} >= ? AND {column} < ? ORDER BY {column}, resource_id",
                (key, key + _PREFIX_END),
            )
            for column in ("id_key", "path_key", "title_key")
        ]
    return searches


def coverage(query: QueryTerms, texts: Sequence[str]) -> float:
    """Share (0 to 1) of the query's term weight that stands in any of the texts."""
    distinct = set(query.terms)
    total = math.fsum(query.weight(term) for term in distinct)
    if total <= 0.0:
        return 0.0
    joined = document_terms("\n".join(texts))
    found = set(joined.split(" "))
    met = {t for t in distinct if t in found or (_stands_for_pairs(t) and t in joined)}
    return math.fsum(query.weight(term) for term in met) / total
