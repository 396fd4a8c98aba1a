"""The tables of the first schema, as they were; every later change is a step of its own.

The tables as they are now stand in `schema` and `identity.schema_identity`. `$bytes` and `$counter`
are the two types whose names differ between the dialects.
"""

from __future__ import annotations

from string import Template

from sqlalchemy import Connection

_TYPES = {
    "sqlite": {"bytes": "BLOB", "counter": "INTEGER"},
    "postgresql": {"bytes": "BYTEA", "counter": "SERIAL"},
}
_STATEMENTS = """
CREATE TABLE blobs (
  blob_id VARCHAR NOT NULL,
  content $bytes NOT NULL,
  content_hash VARCHAR NOT NULL,
  CONSTRAINT pk_blobs PRIMARY KEY (blob_id));
CREATE TABLE identity_provider (
  only_row BOOLEAN NOT NULL,
  issuer VARCHAR NOT NULL,
  client_id VARCHAR NOT NULL,
  client_secret VARCHAR,
  allowed_domains VARCHAR NOT NULL,
  updated_at VARCHAR NOT NULL,
  CONSTRAINT pk_identity_provider PRIMARY KEY (only_row));
CREATE TABLE login_transactions (
  state_hash VARCHAR NOT NULL,
  purpose VARCHAR NOT NULL,
  client_kind VARCHAR NOT NULL,
  redirect_uri TEXT NOT NULL,
  client_state TEXT,
  code_challenge VARCHAR,
  nonce VARCHAR NOT NULL,
  code_verifier VARCHAR NOT NULL,
  setup_code_hash VARCHAR,
  created_at VARCHAR NOT NULL,
  expires_at VARCHAR NOT NULL,
  CONSTRAINT pk_login_transactions PRIMARY KEY (state_hash));
CREATE TABLE orgs (
  org_id VARCHAR NOT NULL,
  name VARCHAR NOT NULL,
  created_at VARCHAR NOT NULL,
  updated_at VARCHAR NOT NULL,
  CONSTRAINT pk_orgs PRIMARY KEY (org_id));
CREATE TABLE trees (
  tree_id VARCHAR NOT NULL,
  payload $bytes NOT NULL,
  CONSTRAINT pk_trees PRIMARY KEY (tree_id));
CREATE TABLE audit_events (
  sequence $counter NOT NULL,
  event_id VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  actor_id VARCHAR,
  action VARCHAR NOT NULL,
  target_type VARCHAR NOT NULL,
  target_id VARCHAR,
  details_json TEXT NOT NULL,
  request_id VARCHAR,
  created_at VARCHAR NOT NULL,
  CONSTRAINT pk_audit_events PRIMARY KEY (sequence),
  CONSTRAINT uq_audit_events_event_id UNIQUE (event_id),
  CONSTRAINT fk_audit_events_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id));
CREATE INDEX ix_audit_events_org_id ON audit_events (org_id);
CREATE TABLE projects (
  project_id VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  name VARCHAR NOT NULL,
  description TEXT NOT NULL,
  revision INTEGER NOT NULL,
  created_at VARCHAR NOT NULL,
  updated_at VARCHAR NOT NULL,
  deleted_at VARCHAR,
  CONSTRAINT pk_projects PRIMARY KEY (project_id),
  CONSTRAINT fk_projects_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id));
CREATE INDEX ix_projects_org_id ON projects (org_id);
CREATE TABLE resources (
  resource_id VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  path VARCHAR NOT NULL,
  name VARCHAR NOT NULL,
  description TEXT NOT NULL,
  blob_id VARCHAR NOT NULL,
  content_hash VARCHAR NOT NULL,
  status VARCHAR NOT NULL,
  revision INTEGER NOT NULL,
  created_at VARCHAR NOT NULL,
  updated_at VARCHAR NOT NULL,
  CONSTRAINT pk_resources PRIMARY KEY (resource_id),
  CONSTRAINT uq_resources_org_id_path UNIQUE (org_id, path),
  CONSTRAINT ck_resources_status CHECK (status IN ('active', 'deprecated', 'archived')),
  CONSTRAINT fk_resources_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id),
  CONSTRAINT fk_resources_blob_id FOREIGN KEY(blob_id) REFERENCES blobs (blob_id));
CREATE TABLE setup_codes (
  code_hash VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  cookie_hash VARCHAR,
  cookie_expires_at VARCHAR,
  expires_at VARCHAR NOT NULL,
  completed_at VARCHAR,
  CONSTRAINT pk_setup_codes PRIMARY KEY (code_hash),
  CONSTRAINT fk_setup_codes_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id),
  CONSTRAINT uq_setup_codes_cookie_hash UNIQUE (cookie_hash));
CREATE TABLE users (
  user_id VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  email VARCHAR NOT NULL,
  email_key VARCHAR NOT NULL,
  display_name VARCHAR NOT NULL,
  avatar_url VARCHAR,
  role VARCHAR NOT NULL,
  status VARCHAR NOT NULL,
  oidc_issuer VARCHAR,
  oidc_subject VARCHAR,
  revision INTEGER NOT NULL,
  created_at VARCHAR NOT NULL,
  updated_at VARCHAR NOT NULL,
  CONSTRAINT pk_users PRIMARY KEY (user_id),
  CONSTRAINT uq_users_org_id_email_key UNIQUE (org_id, email_key),
  CONSTRAINT uq_users_oidc_issuer_oidc_subject UNIQUE (oidc_issuer, oidc_subject),
  CONSTRAINT ck_users_role CHECK (role IN ('owner', 'admin', 'member')),
  CONSTRAINT ck_users_status CHECK (status IN ('invited', 'active', 'disabled')),
  CONSTRAINT fk_users_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id));
CREATE INDEX ix_users_org_id ON users (org_id);
CREATE TABLE authorization_codes (
  code_hash VARCHAR NOT NULL,
  user_id VARCHAR NOT NULL,
  client_kind VARCHAR NOT NULL,
  redirect_uri TEXT NOT NULL,
  code_challenge VARCHAR NOT NULL,
  session_id VARCHAR,
  created_at VARCHAR NOT NULL,
  expires_at VARCHAR NOT NULL,
  CONSTRAINT pk_authorization_codes PRIMARY KEY (code_hash),
  CONSTRAINT fk_authorization_codes_user_id FOREIGN KEY(user_id) REFERENCES users (user_id));
CREATE TABLE commits (
  commit_id VARCHAR NOT NULL,
  scope VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  project_id VARCHAR,
  tree_id VARCHAR NOT NULL,
  parent_commit_id VARCHAR,
  version INTEGER NOT NULL,
  created_at VARCHAR NOT NULL,
  author_id VARCHAR,
  CONSTRAINT pk_commits PRIMARY KEY (commit_id),
  CONSTRAINT ck_commits_scope CHECK (scope IN ('org', 'project')),
  CONSTRAINT fk_commits_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id),
  CONSTRAINT fk_commits_project_id FOREIGN KEY(project_id) REFERENCES projects (project_id),
  CONSTRAINT fk_commits_tree_id FOREIGN KEY(tree_id) REFERENCES trees (tree_id),
  CONSTRAINT fk_commits_author_id FOREIGN KEY(author_id) REFERENCES users (user_id));
CREATE INDEX ix_commits_owner ON commits (org_id, scope, project_id, version);
CREATE TABLE draft_event_counters (
  author_id VARCHAR NOT NULL,
  last_sequence INTEGER NOT NULL,
  CONSTRAINT pk_draft_event_counters PRIMARY KEY (author_id),
  CONSTRAINT fk_draft_event_counters_author_id FOREIGN KEY(author_id) REFERENCES users (user_id));
CREATE TABLE personal_bundles (
  bundle_id VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  owner_user_id VARCHAR NOT NULL,
  name VARCHAR NOT NULL,
  description TEXT NOT NULL,
  revision INTEGER NOT NULL,
  created_at VARCHAR NOT NULL,
  updated_at VARCHAR NOT NULL,
  CONSTRAINT pk_personal_bundles PRIMARY KEY (bundle_id),
  CONSTRAINT fk_personal_bundles_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id),
  CONSTRAINT fk_personal_bundles_owner_user_id FOREIGN KEY(owner_user_id)
    REFERENCES users (user_id));
CREATE INDEX ix_personal_bundles_owner_user_id ON personal_bundles (owner_user_id);
CREATE TABLE personal_tokens (
  token_id VARCHAR NOT NULL,
  token_hash VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  user_id VARCHAR NOT NULL,
  name VARCHAR NOT NULL,
  created_by VARCHAR,
  created_at VARCHAR NOT NULL,
  expires_at VARCHAR,
  last_used_at VARCHAR,
  revoked_at VARCHAR,
  CONSTRAINT pk_personal_tokens PRIMARY KEY (token_id),
  CONSTRAINT uq_personal_tokens_token_hash UNIQUE (token_hash),
  CONSTRAINT fk_personal_tokens_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id),
  CONSTRAINT fk_personal_tokens_user_id FOREIGN KEY(user_id) REFERENCES users (user_id));
CREATE INDEX ix_personal_tokens_org_id ON personal_tokens (org_id);
CREATE INDEX ix_personal_tokens_user_id ON personal_tokens (user_id);
CREATE TABLE project_creations (
  user_id VARCHAR NOT NULL,
  idempotency_key VARCHAR NOT NULL,
  request_hash VARCHAR NOT NULL,
  project_id VARCHAR NOT NULL,
  created_at VARCHAR NOT NULL,
  CONSTRAINT pk_project_creations PRIMARY KEY (user_id, idempotency_key),
  CONSTRAINT fk_project_creations_user_id FOREIGN KEY(user_id) REFERENCES users (user_id),
  CONSTRAINT fk_project_creations_project_id FOREIGN KEY(project_id)
    REFERENCES projects (project_id));
CREATE TABLE project_members (
  project_id VARCHAR NOT NULL,
  user_id VARCHAR NOT NULL,
  role VARCHAR NOT NULL,
  joined_at VARCHAR NOT NULL,
  CONSTRAINT pk_project_members PRIMARY KEY (project_id, user_id),
  CONSTRAINT ck_project_members_role CHECK (role IN ('admin', 'member')),
  CONSTRAINT fk_project_members_project_id FOREIGN KEY(project_id)
    REFERENCES projects (project_id),
  CONSTRAINT fk_project_members_user_id FOREIGN KEY(user_id) REFERENCES users (user_id));
CREATE INDEX ix_project_members_user_id ON project_members (user_id);
CREATE TABLE project_org_resource_selections (
  project_id VARCHAR NOT NULL,
  resource_id VARCHAR NOT NULL,
  CONSTRAINT pk_project_org_resource_selections PRIMARY KEY (project_id, resource_id),
  CONSTRAINT fk_project_org_resource_selections_project_id FOREIGN KEY(project_id)
    REFERENCES projects (project_id));
CREATE INDEX ix_project_org_resource_selections_resource_id
  ON project_org_resource_selections (resource_id);
CREATE TABLE project_org_selection_states (
  project_id VARCHAR NOT NULL,
  revision INTEGER NOT NULL,
  updated_at VARCHAR NOT NULL,
  CONSTRAINT pk_project_org_selection_states PRIMARY KEY (project_id),
  CONSTRAINT fk_project_org_selection_states_project_id FOREIGN KEY(project_id)
    REFERENCES projects (project_id));
CREATE TABLE reviews (
  review_id VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  project_id VARCHAR NOT NULL,
  author_id VARCHAR NOT NULL,
  title VARCHAR NOT NULL,
  description TEXT NOT NULL,
  status VARCHAR NOT NULL,
  version INTEGER NOT NULL,
  decision_body TEXT,
  approved_result_hash VARCHAR,
  decided_by VARCHAR,
  decided_at VARCHAR,
  created_at VARCHAR NOT NULL,
  updated_at VARCHAR NOT NULL,
  CONSTRAINT pk_reviews PRIMARY KEY (review_id),
  CONSTRAINT ck_reviews_status CHECK (status IN ('open', 'approved', 'rejected', 'merged')),
  CONSTRAINT fk_reviews_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id),
  CONSTRAINT fk_reviews_project_id FOREIGN KEY(project_id) REFERENCES projects (project_id),
  CONSTRAINT fk_reviews_author_id FOREIGN KEY(author_id) REFERENCES users (user_id),
  CONSTRAINT fk_reviews_decided_by FOREIGN KEY(decided_by) REFERENCES users (user_id));
CREATE INDEX ix_reviews_org_id_updated_at ON reviews (org_id, updated_at);
CREATE INDEX ix_reviews_project_id ON reviews (project_id);
CREATE TABLE sessions (
  session_id VARCHAR NOT NULL,
  user_id VARCHAR NOT NULL,
  client_kind VARCHAR NOT NULL,
  created_at VARCHAR NOT NULL,
  revoked_at VARCHAR,
  CONSTRAINT pk_sessions PRIMARY KEY (session_id),
  CONSTRAINT fk_sessions_user_id FOREIGN KEY(user_id) REFERENCES users (user_id));
CREATE INDEX ix_sessions_user_id ON sessions (user_id);
CREATE TABLE drafts (
  draft_id VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  project_id VARCHAR NOT NULL,
  author_id VARCHAR NOT NULL,
  client_draft_id VARCHAR,
  request_hash VARCHAR,
  daemon_installation_id VARCHAR,
  scope VARCHAR NOT NULL,
  target_id VARCHAR,
  path VARCHAR,
  title VARCHAR NOT NULL,
  description TEXT NOT NULL,
  base_commit_id VARCHAR,
  status VARCHAR NOT NULL,
  version INTEGER NOT NULL,
  created_at VARCHAR NOT NULL,
  updated_at VARCHAR NOT NULL,
  CONSTRAINT pk_drafts PRIMARY KEY (draft_id),
  CONSTRAINT uq_drafts_author_id_client_draft_id UNIQUE (author_id, client_draft_id),
  CONSTRAINT ck_drafts_scope CHECK (scope IN ('org', 'project')),
  CONSTRAINT ck_drafts_status CHECK (status IN ('open', 'submitted', 'merged', 'discarded')),
  CONSTRAINT fk_drafts_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id),
  CONSTRAINT fk_drafts_project_id FOREIGN KEY(project_id) REFERENCES projects (project_id),
  CONSTRAINT fk_drafts_author_id FOREIGN KEY(author_id) REFERENCES users (user_id),
  CONSTRAINT fk_drafts_base_commit_id FOREIGN KEY(base_commit_id) REFERENCES commits (commit_id));
CREATE INDEX ix_drafts_author_id_updated_at ON drafts (author_id, updated_at);
CREATE INDEX ix_drafts_org_id_status ON drafts (org_id, status);
CREATE TABLE personal_bundle_items (
  bundle_id VARCHAR NOT NULL,
  ordinal INTEGER NOT NULL,
  resource_id VARCHAR NOT NULL,
  CONSTRAINT pk_personal_bundle_items PRIMARY KEY (bundle_id, ordinal),
  CONSTRAINT fk_personal_bundle_items_bundle_id FOREIGN KEY(bundle_id)
    REFERENCES personal_bundles (bundle_id));
CREATE TABLE refs (
  ref_key VARCHAR NOT NULL,
  scope VARCHAR NOT NULL,
  org_id VARCHAR NOT NULL,
  project_id VARCHAR,
  commit_id VARCHAR,
  updated_at VARCHAR NOT NULL,
  CONSTRAINT pk_refs PRIMARY KEY (ref_key),
  CONSTRAINT ck_refs_scope CHECK (scope IN ('org', 'project')),
  CONSTRAINT fk_refs_org_id FOREIGN KEY(org_id) REFERENCES orgs (org_id),
  CONSTRAINT fk_refs_project_id FOREIGN KEY(project_id) REFERENCES projects (project_id),
  CONSTRAINT fk_refs_commit_id FOREIGN KEY(commit_id) REFERENCES commits (commit_id));
CREATE INDEX ix_refs_org_id ON refs (org_id);
CREATE TABLE review_comments (
  comment_id VARCHAR NOT NULL,
  review_id VARCHAR NOT NULL,
  author_id VARCHAR NOT NULL,
  body TEXT NOT NULL,
  review_version INTEGER NOT NULL,
  anchor_path VARCHAR,
  anchor_line INTEGER,
  created_at VARCHAR NOT NULL,
  CONSTRAINT pk_review_comments PRIMARY KEY (comment_id),
  CONSTRAINT fk_review_comments_review_id FOREIGN KEY(review_id) REFERENCES reviews (review_id),
  CONSTRAINT fk_review_comments_author_id FOREIGN KEY(author_id) REFERENCES users (user_id));
CREATE INDEX ix_review_comments_review_id ON review_comments (review_id);
CREATE TABLE review_merges (
  review_id VARCHAR NOT NULL,
  commit_id VARCHAR,
  merged_by VARCHAR NOT NULL,
  applied_operation_count INTEGER NOT NULL,
  created_at VARCHAR NOT NULL,
  CONSTRAINT pk_review_merges PRIMARY KEY (review_id),
  CONSTRAINT fk_review_merges_review_id FOREIGN KEY(review_id) REFERENCES reviews (review_id),
  CONSTRAINT fk_review_merges_commit_id FOREIGN KEY(commit_id) REFERENCES commits (commit_id),
  CONSTRAINT fk_review_merges_merged_by FOREIGN KEY(merged_by) REFERENCES users (user_id));
CREATE TABLE session_tokens (
  token_hash VARCHAR NOT NULL,
  session_id VARCHAR NOT NULL,
  kind VARCHAR NOT NULL,
  parent_hash VARCHAR,
  used_at VARCHAR,
  voided_at VARCHAR,
  created_at VARCHAR NOT NULL,
  expires_at VARCHAR NOT NULL,
  CONSTRAINT pk_session_tokens PRIMARY KEY (token_hash),
  CONSTRAINT fk_session_tokens_session_id FOREIGN KEY(session_id)
    REFERENCES sessions (session_id));
CREATE INDEX ix_session_tokens_parent_hash ON session_tokens (parent_hash);
CREATE INDEX ix_session_tokens_session_id ON session_tokens (session_id);
CREATE TABLE draft_events (
  author_id VARCHAR NOT NULL,
  sequence INTEGER NOT NULL,
  event_id VARCHAR NOT NULL,
  draft_id VARCHAR NOT NULL,
  project_id VARCHAR NOT NULL,
  event_type VARCHAR NOT NULL,
  version INTEGER NOT NULL,
  daemon_installation_id VARCHAR,
  created_at VARCHAR NOT NULL,
  CONSTRAINT pk_draft_events PRIMARY KEY (author_id, sequence),
  CONSTRAINT fk_draft_events_author_id FOREIGN KEY(author_id) REFERENCES users (user_id),
  CONSTRAINT uq_draft_events_event_id UNIQUE (event_id),
  CONSTRAINT fk_draft_events_draft_id FOREIGN KEY(draft_id) REFERENCES drafts (draft_id));
CREATE TABLE draft_operations (
  operation_id VARCHAR NOT NULL,
  draft_id VARCHAR NOT NULL,
  ordinal INTEGER NOT NULL,
  local_operation_id VARCHAR,
  operation_json TEXT NOT NULL,
  created_at VARCHAR NOT NULL,
  CONSTRAINT pk_draft_operations PRIMARY KEY (operation_id),
  CONSTRAINT uq_draft_operations_draft_id_ordinal UNIQUE (draft_id, ordinal),
  CONSTRAINT uq_draft_operations_draft_id_local_operation_id
    UNIQUE (draft_id, local_operation_id),
  CONSTRAINT fk_draft_operations_draft_id FOREIGN KEY(draft_id) REFERENCES drafts (draft_id));
CREATE TABLE draft_reconciliation_candidates (
  candidate_id VARCHAR NOT NULL,
  draft_id VARCHAR NOT NULL,
  draft_version INTEGER NOT NULL,
  base_commit_id VARCHAR,
  current_commit_id VARCHAR,
  status VARCHAR NOT NULL,
  states_json TEXT NOT NULL,
  conflicts_json TEXT NOT NULL,
  result_hash VARCHAR,
  created_at VARCHAR NOT NULL,
  invalidated_at VARCHAR,
  CONSTRAINT pk_draft_reconciliation_candidates PRIMARY KEY (candidate_id),
  CONSTRAINT ck_draft_reconciliation_candidates_status CHECK (status IN ('clean', 'conflicts')),
  CONSTRAINT fk_draft_reconciliation_candidates_draft_id FOREIGN KEY(draft_id)
    REFERENCES drafts (draft_id));
CREATE INDEX ix_draft_reconciliation_candidates_draft_id
  ON draft_reconciliation_candidates (draft_id);
CREATE TABLE draft_revisions (
  revision_id VARCHAR NOT NULL,
  draft_id VARCHAR NOT NULL,
  version INTEGER NOT NULL,
  base_commit_id VARCHAR,
  operations_json TEXT NOT NULL,
  created_at VARCHAR NOT NULL,
  CONSTRAINT pk_draft_revisions PRIMARY KEY (revision_id),
  CONSTRAINT fk_draft_revisions_draft_id FOREIGN KEY(draft_id) REFERENCES drafts (draft_id));
CREATE INDEX ix_draft_revisions_draft_id ON draft_revisions (draft_id);
CREATE TABLE review_drafts (
  review_id VARCHAR NOT NULL,
  ordinal INTEGER NOT NULL,
  draft_id VARCHAR NOT NULL,
  CONSTRAINT pk_review_drafts PRIMARY KEY (review_id, ordinal),
  CONSTRAINT fk_review_drafts_review_id FOREIGN KEY(review_id) REFERENCES reviews (review_id),
  CONSTRAINT fk_review_drafts_draft_id FOREIGN KEY(draft_id) REFERENCES drafts (draft_id));
CREATE INDEX ix_review_drafts_draft_id ON review_drafts (draft_id);
CREATE TABLE draft_rebases (
  rebase_id VARCHAR NOT NULL,
  draft_id VARCHAR NOT NULL,
  candidate_id VARCHAR NOT NULL,
  previous_revision_id VARCHAR NOT NULL,
  rebased_by VARCHAR NOT NULL,
  base_commit_id VARCHAR,
  created_at VARCHAR NOT NULL,
  CONSTRAINT pk_draft_rebases PRIMARY KEY (rebase_id),
  CONSTRAINT fk_draft_rebases_draft_id FOREIGN KEY(draft_id) REFERENCES drafts (draft_id),
  CONSTRAINT fk_draft_rebases_previous_revision_id FOREIGN KEY(previous_revision_id)
    REFERENCES draft_revisions (revision_id),
  CONSTRAINT fk_draft_rebases_rebased_by FOREIGN KEY(rebased_by) REFERENCES users (user_id));
CREATE INDEX ix_draft_rebases_draft_id ON draft_rebases (draft_id);
"""


def create(connection: Connection) -> None:
    """Make every table and index of the first schema in a database that has none of them."""
    statements = Template(_STATEMENTS).substitute(_TYPES[connection.dialect.name])
    for statement in statements.split(";\n")[:-1]:
        connection.exec_driver_sql(statement)
