"""Refs and commits as they travel; the objects themselves are `storage.objects`."""

from __future__ import annotations

from typing import Any, Literal

from clumsies.api.common import Answer, PageInfo, Scope
from clumsies.storage.objects import Blob, Commit, Tree


class Ref(Answer, frozen=True, kw_only=True):
    """A movable name; without `commit_id` it is empty."""

    name: Literal["refs/heads/main"]
    scope: Scope
    org_id: str
    project_id: str | None = None
    commit_id: str | None = None
    updated_at: str


class CommitState(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """Where a Ref stands, beside what the client says it has (`local_commit_id`)."""

    update_available: bool
    ref: Ref
    latest: Commit | None
    download_url: str | None
    incremental_supported: bool


class CommitTransfer(Answer, frozen=True, kw_only=True):
    """A commit's payload. With `base_commit_id` the blobs that commit has are left out."""

    commit: Commit
    tree: Tree
    blobs: list[Blob]
    project_org_selection: dict[str, Any] | None = None
    base_commit_id: str | None = None


class CommitPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """The latest commits of a Ref, newest first."""

    items: list[Commit]
    page_info: PageInfo
