"""Handlers of the Server: which it is, signing in, requests to it, and synchronization."""

from __future__ import annotations

import msgspec
from msgspec import UnsetType

from clumsies.api.identity import Me
from clumsies.daemon import messages as m
from clumsies.daemon import messages_sync as ms
from clumsies.daemon.context import Handler, RequestContext
from clumsies.daemon.resident import Resident
from clumsies.errors import CredentialsFailed, NotFound
from clumsies.storage.project_storage import LOCAL_AUTHORITY
from clumsies.sync.login import Grant
from clumsies.sync.membership import SELECTED_KEY
from clumsies.sync.proxy import server_request
from clumsies.sync.status import Channel, SyncStatus


class ServerMethods:
    def __init__(self, resident: Resident):
        self._resident = resident

    def handlers(self) -> dict[str, Handler]:
        return {
            "project_config": self.config,
            "replace_project_config": self.replace_config,
            "select_project": self.select,
            "sign_in": self.sign_in,
            "sign_out": self.sign_out,
            "signed_in": self.signed_in,
            "server_request": self.request,
            "sync_status": self.sync_status,
            "project_sync_status": self.project_sync_status,
            "retry_sync": self.retry_sync,
            "project_retry_sync": self.project_retry_sync,
        }

    def config(self, _request: m.Nothing, _context: RequestContext) -> m.ProjectConfig:
        """The Server and whether somebody is signed in; without one, the local authority."""
        server = self._resident.server
        selected = self._resident.database.meta(SELECTED_KEY)
        if server.url is None:
            return m.ProjectConfig(
                server_url=LOCAL_AUTHORITY,
                has_access_token=False,
                has_refresh_token=False,
                ready=True,
                missing_fields=[],
                project_id=selected,
            )
        try:
            held = server.held()
        except CredentialsFailed:  # Whoever needs the session hears why.
            held = None
        session = None if held is None else held.session
        return m.ProjectConfig(
            server_url=server.url,
            has_access_token=session is not None,
            has_refresh_token=session is not None and session.refresh_token is not None,
            ready=session is not None,
            missing_fields=[] if session is not None else ["session"],
            project_id=selected,
        )

    def replace_config(
        self, request: ms.ReplaceProjectConfig, context: RequestContext
    ) -> m.ProjectConfig:
        """Another Server, or none; a project that is not named stays selected."""
        self._resident.server.configure(request.server_url)
        if isinstance(request.project_id, UnsetType):
            return self.config(m.Nothing(), context)
        return self.select(ms.SelectProject(project_id=request.project_id), context)

    def select(self, request: ms.SelectProject, context: RequestContext) -> m.ProjectConfig:
        """Keep this project in step though no directory is bound to it."""
        if request.project_id is not None:
            self._resident.projects.project(request.project_id)
        self._resident.database.set_meta(SELECTED_KEY, request.project_id)
        self._resident.sync.notify(request.project_id)
        return self.config(m.Nothing(), context)

    def sign_in(self, request: ms.SignIn, _context: RequestContext) -> ms.SignedIn:
        grant = Grant(request.code, request.redirect_uri, request.code_verifier)
        me = self._resident.server.sign_in(request.server_url, grant)
        return _signed_in(self._resident.server.url or "", me)

    def sign_out(self, _request: m.Nothing, _context: RequestContext) -> ms.SignedOut:
        """What was stored stays here, and waits for the next sign-in."""
        url = self._resident.server.url
        return ms.SignedOut(server_url=url, revoked=self._resident.server.sign_out())

    def signed_in(self, _request: m.Nothing, _context: RequestContext) -> ms.SignedIn:
        """Who is signed in, as the Server says it now."""
        client, _ = self._resident.server.require()
        me = client.call("GET", "/api/v1/me", Me)
        return _signed_in(self._resident.server.url or "", me)

    def request(self, request: ms.ServerRequest, _context: RequestContext) -> ms.ServerResponse:
        """Pass a request on; a failure over there is an answer here."""
        client, cache = self._resident.client_of(request.project_id)
        answer = server_request(
            client,
            cache,
            request.method,
            request.path,
            headers=request.headers,
            body=request.body,
            log=self._resident.log,
        )
        return ms.ServerResponse(status=answer.status, headers=answer.headers, body=answer.body)

    def sync_status(self, _request: m.Nothing, _context: RequestContext) -> m.SyncStatus:
        return self._status(self._resident.sync.status())

    def project_sync_status(self, request: m.OfProject, _context: RequestContext) -> m.SyncStatus:
        self._resident.projects.project(request.project_id)
        return self._status(self._resident.sync.status(request.project_id))

    def retry_sync(self, request: m.RetrySync, _context: RequestContext) -> m.SyncRetry:
        """Try again what failed or waits; the answer comes before it is done."""
        retry = self._resident.sync.retry(request.channel)
        return m.SyncRetry(retry_id=retry.retry_id, started=retry.started)

    def project_retry_sync(
        self, request: ms.RetryProjectSync, _context: RequestContext
    ) -> m.SyncRetry:
        self._resident.projects.project(request.project_id)
        retry = self._resident.sync.retry(request.channel, request.project_id)
        return m.SyncRetry(retry_id=retry.retry_id, started=retry.started)

    def _status(self, status: SyncStatus) -> m.SyncStatus:
        return m.SyncStatus(
            unavailable_projects=[
                m.UnavailableProject(
                    project_id=each.project_id,
                    bindings=self._bindings(each.project_id),
                    draft_count=each.draft_count,
                    name=self._name(each.project_id),
                )
                for each in status.unavailable
            ],
            draft_sync=_channel(status.draft_sync),
            commit_sync=_channel(status.commit_sync),
            pending_operation_count=status.pending_operation_count,
            failed_operation_count=status.failed_operation_count,
            behind_draft_count=status.behind_draft_count,
            reconciliation_conflict_count=status.reconciliation_conflict_count,
            last_success_at=status.last_success_at,
        )

    def _name(self, project_id: str) -> str | None:
        try:
            return self._resident.projects.project(project_id).name
        except NotFound:
            return None

    def _bindings(self, project_id: str) -> list[m.ProjectBinding]:
        found = self._resident.bindings.list(project_id)
        return [msgspec.convert(msgspec.to_builtins(each), m.ProjectBinding) for each in found]


def _signed_in(url: str, me: Me) -> ms.SignedIn:
    return ms.SignedIn(
        server_url=url,
        user_id=me.user.user_id,
        email=me.user.email,
        display_name=me.user.display_name,
        role=me.user.role,
        org_id=me.org.org_id,
        org_name=me.org.name,
        project_count=len(me.projects),
    )


def _channel(channel: Channel) -> m.ChannelStatus:
    return msgspec.convert(
        {
            "state": channel.state,
            "server_cursor": channel.server_cursor,
            "last_attempt_at": channel.last_attempt_at,
            "last_success_at": channel.last_success_at,
            "last_error": channel.last_error,
        },
        m.ChannelStatus,
    )
