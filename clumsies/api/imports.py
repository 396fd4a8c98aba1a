"""Bringing texts into a project's memory at once, without drafts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from clumsies.api.common import Answer, Description, Request
from clumsies.api.drafts import MemoryText, PathText

MAX_FILES = 20_000


class ImportedFile(Request, frozen=True, kw_only=True):
    """A description that is absent keeps what is there, "" takes it away."""

    path: PathText
    content: MemoryText
    description: Description | None = None


class ImportMemories(Request, frozen=True, kw_only=True):
    """With `remove_others` the project's memory is these files and nothing else afterwards."""

    files: Annotated[list[ImportedFile], Meta(max_length=MAX_FILES)]
    remove_others: bool = False


class ImportAnswer(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """How many files did what; `commit_id` is the project's commit afterwards."""

    created: int
    updated: int
    unchanged: int
    removed: int
    commit_id: str | None
