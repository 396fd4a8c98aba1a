"""A whole sign-in against a real OpenID provider, and everybody who is not let in."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from sqlalchemy import select, update

from clumsies.config import ServerSettings
from clumsies.server.context import ServerContext
from clumsies.server.http.app import make_app
from clumsies.server.identity import oidc
from clumsies.server.identity.authentication import SessionAuthenticator
from clumsies.server.schema import users
from tests.server.conftest import ORIGIN, Clock
from tests.server.oidc_forge import Forge, running_forge
from tests.server.world import World

VERIFIER = "v" * 64
CHALLENGE = (
    base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
)
REDIRECT = "http://127.0.0.1:4711/callback"
Connect = Callable[..., httpx.Client]


@pytest.fixture(scope="session")
def provider_url() -> Iterator[str]:
    """A real provider, whose sign-in form takes any subject."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                httpx.get(f"{url}/.well-known/openid-configuration")
                break
            except httpx.TransportError:
                assert process.poll() is None
                time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


@dataclass
class SignIn:
    """A browser and a client in one."""

    provider: str
    browser: httpx.Client
    client: httpx.Client

    def begin(self, **other: str | None) -> httpx.Response:
        query: dict[str, str | None] = {
            "client_kind": "cli",
            "redirect_uri": REDIRECT,
            "code_challenge": CHALLENGE,
            "code_challenge_method": "S256",
            "state": "the client's",
        }
        asked = {name: value for name, value in (query | other).items() if value is not None}
        return self.client.get("/oauth2/authorization/oidc", params=asked)

    def at_provider(self, where: str, subject: str, **claims: Any) -> str:
        """The path on the Server that the provider sends the browser back to."""
        done = self.browser.put(f"{self.provider}/users/{subject}", json=claims)
        assert done.status_code == 204
        answer = self.browser.post(where, data={"sub": subject})
        assert answer.status_code == 302, answer.text
        back = answer.headers["location"]
        assert back.startswith(f"{ORIGIN}/login/oauth2/code/oidc?")
        return str(back)

    def outcome(self, back: str) -> dict[str, str]:
        """What the client's address was told."""
        answer = self.client.get(back)
        assert answer.status_code == 302, answer.text
        assert answer.headers["cache-control"] == "no-store"
        target = urlsplit(answer.headers["location"])
        assert f"{target.scheme}://{target.netloc}{target.path}" == REDIRECT
        return {name: values[0] for name, values in parse_qs(target.query).items()}

    def whole(self, subject: str, **claims: Any) -> dict[str, str]:
        where = self.begin()
        assert where.status_code == 302, where.text
        return self.outcome(self.at_provider(where.headers["location"], subject, **claims))

    def exchange(self, code: str) -> httpx.Response:
        return self.client.post(
            "/api/v1/auth/token",
            json={
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": REDIRECT,
                "code_verifier": VERIFIER,
            },
        )


@pytest.fixture
def server(context: ServerContext, clock: Clock, provider_url: str) -> Iterator[ServerContext]:
    oidc.forget_fetched()
    settings = ServerSettings(
        public_origin=ORIGIN,
        oidc_issuer=provider_url,
        oidc_client_id="clumsies",
        oidc_client_secret="the-secret",
    )
    authenticator = SessionAuthenticator(context.database, clock)
    yield replace(context, authenticator=authenticator, settings=settings)
    oidc.forget_fetched()


@pytest.fixture
def sign_in(server: ServerContext, connect: Connect, provider_url: str) -> Iterator[SignIn]:
    with httpx.Client() as browser:
        yield SignIn(provider_url, browser, connect(make_app(server)))


def invite(world: World, email: str = "new@acme.example", **values: Any) -> None:
    row = {
        "user_id": "user_new",
        "org_id": "org_acme",
        "email": email,
        "email_key": email.casefold(),
        "display_name": email,
        "role": "member",
        "status": "invited",
        "revision": 1,
        "created_at": "2026-01-02T00:00:00.000000Z",
        "updated_at": "2026-01-02T00:00:00.000000Z",
    }
    world.database.write(lambda c: c.execute(users.insert().values(row | values)))


def row_of(world: World, user_id: str = "user_new") -> Any:
    with world.database.read() as connection:
        return connection.execute(select(users).where(users.c.user_id == user_id)).one()


def test_an_invited_person_signs_in(sign_in: SignIn, world: World) -> None:
    invite(world, "New@Acme.example")
    found = sign_in.whole("s1", email="new@acme.EXAMPLE", email_verified=True, name="New Person")
    assert found["state"] == "the client's"
    answer = sign_in.exchange(found["code"])
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["user"] == {
        "user_id": "user_new",
        "email": "New@Acme.example",
        "display_name": "New Person",
        "role": "member",
    }
    row = row_of(world)
    assert (row.status, row.oidc_issuer, row.oidc_subject) == ("active", sign_in.provider, "s1")
    me = sign_in.client.get(
        "/api/v1/me", headers={"authorization": f"Bearer {body['access_token']}"}
    )
    assert me.json()["user"]["user_id"] == "user_new"


def test_an_identity_stays_the_same_person_whatever_its_address(
    sign_in: SignIn, world: World
) -> None:
    invite(world)
    sign_in.whole("s2", email="new@acme.example", email_verified=True)
    found = sign_in.whole("s2", email="renamed@acme.example", email_verified=False)
    assert sign_in.exchange(found["code"]).json()["user"]["user_id"] == "user_new"


@pytest.mark.parametrize(
    ("subject", "claims", "words"),
    [
        ("s3", {"email": "new@acme.example", "email_verified": False}, "not verified"),
        ("s3", {"email": "new@acme.example"}, "not verified"),
        ("s3", {"email": "nobody@acme.example", "email_verified": True}, "Nobody invited"),
        ("s3", {"email": "out@acme.example", "email_verified": True}, "disabled"),
        ("bound", {"email": "x@acme.example", "email_verified": True}, "disabled"),
    ],
)
def test_who_is_not_let_in_is_told_why(
    sign_in: SignIn, world: World, subject: str, claims: dict[str, Any], words: str
) -> None:
    invite(world)
    invite(world, "out@acme.example", user_id="user_out", status="disabled")
    bound = {"oidc_issuer": sign_in.provider, "oidc_subject": "bound"}
    invite(world, "x@acme.example", user_id="user_bound", status="disabled", **bound)
    found = sign_in.whole(subject, **claims)
    assert found["error"] == "forbidden"
    assert words in found["error_description"]
    assert found["state"] == "the client's"
    assert "code" not in found
    assert row_of(world).oidc_subject is None


def test_a_taken_address_is_not_taken_over(sign_in: SignIn, world: World) -> None:
    invite(world)
    sign_in.whole("s4", email="new@acme.example", email_verified=True)
    found = sign_in.whole("s5", email="new@acme.example", email_verified=True)
    assert found["error"] == "forbidden"
    assert row_of(world).oidc_subject == "s4"


def test_a_domain_that_is_not_allowed_stays_out(
    server: ServerContext, connect: Connect, world: World, provider_url: str
) -> None:
    invite(world)
    settings = replace(server.settings, oidc_allowed_domains=("other.example",))
    app = make_app(replace(server, settings=settings))
    with httpx.Client() as browser:
        found = SignIn(provider_url, browser, connect(app)).whole(
            "s6", email="new@acme.example", email_verified=True
        )
    assert "domain" in found["error_description"]


def test_a_refusal_at_the_provider_comes_back(sign_in: SignIn) -> None:
    where = sign_in.begin().headers["location"]
    back = sign_in.browser.post(where, data={"action": "deny"}).headers["location"]
    state = parse_qs(urlsplit(where).query)["state"][0]
    assert parse_qs(urlsplit(back).query)["error"] == ["access_denied"]
    found = sign_in.outcome(f"{ORIGIN}/login/oauth2/code/oidc?error=access_denied&state={state}")
    assert found["error"] == "forbidden"
    assert "refused" in found["error_description"]


def test_an_answer_counts_once(sign_in: SignIn, world: World) -> None:
    invite(world)
    where = sign_in.begin().headers["location"]
    back = sign_in.at_provider(where, "s7", email="new@acme.example", email_verified=True)
    assert "code" in sign_in.outcome(back)
    again = sign_in.client.get(back)
    assert (again.status_code, again.json()["error"]["code"]) == (400, "invalid_request")


def test_an_answer_of_nobody_or_too_late_is_refused(
    sign_in: SignIn, world: World, clock: Clock
) -> None:
    invite(world)
    path = f"{ORIGIN}/login/oauth2/code/oidc"
    assert sign_in.client.get(path, params={"code": "a", "state": "cls_b"}).status_code == 400
    assert sign_in.client.get(path, params={"code": "a"}).status_code == 400
    where = sign_in.begin().headers["location"]
    back = sign_in.at_provider(where, "s8", email="new@acme.example", email_verified=True)
    clock.advance(601)
    assert sign_in.client.get(back).status_code == 400
    assert row_of(world).status == "invited"


def test_a_code_of_another_sign_in_does_not_pass(sign_in: SignIn, world: World) -> None:
    """The provider's code of one transaction with the state of another: the nonce tells."""
    invite(world)
    theirs = sign_in.begin().headers["location"]
    back = sign_in.at_provider(theirs, "s9", email="new@acme.example", email_verified=True)
    stolen = parse_qs(urlsplit(back).query)["code"][0]
    mine = parse_qs(urlsplit(sign_in.begin().headers["location"]).query)["state"][0]
    found = sign_in.outcome(f"{ORIGIN}/login/oauth2/code/oidc?code={stolen}&state={mine}")
    assert found["error"] in ("oidc_id_token_invalid", "oidc_code_exchange_failed")
    assert row_of(world).status == "invited"


def test_a_made_up_code_is_refused_by_the_provider(sign_in: SignIn) -> None:
    state = parse_qs(urlsplit(sign_in.begin().headers["location"]).query)["state"][0]
    found = sign_in.outcome(f"{ORIGIN}/login/oauth2/code/oidc?code=made-up&state={state}")
    assert found["error"] == "oidc_code_exchange_failed"


@pytest.mark.parametrize(
    "other",
    [
        {"redirect_uri": "http://127.0.0.1:4711/other"},
        {"redirect_uri": "https://evil.example/callback"},
        {"redirect_uri": None},
        {"code_challenge": None},
        {"code_challenge": "short"},
        {"code_challenge_method": "plain"},
        {"code_challenge_method": None},
        {"client_kind": None},
        {"client_kind": "robot"},
        {"state": "new\nline"},
    ],
    ids=str,
)
def test_a_sign_in_that_asks_wrongly_is_not_begun(
    sign_in: SignIn, other: dict[str, str | None]
) -> None:
    answer = sign_in.begin(**other)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


def test_the_provider_is_asked_with_pkce_state_and_nonce(sign_in: SignIn) -> None:
    seen = []
    for _ in range(2):
        where = sign_in.begin(login_hint="new@acme.example").headers["location"]
        query = {name: values[0] for name, values in parse_qs(urlsplit(where).query).items()}
        assert query["redirect_uri"] == f"{ORIGIN}/login/oauth2/code/oidc"
        assert query["response_type"] == "code"
        assert query["scope"].split() == ["openid", "email", "profile"]
        assert query["code_challenge_method"] == "S256"
        assert query["login_hint"] == "new@acme.example"
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", query["code_challenge"])
        assert query["code_challenge"] != CHALLENGE
        seen += [query["state"], query["nonce"], query["code_challenge"]]
    assert len(set(seen)) == len(seen)


def test_both_verifiers_are_needed(server: ServerContext, connect: Connect, world: World) -> None:
    """The provider gets the verifier of the challenge it was shown, and no other."""
    invite(world)
    oidc.forget_fetched()
    with running_forge() as forge:
        settings = replace(server.settings, oidc_issuer=forge.issuer)
        client = connect(make_app(replace(server, settings=settings)))
        flow = SignIn(forge.issuer, client, client)
        query = parse_qs(urlsplit(flow.begin().headers["location"]).query)
        forge.claims = forge.fresh(query["nonce"][0]) | {"email": "new@acme.example"}
        back = f"{ORIGIN}/login/oauth2/code/oidc?code=c&state={query['state'][0]}"
        found = flow.outcome(back)
        sent = token_form(forge)
    verifier = sent["code_verifier"][0]
    digest = hashlib.sha256(verifier.encode()).digest()
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == query["code_challenge"][0]
    assert sent["redirect_uri"] == [f"{ORIGIN}/login/oauth2/code/oidc"]
    assert flow.exchange(found["code"]).status_code == 200


def token_form(forge: Forge) -> dict[str, list[str]]:
    return next(form for path, form, _ in forge.asked if path == "/token")


def test_without_a_provider_there_is_no_sign_in(server: ServerContext, connect: Connect) -> None:
    client = connect(make_app(replace(server, settings=ServerSettings(public_origin=ORIGIN))))
    answer = SignIn("", client, client).begin()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "oidc_not_configured")


def test_a_provider_that_is_away_is_told(server: ServerContext, connect: Connect) -> None:
    oidc.forget_fetched()
    with running_forge() as forge:
        settings = replace(server.settings, oidc_issuer=forge.issuer)
    client = connect(make_app(replace(server, settings=settings)))
    answer = SignIn("", client, client).begin()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "oidc_unavailable")
    assert client.get("/api/v1/admin/health").json()["oidc"]["status"] == "degraded"


def test_health_sees_the_provider(sign_in: SignIn) -> None:
    body = sign_in.client.get("/api/v1/admin/health").json()
    assert body["oidc"]["status"] == "ok"
    assert body["status"] == "ok"


def test_a_disabled_member_cannot_finish(sign_in: SignIn, world: World) -> None:
    invite(world)
    found = sign_in.whole("s10", email="new@acme.example", email_verified=True)
    world.database.write(
        lambda c: c.execute(
            update(users).where(users.c.user_id == "user_new").values(status="disabled")
        )
    )
    assert sign_in.exchange(found["code"]).status_code == 401
