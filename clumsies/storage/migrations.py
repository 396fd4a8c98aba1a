"""The schema of `local.db`, as numbered steps that are never edited once released.

`PRAGMA user_version` is the number of the last step. Texts of time are of storage.timestamps
(`row_time`, except where a Server's own text is kept); ids are opaque.

| table | what |
| --- | --- |
| daemon_meta | facts of this installation and the cursors of sync |
| local_projects | projects that the local authority keeps |
| project_bindings | directory to project, by Server authority |
| cached_blobs, cached_trees, cached_commits | immutable objects by id |
| cached_refs | where an organisation's or a project's Ref stands here |
| local_drafts, local_draft_operations | what people and agents stored; `operation_rowid` is never |
|   | used twice, so a draft's revision cannot come back |
| sync_retries, remote_draft_events | the queue's history, and the Server's feed |
| server_projects | the projects of a Server that this user is or was a member of |
| server_response_cache | answers to reads, shown where the Server cannot be reached |
| index_jobs | which projects' search indexes are behind |
| retrieval_runs, retrieval_run_candidates | what each activation did |
| retrieval_excerpts | what a candidate said, once a text |
| retrieval_corpora, retrieval_corpus_resources | the memory searched, once a state of it |
| retrieval_run_resources (a view) | that memory, run by run |
| retrieval_corpus_blobs | the bodies kept as files beside the database |
| evaluation_cases, evaluation_judgments | runs that were judged, and the judgments |
| evaluation_corpora | memories that cases pin; the view `evaluation_corpus_resources` shows them |
"""

from __future__ import annotations

from dataclasses import dataclass

APPLICATION_ID = 0x636C756D
"""`clum`: another program's database is refused instead of changed."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A step to `version` from the one before it."""

    version: int
    sql: str


_FIRST = """
CREATE TABLE daemon_meta(key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE local_projects(
  project_id TEXT PRIMARY KEY, org_id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
  created_at TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE project_bindings(
  server_url TEXT NOT NULL, workspace_root TEXT NOT NULL, project_id TEXT NOT NULL,
  revision INTEGER NOT NULL CHECK (revision >= 1),
  created_at TEXT NOT NULL, updated_at TEXT NOT NULL,
  PRIMARY KEY (server_url, workspace_root)) STRICT, WITHOUT ROWID;

CREATE TABLE cached_blobs(
  blob_id TEXT PRIMARY KEY, content TEXT NOT NULL, content_hash TEXT NOT NULL) STRICT;
CREATE TABLE cached_trees(tree_id TEXT PRIMARY KEY, payload_json TEXT NOT NULL) STRICT;
CREATE TABLE cached_commits(
  commit_id TEXT PRIMARY KEY, scope TEXT NOT NULL CHECK (scope IN ('org', 'project')),
  org_id TEXT NOT NULL, project_id TEXT, tree_id TEXT NOT NULL REFERENCES cached_trees,
  parent_commit_id TEXT, version INTEGER NOT NULL, created_at TEXT NOT NULL,
  payload_json TEXT NOT NULL) STRICT;
CREATE TABLE cached_refs(
  ref_key TEXT PRIMARY KEY, name TEXT NOT NULL,
  scope TEXT NOT NULL CHECK (scope IN ('org', 'project')),
  org_id TEXT NOT NULL, project_id TEXT, commit_id TEXT REFERENCES cached_commits,
  etag TEXT NOT NULL, server_updated_at TEXT NOT NULL, installed_at TEXT NOT NULL) STRICT;
CREATE INDEX cached_refs_by_org ON cached_refs(org_id);

CREATE TABLE local_drafts(
  draft_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, server_draft_id TEXT,
  server_version INTEGER NOT NULL DEFAULT 0, base_commit_id TEXT, current_commit_id TEXT,
  freshness TEXT NOT NULL DEFAULT 'current' CHECK (freshness IN ('current', 'behind')),
  has_upstream_resource_changes INTEGER NOT NULL DEFAULT 0
    CHECK (has_upstream_resource_changes IN (0, 1)),
  reconciliation TEXT NOT NULL DEFAULT 'unknown'
    CHECK (reconciliation IN ('unknown', 'clean', 'conflicts')),
  reconciliation_candidate_id TEXT,
  resource_scope TEXT NOT NULL CHECK (resource_scope IN ('org', 'project')),
  resource_kind TEXT NOT NULL, target_id TEXT, path TEXT,
  status TEXT NOT NULL DEFAULT 'open'
    CHECK (status IN ('open', 'submitted', 'merged', 'discarded')),
  created_at TEXT NOT NULL, updated_at TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX local_drafts_by_server ON local_drafts(server_draft_id);
CREATE INDEX local_drafts_active ON local_drafts(project_id, created_at, draft_id)
  WHERE status IN ('open', 'submitted');
CREATE INDEX local_drafts_by_update ON local_drafts(updated_at DESC, created_at DESC, draft_id);

CREATE TABLE local_draft_operations(
  operation_rowid INTEGER PRIMARY KEY AUTOINCREMENT,
  local_operation_id TEXT NOT NULL UNIQUE,
  draft_id TEXT NOT NULL REFERENCES local_drafts, server_operation_id TEXT,
  resource_kind TEXT NOT NULL, operation_json TEXT NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('desktop', 'cli', 'mcp_store', 'server')),
  sync_status TEXT NOT NULL DEFAULT 'queued'
    CHECK (sync_status IN ('queued', 'syncing', 'retrying', 'synced', 'failed')),
  last_error TEXT, created_at TEXT NOT NULL, updated_at TEXT NOT NULL) STRICT;
CREATE INDEX local_draft_operations_by_draft ON local_draft_operations(draft_id, operation_rowid);
CREATE INDEX local_draft_operations_unsynced
  ON local_draft_operations(sync_status, created_at, operation_rowid)
  WHERE sync_status <> 'synced';

CREATE TABLE sync_retries(
  retry_id TEXT PRIMARY KEY, channel TEXT NOT NULL CHECK (channel IN ('drafts', 'commits', 'all')),
  project_id TEXT, created_at TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE remote_draft_events(
  event_id TEXT PRIMARY KEY, draft_id TEXT NOT NULL, project_id TEXT NOT NULL,
  event_type TEXT NOT NULL, version INTEGER NOT NULL, daemon_installation_id TEXT,
  created_at TEXT NOT NULL) STRICT, WITHOUT ROWID;

CREATE TABLE index_jobs(
  project_id TEXT PRIMARY KEY,
  desired_sequence INTEGER NOT NULL, building_sequence INTEGER,
  completed_sequence INTEGER NOT NULL DEFAULT 0,
  state TEXT NOT NULL CHECK (state IN ('queued', 'building', 'ready', 'failed')),
  attempt INTEGER NOT NULL DEFAULT 0, next_retry_at_ms INTEGER, last_error TEXT,
  queue_order INTEGER NOT NULL,
  CHECK ((state = 'building') = (building_sequence IS NOT NULL)),
  CHECK ((state = 'failed') = (next_retry_at_ms IS NOT NULL))) STRICT, WITHOUT ROWID;
"""

_HISTORY = """
CREATE TABLE retrieval_corpora(
  corpus_id TEXT PRIMARY KEY, effective_hash TEXT NOT NULL,
  created_at TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX retrieval_corpora_by_hash ON retrieval_corpora(effective_hash);
CREATE TABLE retrieval_corpus_blobs(
  content_hash TEXT PRIMARY KEY, byte_length INTEGER NOT NULL, content_preview TEXT NOT NULL,
  created_at TEXT NOT NULL) STRICT;
CREATE TABLE retrieval_corpus_resources(
  corpus_id TEXT NOT NULL REFERENCES retrieval_corpora ON DELETE CASCADE,
  resource_order INTEGER NOT NULL, resource_id TEXT NOT NULL, scope TEXT NOT NULL,
  kind TEXT NOT NULL, path TEXT NOT NULL, title TEXT NOT NULL,
  content_hash TEXT NOT NULL REFERENCES retrieval_corpus_blobs,
  source_commit_id TEXT, draft_id TEXT, draft_revision TEXT, description TEXT NOT NULL,
  PRIMARY KEY (corpus_id, resource_id)) STRICT, WITHOUT ROWID;
CREATE INDEX retrieval_corpus_resources_by_content ON retrieval_corpus_resources(content_hash);

CREATE TABLE retrieval_runs(
  run_id TEXT PRIMARY KEY, project_id TEXT NOT NULL, query TEXT NOT NULL,
  activation_state_fingerprint TEXT NOT NULL,
  status TEXT NOT NULL CHECK (status IN ('running', 'succeeded', 'failed')),
  corpus_id TEXT REFERENCES retrieval_corpora, effective_hash TEXT, index_revision TEXT,
  resource_count INTEGER NOT NULL DEFAULT 0, unit_count INTEGER NOT NULL DEFAULT 0,
  parser_version TEXT, chunker_version TEXT, terms_version TEXT, profile TEXT,
  model_revision TEXT, ranking_profile TEXT, skipped TEXT NOT NULL DEFAULT '',
  effective_memory_us INTEGER NOT NULL DEFAULT 0, index_ensure_us INTEGER NOT NULL DEFAULT 0,
  bm25_us INTEGER NOT NULL DEFAULT 0, embedding_us INTEGER NOT NULL DEFAULT 0,
  vector_us INTEGER NOT NULL DEFAULT 0, rrf_us INTEGER NOT NULL DEFAULT 0,
  late_us INTEGER NOT NULL DEFAULT 0, rerank_us INTEGER NOT NULL DEFAULT 0,
  assembly_us INTEGER NOT NULL DEFAULT 0, persistence_us INTEGER NOT NULL DEFAULT 0,
  total_us INTEGER NOT NULL DEFAULT 0,
  returned_fragment_count INTEGER NOT NULL DEFAULT 0,
  returned_token_count INTEGER NOT NULL DEFAULT 0,
  error_stage TEXT, error_code TEXT, error_summary TEXT,
  created_at TEXT NOT NULL, completed_at TEXT) STRICT;
CREATE INDEX retrieval_runs_latest ON retrieval_runs(project_id, created_at DESC, run_id DESC);
CREATE INDEX retrieval_runs_by_corpus ON retrieval_runs(corpus_id);

CREATE TABLE retrieval_excerpts(
  content_hash TEXT PRIMARY KEY, evidence_excerpt TEXT NOT NULL) STRICT;
CREATE TABLE retrieval_run_candidates(
  run_id TEXT NOT NULL REFERENCES retrieval_runs ON DELETE CASCADE,
  candidate_order INTEGER NOT NULL, unit_key TEXT NOT NULL, resource_id TEXT NOT NULL,
  scope TEXT NOT NULL, kind TEXT NOT NULL, path TEXT NOT NULL,
  heading_path_json TEXT NOT NULL, locator_json TEXT NOT NULL,
  content_hash TEXT NOT NULL,
  resource_content_hash TEXT NOT NULL, token_count INTEGER NOT NULL, identity TEXT,
  exact_rank INTEGER, bm25_rank INTEGER, bm25_score REAL, vector_rank INTEGER, vector_score REAL,
  rrf_rank INTEGER, rrf_score REAL, late_rank INTEGER, late_score REAL,
  reranker_rank INTEGER, reranker_logit REAL, coverage REAL, reranker_relevance REAL,
  final_rank INTEGER, final_score REAL, selected INTEGER NOT NULL CHECK (selected IN (0, 1)),
  exclusion_reason TEXT NOT NULL, delta_action TEXT,
  PRIMARY KEY (run_id, unit_key)) STRICT, WITHOUT ROWID;

CREATE TABLE evaluation_corpora(
  corpus_id TEXT PRIMARY KEY REFERENCES retrieval_corpora, effective_hash TEXT NOT NULL,
  source_run_id TEXT NOT NULL, created_at TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE evaluation_cases(
  case_id TEXT PRIMARY KEY, source_run_id TEXT NOT NULL UNIQUE REFERENCES retrieval_runs,
  corpus_id TEXT NOT NULL REFERENCES evaluation_corpora, project_id TEXT NOT NULL,
  query TEXT NOT NULL, query_category TEXT, notes TEXT,
  judgment_version INTEGER NOT NULL DEFAULT 1 CHECK (judgment_version > 0),
  created_at TEXT NOT NULL, updated_at TEXT NOT NULL) STRICT;
CREATE INDEX evaluation_cases_latest
  ON evaluation_cases(project_id, created_at DESC, case_id DESC);
CREATE TABLE evaluation_judgments(
  judgment_id TEXT PRIMARY KEY, case_id TEXT NOT NULL REFERENCES evaluation_cases,
  resource_id TEXT NOT NULL, unit_key TEXT,
  relevance INTEGER NOT NULL CHECK (relevance BETWEEN 0 AND 3),
  missed INTEGER NOT NULL CHECK (missed IN (0, 1)),
  evidence_excerpt TEXT NOT NULL, notes TEXT, created_at TEXT NOT NULL) STRICT;
CREATE UNIQUE INDEX evaluation_judgments_once
  ON evaluation_judgments(case_id, resource_id, ifnull(unit_key, ''), missed);

CREATE VIEW retrieval_run_resources AS
  SELECT run_id, resource_order, resource_id, scope, kind, path, title, content_hash,
    content_preview, source_commit_id, draft_id, draft_revision, description
  FROM retrieval_runs JOIN retrieval_corpus_resources USING (corpus_id)
  JOIN retrieval_corpus_blobs USING (content_hash);
CREATE VIEW evaluation_corpus_resources AS
  SELECT corpus_id, resource_order, resource_id, scope, kind, path, title, content_hash,
    content_preview, source_commit_id, draft_id, draft_revision, description
  FROM evaluation_corpora JOIN retrieval_corpus_resources USING (corpus_id)
  JOIN retrieval_corpus_blobs USING (content_hash);
"""

_SERVER = """
CREATE TABLE server_projects(
  server_url TEXT NOT NULL, project_id TEXT NOT NULL, org_id TEXT NOT NULL, name TEXT NOT NULL,
  available INTEGER NOT NULL CHECK (available IN (0, 1)), seen_at TEXT NOT NULL,
  PRIMARY KEY (server_url, project_id)) STRICT, WITHOUT ROWID;
CREATE INDEX server_projects_by_id ON server_projects(project_id);

CREATE TABLE server_response_cache(
  server_url TEXT NOT NULL, path TEXT NOT NULL, status INTEGER NOT NULL,
  headers_json TEXT NOT NULL, body BLOB NOT NULL, updated_at TEXT NOT NULL,
  PRIMARY KEY (server_url, path)) STRICT;
CREATE INDEX server_response_cache_oldest ON server_response_cache(updated_at);
"""

_DRAFTS_OF_A_SERVER = """
ALTER TABLE local_drafts ADD COLUMN server_status TEXT
  CHECK (server_status IN ('open', 'submitted', 'merged', 'discarded'));
ALTER TABLE local_drafts ADD COLUMN merged_resource_id TEXT;
"""

_SUPERSEDED = """
ALTER TABLE retrieval_run_candidates ADD COLUMN superseded_by TEXT;
"""

MIGRATIONS: tuple[Migration, ...] = (
    Migration(1, _FIRST),
    Migration(2, _HISTORY),
    Migration(3, _SERVER),
    Migration(4, _DRAFTS_OF_A_SERVER),
    Migration(5, _SUPERSEDED),
)
