"""The error tree: one class a kind of failure, one stable code a cause.

::

    ClumsiesError                exit 1   anything below, as one class to catch
    ├── InvalidRequest           exit 2   the caller's input cannot be used as it is
    ├── NotFound                 exit 5   a named thing is not there
    ├── Conflict                 exit 4   two changes met; neither is lost
    ├── NotReady                 exit 3   right request, too early; retrying helps
    ├── IndexFailed              exit 1   the search index cannot be read or built
    ├── ModelFailed              exit 1   a model file or its output cannot be trusted
    ├── IoFailed                 exit 1   the file system refused
    ├── StoreFailed              exit 1   durable local state cannot be trusted or written
    ├── CredentialsFailed        exit 1   the keyring cannot keep or give the session
    └── DaemonFailed             exit 1   the resident daemon cannot be started or understood

A code never changes its meaning. `from_code` rebuilds an error that crossed a process
boundary, so that a client raises what the daemon raised. Messages say what happened and the
one thing to do next; they never contain memory text, queries, tokens or credentials.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_NOT_READY = 3
EXIT_CONFLICT = 4
EXIT_NOT_FOUND = 5


class ClumsiesError(Exception):
    """A failure with a stable `code`, a message for people and machine-readable `details`."""

    exit_code: ClassVar[int] = EXIT_FAILURE
    retryable: ClassVar[bool] = False
    codes: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, code: str, message: str, details: Mapping[str, object] | None = None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.details: dict[str, object] = dict(details or {})

    def __reduce__(self) -> tuple[type[ClumsiesError], tuple[str, str, dict[str, object]]]:
        return type(self), (self.code, self.message, self.details)


class InvalidRequest(ClumsiesError):
    """The request cannot be carried out as it was written; nothing was changed."""

    exit_code = EXIT_USAGE
    codes = frozenset(
        {
            "invalid_request",
            "invalid_config",
            "invalid_json",
            "invalid_activation_state",
            "text_replacement_not_found",
            "text_replacement_ambiguous",
            "text_replacement_overlap",
            "text_replacement_no_change",
        }
    )


class NotFound(ClumsiesError):
    """A resource, directory or file that was named is not there."""

    exit_code = EXIT_NOT_FOUND
    codes = frozenset(
        {
            "not_found",
            "memory_resource_not_found",
            "project_binding_not_found",
            "project_binding_unresolved",
        }
    )


class Conflict(ClumsiesError):
    """The thing changed since the caller looked; nothing was overwritten."""

    exit_code = EXIT_CONFLICT
    codes = frozenset(
        {
            "search_generation_changed",
            "memory_content_changed",
            "project_binding_changed",
            "project_binding_has_adapters",
            "storage_move_conflict",
            "evaluation_judgment_conflict",
            "draft_conflict",
            "already_exists",
            "version_conflict",
            "precondition_failed",
            "reconciliation_required",
            "draft_already_current",
            "candidate_invalid",
            "sync_session_changed",
        }
    )


class NotReady(ClumsiesError):
    """The request is right and comes too early; the same request succeeds later."""

    exit_code = EXIT_NOT_READY
    retryable = True
    codes = frozenset(
        {
            "search_model_preparing",
            "search_model_unavailable",
            "search_index_not_ready",
            "search_index_preparing",
            "activation_deadline",
            "memory_content_unavailable",
            "project_ref_not_synced",
            "project_storage_unavailable",
            "commit_generation_missing",
            "daemon_unavailable",
            "daemon_busy",
            "request_deadline",
            "request_cancelled",
            "daemon_project_config_incomplete",
            "draft_sync_retrying",
            "oidc_unavailable",
        }
    )


class IndexFailed(ClumsiesError):
    """The search index could not be read, built or trusted. It is derived: it can be rebuilt."""

    codes = frozenset({"search_index_failed", "search_index_corrupt"})


class ModelFailed(ClumsiesError):
    """A model file or a model's output failed its verification."""

    codes = frozenset({"search_model_invalid", "search_vector_corrupt"})


class IoFailed(ClumsiesError):
    """The operating system refused to read or write."""

    codes = frozenset({"io_error", "insufficient_space", "permission_required", "volume_missing"})


class StoreFailed(ClumsiesError):
    """Durable local state cannot be trusted or written; nothing was acknowledged."""

    codes = frozenset(
        {
            "local_db_error",
            "server_database_failed",
            "commit_generation_corrupt",
            "object_corrupt",
            "marker_mismatch",
            "project_storage_corrupt",
            "storage_verification_failed",
        }
    )


class Refused(ClumsiesError):
    """The Server does not know who asks, or does not let them."""

    codes = frozenset(
        {
            "unauthorized",
            "forbidden",
            "oidc_not_configured",
            "oidc_code_exchange_failed",
            "oidc_id_token_invalid",
        }
    )


class SyncFailed(ClumsiesError):
    """The Server could not be reached, or said what cannot be followed. What is here stays."""

    codes = frozenset(
        {
            "server_request_failed",
            "server_sync_failed",
            "draft_sync_failed",
            "commit_sync_failed",
        }
    )


class CredentialsFailed(ClumsiesError):
    """The platform's keyring cannot keep or give the session; `details["reason"]` says which way.

    Nothing is kept elsewhere instead.
    """

    codes = frozenset({"credential_store_failed"})


class DaemonFailed(ClumsiesError):
    """The resident daemon cannot be started, reached as it should be, or understood."""

    codes = frozenset(
        {
            "agent_runtime_mismatch",
            "daemon_already_running",
            "daemon_ipc_failed",
            "peer_refused",
            "service_manager_failed",
            "internal_error",
        }
    )


_KINDS: tuple[type[ClumsiesError], ...] = (
    InvalidRequest,
    NotFound,
    Conflict,
    NotReady,
    IndexFailed,
    ModelFailed,
    IoFailed,
    StoreFailed,
    Refused,
    SyncFailed,
    CredentialsFailed,
    DaemonFailed,
)
_KIND_OF_CODE = {code: kind for kind in _KINDS for code in kind.codes}


def known_codes() -> frozenset[str]:
    """Every stable code of the tree."""
    return frozenset(_KIND_OF_CODE)


def from_code(
    code: str, message: str, details: Mapping[str, object] | None = None
) -> ClumsiesError:
    """The error that `code` names; an unknown code (a newer peer) becomes a plain ClumsiesError."""
    return _KIND_OF_CODE.get(code, ClumsiesError)(code, message, details)
