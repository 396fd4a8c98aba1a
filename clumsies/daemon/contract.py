"""The table of methods: what each takes and gives, who may call it, how long it may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from clumsies.daemon import messages as m
from clumsies.daemon import messages_history as mh
from clumsies.daemon import messages_sync as ms

Pool = Literal["quick", "model"]
QUICK_DEADLINE_S = 30.0
ACTIVATION_DEADLINE_S = 60.0
IMPORT_DEADLINE_S = 600.0
"""An import reads a whole directory; its caller has to pass a client timeout as long."""

PATIENT_DEADLINE_S = 70.0
"""A keyring may ask a person for its password, and a request has 30 s."""
REVIEW_DEADLINE_S = 120.0
"""Several requests to a Server, and a cycle of synchronization on either side of them."""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the socket.

    `handler` is the name that the handlers are registered under: an alias shares another's.
    `needs_marker` methods are refused without an `agent_runtime` of this protocol revision.
    """

    name: str
    request: type[m.Message]
    response: type[m.Message]
    needs_marker: bool = False
    deadline_s: float = QUICK_DEADLINE_S
    deadline_code: str = "request_deadline"
    pool: Pool = "quick"
    alias_of: str | None = None

    @property
    def handler(self) -> str:
        return self.alias_of or self.name


_TABLE = (
    Method("health", m.Nothing, m.Health),
    Method("project_config", m.Nothing, m.ProjectConfig),
    Method("list_projects", m.Nothing, m.ProjectList),
    Method("create_local_project", m.CreateLocalProject, m.CreatedProject),
    Method("import_memory", m.ImportMemory, m.ImportReport, deadline_s=IMPORT_DEADLINE_S),
    Method("resolve_project_binding", m.ResolveBinding, m.ProjectBinding, needs_marker=True),
    Method("list_project_bindings", m.Nothing, m.BindingList),
    Method("replace_project_binding", m.ReplaceBinding, m.ProjectBinding),
    Method("remove_project_binding", m.RemoveBinding, m.ProjectBinding),
    Method("project_checkout", m.OfProject, m.ProjectCheckout, deadline_s=ACTIVATION_DEADLINE_S),
    Method("memory_cache", m.OfProject, m.MemoryCache),
    Method(
        "activate_memory",
        m.ActivateMemory,
        m.Activation,
        needs_marker=True,
        deadline_s=ACTIVATION_DEADLINE_S,
        deadline_code="activation_deadline",
        pool="model",
    ),
    Method(
        "load_memory",
        m.LoadMemory,
        m.LoadedMemories,
        needs_marker=True,
        deadline_s=ACTIVATION_DEADLINE_S,
    ),
    Method("search_index_status", m.OfProject, m.SearchIndexStatus),
    Method("rebuild_search_index", m.OfProject, m.SearchIndexStatus),
    Method("list_drafts", m.ListDrafts, m.DraftPage),
    Method("get_draft", m.GetDraft, m.DraftDetail),
    Method(
        "store_draft_operation", m.StoreDraftOperation, m.StoredDraftOperation, needs_marker=True
    ),
    Method(
        "desktop_store_draft_operation",
        m.StoreDraftOperation,
        m.StoredDraftOperation,
        alias_of="store_draft_operation",
    ),
    Method("replace_project_config", ms.ReplaceProjectConfig, m.ProjectConfig),
    Method("select_project", ms.SelectProject, m.ProjectConfig),
    Method("sign_in", ms.SignIn, ms.SignedIn, deadline_s=PATIENT_DEADLINE_S),
    Method("sign_out", m.Nothing, ms.SignedOut, deadline_s=PATIENT_DEADLINE_S),
    Method("signed_in", m.Nothing, ms.SignedIn),
    Method("server_request", ms.ServerRequest, ms.ServerResponse, deadline_s=PATIENT_DEADLINE_S),
    Method("sync_status", m.Nothing, m.SyncStatus),
    Method("project_sync_status", m.OfProject, m.SyncStatus),
    Method("retry_sync", m.RetrySync, m.SyncRetry),
    Method("project_retry_sync", ms.RetryProjectSync, m.SyncRetry),
    Method("compare_draft", ms.CompareDraft, ms.DraftComparison),
    Method("submit_drafts", ms.SubmitDrafts, ms.SubmittedReview, deadline_s=REVIEW_DEADLINE_S),
    Method("rebase_draft", ms.RebaseDraft, ms.RebasedDraft, deadline_s=REVIEW_DEADLINE_S),
    Method("list_reviews", ms.ListReviews, ms.ReviewList),
    Method("get_review", ms.OfReview, ms.ShownReview),
    Method("comment_review", ms.CommentReview, ms.ReviewComment),
    Method("decide_review", ms.DecideReview, ms.DecidedReview, deadline_s=REVIEW_DEADLINE_S),
    Method("resubmit_review", ms.ResubmitReview, ms.SubmittedReview, deadline_s=REVIEW_DEADLINE_S),
    Method("merge_review", ms.MergeReview, ms.MergedReview, deadline_s=REVIEW_DEADLINE_S),
    Method("list_retrieval_runs", mh.ListRetrievalRuns, mh.RetrievalRunPage),
    Method("get_retrieval_run", mh.OfRun, mh.RetrievalRunDetail),
    Method("clear_retrieval_runs", m.OfProject, mh.ClearedRuns),
    Method(
        "replay_retrieval_run",
        mh.OfRun,
        mh.ReplayedRun,
        deadline_s=ACTIVATION_DEADLINE_S,
        deadline_code="activation_deadline",
        pool="model",
    ),
    Method("create_evaluation_case", mh.CreateEvaluationCase, mh.EvaluationCaseDetail),
    Method("replace_evaluation_judgments", mh.ReplaceEvaluationJudgments, mh.EvaluationCaseDetail),
    Method("list_evaluation_cases", mh.ListEvaluationCases, mh.EvaluationCasePage),
    Method("get_evaluation_case", mh.OfCase, mh.EvaluationCaseDetail),
    Method("remove_evaluation_case", mh.RemoveEvaluationCase, mh.EvaluationCase),
    Method(
        "export_evaluation_set",
        mh.ExportEvaluationSet,
        mh.EvaluationSet,
        deadline_s=ACTIVATION_DEADLINE_S,
    ),
    Method(
        "import_evaluation_set",
        mh.ImportEvaluationSet,
        mh.ImportedEvaluationSet,
        deadline_s=ACTIVATION_DEADLINE_S,
    ),
    Method("mcp_status", m.Nothing, m.McpStatus),
)

METHODS: dict[str, Method] = {method.name: method for method in _TABLE}
"""Every method by the name it is called by, aliases included."""
