"""A sign-in from the client's first request to its one-time code, and who is let in.

The client and this Server, and this Server and the identity provider, each have a PKCE pair of
their own. A transaction is found by its state, is good for one answer, and lives ten minutes.
People are invited: an identity is bound once to the member whose address the provider has verified,
and is known by issuer and subject ever after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlencode, urlsplit, urlunsplit

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from clumsies.errors import ClumsiesError, InvalidRequest, Refused
from clumsies.server import audit
from clumsies.server.context import ServerContext
from clumsies.server.identity import oidc
from clumsies.server.identity.oidc import Identity
from clumsies.server.identity.provider_settings import Provider, callback_url, require_provider
from clumsies.server.identity.schema_identity import authorization_codes, login_transactions
from clumsies.server.identity.secrets import code_challenge, hashed, new_secret
from clumsies.server.schema import users
from clumsies.storage.timestamps import row_time

TRANSACTION_TTL_S = 10 * 60
CODE_TTL_S = 2 * 60
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "[::1]"})
ClientKind = Literal["desktop", "cli"]
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class SignInRequest:
    """What a client asks with; `state` comes back to it unread."""

    client_kind: ClientKind
    redirect_uri: str
    code_challenge: str
    state: str | None = None
    login_hint: str | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """An answered transaction: where the browser goes next, and for whom it was."""

    location: str
    setup_code_hash: str | None = None
    user_id: str | None = None


def redirect_is_allowed(redirect_uri: str, allowed: tuple[str, ...]) -> bool:
    """Whether one of the allowed addresses is this one.

    Scheme, host, path and query must be the same to the letter; an allowed address of a loopback
    host without a port stands for every port (RFC 8252, 7.3).
    """
    for template in allowed:
        if redirect_uri == template:
            return True
        host = urlsplit(template).netloc
        if host in LOOPBACK_HOSTS:
            before, _, after = template.partition(host)
            form = rf"{re.escape(before + host)}:([1-9][0-9]{{0,4}}){re.escape(after)}"
            found = re.fullmatch(form, redirect_uri, re.ASCII)
            if found is not None and int(found[1]) <= 65_535:
                return True
    return False


def begin_sign_in(context: ServerContext, request: SignInRequest) -> str:
    """The identity provider's address for the browser.

    Raises InvalidRequest for a redirect that is not allowed, Refused("oidc_not_configured") and
    NotReady("oidc_unavailable").
    """
    if not redirect_is_allowed(request.redirect_uri, context.settings.client_redirect_uris):
        raise InvalidRequest(
            "invalid_request",
            "The redirect_uri is not one this Server knows; see CLUMSIES_CLIENT_REDIRECT_URIS.",
        )
    values = {
        "purpose": "client",
        "client_kind": request.client_kind,
        "redirect_uri": request.redirect_uri,
        "client_state": request.state,
        "code_challenge": request.code_challenge,
    }
    return _begin(context, values, request.login_hint)


def begin_setup_sign_in(context: ServerContext, setup_code_hash: str, redirect_uri: str) -> str:
    """As `begin_sign_in`, for the owner of a Server that is being set up."""
    values = {
        "purpose": "setup",
        "client_kind": "desktop",
        "redirect_uri": redirect_uri,
        "setup_code_hash": setup_code_hash,
    }
    return _begin(context, values, None)


def _begin(context: ServerContext, values: Mapping[str, str | None], login_hint: str | None) -> str:
    provider = require_provider(context)
    state, nonce, verifier = new_secret("state"), new_secret("state"), new_secret("state")
    url = oidc.authorization_url(
        provider,
        callback_url(context) or "",
        state=state,
        nonce=nonce,
        challenge=code_challenge(verifier),
        login_hint=login_hint,
    )
    now_ns = context.clock_ns()
    row = {
        **values,
        "state_hash": hashed(state),
        "nonce": nonce,
        "code_verifier": verifier,
        "created_at": row_time(now_ns),
        "expires_at": row_time(now_ns + TRANSACTION_TTL_S * _SECOND_NS),
    }

    def work(connection: Connection) -> None:
        expired = login_transactions.c.expires_at <= row_time(now_ns)
        connection.execute(delete(login_transactions).where(expired))
        connection.execute(insert(login_transactions).values(row))

    context.database.write(work)
    return url


def finish_sign_in(
    context: ServerContext, request_id: str, state: str, code: str | None, error: str | None
) -> Finished:
    """Answer a transaction with what the identity provider sent.

    A refusal of ours or theirs goes to the client's address as `error` and `error_description`.
    Raises InvalidRequest where no transaction is known by the state: nobody can be told there.
    """
    transaction = _take_transaction(context, state)
    try:
        if code is None:
            raise Refused("forbidden", _refusal_words(error))
        provider = require_provider(context)
        identity = oidc.redeem(
            provider,
            code,
            callback_url(context) or "",
            verifier=transaction["code_verifier"],
            nonce=transaction["nonce"],
        )
        answer, setup_code_hash, user_id = _admitted(
            context, request_id, transaction, provider, identity
        )
    except ClumsiesError as failure:
        context.log.info("sign-in %s refused: %s", request_id, failure.code)
        answer = {"error": failure.code, "error_description": failure.message}
        setup_code_hash = user_id = None
    if transaction["client_state"] is not None:
        answer["state"] = transaction["client_state"]
    return Finished(_with_query(transaction["redirect_uri"], answer), setup_code_hash, user_id)


def _refusal_words(error: str | None) -> str:
    if error == "access_denied":
        return "The sign-in was refused at the identity provider; try again."
    return "The identity provider did not sign you in; try again."


def _take_transaction(context: ServerContext, state: str) -> RowMapping:
    this = login_transactions.c.state_hash == hashed(state)

    def work(connection: Connection) -> RowMapping | None:
        row = (
            connection.execute(select(login_transactions).where(this).with_for_update())
            .mappings()
            .first()
        )
        connection.execute(delete(login_transactions).where(this))
        return row

    row = context.database.write(work)
    if row is None or row["expires_at"] <= row_time(context.clock_ns()):
        raise InvalidRequest(
            "invalid_request", "This sign-in has ended or was answered already; begin again."
        )
    return row


def _admitted(
    context: ServerContext,
    request_id: str,
    transaction: RowMapping,
    provider: Provider,
    identity: Identity,
) -> tuple[dict[str, str], str | None, str]:
    """What the client's address is told, the setup it closes, and the user."""
    code = new_secret("code")
    now_ns = context.clock_ns()

    def work(connection: Connection) -> str:
        user = admit(connection, provider, identity, row_time(now_ns))
        if user["oidc_subject"] is None:
            audit.record_of(
                connection,
                event_id=context.new_id("audit"),
                org_id=user["org_id"],
                actor_id=user["user_id"],
                action="member.joined",
                target=("user", user["user_id"]),
                facts={},
                request_id=request_id,
                now=row_time(now_ns),
            )
        if transaction["purpose"] == "client":
            _keep_code(connection, code, user["user_id"], transaction, now_ns)
        return str(user["user_id"])

    user_id = context.database.write(work)
    if transaction["purpose"] == "client":
        return {"code": code}, None, user_id
    return {}, transaction["setup_code_hash"], user_id


def _keep_code(
    connection: Connection, code: str, user_id: str, transaction: RowMapping, now_ns: int
) -> None:
    # A code that was exchanged stays for as long as its session may live, so that a replay shows.
    old = authorization_codes.c.expires_at <= row_time(now_ns - 30 * 24 * 3600 * _SECOND_NS)
    connection.execute(delete(authorization_codes).where(old))
    connection.execute(
        insert(authorization_codes).values(
            code_hash=hashed(code),
            user_id=user_id,
            client_kind=transaction["client_kind"],
            redirect_uri=transaction["redirect_uri"],
            code_challenge=transaction["code_challenge"],
            created_at=row_time(now_ns),
            expires_at=row_time(now_ns + CODE_TTL_S * _SECOND_NS),
        )
    )


def _with_query(url: str, answer: dict[str, str]) -> str:
    if not answer:
        return url
    parts = urlsplit(url)
    query = "&".join(part for part in (parts.query, urlencode(answer)) if part)
    return urlunsplit(parts._replace(query=query))


def email_key(email: str) -> str:
    """An address as it is compared."""
    return email.strip().casefold()


def admit(connection: Connection, provider: Provider, identity: Identity, now: str) -> RowMapping:
    """The member's row as it was before this sign-in, bound to the identity from now on.

    Raises Refused("forbidden") that says why somebody is not let in.
    """
    domain = email_key(identity.email).rpartition("@")[2]
    if provider.allowed_domains and domain not in provider.allowed_domains:
        raise Refused("forbidden", "Addresses of your domain may not sign in here.")
    known = _known(connection, identity)
    if known is not None:
        _require_enabled(known)
        return known
    if not identity.email_verified:
        raise Refused(
            "forbidden",
            "The identity provider has not verified your address; verify it there and try again.",
        )
    invited = _invited(connection, email_key(identity.email))
    row = next((row for row in invited if row["status"] != "disabled"), None)
    if row is None:
        if invited:
            _require_enabled(invited[0])
        raise Refused("forbidden", "Nobody invited your address; ask an owner or admin to.")
    named = row["display_name"] not in ("", row["email"])
    connection.execute(
        update(users)
        .where(users.c.user_id == row["user_id"])
        .values(
            oidc_issuer=identity.issuer,
            oidc_subject=identity.subject,
            status="active",
            display_name=row["display_name"] if named else identity.name or row["email"],
            avatar_url=identity.picture,
            revision=row["revision"] + 1,
            updated_at=now,
        )
    )
    return row


def _known(connection: Connection, identity: Identity) -> RowMapping | None:
    query = select(users).where(
        users.c.oidc_issuer == identity.issuer, users.c.oidc_subject == identity.subject
    )
    return connection.execute(query).mappings().first()


def _invited(connection: Connection, key: str) -> list[RowMapping]:
    """Members of any organisation with this address who are bound to no identity yet, the first
    invited first."""
    query = (
        select(users)
        .where(users.c.email_key == key, users.c.oidc_subject.is_(None))
        .order_by(users.c.created_at, users.c.user_id)
        .with_for_update()
    )
    return list(connection.execute(query).mappings())


def _require_enabled(row: RowMapping) -> None:
    if row["status"] == "disabled":
        raise Refused("forbidden", "Your account is disabled; ask an owner or admin.")
