"""Identifiers and values that cross floors: resources, units and where a unit stands.

Everything here is immutable and safe to share between threads.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NewType

ResourceId = NewType("ResourceId", str)
UnitKey = NewType("UnitKey", str)
IndexRevision = NewType("IndexRevision", str)
ContentHash = NewType("ContentHash", str)


def content_hash(text: str) -> ContentHash:
    """`sha256:` and the hex SHA-256 of the text's UTF-8 bytes."""
    return ContentHash("sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest())


def effective_hash(
    project_id: str,
    base_commit_id: str | None,
    rows: Iterable[tuple[str, str, str, str, str, str, str]],
) -> str:
    """`sha256:` over a memory as it stands.

    `rows` are (resource_id, kind, scope, path, content_hash, draft_id, draft_revision) in order of
    resource_id, with "" for no draft.
    """
    digest = hashlib.sha256(project_id.encode("utf-8") + b"\x00")
    digest.update((base_commit_id or "").encode("utf-8"))
    for row in rows:
        digest.update("\x00".join(row).encode("utf-8") + b"\x00")
    return "sha256:" + digest.hexdigest()


def draft_revision(draft_id: str, operations: Iterable[tuple[int, bytes]]) -> str:
    """`sha256:` over a draft's id and its (row id, operation JSON) in order.

    A row id counts as 8 bytes, little-endian and signed. What the Server says about an operation
    is no part of it.
    """
    digest = hashlib.sha256(draft_id.encode("utf-8"))
    for rowid, operation_json in operations:
        digest.update(rowid.to_bytes(8, "little", signed=True) + operation_json)
    return "sha256:" + digest.hexdigest()


@dataclass(frozen=True)
class Resource:
    """One complete Markdown resource of a memory.

    `path` is relative, with `/`, and unique within a memory; `resource_id` is stable across
    renames. `draft_id` and `draft_revision` are set where a draft stands over the committed text.
    """

    resource_id: ResourceId
    path: str
    content: str
    description: str = ""
    kind: str = "memory"
    scope: str = "project"
    source_commit_id: str | None = None
    draft_id: str | None = None
    draft_revision: str | None = None

    @cached_property
    def content_hash(self) -> ContentHash:
        """Hash of `content` alone; the description has its own unit."""
        return content_hash(self.content)


@dataclass(frozen=True, slots=True)
class Locator:
    """Half-open byte range `[start, end)` of a resource's UTF-8 body."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Unit:
    """A piece of a resource that is ranked on its own.

    `token_count` counts `text` with the embedding tokenizer, special tokens excluded.
    """

    unit_key: UnitKey
    resource_id: ResourceId
    ordinal: int
    heading_path: tuple[str, ...]
    locator: Locator
    text: str
    text_hash: ContentHash
    token_count: int
