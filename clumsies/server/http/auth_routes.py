"""Sign-in: the two steps a browser takes, and the exchange of a code or a refresh token."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from litestar import Request, Response, get, post
from litestar.params import FromQuery, JSONBody, QueryParameter
from litestar.response import Redirect

from clumsies.api.identity import TokenAnswer, TokenRefresh, TokenRequest
from clumsies.server.http.dependencies import Context
from clumsies.server.http.request_ids import request_id_of
from clumsies.server.identity import sessions, setup, sign_in

_Uri = Annotated[str, QueryParameter(min_length=1, max_length=2_048)]
_Challenge = Annotated[str, QueryParameter(pattern=r"^[A-Za-z0-9_-]{43}$")]
_Visible = r"^[\x20-\x7e]*$"
_Text = Annotated[str, QueryParameter(max_length=2_048, pattern=_Visible)]
"""Empty where it is absent."""
_ClientState = Annotated[str, QueryParameter(name="state", max_length=2_048, pattern=_Visible)]
_OurState = Annotated[
    str, QueryParameter(name="state", min_length=1, max_length=200, pattern=_Visible)
]
_UNSTORED = {"cache-control": "no-store", "referrer-policy": "no-referrer"}


@get("/oauth2/authorization/oidc", status_code=302, sync_to_thread=True, security=[{}])
def authorize(
    context: Context,
    client_kind: FromQuery[Literal["desktop", "cli"]],
    redirect_uri: _Uri,
    code_challenge: _Challenge,
    code_challenge_method: FromQuery[Literal["S256"]],  # noqa: ARG001
    client_state: _ClientState = "",
    login_hint: _Text = "",
) -> Redirect:
    """Begin a sign-in: on to the identity provider."""
    asked = sign_in.SignInRequest(
        client_kind, redirect_uri, code_challenge, client_state or None, login_hint or None
    )
    return _on_to(sign_in.begin_sign_in(context, asked))


@get("/login/oauth2/code/oidc", status_code=302, sync_to_thread=True, security=[{}])
def callback(
    request: Request[Any, Any, Any],
    context: Context,
    our_state: _OurState,
    code: _Text = "",
    error: _Text = "",
) -> Redirect:
    """The identity provider's answer: on to the client, with a one-time code or an error."""
    finished = sign_in.finish_sign_in(
        context, request_id_of(request.scope), our_state, code or None, error or None
    )
    setup.close_setup(context, finished)
    return _on_to(finished.location)


def _on_to(url: str) -> Redirect:
    return Redirect(url, status_code=302, headers=_UNSTORED)


@post("/api/v1/auth/token", status_code=200, sync_to_thread=True, security=[{}])
def token(
    request: Request[Any, Any, Any], context: Context, data: JSONBody[TokenRequest]
) -> Response[TokenAnswer]:
    """A pair of tokens for a sign-in's code, or for a refresh token, which is spent."""
    request_id = request_id_of(request.scope)
    if isinstance(data, TokenRefresh):
        answer = sessions.refresh(context, request_id, data.refresh_token)
    else:
        answer = sessions.exchange_code(
            context, request_id, data.code, data.redirect_uri, data.code_verifier
        )
    return Response(answer, headers={"cache-control": "no-store"})


ROUTES = [authorize, callback, token]
