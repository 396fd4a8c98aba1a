"""The neighbour graph of one index on disk: written whole, verified whole, or not used.

The file is derived and expendable. It is used only where its checksum holds, this version of the
graph library wrote it, it belongs to this index and embedding, and the caller knows the sequence
it was saved at as an ancestor of its own; otherwise `load_graph` returns None and the caller
builds another.

Layout, integers little-endian:

====== ===== ===========================================================================
offset bytes field
====== ===== ===========================================================================
0      8     magic ``clumsANN``
8      4     format version, unsigned: 1
12     4     m, length of the metadata, unsigned, at most 65,536
16     8     p, length of the payload, unsigned
24     32    SHA-256 over bytes 0..24, the metadata and the payload
56     m     metadata: a JSON object with the fields of `_Metadata`, keys sorted
56 + m p     payload: the graph as the library serialises it; the file ends here
====== ===== ===========================================================================
"""

from __future__ import annotations

import hashlib
import logging
import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from clumsies.files import write_private

if TYPE_CHECKING:  # imported where a graph is at hand: see `vectors`
    from clumsies.engine.hnsw_graph import HnswGraph

_log = logging.getLogger(__name__)

FORMAT_VERSION = 1
_MAGIC = b"clumsANN"
_HEADER = struct.Struct("<8sIIQ")
_DIGEST_BYTES = hashlib.sha256().digest_size
_MAX_METADATA_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class GraphStamp:
    """What a graph belongs to: one index, one embedding, one sequence (`token`) of the index."""

    index_identity: str
    embedding_revision: str
    token: str


class _Metadata(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    connectivity: int
    dimensions: int
    embedding_revision: str
    expansion_add: int
    index_identity: str
    last_row_id: int
    library: str
    rows: int
    scalar_kind: str
    token: str


class _UnusableError(Exception):
    """Why a file is left aside; the text is for the log and holds no content."""


def save_graph(path: Path, graph: HnswGraph, stamp: GraphStamp) -> None:
    """Replace `path` atomically by `graph`, mode 0600.

    The caller is the index's writer: every row of the graph was live at or before `stamp.token`.
    Raises IoFailed.
    """
    payload, rows, last_row_id = graph.to_bytes()
    metadata = msgspec.json.encode(
        _metadata(
            dimensions=graph.dimensions,
            scalar_kind=graph.scalar_kind,
            stamp=stamp,
            rows=rows,
            last_row_id=last_row_id,
        ),
        order="sorted",
    )
    header = _HEADER.pack(_MAGIC, FORMAT_VERSION, len(metadata), len(payload))
    digest = _digest(header, metadata, payload)
    write_private(path, [header, digest, metadata, memoryview(payload)])


def load_graph(
    path: Path,
    *,
    index_identity: str,
    embedding_revision: str,
    dimensions: int,
    known_tokens: Collection[str],
) -> HnswGraph | None:
    """The graph saved at `path`, or None where there is none that can be trusted.

    `known_tokens` are the stamps of the caller's sequence and of those it descends from. Rows newer
    than the graph's `last_row_id` are the caller's to add, vanished ones to ignore.
    """
    try:
        with path.open("rb") as stream:
            metadata, payload = _read(stream)
        expected = _metadata(
            dimensions=dimensions,
            scalar_kind=None,
            stamp=GraphStamp(index_identity, embedding_revision, metadata.token),
            rows=metadata.rows,
            last_row_id=metadata.last_row_id,
        )
        if metadata != expected:
            raise _UnusableError("it belongs to another index, embedding or library version")
        if metadata.token not in known_tokens:
            raise _UnusableError("it was saved at a sequence this index does not descend from")
        return _restored(metadata, payload)
    except FileNotFoundError:
        return None
    except (OSError, _UnusableError) as error:
        _log.info("the vector graph file is left aside: %s", error)
        return None


def _metadata(
    *, dimensions: int, scalar_kind: str | None, stamp: GraphStamp, rows: int, last_row_id: int
) -> _Metadata:
    """What this version of library and graph writes; `scalar_kind` None is the default one."""
    from clumsies.engine import hnsw_graph

    return _Metadata(
        connectivity=hnsw_graph.CONNECTIVITY,
        dimensions=dimensions,
        embedding_revision=stamp.embedding_revision,
        expansion_add=hnsw_graph.EXPANSION_ADD,
        index_identity=stamp.index_identity,
        last_row_id=last_row_id,
        library=hnsw_graph.LIBRARY,
        rows=rows,
        scalar_kind=scalar_kind or hnsw_graph.SCALAR_KIND,
        token=stamp.token,
    )


def _read(stream: BinaryIO) -> tuple[_Metadata, bytes]:
    """Metadata and payload of a file whose lengths and checksum hold; raises _UnusableError."""
    header = stream.read(_HEADER.size)
    if len(header) != _HEADER.size:
        raise _UnusableError("it is cut short")
    magic, version, metadata_bytes, payload_bytes = _HEADER.unpack(header)
    if magic != _MAGIC or version != FORMAT_VERSION or metadata_bytes > _MAX_METADATA_BYTES:
        raise _UnusableError("it is of another format")
    stream.seek(0, 2)
    if stream.tell() != _HEADER.size + _DIGEST_BYTES + metadata_bytes + payload_bytes:
        raise _UnusableError("its length is wrong")
    stream.seek(_HEADER.size)
    digest, metadata = stream.read(_DIGEST_BYTES), stream.read(metadata_bytes)
    payload = stream.read(payload_bytes)
    if _digest(header, metadata, payload) != digest:
        raise _UnusableError("its checksum does not hold")
    try:
        return msgspec.json.decode(metadata, type=_Metadata), payload
    except msgspec.DecodeError as error:
        raise _UnusableError("its metadata is of another format") from error


def _restored(metadata: _Metadata, payload: bytes) -> HnswGraph:
    from clumsies.engine.hnsw_graph import HnswGraph

    try:
        graph = HnswGraph.from_bytes(payload, metadata.dimensions, metadata.scalar_kind)
    except ValueError as error:
        raise _UnusableError(str(error)) from error
    if (len(graph), graph.last_row_id) != (metadata.rows, metadata.last_row_id):
        raise _UnusableError("it holds other rows than it says")
    return graph


def _digest(header: bytes, metadata: bytes, payload: bytes | bytearray) -> bytes:
    digest = hashlib.sha256(header)
    digest.update(metadata)
    digest.update(payload)
    return digest.digest()
