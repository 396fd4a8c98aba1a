"""The hashes that say what an index was built from (contract: retrieval, objects).

Every text is followed by a zero byte, so no two different sequences of texts hash alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from clumsies.engine.analysis import TERMS_VERSION
from clumsies.engine.units import CHUNKER_VERSION, PARSER_VERSION
from clumsies.types import IndexRevision, effective_hash

__all__ = [
    "RANKING_PROFILE",
    "VECTOR_INPUT_VERSION",
    "effective_hash",
    "index_revision",
    "vector_input_hash",
]

VECTOR_INPUT_VERSION = "search-passage.v2"
RANKING_PROFILE = "agent_activation.v4"


def _digest(texts: Iterable[str], tail: bytes = b"") -> str:
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode("utf-8") + b"\x00")
    digest.update(tail)
    return digest.hexdigest()


def vector_input_hash(embedding_revision: str, dimensions: int, passage: str) -> str:
    """`vector_` and the SHA-256 of what a vector depends on; `passage` is without prefix."""
    return "vector_" + _digest((VECTOR_INPUT_VERSION, embedding_revision, str(dimensions), passage))


def index_revision(effective_hash: str, embedding_revision: str, dimensions: int) -> IndexRevision:
    """`search_` and the SHA-256 of the effective hash and every rule that shaped the index."""
    parts = (
        effective_hash,
        PARSER_VERSION,
        CHUNKER_VERSION,
        TERMS_VERSION,
        embedding_revision,
        VECTOR_INPUT_VERSION,
    )
    return IndexRevision("search_" + _digest(parts, dimensions.to_bytes(8, "little")))
