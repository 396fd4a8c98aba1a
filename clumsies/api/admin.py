"""Administration of an organisation: members, projects, tokens, the audit trail, the export."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from clumsies.api.common import Answer, Identifier, PageInfo, Request, Title
from clumsies.api.identity import OrgRole, ProjectRole

Email = Annotated[
    str,
    Meta(
        min_length=3, max_length=254, pattern=r"^[^\s@,<>\x00-\x1f\x7f]+@[^\s@,<>\x00-\x1f\x7f]+\Z"
    ),
]
MemberStatus = Literal["invited", "active", "disabled"]
Health = Literal["ok", "degraded", "down"]


class Component(Answer, frozen=True, kw_only=True, omit_defaults=False):
    status: Health
    message: str


class ServerHealth(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """`status` is the worst of the components'."""

    status: Health
    version: str
    database: Component
    schema: Component
    commit_service: Component
    oidc: Component


class AdminOrganization(Answer, frozen=True, kw_only=True, omit_defaults=False):
    org_id: str
    name: str
    member_count: int
    project_count: int
    memory_count: int
    created_at: str
    updated_at: str


class ChangeOrganization(Request, frozen=True, kw_only=True):
    name: Title


class Member(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """A person of the organisation; `signs_in` is whether an identity is bound already."""

    user_id: str
    email: str
    display_name: str
    avatar_url: str | None
    role: OrgRole
    status: MemberStatus
    signs_in: bool
    revision: int
    created_at: str
    updated_at: str


class MemberPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    items: list[Member]
    page_info: PageInfo


class InviteMember(Request, frozen=True, kw_only=True):
    """The person joins when they first sign in with this address, verified."""

    email: Email
    role: OrgRole = "member"
    display_name: Title | None = None


class ChangeMember(Request, frozen=True, kw_only=True):
    """`disabled` ends every session and token of the member; `active` lets them in again."""

    role: OrgRole | None = None
    status: Literal["active", "disabled"] | None = None
    display_name: Title | None = None


class AdminProject(Answer, frozen=True, kw_only=True, omit_defaults=False):
    project_id: str
    name: str
    description: str
    revision: int
    member_count: int
    created_at: str
    updated_at: str


class AdminProjectPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    items: list[AdminProject]
    page_info: PageInfo


class PutProjectMember(Request, frozen=True, kw_only=True):
    role: ProjectRole = "member"


class Removal(Answer, frozen=True, kw_only=True, omit_defaults=False):
    removed: bool


class CreateToken(Request, frozen=True, kw_only=True):
    """Without `expires_in_days` it is valid until it is revoked."""

    name: Title
    expires_in_days: Annotated[int, Meta(ge=1, le=3_660)] | None = None


class CreateTokenFor(Request, frozen=True, kw_only=True):
    user_id: Identifier
    name: Title
    expires_in_days: Annotated[int, Meta(ge=1, le=3_660)] | None = None


class PersonalToken(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """A token without its text."""

    token_id: str
    user_id: str
    email: str
    name: str
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


class CreatedToken(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """`secret` is the bearer; it is shown this once."""

    token: PersonalToken
    secret: str

    def __repr__(self) -> str:
        return "CreatedToken(...)"


class TokenPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    items: list[PersonalToken]
    page_info: PageInfo


class AuditEvent(Answer, frozen=True, kw_only=True, omit_defaults=False):
    event_id: str
    actor_id: str | None
    action: str
    target_type: str
    target_id: str | None
    details: dict[str, Any]
    request_id: str | None
    created_at: str


class AuditPage(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """Newest first."""

    items: list[AuditEvent]
    page_info: PageInfo


class IdentityProvider(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """How people sign in; the client's secret is never shown."""

    configured: bool
    source: Literal["environment", "setup", "none"]
    issuer: str | None
    client_id: str | None
    has_client_secret: bool
    allowed_domains: list[str]
    redirect_uri: str | None


class ExportedMemory(Answer, frozen=True, kw_only=True, omit_defaults=False):
    memory_id: str
    path: str
    description: str
    content_hash: str
    content: str


class MemoryExport(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """The organisation's memory at one commit, in order of path."""

    org_id: str
    commit_id: str | None
    exported_at: str
    memories: list[ExportedMemory]
