"""The Server's tables, for SQLite and PostgreSQL alike.

Times are `storage.timestamps.row_time`, so that text order is time order. JSON is text. A text of
memory is bytes (UTF-8), as PostgreSQL keeps no NUL in a text. Everything but blobs, trees and
commits carries its organisation, and every query names it.

| table | what |
| --- | --- |
| orgs, users | organisations and their people; `role` is of the organisation |
| projects, project_members | a deleted project keeps its row, so that its drafts are not lost |
| resources | the memory of an organisation's current commit, by id, with its revision |
| project_org_selection_states, project_org_resource_selections | what a project has of it |
| personal_bundles, personal_bundle_items | lists of memories of one person |
| drafts, draft_operations | proposals and their operations in order |
| draft_events, draft_event_counters | each author's feed; a counter's row lock orders it |
| draft_reconciliation_candidates | what a rebase of a draft would do |
| draft_revisions, draft_rebases | drafts as they were before a rebase |
| reviews, review_drafts, review_comments, review_merges | judging and merging |
| blobs, trees, commits | immutable objects |
| refs | where an organisation and each project stands |
| audit_events | who did what, without texts |
"""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _one_of(column: str, *values: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


orgs = Table(
    "orgs",
    metadata,
    Column("org_id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("created_at", String, nullable=False),
    Column("updated_at", String, nullable=False),
)
users = Table(
    "users",
    metadata,
    Column("user_id", String, primary_key=True),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False, index=True),
    Column("email", String, nullable=False),
    Column("email_key", String, nullable=False),  # casefolded, for comparing
    Column("display_name", String, nullable=False),
    Column("avatar_url", String),
    Column("role", String, nullable=False),
    Column("status", String, nullable=False),
    Column("oidc_issuer", String),
    Column("oidc_subject", String),
    Column("revision", Integer, nullable=False, default=1),
    Column("created_at", String, nullable=False),
    Column("updated_at", String, nullable=False),
    UniqueConstraint("org_id", "email_key"),
    UniqueConstraint("oidc_issuer", "oidc_subject"),
    _one_of("role", "owner", "admin", "member"),
    _one_of("status", "invited", "active", "disabled"),
)
projects = Table(
    "projects",
    metadata,
    Column("project_id", String, primary_key=True),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False, index=True),
    Column("name", String, nullable=False),
    Column("description", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", String, nullable=False),
    Column("updated_at", String, nullable=False),
    Column("deleted_at", String),
)
project_members = Table(
    "project_members",
    metadata,
    Column("project_id", ForeignKey("projects.project_id"), primary_key=True),
    Column("user_id", ForeignKey("users.user_id"), primary_key=True),
    Column("role", String, nullable=False),
    Column("joined_at", String, nullable=False),
    Index("ix_project_members_user_id", "user_id"),
    _one_of("role", "admin", "member"),
)
project_creations = Table(
    "project_creations",
    metadata,
    Column("user_id", ForeignKey("users.user_id"), primary_key=True),
    Column("idempotency_key", String, primary_key=True),
    Column("request_hash", String, nullable=False),
    Column("project_id", ForeignKey("projects.project_id"), nullable=False),
    Column("created_at", String, nullable=False),
)
resources = Table(
    "resources",
    metadata,
    Column("resource_id", String, primary_key=True),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False),
    Column("path", String, nullable=False),
    Column("name", String, nullable=False),
    Column("description", Text, nullable=False),
    Column("blob_id", ForeignKey("blobs.blob_id"), nullable=False),
    Column("content_hash", String, nullable=False),
    Column("status", String, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", String, nullable=False),
    Column("updated_at", String, nullable=False),
    UniqueConstraint("org_id", "path"),
    _one_of("status", "active", "deprecated", "archived"),
)
project_org_selection_states = Table(
    "project_org_selection_states",
    metadata,
    Column("project_id", ForeignKey("projects.project_id"), primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("updated_at", String, nullable=False),
)
project_org_resource_selections = Table(
    "project_org_resource_selections",
    metadata,
    Column("project_id", ForeignKey("projects.project_id"), primary_key=True),
    Column("resource_id", String, primary_key=True),
    Index("ix_project_org_resource_selections_resource_id", "resource_id"),
)
personal_bundles = Table(
    "personal_bundles",
    metadata,
    Column("bundle_id", String, primary_key=True),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False),
    Column("owner_user_id", ForeignKey("users.user_id"), nullable=False, index=True),
    Column("name", String, nullable=False),
    Column("description", Text, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("created_at", String, nullable=False),
    Column("updated_at", String, nullable=False),
)
personal_bundle_items = Table(
    "personal_bundle_items",
    metadata,
    Column("bundle_id", ForeignKey("personal_bundles.bundle_id"), primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("resource_id", String, nullable=False),
)
drafts = Table(
    "drafts",
    metadata,
    Column("draft_id", String, primary_key=True),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False),
    Column("project_id", ForeignKey("projects.project_id"), nullable=False),
    Column("author_id", ForeignKey("users.user_id"), nullable=False),
    Column("client_draft_id", String),
    Column("request_hash", String),  # of the creation, so that a repeat is told from another
    Column("daemon_installation_id", String),
    Column("scope", String, nullable=False),
    Column("target_id", String),
    Column("path", String),
    Column("title", String, nullable=False),
    Column("description", Text, nullable=False),
    Column("base_commit_id", ForeignKey("commits.commit_id")),
    Column("status", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_at", String, nullable=False),
    Column("updated_at", String, nullable=False),
    UniqueConstraint("author_id", "client_draft_id"),
    Index("ix_drafts_author_id_updated_at", "author_id", "updated_at"),
    Index("ix_drafts_org_id_status", "org_id", "status"),
    _one_of("scope", "org", "project"),
    _one_of("status", "open", "submitted", "merged", "discarded"),
)
draft_operations = Table(
    "draft_operations",
    metadata,
    Column("operation_id", String, primary_key=True),
    Column("draft_id", ForeignKey("drafts.draft_id"), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("local_operation_id", String),
    Column("operation_json", Text, nullable=False),  # memory.operations.StoreOperation
    Column("created_at", String, nullable=False),
    UniqueConstraint("draft_id", "ordinal"),
    UniqueConstraint("draft_id", "local_operation_id"),
)
draft_event_counters = Table(
    "draft_event_counters",
    metadata,
    Column("author_id", ForeignKey("users.user_id"), primary_key=True),
    Column("last_sequence", Integer, nullable=False),
)
draft_events = Table(
    "draft_events",
    metadata,
    Column("author_id", ForeignKey("users.user_id"), primary_key=True),
    Column("sequence", Integer, primary_key=True, autoincrement=False),
    Column("event_id", String, nullable=False, unique=True),
    Column("draft_id", ForeignKey("drafts.draft_id"), nullable=False),
    Column("project_id", String, nullable=False),
    Column("event_type", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("daemon_installation_id", String),
    Column("created_at", String, nullable=False),
)
draft_reconciliation_candidates = Table(
    "draft_reconciliation_candidates",
    metadata,
    Column("candidate_id", String, primary_key=True),
    Column("draft_id", ForeignKey("drafts.draft_id"), nullable=False, index=True),
    Column("draft_version", Integer, nullable=False),
    Column("base_commit_id", String),
    Column("current_commit_id", String),
    Column("status", String, nullable=False),
    Column("states_json", Text, nullable=False),  # base, current, draft, proposed
    Column("conflicts_json", Text, nullable=False),
    Column("result_hash", String),
    Column("created_at", String, nullable=False),
    Column("invalidated_at", String),
    _one_of("status", "clean", "conflicts"),
)
draft_revisions = Table(
    "draft_revisions",
    metadata,
    Column("revision_id", String, primary_key=True),
    Column("draft_id", ForeignKey("drafts.draft_id"), nullable=False, index=True),
    Column("version", Integer, nullable=False),
    Column("base_commit_id", String),
    Column("operations_json", Text, nullable=False),
    Column("created_at", String, nullable=False),
)
draft_rebases = Table(
    "draft_rebases",
    metadata,
    Column("rebase_id", String, primary_key=True),
    Column("draft_id", ForeignKey("drafts.draft_id"), nullable=False, index=True),
    Column("candidate_id", String, nullable=False),
    Column("previous_revision_id", ForeignKey("draft_revisions.revision_id"), nullable=False),
    Column("rebased_by", ForeignKey("users.user_id"), nullable=False),
    Column("base_commit_id", String),
    Column("created_at", String, nullable=False),
)
reviews = Table(
    "reviews",
    metadata,
    Column("review_id", String, primary_key=True),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False),
    Column("project_id", ForeignKey("projects.project_id"), nullable=False, index=True),
    Column("author_id", ForeignKey("users.user_id"), nullable=False),
    Column("title", String, nullable=False),
    Column("description", Text, nullable=False),
    Column("status", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("decision_body", Text),
    Column("approved_result_hash", String),
    Column("decided_by", ForeignKey("users.user_id")),
    Column("decided_at", String),
    Column("created_at", String, nullable=False),
    Column("updated_at", String, nullable=False),
    Index("ix_reviews_org_id_updated_at", "org_id", "updated_at"),
    _one_of("status", "open", "approved", "rejected", "merged"),
)
review_drafts = Table(
    "review_drafts",
    metadata,
    Column("review_id", ForeignKey("reviews.review_id"), primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("draft_id", ForeignKey("drafts.draft_id"), nullable=False, index=True),
)
review_comments = Table(
    "review_comments",
    metadata,
    Column("comment_id", String, primary_key=True),
    Column("review_id", ForeignKey("reviews.review_id"), nullable=False, index=True),
    Column("author_id", ForeignKey("users.user_id"), nullable=False),
    Column("body", Text, nullable=False),
    Column("review_version", Integer, nullable=False),
    Column("anchor_path", String),
    Column("anchor_line", Integer),
    Column("created_at", String, nullable=False),
)
review_merges = Table(
    "review_merges",
    metadata,
    Column("review_id", ForeignKey("reviews.review_id"), primary_key=True),
    Column("commit_id", ForeignKey("commits.commit_id")),
    Column("merged_by", ForeignKey("users.user_id"), nullable=False),
    Column("applied_operation_count", Integer, nullable=False),
    Column("created_at", String, nullable=False),
)
blobs = Table(
    "blobs",
    metadata,
    Column("blob_id", String, primary_key=True),
    Column("content", LargeBinary, nullable=False),
    Column("content_hash", String, nullable=False),
)
trees = Table(
    "trees",
    metadata,
    Column("tree_id", String, primary_key=True),
    Column("payload", LargeBinary, nullable=False),  # storage.objects.tree_payload
)
commits = Table(
    "commits",
    metadata,
    Column("commit_id", String, primary_key=True),
    Column("scope", String, nullable=False),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False),
    Column("project_id", ForeignKey("projects.project_id")),
    Column("tree_id", ForeignKey("trees.tree_id"), nullable=False),
    Column("parent_commit_id", String),
    Column("version", Integer, nullable=False),
    Column("created_at", String, nullable=False),  # RFC 3339, as the commit's payload has it
    Column("author_id", ForeignKey("users.user_id")),
    Index("ix_commits_owner", "org_id", "scope", "project_id", "version"),
    _one_of("scope", "org", "project"),
)
refs = Table(
    "refs",
    metadata,
    Column("ref_key", String, primary_key=True),  # `org:<id>` or `project:<id>`
    Column("scope", String, nullable=False),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False, index=True),
    Column("project_id", ForeignKey("projects.project_id")),
    Column("commit_id", ForeignKey("commits.commit_id")),
    Column("updated_at", String, nullable=False),
    _one_of("scope", "org", "project"),
)
audit_events = Table(
    "audit_events",
    metadata,
    Column("sequence", Integer, primary_key=True),
    Column("event_id", String, nullable=False, unique=True),
    Column("org_id", ForeignKey("orgs.org_id"), nullable=False, index=True),
    Column("actor_id", String),
    Column("action", String, nullable=False),
    Column("target_type", String, nullable=False),
    Column("target_id", String),
    Column("details_json", Text, nullable=False),
    Column("request_id", String),
    Column("created_at", String, nullable=False),
)
