"""The first run, with the code that `clumsies server init` printed."""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get, post, put
from litestar.datastructures import Cookie
from litestar.params import CookieParameter, JSONBody

from clumsies.api.admin import IdentityProvider
from clumsies.api.setup import (
    OpenSetup,
    SetupAuthorization,
    SetupConfiguration,
    SetupSession,
    SetupState,
)
from clumsies.server.http.dependencies import Context
from clumsies.server.identity import provider_settings, setup

_Ticket = Annotated[str, CookieParameter(name=setup.COOKIE_NAME, max_length=200)]


@get("/api/v1/setup", sync_to_thread=True, security=[{}])
def setup_state(context: Context) -> SetupState:
    """Whether a setup can be opened, and whether people can sign in."""
    return setup.setup_state(context)


@post("/api/v1/setup/sessions", status_code=200, sync_to_thread=True, security=[{}])
def open_setup(context: Context, data: JSONBody[OpenSetup]) -> Response[SetupSession]:
    """Spend the setup code; the cookie that comes back stands for the setup."""
    ticket = setup.open_setup(context, data.code)
    cookie = Cookie(
        key=setup.COOKIE_NAME,
        value=ticket,
        path=setup.COOKIE_PATH,
        max_age=setup.COOKIE_TTL_S,
        httponly=True,
        samesite="strict",
        secure=(context.settings.public_origin or "").startswith("https:"),
    )
    return Response(
        SetupSession(expires_in=setup.COOKIE_TTL_S),
        cookies=[cookie],
        headers={"cache-control": "no-store"},
    )


@get("/api/v1/setup/configuration", sync_to_thread=True, security=[{}])
def configuration(context: Context, ticket: _Ticket = "") -> IdentityProvider:
    """The identity provider that is set; the secret is not shown."""
    setup.require_setup(context, ticket)
    return provider_settings.provider_message(context)


@put("/api/v1/setup/configuration", sync_to_thread=True, security=[{}])
def configure(
    context: Context, data: JSONBody[SetupConfiguration], ticket: _Ticket = ""
) -> IdentityProvider:
    """Set the identity provider, once it answers."""
    setup.configure(context, setup.require_setup(context, ticket), data)
    return provider_settings.provider_message(context)


@post("/api/v1/setup/oidc-authorizations", status_code=200, sync_to_thread=True, security=[{}])
def authorize_owner(context: Context, ticket: _Ticket = "") -> SetupAuthorization:
    """Where the owner's browser signs in; setup is closed when they come back."""
    url = setup.authorization(context, setup.require_setup(context, ticket))
    return SetupAuthorization(authorization_url=url)


ROUTES = [setup_state, open_setup, configuration, configure, authorize_owner]
