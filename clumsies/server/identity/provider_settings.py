"""Which identity provider people sign in with: the environment's, else the one setup was told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import Connection, delete, insert, select

from clumsies.api.admin import IdentityProvider
from clumsies.errors import Refused
from clumsies.server.context import ServerContext
from clumsies.server.identity.schema_identity import identity_provider

CALLBACK_PATH = "/login/oauth2/code/oidc"


@dataclass(frozen=True, slots=True)
class Provider:
    """An OpenID provider and who this Server is there. Without domains any address may sign in."""

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    allowed_domains: tuple[str, ...] = ()
    source: Literal["environment", "setup"] = "environment"


def find_provider(context: ServerContext) -> Provider | None:
    """The provider that is set, or None."""
    settings = context.settings
    if settings.oidc_issuer and settings.oidc_client_id:
        return Provider(
            settings.oidc_issuer,
            settings.oidc_client_id,
            settings.oidc_client_secret,
            settings.oidc_allowed_domains,
        )
    with context.database.read() as connection:
        row = connection.execute(select(identity_provider)).first()
    if row is None:
        return None
    domains = tuple(name for name in row.allowed_domains.split(",") if name)
    return Provider(row.issuer, row.client_id, row.client_secret, domains, "setup")


def require_provider(context: ServerContext) -> Provider:
    """The provider that is set; raises Refused("oidc_not_configured")."""
    provider = find_provider(context)
    if provider is None or context.settings.public_origin is None:
        raise Refused(
            "oidc_not_configured",
            "This Server has no identity provider yet; its owner sets CLUMSIES_OIDC_ISSUER, "
            "CLUMSIES_OIDC_CLIENT_ID and CLUMSIES_PUBLIC_ORIGIN.",
        )
    return provider


def callback_url(context: ServerContext) -> str | None:
    """Where the identity provider sends people back to."""
    origin = context.settings.public_origin
    return origin + CALLBACK_PATH if origin else None


def keep_provider(connection: Connection, provider: Provider, now: str) -> None:
    """Keep the provider for when the environment names none. An absent secret keeps the old one of
    the same client."""
    old = connection.execute(select(identity_provider).with_for_update()).first()
    secret = provider.client_secret
    if secret is None and old is not None:
        same = (old.issuer, old.client_id) == (provider.issuer, provider.client_id)
        secret = old.client_secret if same else None
    connection.execute(delete(identity_provider))
    connection.execute(
        insert(identity_provider).values(
            only_row=True,
            issuer=provider.issuer,
            client_id=provider.client_id,
            client_secret=secret,
            allowed_domains=",".join(provider.allowed_domains),
            updated_at=now,
        )
    )


def provider_message(context: ServerContext) -> IdentityProvider:
    """What administrators see: never the secret."""
    provider = find_provider(context)
    return IdentityProvider(
        configured=provider is not None and context.settings.public_origin is not None,
        source=provider.source if provider else "none",
        issuer=provider.issuer if provider else None,
        client_id=provider.client_id if provider else None,
        has_client_secret=provider is not None and provider.client_secret is not None,
        allowed_domains=list(provider.allowed_domains) if provider else [],
        redirect_uri=callback_url(context),
    )
