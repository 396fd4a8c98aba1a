"""The first run: an organisation and its owner, a one-time code, and the owner's first sign-in.

`clumsies server init` prints the code. It opens one setup, which a cookie of fifteen minutes then
stands for; setup is closed by the owner's sign-in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from clumsies.api.admin import Email
from clumsies.api.common import Title
from clumsies.api.identity import OrgRole
from clumsies.api.setup import SetupConfiguration, SetupState
from clumsies.errors import Conflict, InvalidRequest, NotFound, Refused
from clumsies.server import audit
from clumsies.server.context import ServerContext
from clumsies.server.identity import oidc
from clumsies.server.identity.provider_settings import (
    Provider,
    find_provider,
    keep_provider,
    require_provider,
)
from clumsies.server.identity.schema_identity import personal_tokens, setup_codes
from clumsies.server.identity.secrets import hashed, new_secret
from clumsies.server.identity.sign_in import Finished, begin_setup_sign_in, email_key
from clumsies.server.schema import orgs, refs, users
from clumsies.storage.timestamps import row_time

COOKIE_NAME = "clumsies_setup"
COOKIE_PATH = "/api/v1/setup"
COOKIE_TTL_S = 15 * 60
CODE_TTL_S = 24 * 3600
_SECOND_NS = 1_000_000_000
_OVER = "The setup has ended; run `clumsies server init` for a new code."


@dataclass(frozen=True, slots=True)
class NewOrganization:
    """What `create_organization` made; `owner_id` is its owner."""

    org_id: str
    owner_id: str


def checked_text(value: str, kind: Any, what: str) -> str:
    """The text, where it is a `kind` of the HTTP interface; raises InvalidRequest that names
    `what`."""
    try:
        return str(msgspec.convert(value, kind))
    except msgspec.ValidationError as error:
        raise InvalidRequest(
            "invalid_request", f"That is no {what} that can be used; correct it."
        ) from error


def create_organization(
    context: ServerContext, name: str, owner_email: str, *, active: bool = False
) -> NewOrganization:
    """An organisation with its owner, invited, or `active` at once, and an empty Ref.

    Raises Conflict("already_exists") for a second one of the same name.
    """
    checked_text(name, Title, "name of an organisation")
    checked_text(owner_email, Email, "email address")

    def work(connection: Connection) -> NewOrganization:
        now = row_time(context.clock_ns())
        taken = connection.execute(select(orgs.c.org_id).where(orgs.c.name == name)).first()
        if taken is not None:
            raise Conflict("already_exists", "There is an organisation of that name already.")
        made = NewOrganization(context.new_id("org"), context.new_id("user"))
        times = {"created_at": now, "updated_at": now}
        connection.execute(insert(orgs).values(org_id=made.org_id, name=name, **times))
        connection.execute(
            insert(refs).values(
                ref_key=f"org:{made.org_id}", scope="org", org_id=made.org_id, updated_at=now
            )
        )
        connection.execute(
            insert(users).values(
                user_id=made.owner_id,
                org_id=made.org_id,
                email=owner_email,
                email_key=email_key(owner_email),
                display_name=owner_email,
                role="owner",
                status="active" if active else "invited",
                revision=1,
                **times,
            )
        )
        _note(context, connection, made.org_id, made.owner_id, "organization.created")
        return made

    return context.database.write(work)


def _note(
    context: ServerContext, connection: Connection, org_id: str, user_id: str | None, action: str
) -> None:
    audit.record_of(
        connection,
        event_id=context.new_id("audit"),
        org_id=org_id,
        actor_id=user_id,
        action=action,
        target=("organization", org_id),
        facts={},
        request_id=None,
        now=row_time(context.clock_ns()),
    )


def organization_by_name(context: ServerContext, name: str | None) -> str:
    """The id of the organisation of that name, or of the only one; raises NotFound."""
    query = select(orgs.c.org_id)
    if name is not None:
        query = query.where(orgs.c.name == name)
    with context.database.read() as connection:
        found = connection.execute(query.limit(2)).scalars().all()
    if len(found) != 1:
        raise NotFound(
            "not_found",
            "No organisation is meant by that; name one with --organization, or make one with "
            "`clumsies server init`.",
        )
    return str(found[0])


def new_setup_code(context: ServerContext, org_id: str) -> str:
    """A code that opens the organisation's setup once within a day; earlier ones are void."""
    code = new_secret("setup")

    def work(connection: Connection) -> None:
        connection.execute(delete(setup_codes).where(setup_codes.c.org_id == org_id))
        connection.execute(
            insert(setup_codes).values(
                code_hash=hashed(code),
                org_id=org_id,
                expires_at=row_time(context.clock_ns() + CODE_TTL_S * _SECOND_NS),
            )
        )

    context.database.write(work)
    return code


def setup_state(context: ServerContext) -> SetupState:
    """Whether a setup can be opened or is under way, and whether people can sign in."""
    now = row_time(context.clock_ns())
    live = (
        select(func.count())
        .select_from(setup_codes)
        .where(
            setup_codes.c.completed_at.is_(None),
            func.coalesce(setup_codes.c.cookie_expires_at, setup_codes.c.expires_at) > now,
        )
    )
    with context.database.read() as connection:
        is_open = connection.execute(live).scalar_one() > 0
    ready = find_provider(context) is not None and context.settings.public_origin is not None
    return SetupState(state="open" if is_open else "closed", sign_in=ready)


def open_setup(context: ServerContext, code: str) -> str:
    """The cookie for a setup code, which is spent; raises Refused("unauthorized")."""
    cookie = new_secret("cookie")
    now_ns = context.clock_ns()

    def work(connection: Connection) -> bool:
        done = connection.execute(
            update(setup_codes)
            .where(
                setup_codes.c.code_hash == hashed(code),
                setup_codes.c.cookie_hash.is_(None),
                setup_codes.c.completed_at.is_(None),
                setup_codes.c.expires_at > row_time(now_ns),
            )
            .values(
                cookie_hash=hashed(cookie),
                cookie_expires_at=row_time(now_ns + COOKIE_TTL_S * _SECOND_NS),
            )
        )
        return done.rowcount == 1

    if not context.database.write(work):
        raise Refused("unauthorized", _OVER)
    return cookie


def require_setup(context: ServerContext, cookie: str | None) -> RowMapping:
    """The setup that the cookie stands for; raises Refused("unauthorized")."""
    with context.database.read() as connection:
        row = (
            connection.execute(
                select(setup_codes).where(
                    setup_codes.c.cookie_hash == hashed(cookie or ""),
                    setup_codes.c.completed_at.is_(None),
                    setup_codes.c.cookie_expires_at > row_time(context.clock_ns()),
                )
            )
            .mappings()
            .first()
        )
    if row is None:
        raise Refused("unauthorized", _OVER)
    return row


def configure(context: ServerContext, setup: RowMapping, data: SetupConfiguration) -> None:
    """Keep the identity provider, once it answers; raises NotReady("oidc_unavailable").

    Raises InvalidRequest where the environment names a provider: that one counts.
    """
    if context.settings.oidc_issuer:
        raise InvalidRequest(
            "invalid_request",
            "The environment names the identity provider (CLUMSIES_OIDC_ISSUER); change it there.",
        )
    if not oidc.is_safe_url(data.issuer):
        raise InvalidRequest("invalid_request", "The issuer must be an HTTPS address.")
    oidc.discover(data.issuer)
    provider = Provider(
        data.issuer, data.client_id, data.client_secret, tuple(data.allowed_domains), "setup"
    )

    def work(connection: Connection) -> None:
        keep_provider(connection, provider, row_time(context.clock_ns()))
        _note(context, connection, setup["org_id"], None, "identity_provider.changed")

    context.database.write(work)


def authorization(context: ServerContext, setup: RowMapping) -> str:
    """Where the owner's browser goes; raises Refused("oidc_not_configured")."""
    require_provider(context)
    origin = context.settings.public_origin or ""
    return begin_setup_sign_in(context, setup["code_hash"], origin + COOKIE_PATH)


def close_setup(context: ServerContext, finished: Finished) -> None:
    """Close the setup where its organisation's owner has signed in; nothing else is changed."""
    if finished.setup_code_hash is None:
        return

    def work(connection: Connection) -> None:
        now = row_time(context.clock_ns())
        owner = connection.execute(
            select(users.c.org_id, users.c.user_id)
            .join(setup_codes, setup_codes.c.org_id == users.c.org_id)
            .where(
                setup_codes.c.code_hash == finished.setup_code_hash,
                setup_codes.c.completed_at.is_(None),
                users.c.user_id == finished.user_id,
                users.c.role == "owner",
            )
        ).first()
        if owner is not None:
            connection.execute(
                update(setup_codes)
                .where(setup_codes.c.code_hash == finished.setup_code_hash)
                .values(completed_at=now)
            )
            _note(context, connection, owner.org_id, owner.user_id, "setup.completed")

    context.database.write(work)


def create_user(
    context: ServerContext,
    org_id: str,
    email: str,
    role: str,
    display_name: str | None,
    token_name: str | None,
) -> tuple[str, str | None]:
    """A member made on the Server's own machine; (user id, the text of a personal token or None).

    With `token_name` the member is active at once and has a token of that name; an existing member
    gets the token alone. Without it a second member of an address is Conflict("already_exists").
    """
    checked_text(email, Email, "email address")
    checked_text(role, OrgRole, "role")
    for text in (display_name, token_name):
        if text is not None:
            checked_text(text, Title, "name")
    secret = new_secret("personal") if token_name is not None else None

    def work(connection: Connection) -> str:
        now = row_time(context.clock_ns())
        row = connection.execute(
            select(users.c.user_id, users.c.status)
            .where(users.c.org_id == org_id, users.c.email_key == email_key(email))
            .with_for_update()
        ).first()
        if row is not None and secret is None:
            raise Conflict("already_exists", "There is a member with that address already.")
        if row is not None and row.status == "disabled":
            raise Refused("forbidden", "The member is disabled; an admin lets them in again.")
        user_id = str(row.user_id) if row is not None else context.new_id("user")
        if row is None:
            connection.execute(
                insert(users).values(
                    user_id=user_id,
                    org_id=org_id,
                    email=email,
                    email_key=email_key(email),
                    display_name=display_name or email,
                    role=role,
                    status="invited" if secret is None else "active",
                    revision=1,
                    created_at=now,
                    updated_at=now,
                )
            )
            _note(context, connection, org_id, None, "member.created")
        if secret is not None:
            connection.execute(
                update(users)
                .where(users.c.user_id == user_id, users.c.status == "invited")
                .values(status="active", updated_at=now)
            )
            connection.execute(
                insert(personal_tokens).values(
                    token_id=context.new_id("token"),
                    token_hash=hashed(secret),
                    org_id=org_id,
                    user_id=user_id,
                    name=token_name,
                    created_at=now,
                )
            )
            _note(context, connection, org_id, None, "token.created")
        return user_id

    return context.database.write(work), secret
