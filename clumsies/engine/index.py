"""The derived search database of one memory: resources, units, terms and vectors.

Layout (`index.sqlite`; everything in it can be rebuilt from the resources):

| table | what |
| --- | --- |
| meta | `layout`, `identity` (random, names this file's lineage) |
| head | the one live revision: sequence, stamp, hashes and versions it was built with |
| lineage | stamp of each recent sequence; a vector file is trusted only with one of these |
| resources | complete resources, with folded identity keys |
| units | pieces of resources; `unit_rowid` is never reused |
| unit_terms | FTS5 over search terms, contentless, rowid = unit_rowid |
| vectors | embeddings by input hash; float32 little-endian |
| token_vectors | int8 token vectors of recently built units, within a bound |
| idle_vectors | vectors that no unit uses, in the order they became idle |

Invariant: a reader's transaction sees exactly one revision; a revision becomes visible in one
commit. Concurrent writers are kept apart by `build.lock`.
"""

from __future__ import annotations

import hashlib
import queue
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import apsw

from clumsies.engine.analysis import TERMS_VERSION, TOKENIZER
from clumsies.engine.revisions import VECTOR_INPUT_VERSION
from clumsies.engine.units import CHUNKER_VERSION, PARSER_VERSION
from clumsies.errors import IndexFailed, NotReady
from clumsies.files import FileLock, ensure_private_directory
from clumsies.storage.database import connect, first_row, mapped_errors, only_row, transaction
from clumsies.types import IndexRevision

DATABASE_NAME = "index.sqlite"
LOCK_NAME = "build.lock"
LINEAGE_LENGTH = 64
"""Sequences a vector file may lag behind and still be caught up instead of rebuilt."""

_SCHEMA = f"""
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE head(
  only INTEGER PRIMARY KEY CHECK (only = 1),
  sequence INTEGER NOT NULL, stamp TEXT NOT NULL, revision TEXT NOT NULL,
  effective_hash TEXT NOT NULL, rules TEXT NOT NULL, embedding_revision TEXT NOT NULL,
  profile TEXT NOT NULL, dimensions INTEGER NOT NULL,
  resource_count INTEGER NOT NULL, unit_count INTEGER NOT NULL) STRICT;
CREATE TABLE lineage(sequence INTEGER PRIMARY KEY, stamp TEXT NOT NULL) STRICT;
CREATE TABLE resources(
  resource_rowid INTEGER PRIMARY KEY AUTOINCREMENT,
  resource_id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, scope TEXT NOT NULL,
  path TEXT NOT NULL, title TEXT NOT NULL, description TEXT NOT NULL, content TEXT NOT NULL,
  content_hash TEXT NOT NULL, source_commit_id TEXT, draft_id TEXT, draft_revision TEXT,
  id_key TEXT NOT NULL, path_key TEXT NOT NULL, title_key TEXT NOT NULL) STRICT;
CREATE INDEX resources_by_path ON resources(path);
CREATE INDEX resources_by_id_key ON resources(id_key);
CREATE INDEX resources_by_path_key ON resources(path_key);
CREATE INDEX resources_by_title_key ON resources(title_key);
CREATE TABLE vectors(
  vector_id INTEGER PRIMARY KEY AUTOINCREMENT,
  input_hash TEXT NOT NULL UNIQUE, vector BLOB NOT NULL) STRICT;
CREATE TABLE token_vectors(
  vector_id INTEGER PRIMARY KEY REFERENCES vectors ON DELETE CASCADE, data BLOB NOT NULL) STRICT;
CREATE INDEX token_vectors_by_size ON token_vectors(vector_id, length(data));
CREATE TABLE idle_vectors(
  idle_order INTEGER PRIMARY KEY AUTOINCREMENT,
  vector_id INTEGER NOT NULL UNIQUE REFERENCES vectors ON DELETE CASCADE) STRICT;
CREATE TABLE units(
  unit_rowid INTEGER PRIMARY KEY AUTOINCREMENT,
  resource_rowid INTEGER NOT NULL REFERENCES resources ON DELETE CASCADE,
  unit_key TEXT NOT NULL, ordinal INTEGER NOT NULL, heading_path TEXT NOT NULL,
  start_byte INTEGER NOT NULL, end_byte INTEGER NOT NULL, token_count INTEGER NOT NULL,
  text_hash TEXT NOT NULL, text TEXT NOT NULL,
  vector_id INTEGER NOT NULL REFERENCES vectors) STRICT;
CREATE INDEX units_by_resource ON units(resource_rowid, ordinal);
CREATE INDEX units_by_key ON units(unit_key);
CREATE INDEX units_by_vector ON units(vector_id);
CREATE VIRTUAL TABLE unit_terms USING fts5(
  path, title, heading, body, content='', contentless_delete=1, tokenize="{TOKENIZER}");
CREATE VIRTUAL TABLE unit_vocabulary USING fts5vocab(unit_terms, row);
"""

LAYOUT = hashlib.sha256(_SCHEMA.encode("utf-8")).hexdigest()[:16]
"""Names the schema itself, so that a file of any other schema is taken for foreign."""

RULES = " ".join((PARSER_VERSION, CHUNKER_VERSION, TERMS_VERSION, VECTOR_INPUT_VERSION))
"""The rules that shape rows. An index built by other rules is built anew."""


@dataclass(frozen=True, slots=True)
class Head:
    """The live revision. `sequence` grows by one a commit; `stamp` is random for each."""

    sequence: int
    stamp: str
    revision: IndexRevision
    effective_hash: str
    rules: str
    embedding_revision: str
    profile: str
    dimensions: int
    resource_count: int
    unit_count: int


class IndexStore:
    """The database file: a pool of reading connections and one for writing."""

    def __init__(self, directory: Path):
        self.directory = ensure_private_directory(directory)
        self.path = directory / DATABASE_NAME
        self.build_lock = FileLock(directory / LOCK_NAME)
        self._writer_mutex = threading.Lock()
        self._idle: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        self._all: list[apsw.Connection] = []
        self._pool_mutex = threading.Lock()
        self._closed = False
        self._writer = self._connect()
        try:
            with mapped_errors(self.path):
                self._prepare()
        except BaseException:
            self.close()
            raise

    def _connect(self) -> apsw.Connection:
        connection = connect(self.path)
        with self._pool_mutex:
            self._all.append(connection)
        return connection

    def _prepare(self) -> None:
        try:
            self._make_or_read()
        except apsw.SQLError as error:  # tables of ours lack, or are someone else's
            raise self._foreign() from error

    def _make_or_read(self) -> None:
        with transaction(self._writer, "IMMEDIATE"):
            tables = {row[0] for row in self._writer.execute("SELECT name FROM sqlite_schema")}
            if not tables:
                self._writer.execute(_SCHEMA)
                self._writer.executemany(
                    "INSERT INTO meta VALUES (?, ?)",
                    [("layout", LAYOUT), ("identity", secrets.token_hex(16))],
                )
        if tables and "meta" not in tables:
            raise self._foreign()
        layout = first_row(self._writer, "SELECT value FROM meta WHERE key = 'layout'")
        if layout != (LAYOUT,):
            raise self._foreign()
        identity = first_row(self._writer, "SELECT value FROM meta WHERE key = 'identity'")
        if identity is None:
            raise self._foreign()
        self.identity = str(identity[0])

    def _foreign(self) -> IndexFailed:
        return IndexFailed(
            "search_index_corrupt",
            f"{self.path} is not a search index of this version; it is derived data: "
            "delete it and index again.",
        )

    @contextmanager
    def reader(self) -> Iterator[apsw.Connection]:
        """A connection inside one read transaction: everything read is of one revision."""
        if self._closed:
            raise RuntimeError("the engine is closed")
        try:
            connection = self._idle.get_nowait()
        except queue.Empty:
            connection = self._connect()
        try:
            with mapped_errors(self.path), transaction(connection, "DEFERRED"):
                yield connection
        finally:
            self._idle.put(connection)

    @contextmanager
    def writer(self, mode: Literal["IMMEDIATE"] = "IMMEDIATE") -> Iterator[apsw.Connection]:
        """The writing connection inside one transaction; one thread at a time."""
        if self._closed:
            raise RuntimeError("the engine is closed")
        with self._writer_mutex, mapped_errors(self.path), transaction(self._writer, mode):
            yield self._writer

    def checkpoint(self) -> None:
        """Fold the write-ahead log back into the file as far as readers allow."""
        with self._writer_mutex, mapped_errors(self.path):
            self._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def integrity_problems(self) -> list[str]:
        """What SQLite's and FTS5's own checks say; empty for a sound index."""
        with self._writer_mutex:
            try:
                rows = self._writer.execute("PRAGMA integrity_check").fetchall()
                problems = [str(row[0]) for row in rows if row[0] != "ok"]
                self._writer.execute(
                    "INSERT INTO unit_terms(unit_terms) VALUES ('integrity-check')"
                )
            except apsw.Error as error:
                return [f"{type(error).__name__}"]
            (orphans,) = only_row(
                self._writer,
                "SELECT count(*) FROM units WHERE unit_rowid NOT IN "
                "(SELECT id FROM unit_terms_docsize)",
            )
            (strays,) = only_row(
                self._writer,
                "SELECT count(*) FROM unit_terms_docsize WHERE id NOT IN "
                "(SELECT unit_rowid FROM units)",
            )
        if orphans or strays:
            problems.append(f"{orphans} units without terms, {strays} terms without unit")
        return problems

    def close(self) -> None:
        """Close every connection; readers must have ended."""
        self._closed = True
        with self._pool_mutex:
            for connection in self._all:
                connection.close()
            self._all.clear()


def read_head(connection: apsw.Connection) -> Head | None:
    """The live revision that this transaction sees; None before the first build."""
    row = first_row(
        connection,
        "SELECT sequence, stamp, revision, effective_hash, rules, embedding_revision, profile, "
        "dimensions, resource_count, unit_count FROM head",
    )
    if row is None:
        return None
    sequence, stamp, revision, *rest = row
    return Head(sequence, stamp, IndexRevision(revision), *rest)


def is_current(head: Head, embedding_revision: str, dimensions: int) -> bool:
    """Whether the revision was built by today's rules, for such vectors."""
    built = (head.embedding_revision, head.dimensions, head.rules)
    return built == (embedding_revision, dimensions, RULES)


def require_head(connection: apsw.Connection, embedding_revision: str, dimensions: int) -> Head:
    """The live revision, or NotReady where there is none that this profile can search."""
    head = read_head(connection)
    if head is None:
        raise NotReady(
            "search_index_not_ready", "Nothing is indexed here yet; index the resources first."
        )
    if not is_current(head, embedding_revision, dimensions):
        raise NotReady(
            "search_index_not_ready",
            f"The index was built with profile {head.profile!r} or by other rules; "
            "index the resources again to search with this profile.",
            {"built_with": head.profile},
        )
    return head


def write_head(connection: apsw.Connection, head: Head) -> None:
    """Make `head` the live revision and remember its stamp."""
    connection.execute(
        "INSERT OR REPLACE INTO head VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            head.sequence,
            head.stamp,
            head.revision,
            head.effective_hash,
            head.rules,
            head.embedding_revision,
            head.profile,
            head.dimensions,
            head.resource_count,
            head.unit_count,
        ),
    )
    connection.execute("INSERT INTO lineage VALUES (?, ?)", (head.sequence, head.stamp))
    connection.execute("DELETE FROM lineage WHERE sequence <= ?", (head.sequence - LINEAGE_LENGTH,))
