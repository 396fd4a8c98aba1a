"""The first run of a Server: its identity provider, and its owner's first sign-in."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from clumsies.api.common import Answer, Request
from clumsies.api.identity import Secret

Url = Annotated[str, Meta(min_length=8, max_length=2_048, pattern=r"^https?://[\x21-\x7e]+\Z")]
Domain = Annotated[str, Meta(max_length=253, pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+\Z")]


class SetupState(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """`open` while a setup code can be used; `sign_in` is whether people can sign in."""

    state: Literal["open", "closed"]
    sign_in: bool


class OpenSetup(Request, frozen=True, kw_only=True):
    """The code that `clumsies server init` printed. It opens one setup."""

    code: Secret


class SetupSession(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """The cookie that came with this answer is good for `expires_in` seconds."""

    expires_in: int


class SetupConfiguration(Request, frozen=True, kw_only=True):
    """The OpenID provider. An absent secret keeps the one that is there."""

    issuer: Url
    client_id: Annotated[str, Meta(min_length=1, max_length=300, pattern=r"^[\x21-\x7e]+\Z")]
    client_secret: Secret | None = None
    allowed_domains: Annotated[list[Domain], Meta(max_length=50)] = field(default_factory=list)


class SetupAuthorization(Answer, frozen=True, kw_only=True, omit_defaults=False):
    """Where the owner's browser goes to sign in; setup is closed when they come back."""

    authorization_url: str
