"""Who is signed in, and how a sign-in is exchanged for tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from clumsies.api.common import WITHOUT_NUL, Answer, Request

OrgRole = Literal["owner", "admin", "member"]
ProjectRole = Literal["admin", "member"]
Capability = Literal[
    "memory:read", "draft:write", "review:write", "review:decide", "review:merge", "admin:write"
]
Secret = Annotated[str, Meta(min_length=1, max_length=4_096, pattern=r"^[\x21-\x7e]+\Z")]


class User(Answer, frozen=True, kw_only=True):
    user_id: str
    email: str
    display_name: str
    avatar_url: str | None = None
    role: OrgRole


class Organization(Answer, frozen=True, kw_only=True):
    org_id: str
    name: str


class ProjectReference(Answer, frozen=True, kw_only=True):
    project_id: str
    name: str


class Me(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """The signed-in user; `projects` is complete: every project they are a member of."""

    user: User
    org: Organization
    projects: list[ProjectReference]
    default_project_id: str | None
    capabilities: list[Capability]


class CodeExchange(
    Request, frozen=True, kw_only=True, tag_field="grant_type", tag="authorization_code"
):
    """The one-time code of a sign-in, with what only the client that began it knows."""

    code: Secret
    redirect_uri: Annotated[str, Meta(max_length=2_048, pattern=WITHOUT_NUL)]
    code_verifier: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._~-]{43,128}\Z")]


class TokenRefresh(Request, frozen=True, kw_only=True, tag_field="grant_type", tag="refresh_token"):
    """A refresh token, which is spent."""

    refresh_token: Secret


TokenRequest = CodeExchange | TokenRefresh


class TokenAnswer(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """`expires_in` is the access token's life in seconds. The refresh token sent is spent."""

    access_token: str
    refresh_token: str
    token_type: Literal["Bearer"]
    expires_in: int
    user: User
    org: Organization
    capabilities: list[Capability]

    def __repr__(self) -> str:
        return "TokenAnswer(...)"


class SessionRevocation(Answer, frozen=True, kw_only=True, omit_defaults=False):
    revoked: bool
