"""The first run: the code of `clumsies server init`, the cookie, the owner's first sign-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from sqlalchemy import select

from clumsies.config import ServerSettings
from clumsies.errors import Conflict, NotFound
from clumsies.server.context import ServerContext
from clumsies.server.database import Database
from clumsies.server.http.app import make_app
from clumsies.server.identity import oidc, setup
from clumsies.server.identity.authentication import SessionAuthenticator
from clumsies.server.schema import audit_events, users
from tests.server.conftest import ORIGIN, Clock
from tests.server.oidc_forge import Forge, running_forge

Connect = Callable[..., httpx.Client]


@pytest.fixture
def forge() -> Iterator[Forge]:
    oidc.forget_fetched()
    with running_forge() as made:
        yield made
    oidc.forget_fetched()


@pytest.fixture
def server(database: Database, clock: Clock) -> ServerContext:
    """An empty Server that knows where it is reached."""
    return ServerContext(
        database,
        SessionAuthenticator(database, clock),
        clock_ns=clock,
        settings=ServerSettings(public_origin=ORIGIN),
    )


@pytest.fixture
def client(server: ServerContext, connect: Connect) -> httpx.Client:
    return connect(make_app(server))


@pytest.fixture
def code(server: ServerContext) -> str:
    made = setup.create_organization(server, "Acme", "Owner@acme.example")
    return setup.new_setup_code(server, made.org_id)


def opened(client: httpx.Client, code: str) -> httpx.Response:
    return client.post("/api/v1/setup/sessions", json={"code": code})


def configure(client: httpx.Client, forge: Forge, **other: Any) -> httpx.Response:
    body = {"issuer": forge.issuer, "client_id": "clumsies", "client_secret": "hush"}
    return client.put("/api/v1/setup/configuration", json=body | other)


def refused(answer: httpx.Response, status: int = 401, code: str = "unauthorized") -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def finish(client: httpx.Client, forge: Forge, email: str) -> httpx.Response:
    """The owner's way through the provider and back."""
    answer = client.post("/api/v1/setup/oidc-authorizations")
    assert answer.status_code == 200, answer.text
    query = parse_qs(urlsplit(answer.json()["authorization_url"]).query)
    forge.claims = forge.fresh(query["nonce"][0]) | {"email": email}
    return client.get("/login/oauth2/code/oidc", params={"code": "c", "state": query["state"][0]})


def test_a_server_is_set_up_once(
    server: ServerContext, client: httpx.Client, code: str, forge: Forge
) -> None:
    assert client.get("/api/v1/setup").json() == {"state": "open", "sign_in": False}
    answer = opened(client, code)
    assert answer.json() == {"expires_in": 900}
    cookie = SimpleCookie(answer.headers["set-cookie"])["clumsies_setup"]
    assert cookie["httponly"]
    assert cookie["secure"]
    assert cookie["samesite"].lower() == "strict"
    assert (cookie["path"], cookie["max-age"]) == ("/api/v1/setup", "900")
    refused(opened(client, code))
    found = configure(client, forge, allowed_domains=["acme.example"]).json()
    assert found == {
        "configured": True,
        "source": "setup",
        "issuer": forge.issuer,
        "client_id": "clumsies",
        "has_client_secret": True,
        "allowed_domains": ["acme.example"],
        "redirect_uri": f"{ORIGIN}/login/oauth2/code/oidc",
    }
    assert "hush" not in client.get("/api/v1/setup/configuration").text
    back = finish(client, forge, "owner@acme.example")
    assert (back.status_code, back.headers["location"]) == (302, f"{ORIGIN}/api/v1/setup")
    assert client.get("/api/v1/setup").json() == {"state": "closed", "sign_in": True}
    refused(configure(client, forge))
    with server.database.read() as connection:
        owner = connection.execute(select(users)).one()
        actions = list(connection.execute(select(audit_events.c.action)).scalars())
    assert (owner.status, owner.role, owner.oidc_subject) == ("active", "owner", "subject-ann")
    assert actions == [
        "organization.created",
        "identity_provider.changed",
        "member.joined",
        "setup.completed",
    ]


def test_somebody_else_does_not_finish_the_setup(
    client: httpx.Client, code: str, forge: Forge
) -> None:
    opened(client, code)
    configure(client, forge)
    back = finish(client, forge, "other@acme.example")
    assert parse_qs(urlsplit(back.headers["location"]).query)["error"] == ["forbidden"]
    assert client.get("/api/v1/setup").json()["state"] == "open"


def test_a_wrong_code_or_none_opens_nothing(client: httpx.Client, code: str, forge: Forge) -> None:
    refused(opened(client, "setup_wrong"))
    refused(configure(client, forge))
    refused(client.get("/api/v1/setup/configuration"))
    refused(client.post("/api/v1/setup/oidc-authorizations"))
    client.cookies.set("clumsies_setup", "clk_wrong")
    refused(client.get("/api/v1/setup/configuration"))


def test_the_code_lives_a_day_and_the_cookie_fifteen_minutes(
    server: ServerContext, connect: Connect, client: httpx.Client, code: str, clock: Clock
) -> None:
    opened(client, code)
    clock.advance(14 * 60)
    assert client.get("/api/v1/setup/configuration").status_code == 200
    clock.advance(120)
    refused(client.get("/api/v1/setup/configuration"))
    other = setup.new_setup_code(server, setup.organization_by_name(server, "Acme"))
    clock.advance(24 * 3600 + 1)
    refused(opened(client, other))
    assert client.get("/api/v1/setup").json()["state"] == "closed"


def test_a_provider_that_does_not_answer_is_not_kept(
    client: httpx.Client, code: str, forge: Forge
) -> None:
    opened(client, code)
    forge.answers["/.well-known/openid-configuration"] = (500, b"")
    refused(configure(client, forge), 503, "oidc_unavailable")
    assert client.get("/api/v1/setup/configuration").json()["source"] == "none"
    refused(configure(client, forge, issuer="http://login.example"), 400, "invalid_request")
    refused(client.post("/api/v1/setup/oidc-authorizations"), 503, "oidc_not_configured")


def test_a_secret_is_kept_for_its_own_client_alone(
    server: ServerContext, client: httpx.Client, code: str, forge: Forge
) -> None:
    opened(client, code)
    configure(client, forge)
    body = {"issuer": forge.issuer, "client_id": "clumsies"}
    same = client.put("/api/v1/setup/configuration", json=body)
    assert same.json()["has_client_secret"]
    other = client.put("/api/v1/setup/configuration", json=body | {"client_id": "another"})
    assert not other.json()["has_client_secret"]


def test_the_environments_provider_counts(
    server: ServerContext, connect: Connect, code: str, forge: Forge
) -> None:
    settings = replace(server.settings, oidc_issuer=forge.issuer, oidc_client_id="from-outside")
    client = connect(make_app(replace(server, settings=settings)))
    opened(client, code)
    refused(configure(client, forge), 400, "invalid_request")
    found = client.get("/api/v1/setup/configuration").json()
    assert (found["source"], found["client_id"]) == ("environment", "from-outside")


def test_organisations_are_named_apart(server: ServerContext) -> None:
    with pytest.raises(NotFound):
        setup.organization_by_name(server, None)
    first = setup.create_organization(server, "Acme", "a@acme.example")
    assert setup.organization_by_name(server, None) == first.org_id
    with pytest.raises(Conflict):
        setup.create_organization(server, "Acme", "b@acme.example")
    second = setup.create_organization(server, "Other", "a@acme.example")
    assert setup.organization_by_name(server, "Other") == second.org_id
    with pytest.raises(NotFound):
        setup.organization_by_name(server, None)


def test_a_user_is_made_on_the_machine_itself(server: ServerContext) -> None:
    org_id = setup.create_organization(server, "Acme", "a@acme.example").org_id
    user_id, none = setup.create_user(server, org_id, "Bot@acme.example", "member", None, None)
    assert none is None
    with pytest.raises(Conflict):
        setup.create_user(server, org_id, "bot@ACME.example", "member", None, None)
    same, secret = setup.create_user(server, org_id, "bot@acme.example", "member", None, "ci")
    assert same == user_id
    assert secret is not None
    found = server.authenticator.authenticate(secret)
    assert found is not None
    assert (found.user_id, found.role) == (user_id, "member")
