"""Identifiers and values that cross floors: resources, units and where a unit stands.

Everything here is immutable and safe to share between threads.
"""

from __future__ import annotations

import hashlib
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
