"""Administration, for owners and admins of an organisation."""

from __future__ import annotations

from litestar import delete, get, patch, post, put
from litestar.params import JSONBody
from litestar.response import Stream

from clumsies.api.admin import (
    AdminOrganization,
    AdminProject,
    AdminProjectPage,
    AuditPage,
    ChangeMember,
    ChangeOrganization,
    CreatedToken,
    CreateTokenFor,
    IdentityProvider,
    InviteMember,
    Member,
    MemberPage,
    PersonalToken,
    PutProjectMember,
    Removal,
    TokenPage,
)
from clumsies.api.projects import ProjectMember, ProjectMemberPage
from clumsies.server.http.dependencies import Context, OffsetPage, PathId, SignedIn
from clumsies.server.identity.provider_settings import provider_message
from clumsies.server.organization import administration, members

_ADMIN = "/api/v1/admin"


@get(f"{_ADMIN}/org", sync_to_thread=True)
def organization(acting: SignedIn) -> AdminOrganization:
    """The organisation and how much there is of everything."""
    return acting.read(administration.get_organization)


@patch(f"{_ADMIN}/org", sync_to_thread=True)
def change_organization(acting: SignedIn, data: JSONBody[ChangeOrganization]) -> AdminOrganization:
    """Another name."""
    return acting.write(lambda act: administration.change_organization(act, data))


@get(f"{_ADMIN}/members", sync_to_thread=True)
def list_members(acting: SignedIn, page: OffsetPage) -> MemberPage:
    """Every member, the first to come first."""
    return acting.read(lambda act: members.list_org_members(act, page))


@post(f"{_ADMIN}/members", sync_to_thread=True)
def invite_member(acting: SignedIn, data: JSONBody[InviteMember]) -> Member:
    """Invite somebody: they join with their first sign-in with that address."""
    return acting.write(lambda act: members.invite_member(act, data))


@get(f"{_ADMIN}/members/{{user_id:str}}", sync_to_thread=True)
def get_member(acting: SignedIn, user_id: PathId) -> Member:
    """One member."""
    return acting.read(lambda act: members.get_member(act, user_id))


@patch(f"{_ADMIN}/members/{{user_id:str}}", sync_to_thread=True)
def change_member(acting: SignedIn, user_id: PathId, data: JSONBody[ChangeMember]) -> Member:
    """Another role, status or name. Disabling ends every session and token of the member."""
    return acting.write(lambda act: members.change_member(act, user_id, data))


@get(f"{_ADMIN}/projects", sync_to_thread=True)
def list_projects(acting: SignedIn, page: OffsetPage) -> AdminProjectPage:
    """Every project of the organisation, whoever is a member."""
    return acting.read(lambda act: administration.list_org_projects(act, page))


@get(f"{_ADMIN}/projects/{{project_id:str}}", sync_to_thread=True)
def get_project(acting: SignedIn, project_id: PathId) -> AdminProject:
    """One project of the organisation."""
    return acting.read(lambda act: administration.get_org_project(act, project_id))


@get(f"{_ADMIN}/projects/{{project_id:str}}/members", sync_to_thread=True)
def list_project_members(
    acting: SignedIn, project_id: PathId, page: OffsetPage
) -> ProjectMemberPage:
    """The members of a project."""
    return acting.read(lambda act: administration.list_org_project_members(act, project_id, page))


@put(f"{_ADMIN}/projects/{{project_id:str}}/members/{{user_id:str}}", sync_to_thread=True)
def put_project_member(
    acting: SignedIn, project_id: PathId, user_id: PathId, data: JSONBody[PutProjectMember]
) -> ProjectMember:
    """Make somebody a member of a project, or change their role in it."""
    return acting.write(
        lambda act: administration.put_project_member(act, project_id, user_id, data.role)
    )


@delete(
    f"{_ADMIN}/projects/{{project_id:str}}/members/{{user_id:str}}",
    status_code=200,
    sync_to_thread=True,
)
def remove_project_member(acting: SignedIn, project_id: PathId, user_id: PathId) -> Removal:
    """Take somebody out of a project."""
    return acting.write(lambda act: administration.remove_project_member(act, project_id, user_id))


@get(f"{_ADMIN}/tokens", sync_to_thread=True)
def list_tokens(acting: SignedIn, page: OffsetPage) -> TokenPage:
    """Every personal token of the organisation, newest first, without their texts."""
    return acting.read(lambda act: administration.list_tokens(act, page))


@post(f"{_ADMIN}/tokens", sync_to_thread=True)
def create_token(acting: SignedIn, data: JSONBody[CreateTokenFor]) -> CreatedToken:
    """A personal token of a member; its text is shown this once."""
    return acting.write(lambda act: administration.create_token_for(act, data))


@delete(f"{_ADMIN}/tokens/{{token_id:str}}", status_code=200, sync_to_thread=True)
def revoke_token(acting: SignedIn, token_id: PathId) -> PersonalToken:
    """Revoke a personal token."""
    return acting.write(lambda act: administration.revoke_any_token(act, token_id))


@get(f"{_ADMIN}/audit-events", sync_to_thread=True)
def list_audit_events(acting: SignedIn, page: OffsetPage) -> AuditPage:
    """What happened in the organisation, newest first."""
    return acting.read(lambda act: administration.list_audit_events(act, page))


@get(f"{_ADMIN}/identity-provider", sync_to_thread=True)
def identity_provider(acting: SignedIn, context: Context) -> IdentityProvider:
    """How people sign in. It belongs to the whole Server, so it is set by who runs that."""
    acting.principal.require("admin:write")
    return provider_message(context)


@get(f"{_ADMIN}/memory-export", media_type="application/json", sync_to_thread=True)
def export_memory(acting: SignedIn) -> Stream:
    """The organisation's memory at its current commit, as one JSON object."""
    return Stream(
        administration.export_memory(acting),
        media_type="application/json",
        headers={"content-disposition": 'attachment; filename="memory.json"'},
    )


ROUTES = [
    organization,
    change_organization,
    list_members,
    invite_member,
    get_member,
    change_member,
    list_projects,
    get_project,
    list_project_members,
    put_project_member,
    remove_project_member,
    list_tokens,
    create_token,
    revoke_token,
    list_audit_events,
    identity_provider,
    export_memory,
]
