"""What a route may ask for, by the name of the argument and its type here.

| argument | what |
| --- | --- |
| `acting: SignedIn` | the acts of whoever is signed in; without a bearer the route answers 401 |
| `context: Context` | what the Server is made of, for routes without a user |
| `if_match_version: IfMatchVersion` | the integer of `If-Match` |
| `if_match_ref: IfMatchRef` | the commit of the Ref's ETag in `If-Match`, None for an empty Ref |
| `page: OffsetPage` | `limit` and `cursor` of a list that pages by an encoded offset |
| any: `PathId` | an id in the path |
| `data: JSONBody[Message]` | the body; `JSONBody`, `FromQuery` are of `litestar.params` |
"""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.params import FromPath, HeaderParameter, QueryParameter

from clumsies.api.common import DEFAULT_LIMIT, MAX_LIMIT, Identifier
from clumsies.errors import Refused
from clumsies.server.acting import Acting, Principal
from clumsies.server.context import ServerContext
from clumsies.server.http.request_ids import request_id_of
from clumsies.server.paging import Page, read_cursor
from clumsies.server.preconditions import integer_if_match, ref_if_match

_SIGN_IN = "Nobody is signed in with this token; run `clumsies login`."
SignedIn = NamedDependency[Acting]
Context = NamedDependency[ServerContext]
IfMatchVersion = NamedDependency[int]
IfMatchRef = NamedDependency[str | None]
OffsetPage = NamedDependency[Page]
PathId = FromPath[Identifier]
_Limit = Annotated[int, QueryParameter(ge=1, le=MAX_LIMIT)]
_Cursor = Annotated[str, QueryParameter(max_length=200)]
_IfMatch = Annotated[str | None, HeaderParameter(name="if-match", required=False)]


def bearer_of(request: Request[Any, Any, Any]) -> str:
    """The bearer token of the request; raises Refused("unauthorized") where there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise Refused("unauthorized", _SIGN_IN)
    return token


def principal_of(request: Request[Any, Any, Any], context: ServerContext) -> Principal:
    """Who asks; raises Refused("unauthorized")."""
    principal = context.authenticator.authenticate(bearer_of(request))
    if principal is None:
        raise Refused("unauthorized", _SIGN_IN)
    return principal


def provide_context(state: State) -> ServerContext:
    """What the Server is made of."""
    context: ServerContext = state.context
    return context


def provide_acting(request: Request[Any, Any, Any], context: Context) -> Acting:
    """The acts of whoever is signed in; raises Refused("unauthorized")."""
    return Acting(
        context.database,
        principal_of(request, context),
        context.clock_ns,
        context.new_id,
        request_id_of(request.scope),
    )


# These know who asks before they judge what was sent: a stranger is told 401 and no more.
def provide_if_match_version(acting: SignedIn, if_match: _IfMatch = None) -> int:  # noqa: ARG001
    """The integer version in `If-Match`; raises InvalidRequest."""
    return integer_if_match(if_match)


def provide_if_match_ref(
    acting: SignedIn,  # noqa: ARG001
    if_match: _IfMatch = None,
) -> str | None:
    """The commit that the Ref's ETag in `If-Match` names, None for an empty Ref; raises
    InvalidRequest."""
    return ref_if_match(if_match)


def provide_page(
    acting: SignedIn,  # noqa: ARG001
    limit: _Limit = DEFAULT_LIMIT,
    cursor: _Cursor = "",
) -> Page:
    """The page that the query asks for; raises InvalidRequest for a cursor of no list."""
    return Page(limit, read_cursor(cursor or None))


DEPENDENCIES = {
    "context": Provide(provide_context, sync_to_thread=False),
    "acting": Provide(provide_acting, sync_to_thread=True),
    "page": Provide(provide_page, sync_to_thread=False),
    "if_match_version": Provide(provide_if_match_version, sync_to_thread=False),
    "if_match_ref": Provide(provide_if_match_ref, sync_to_thread=False),
}
