"""The memories that runs searched: one ordered manifest a state of the memory, bodies as blobs.

A manifest is written once however many runs searched it; `corpus_id` is the hash of its effective
hash and rows. A body is verified once a process, and written anew where it differs.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import apsw
import msgspec

from clumsies.errors import StoreFailed
from clumsies.history.blobs import BlobStore
from clumsies.history.records import CorpusResource, excerpt
from clumsies.storage.database import all_rows, first_row
from clumsies.storage.local_database import LocalDatabase

KEPT_TITLES = 20_000
KEPT_HASHES = 64
_COLUMNS = (
    "resource_order, resource_id, scope, kind, path, title, content_hash, content_preview, "
    "source_commit_id, draft_id, draft_revision, description"
)


@dataclass(frozen=True, slots=True)
class CorpusEntry:
    """What is known of a searched resource without its text."""

    resource_id: str
    scope: str
    kind: str
    path: str
    content_hash: str
    source_commit_id: str | None = None
    draft_id: str | None = None
    draft_revision: str | None = None
    description: str = ""


class Corpus(Protocol):
    """A searched memory; `entries` stand in order of resource id."""

    @property
    def effective_hash(self) -> str: ...

    @property
    def entries(self) -> Sequence[CorpusEntry]: ...

    def read(self, resource_id: str) -> tuple[str, str]:
        """Title and text of an entry."""
        ...


def corpus_id_of(effective_hash: str, resources: Sequence[CorpusResource]) -> str:
    """`corpus_` and the SHA-256 of the JSON of the effective hash and the ordered rows."""
    data = msgspec.json.encode([effective_hash, [msgspec.structs.astuple(r) for r in resources]])
    return "corpus_" + hashlib.sha256(data).hexdigest()


class CorpusStore:
    """Callers hold the history lock around `prepare` and the transaction that calls `write`."""

    def __init__(self, database: LocalDatabase, blobs: BlobStore):
        self._database = database
        self._blobs = blobs
        self._verified: OrderedDict[str, str] = OrderedDict()
        self._titles: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._bodies: set[str] = set()

    def prepare(
        self, corpus: Corpus, now: str, between: Callable[[], None]
    ) -> Callable[[apsw.Connection], str]:
        """Write what bodies are missing; returns what writes the manifest and gives its id.

        `between` is called after each body, so that others need not wait for all of them.
        """
        name = corpus.effective_hash
        known = self._verified.get(name)
        if known is not None:
            self._verified.move_to_end(name)
            return lambda _connection: known
        resources = tuple(
            self._resource(order, entry, corpus, between)
            for order, entry in enumerate(corpus.entries)
        )
        corpus_id = corpus_id_of(name, resources)

        def write(connection: apsw.Connection) -> str:
            write_corpus(connection, corpus_id, name, resources, self._lengths(resources), now)
            return corpus_id

        return write

    def written(self, effective_hash: str, corpus_id: str) -> None:
        """The transaction that wrote the manifest was committed."""
        self._verified[effective_hash] = corpus_id
        while len(self._verified) > KEPT_HASHES:
            self._verified.popitem(last=False)

    def forget(self) -> None:
        """Manifests or bodies were removed: look at everything again."""
        self._verified.clear()
        self._bodies.clear()

    def _resource(
        self, order: int, entry: CorpusEntry, corpus: Corpus, between: Callable[[], None]
    ) -> CorpusResource:
        key = (entry.content_hash, entry.path)
        title = self._titles.get(key)
        text: str | None = None
        if title is None or entry.content_hash not in self._bodies:
            title, text = corpus.read(entry.resource_id)
            self._blobs.put(entry.content_hash, text)
            self._bodies.add(entry.content_hash)
            self._titles[key] = title
            while len(self._titles) > KEPT_TITLES:
                self._titles.popitem(last=False)
            between()
        preview = excerpt(text) if text is not None else self._preview(entry.content_hash)
        return CorpusResource(
            order,
            entry.resource_id,
            entry.scope,
            entry.kind,
            entry.path,
            title,
            entry.content_hash,
            preview,
            entry.source_commit_id,
            entry.draft_id,
            entry.draft_revision,
            entry.description,
        )

    def _preview(self, name: str) -> str:
        with self._database.reader() as connection:
            row = first_row(
                connection,
                "SELECT content_preview FROM retrieval_corpus_blobs WHERE content_hash = ?",
                (name,),
            )
        return str(row[0]) if row is not None else excerpt(self._blobs.read(name))

    def _lengths(self, resources: Sequence[CorpusResource]) -> dict[str, int]:
        names = {resource.content_hash for resource in resources}
        return {name: self._blobs.path(name).stat().st_size for name in names}


def write_corpus(
    connection: apsw.Connection,
    corpus_id: str,
    effective_hash: str,
    resources: Sequence[CorpusResource],
    lengths: dict[str, int],
    now: str,
) -> None:
    """Write a manifest that is not there yet; the bodies must be."""
    if first_row(connection, "SELECT 1 FROM retrieval_corpora WHERE corpus_id = ?", (corpus_id,)):
        return
    connection.execute(
        "INSERT INTO retrieval_corpora VALUES (?, ?, ?)", (corpus_id, effective_hash, now)
    )
    connection.executemany(
        "INSERT OR IGNORE INTO retrieval_corpus_blobs VALUES (?, ?, ?, ?)",
        ((r.content_hash, lengths[r.content_hash], r.content_preview, now) for r in resources),
    )
    connection.executemany(
        "INSERT INTO retrieval_corpus_resources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                corpus_id,
                r.resource_order,
                r.resource_id,
                r.scope,
                r.kind,
                r.path,
                r.title,
                r.content_hash,
                r.source_commit_id,
                r.draft_id,
                r.draft_revision,
                r.description,
            )
            for r in resources
        ),
    )


def read_corpus(connection: apsw.Connection, corpus_id: str | None) -> tuple[CorpusResource, ...]:
    """The manifest in its order; empty for None."""
    rows = all_rows(
        connection,
        f"SELECT {_COLUMNS} FROM retrieval_corpus_resources "
        "JOIN retrieval_corpus_blobs USING (content_hash) "
        "WHERE corpus_id = ? ORDER BY resource_order",
        (corpus_id,),
    )
    return tuple(CorpusResource(*row) for row in rows)


def require_bodies(blobs: BlobStore, resources: Sequence[CorpusResource]) -> None:
    """Raise StoreFailed where a body of the manifest is missing or damaged."""
    for name in {resource.content_hash for resource in resources}:
        if not blobs.holds(name):
            raise StoreFailed(
                "object_corrupt",
                "A body of the searched memory is missing or damaged; activate with the same "
                "query again, and make the case of that run.",
            )
