"""The memories that runs searched: one ordered manifest a state of the memory, bodies as blobs.

A manifest is written once however many runs searched it; `corpus_id` is the hash of its effective
hash and rows. A body is verified once a process, and written anew where it differs.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import apsw
import msgspec

from clumsies.errors import StoreFailed
from clumsies.history.blobs import BlobStore
from clumsies.history.records import CorpusResource, excerpt
from clumsies.storage.database import all_rows

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


@dataclass(frozen=True, slots=True)
class Body:
    """What the database keeps of a body beside its file."""

    content_hash: str
    byte_length: int
    preview: str


ManifestRow = tuple[int, str, str, str, str, str, str, str | None, str | None, str | None, str]
"""The columns of `retrieval_corpus_resources` after the corpus id, in their order."""


def manifest_row(resource: CorpusResource) -> ManifestRow:
    """A resource without its preview, which its content hash says already."""
    return (
        resource.resource_order,
        resource.resource_id,
        resource.scope,
        resource.kind,
        resource.path,
        resource.title,
        resource.content_hash,
        resource.source_commit_id,
        resource.draft_id,
        resource.draft_revision,
        resource.description,
    )


def corpus_id_of(effective_hash: str, rows: Sequence[ManifestRow]) -> str:
    """`corpus_` and the SHA-256 of the JSON of the effective hash and the ordered rows."""
    data = msgspec.json.encode([effective_hash, rows])
    return "corpus_" + hashlib.sha256(data).hexdigest()


class CorpusStore:
    """Callers hold the history lock around `prepare` and the transaction that calls `write`."""

    def __init__(self, blobs: BlobStore):
        self._blobs = blobs
        self._written: OrderedDict[str, str] = OrderedDict()
        self._titles: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._bodies: set[str] = set()

    def prepare(
        self, corpus: Corpus, now: str, between: Callable[[], None]
    ) -> Callable[[apsw.Connection], str]:
        """Write what bodies are missing; returns what writes the manifest and gives its id.

        `between` is called after each body, so that others need not wait for all of them. After a
        transaction that failed the caller has to `forget`.
        """
        name = corpus.effective_hash
        known = self._written.get(name)
        if known is not None:
            self._written.move_to_end(name)
            return lambda _connection: known
        fresh: dict[str, Body] = {}
        rows = [
            self._row(order, entry, corpus, fresh, between)
            for order, entry in enumerate(corpus.entries)
        ]
        corpus_id = corpus_id_of(name, rows)

        def write(connection: apsw.Connection) -> str:
            write_corpus(connection, (corpus_id, name, now), rows, fresh.values())
            return corpus_id

        return write

    def written(self, effective_hash: str, corpus_id: str) -> None:
        """The transaction that wrote the manifest was committed."""
        self._written[effective_hash] = corpus_id
        while len(self._written) > KEPT_HASHES:
            self._written.popitem(last=False)

    def forget(self) -> None:
        """Manifests or bodies may be gone: look at everything again."""
        self._written.clear()
        self._bodies.clear()

    def _row(
        self,
        order: int,
        entry: CorpusEntry,
        corpus: Corpus,
        fresh: dict[str, Body],
        between: Callable[[], None],
    ) -> ManifestRow:
        key = (entry.content_hash, entry.path)
        title = self._titles.get(key)
        if title is None or entry.content_hash not in self._bodies:
            title, text = corpus.read(entry.resource_id)
            self._blobs.put(entry.content_hash, text)
            fresh[entry.content_hash] = body_of(entry.content_hash, text)
            self._bodies.add(entry.content_hash)
            self._titles[key] = title
            while len(self._titles) > KEPT_TITLES:
                self._titles.popitem(last=False)
            between()
        return (
            order,
            entry.resource_id,
            entry.scope,
            entry.kind,
            entry.path,
            title,
            entry.content_hash,
            entry.source_commit_id,
            entry.draft_id,
            entry.draft_revision,
            entry.description,
        )


def body_of(name: str, text: str) -> Body:
    """What the database keeps of a text."""
    return Body(name, len(text.encode("utf-8")), excerpt(text))


def write_corpus(
    connection: apsw.Connection,
    corpus: tuple[str, str, str],
    rows: Sequence[ManifestRow],
    bodies: Iterable[Body],
) -> None:
    """Write a manifest that is not there yet: `corpus` is its id, effective hash and time.

    `bodies` are those that may be new to the database; their files must be there.
    """
    corpus_id, _, now = corpus
    connection.executemany(
        "INSERT OR IGNORE INTO retrieval_corpus_blobs VALUES (?, ?, ?, ?)",
        ((body.content_hash, body.byte_length, body.preview, now) for body in bodies),
    )
    connection.execute("INSERT OR IGNORE INTO retrieval_corpora VALUES (?, ?, ?)", corpus)
    if connection.changes():
        connection.executemany(
            "INSERT INTO retrieval_corpus_resources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            ((corpus_id, *row) for row in rows),
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
