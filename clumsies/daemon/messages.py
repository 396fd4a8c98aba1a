"""What each daemon method takes and gives: typed, closed, and the same for both ends.

Unknown fields are refused by name. An optional field that has nothing to say is left out.
Times are ISO 8601 in UTC, hashes are `sha256:` and 64 hex digits, ids carry their prefix.
`clumsies.daemon.contract.METHODS` joins these types to method names.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from clumsies.daemon.wire import AgentRuntime

Text = Annotated[str, msgspec.Meta(min_length=1)]
Identifier = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
FilePath = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
Revision = Annotated[int, msgspec.Meta(ge=1)]

DraftStatus = Literal["open", "submitted", "merged", "discarded"]
Scope = Literal["org", "project"]
Source = Literal["desktop", "cli", "mcp_store", "server"]
OperationState = Literal["queued", "syncing", "retrying", "synced", "failed"]
ChannelState = Literal["idle", "queued", "syncing", "retrying", "degraded", "failed"]
CacheState = Literal[
    "project_ref_not_synced",
    "storage_unavailable",
    "generation_missing",
    "generation_corrupt",
    "ready",
]


class Message(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The base of every payload."""


class Nothing(Message):
    """A request that needs no more than its method's name."""


class OfProject(Message):
    """A request about one project."""

    project_id: Identifier


# Health, configuration, projects and bindings


class LocalDatabase(Message):
    path: str
    ready: bool
    schema_version: int


class Health(Message):
    daemon_version: str
    agent_runtime: AgentRuntime
    server_url: str
    daemon_installation_id: str
    log_dir: str
    local_db: LocalDatabase
    project_id: str | None = None
    has_personal_token: bool = False


class ProjectConfig(Message):
    server_url: str
    has_access_token: bool
    has_refresh_token: bool
    ready: bool
    missing_fields: list[str]
    project_id: str | None = None


class Project(Message):
    project_id: str
    name: str
    server_url: str
    created_at: str


class ProjectList(Message):
    projects: list[Project]


class ProjectBinding(Message):
    server_url: str
    workspace_root: str
    project_id: str
    revision: int
    created_at: str
    updated_at: str


class BindingList(Message):
    bindings: list[ProjectBinding]


class ResolveBinding(Message):
    """The directory whose nearest bound ancestor is wanted; absolute."""

    directory: FilePath


class ReplaceBinding(Message):
    """`expected_revision` None creates, and repeats without harm; a number replaces that one."""

    workspace_root: FilePath
    project_id: Identifier
    expected_revision: Revision | None


class RemoveBinding(Message):
    workspace_root: FilePath
    expected_revision: Revision


class CreateLocalProject(Message):
    """`workspace_root`, where given, is bound to the new project in the same step."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    workspace_root: FilePath | None = None


class CreatedProject(Message):
    project: Project
    created: bool
    binding: ProjectBinding | None = None


class ImportMemory(Message):
    """Absolute paths of Markdown files and directories that the daemon reads."""

    project_id: Identifier
    paths: Annotated[list[FilePath], msgspec.Meta(min_length=1, max_length=10_000)]
    prefix: str = ""


class LeftOutFile(Message):
    path: str
    reason: str


class ImportReport(Message):
    project_id: str
    commit_id: str
    added: int
    updated: int
    unchanged: int
    left_out: list[LeftOutFile]


# Reading memory


class CheckedOutResource(Message):
    resource_id: str
    scope: Scope
    resource_kind: str
    path: str
    content_hash: str
    content: str
    project_id: str | None = None


class ProjectCheckout(Message):
    project_id: str
    org_selection_revision: int
    selected_org_resource_ids: list[str]
    resources: list[CheckedOutResource]
    ready: bool
    commit_id: str | None = None
    ref_etag: str | None = None
    commit_created_at: str | None = None


class MemoryCache(Message):
    project_id: str
    state: CacheState
    commit_id: str | None = None
    active_generation_path: str | None = None
    diagnostic: str | None = None


class ActivateMemory(Message):
    project_id: Identifier
    query: str
    state: str | None = None


class ActivatedFragment(Message):
    """`content` is left out where the caller's state shows that it has the text (`reuse`);
    `superseded_by` is there where a page says that another replaces it."""

    action: Literal["add", "replace", "reuse"]
    unit_key: str
    content_hash: str
    resource_id: str
    scope: str
    kind: str
    path: str
    heading_path: list[str]
    content: str | None = None
    superseded_by: str | None = None


class RemovedUnit(Message):
    unit_key: str


class SkippedStage(Message):
    stage: str
    reason: str


class Activation(Message):
    index_revision: str
    profile: str
    next_state: str
    fragments: list[ActivatedFragment]
    removed: list[RemovedUnit]
    skipped: list[SkippedStage]
    run_id: str | None = None


class LoadMemory(Message):
    """`known_hashes` maps an id or path to the content hash that the caller holds."""

    project_id: Identifier
    ids: Annotated[list[Text], msgspec.Meta(min_length=1, max_length=256)]
    known_hashes: dict[str, str] = {}


class LoadedMemory(Message):
    resource_id: str
    path: str
    scope: str
    kind: str
    content_hash: str
    description: str
    changed: bool
    content: str | None = None


class LoadedMemories(Message):
    resources: list[LoadedMemory]


class SearchIndexStatus(Message):
    project_id: str
    effective_hash: str
    ready: bool
    model_status: Literal["missing", "preparing", "ready", "failed"]
    active_revision: str | None = None
    active_effective_hash: str | None = None
    model_downloaded_bytes: int | None = None
    model_total_bytes: int | None = None
    build_state: Literal["queued", "building", "ready", "failed"] | None = None
    desired_sequence: int | None = None
    completed_sequence: int | None = None
    units_done: int | None = None
    units_total: int | None = None
    last_error: str | None = None


# Drafts


class DraftContent(Message):
    content: str
    description: str | None = None


class CreateMemory(Message):
    path: FilePath
    content: DraftContent
    description: str | None = None


class Replacement(Message):
    old_text: Text
    new_text: str


class UpdateMemory(Message):
    """Either the whole new `content`, or exact `replacements` in the text of `expected_hash`."""

    id: Identifier
    content: DraftContent | UnsetType = UNSET
    expected_hash: str | UnsetType = UNSET
    replacements: Annotated[list[Replacement], msgspec.Meta(min_length=1)] | UnsetType = UNSET
    description: str | None = None

    def __post_init__(self) -> None:
        whole = self.content is not UNSET
        parts = (self.expected_hash is not UNSET, self.replacements is not UNSET)
        if whole and any(parts):
            raise ValueError("`update` takes `content` or `replacements`, not both")
        if not whole and not all(parts):
            raise ValueError("`update` needs `content`, or `expected_hash` and `replacements`")


class RenameMemory(Message):
    id: Identifier
    new_path: FilePath
    description: str | None = None


class DeleteMemory(Message):
    id: Identifier
    description: str | None = None


class DiscardDraft(Message):
    id: Identifier


class DraftOperation(Message):
    """Exactly one of the five."""

    create: CreateMemory | UnsetType = UNSET
    update: UpdateMemory | UnsetType = UNSET
    rename: RenameMemory | UnsetType = UNSET
    delete: DeleteMemory | UnsetType = UNSET
    discard: DiscardDraft | UnsetType = UNSET

    def __post_init__(self) -> None:
        given = [name for name in self.__struct_fields__ if getattr(self, name) is not UNSET]
        if len(given) != 1:
            raise ValueError(
                "`op` takes exactly one of create, update, rename, delete and discard"
                f" (given: {', '.join(given) or 'none'})"
            )


class StoreDraftOperation(Message):
    """`base_commit_id` left out means the installed Ref's commit; null means no base."""

    project_id: Identifier
    scope: Scope
    resource: Literal["memory"]
    op: DraftOperation
    source: Literal["desktop", "cli", "mcp_store"]
    draft_id: Identifier | None = None
    base_commit_id: Identifier | UnsetType | None = UNSET


class StoredDraftOperation(Message):
    local_operation_id: str
    draft_id: str
    queued: bool
    sync_status: OperationState


class ListDrafts(Message):
    """Newest change first; `cursor` is the `next_cursor` of the page before."""

    project_id: Identifier | None = None
    resource: Literal["memory"] | None = None
    status: DraftStatus | None = None
    cursor: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100


class Draft(Message):
    draft_id: str
    project_id: str
    resource_scope: Scope
    resource_kind: str
    status: DraftStatus
    server_version: int
    freshness: Literal["current", "behind"]
    has_upstream_resource_changes: bool
    reconciliation: Literal["unknown", "clean", "conflicts"]
    created_at: str
    updated_at: str
    server_draft_id: str | None = None
    base_commit_id: str | None = None
    current_commit_id: str | None = None
    reconciliation_candidate_id: str | None = None
    target_id: str | None = None
    path: str | None = None


class DraftPage(Message):
    drafts: list[Draft]
    next_cursor: str | None = None


class GetDraft(Message):
    draft_id: Identifier


class RecordedOperation(Message):
    local_operation_id: str
    resource_kind: str
    operation: dict[str, Any]
    source: Source
    sync_status: OperationState
    created_at: str
    updated_at: str
    server_operation_id: str | None = None
    last_error: str | None = None


class DraftDetail(Message):
    draft: Draft
    operations: list[RecordedOperation]


# Synchronization and agents


class ChannelStatus(Message):
    state: ChannelState
    server_cursor: str | None = None
    last_attempt_at: str | None = None
    last_success_at: str | None = None
    last_error: str | None = None


class UnavailableProject(Message):
    """A project whose membership has ended; what is here of it is kept."""

    project_id: str
    bindings: list[ProjectBinding]
    draft_count: int
    name: str | None = None


class SyncStatus(Message):
    unavailable_projects: list[UnavailableProject]
    draft_sync: ChannelStatus
    commit_sync: ChannelStatus
    pending_operation_count: int
    failed_operation_count: int
    behind_draft_count: int
    reconciliation_conflict_count: int
    last_success_at: str | None = None


class RetrySync(Message):
    channel: Literal["drafts", "commits", "all"]


class SyncRetry(Message):
    retry_id: str
    started: bool


class McpStatus(Message):
    """How agents stand to this daemon: open connections that showed the marker, and calls."""

    agent_runtime: AgentRuntime
    agent_connections: int
    active_requests: int
