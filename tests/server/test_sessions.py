"""Sessions and personal tokens: rotation, lost answers, reuse, expiry, revocation."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest
from sqlalchemy import inspect, select, text

from clumsies.server.context import ServerContext
from clumsies.server.http.app import make_app
from clumsies.server.identity.authentication import SessionAuthenticator
from clumsies.server.identity.schema_identity import authorization_codes
from clumsies.server.identity.secrets import hashed
from clumsies.server.identity.sessions import ACCESS_TTL_S, REFRESH_TTL_S
from clumsies.server.schema import audit_events
from clumsies.storage.timestamps import row_time
from tests.server.conftest import Clock
from tests.server.world import World

VERIFIER = "v" * 64
CHALLENGE = (
    base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
)
REDIRECT = "http://127.0.0.1:4711/callback"
Ask = Callable[..., httpx.Response]


@pytest.fixture
def server(context: ServerContext, clock: Clock) -> ServerContext:
    """The world behind real authentication."""
    return replace(context, authenticator=SessionAuthenticator(context.database, clock))


@pytest.fixture
def ask(server: ServerContext, connect: Callable[..., httpx.Client]) -> Ask:
    """One request: `ask("GET", "/api/v1/me", bearer)`."""
    app = make_app(server)

    def send(method: str, path: str, bearer: str | None = None, **more: Any) -> httpx.Response:
        return connect(app, bearer).request(method, path, **more)

    return send


@pytest.fixture
def sign_in(server: ServerContext, world: World, clock: Clock, ask: Ask) -> Callable[[str], Any]:
    """The first pair of a session of a user."""

    def make(user: str) -> Any:
        code = f"clc_{user}_{clock()}"
        keep_code(server, world.users[user], code, clock)
        return pair(exchange(ask, code))

    return make


def keep_code(server: ServerContext, user_id: str, code: str, clock: Clock) -> None:
    now = clock()
    server.database.write(
        lambda c: c.execute(
            authorization_codes.insert().values(
                code_hash=hashed(code),
                user_id=user_id,
                client_kind="cli",
                redirect_uri=REDIRECT,
                code_challenge=CHALLENGE,
                created_at=row_time(now),
                expires_at=row_time(now + 120 * 10**9),
            )
        )
    )


def exchange(ask: Ask, code: str, /, **other: str) -> httpx.Response:
    body = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": REDIRECT,
        "code_verifier": VERIFIER,
    }
    return ask("POST", "/api/v1/auth/token", json=body | other)


def refresh(ask: Ask, token: str) -> httpx.Response:
    body = {"grant_type": "refresh_token", "refresh_token": token}
    return ask("POST", "/api/v1/auth/token", json=body)


def pair(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


def refused(answer: httpx.Response, status: int = 401, code: str = "unauthorized") -> None:
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)


def is_in(ask: Ask, bearer: str) -> bool:
    return ask("GET", "/api/v1/me", bearer).status_code == 200


def actions(server: ServerContext) -> list[str]:
    with server.database.read() as connection:
        query = select(audit_events.c.action).order_by(audit_events.c.sequence)
        return list(connection.execute(query).scalars())


def test_a_code_gives_a_session_that_says_who_it_is(ask: Ask, sign_in: Any) -> None:
    found = sign_in("ann")
    assert found["token_type"] == "Bearer"
    assert found["expires_in"] == ACCESS_TTL_S
    assert found["user"]["user_id"] == "user_ann"
    assert found["org"] == {"org_id": "org_acme", "name": "Acme"}
    assert found["capabilities"] == ["memory:read", "draft:write", "review:write"]
    me = ask("GET", "/api/v1/me", found["access_token"]).json()
    assert me["user"] == found["user"]
    assert [item["name"] for item in me["projects"]] == ["Alpha", "Beta"]
    assert me["default_project_id"] is None
    assert "admin:write" in sign_in("admin")["capabilities"]
    assert sign_in("ben")["user"]["role"] == "member"


def test_the_only_project_is_the_default_one(ask: Ask, sign_in: Any) -> None:
    me = ask("GET", "/api/v1/me", sign_in("ben")["access_token"]).json()
    assert me["default_project_id"] == "proj_beta"


@pytest.mark.parametrize(
    "other",
    [
        {"code": "clc_other"},
        {"redirect_uri": "http://127.0.0.1:4712/callback"},
        {"code_verifier": "w" * 64},
    ],
)
def test_a_code_is_good_for_its_own_client_once(
    server: ServerContext, ask: Ask, clock: Clock, other: dict[str, str]
) -> None:
    keep_code(server, "user_ann", "clc_one", clock)
    refused(exchange(ask, "clc_one", **other))
    if "code" not in other:
        refused(exchange(ask, "clc_one"))


def test_a_code_lives_two_minutes(server: ServerContext, ask: Ask, clock: Clock) -> None:
    keep_code(server, "user_ann", "clc_one", clock)
    clock.advance(121)
    refused(exchange(ask, "clc_one"))


def test_a_code_that_comes_again_ends_the_session_it_gave(
    server: ServerContext, ask: Ask, clock: Clock
) -> None:
    keep_code(server, "user_ann", "clc_one", clock)
    found = pair(exchange(ask, "clc_one"))
    assert is_in(ask, found["access_token"])
    refused(exchange(ask, "clc_one"))
    assert not is_in(ask, found["access_token"])
    refused(refresh(ask, found["refresh_token"]))
    assert actions(server) == ["session.created", "session.code_replayed"]


def test_an_access_token_lives_fifteen_minutes(ask: Ask, sign_in: Any, clock: Clock) -> None:
    found = sign_in("ann")
    clock.advance(ACCESS_TTL_S - 5)
    assert is_in(ask, found["access_token"])
    clock.advance(10)
    refused(ask("GET", "/api/v1/me", found["access_token"]))
    assert is_in(ask, pair(refresh(ask, found["refresh_token"]))["access_token"])


def test_a_refresh_token_lives_thirty_days_from_its_own_birth(
    ask: Ask, sign_in: Any, clock: Clock
) -> None:
    found = sign_in("ann")
    for _ in range(3):
        clock.advance(REFRESH_TTL_S - 60)
        found = pair(refresh(ask, found["refresh_token"]))
    clock.advance(REFRESH_TTL_S + 1)
    refused(refresh(ask, found["refresh_token"]))


def test_tokens_of_one_kind_do_not_work_as_another(ask: Ask, sign_in: Any) -> None:
    found = sign_in("ann")
    refused(ask("GET", "/api/v1/me", found["refresh_token"]))
    refused(refresh(ask, found["access_token"]))


def test_a_lost_answer_signs_nobody_out(ask: Ask, sign_in: Any) -> None:
    first = sign_in("ann")
    lost = [pair(refresh(ask, first["refresh_token"])) for _ in range(3)]
    second = pair(refresh(ask, first["refresh_token"]))
    assert is_in(ask, second["access_token"])
    assert not any(is_in(ask, one["access_token"]) for one in lost)
    third = pair(refresh(ask, second["refresh_token"]))
    assert is_in(ask, third["access_token"])


def test_a_spent_token_ends_the_session_once_its_successor_was_used(
    server: ServerContext, ask: Ask, sign_in: Any
) -> None:
    first = sign_in("ann")
    second = pair(refresh(ask, first["refresh_token"]))
    third = pair(refresh(ask, second["refresh_token"]))
    refused(refresh(ask, first["refresh_token"]))
    for found in (second, third):
        assert not is_in(ask, found["access_token"])
        refused(refresh(ask, found["refresh_token"]))
    assert actions(server) == ["session.created", "session.refresh_reused"]


def test_a_void_token_ends_the_session(ask: Ask, sign_in: Any) -> None:
    """Whoever had the answer that seemed lost is not the one who asked again."""
    first = sign_in("ann")
    taken = pair(refresh(ask, first["refresh_token"]))
    second = pair(refresh(ask, first["refresh_token"]))
    refused(refresh(ask, taken["refresh_token"]))
    assert not is_in(ask, second["access_token"])


def test_refreshing_at_once_leaves_one_pair(ask: Ask, sign_in: Any) -> None:
    first = sign_in("ann")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: refresh(ask, first["refresh_token"]), range(4)))
    live = [one for one in map(pair, answers) if is_in(ask, one["access_token"])]
    assert len(live) == 1
    pair(refresh(ask, live[0]["refresh_token"]))


def test_signing_out_ends_this_session_alone(ask: Ask, sign_in: Any) -> None:
    here, there = sign_in("ann"), sign_in("ann")
    assert ask("DELETE", "/api/v1/auth/session", here["access_token"]).json() == {"revoked": True}
    refused(ask("GET", "/api/v1/me", here["access_token"]))
    refused(refresh(ask, here["refresh_token"]))
    assert is_in(ask, there["access_token"])


@pytest.mark.parametrize(
    "body",
    [
        {"grant_type": "password"},
        {"grant_type": "refresh_token"},
        {"grant_type": "refresh_token", "refresh_token": "a", "code": "b"},
        {"grant_type": "authorization_code", "code": "a", "redirect_uri": "b"},
        {"grant_type": "authorization_code", "code": "a", "redirect_uri": REDIRECT,
         "code_verifier": "short"},
        {"grant_type": "refresh_token", "refresh_token": ""},
    ],
)  # fmt: skip
def test_a_grant_that_is_no_grant_is_an_invalid_request(ask: Ask, body: dict[str, str]) -> None:
    refused(ask("POST", "/api/v1/auth/token", json=body), 400, "invalid_request")


def test_a_disabled_member_is_out_at_once_and_for_good(ask: Ask, sign_in: Any) -> None:
    owner, ann = sign_in("owner"), sign_in("ann")
    token = ask("POST", "/api/v1/me/tokens", ann["access_token"], json={"name": "ci"}).json()
    assert is_in(ask, token["secret"])
    path = "/api/v1/admin/members/user_ann"
    for status in ("disabled", "active"):
        changed = ask("PATCH", path, owner["access_token"], json={"status": status})
        assert changed.json()["status"] == status
        refused(ask("GET", "/api/v1/me", ann["access_token"]))
        refused(ask("GET", "/api/v1/me", token["secret"]))
        refused(refresh(ask, ann["refresh_token"]))


def test_a_personal_token_is_shown_once_and_may_what_its_user_may(ask: Ask, sign_in: Any) -> None:
    bearer = sign_in("ann")["access_token"]
    made = ask("POST", "/api/v1/me/tokens", bearer, json={"name": "laptop", "expires_in_days": 1})
    assert made.status_code == 201
    secret = made.json()["secret"]
    assert is_in(ask, secret)
    refused(ask("GET", "/api/v1/admin/org", secret), 403, "forbidden")
    listed = ask("GET", "/api/v1/me/tokens", secret).json()["items"]
    assert [item["name"] for item in listed] == ["laptop"]
    assert listed[0]["last_used_at"] is not None
    assert secret not in str(listed)
    assert ask("DELETE", "/api/v1/auth/session", secret).json() == {"revoked": False}
    path = f"/api/v1/me/tokens/{listed[0]['token_id']}"
    refused(ask("DELETE", path, sign_in("ben")["access_token"]), 404, "not_found")
    assert ask("DELETE", path, bearer).json()["revoked_at"] is not None
    refused(ask("GET", "/api/v1/me", secret))


def test_a_personal_token_ends_on_its_day(ask: Ask, sign_in: Any, clock: Clock) -> None:
    bearer = sign_in("ann")["access_token"]
    body = {"name": "laptop", "expires_in_days": 2}
    secret = ask("POST", "/api/v1/me/tokens", bearer, json=body).json()["secret"]
    clock.advance(2 * 24 * 3600 - 60)
    assert is_in(ask, secret)
    clock.advance(120)
    refused(ask("GET", "/api/v1/me", secret))


def test_an_admin_makes_tokens_for_those_not_above_them(ask: Ask, sign_in: Any) -> None:
    admin, owner = sign_in("admin")["access_token"], sign_in("owner")["access_token"]

    def make(bearer: str, user_id: str) -> httpx.Response:
        body = {"user_id": user_id, "name": "robot"}
        return ask("POST", "/api/v1/admin/tokens", bearer, json=body)

    assert is_in(ask, make(admin, "user_ben").json()["secret"])
    refused(make(admin, "user_owner"), 403, "forbidden")
    refused(make(admin, "user_stranger"), 404, "not_found")
    token = make(owner, "user_owner").json()["token"]
    listed = ask("GET", "/api/v1/admin/tokens", admin).json()["items"]
    assert {item["user_id"] for item in listed} == {"user_ben", "user_owner"}
    gone = ask("DELETE", f"/api/v1/admin/tokens/{token['token_id']}", admin)
    assert gone.json()["revoked_at"] is not None


def test_the_database_holds_no_token(server: ServerContext, ask: Ask, sign_in: Any) -> None:
    first = sign_in("ann")
    second = pair(refresh(ask, first["refresh_token"]))
    personal = ask("POST", "/api/v1/me/tokens", second["access_token"], json={"name": "ci"}).json()[
        "secret"
    ]
    secrets = [found[name] for found in (first, second) for name in found if "_token" in name]
    whole = ""
    with server.database.read() as connection:
        for table in inspect(connection).get_table_names():
            whole += str(connection.execute(text(f"SELECT * FROM {table}")).all())
    assert hashed(personal) in whole
    for secret in [*secrets, personal]:
        assert secret == "Bearer" or secret not in whole
