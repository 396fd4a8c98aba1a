"""Signing in over loopback: what ends the attempt, and what must not."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from clumsies.errors import ClumsiesError, CredentialsFailed, InvalidRequest, NotReady, Refused
from clumsies.sync.credentials import Session
from clumsies.sync.login import BrowserSignIn, Grant, code_challenge
from clumsies.sync.remote import RemoteClient
from clumsies.sync.sessions import FixedSession, KeyringSession
from clumsies.sync.sign_in import sign_in, sign_out
from tests.sync.fault_server import Asked, FaultServer, Reply, envelope, html, json_reply, status
from tests.sync.samples import ORG, USER, Keyring


class SignInAuthority:
    """The part of a Server that a sign-in meets; everybody who asks is signed in."""

    def __init__(self) -> None:
        self.challenges: dict[str, tuple[str, str]] = {}
        self.access: set[str] = set()

    def __call__(self, asked: Asked) -> Reply:
        parts = urlsplit(asked.path)
        if parts.path == "/oauth2/authorization/oidc":
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            assert query["client_kind"] == "cli"
            assert query["code_challenge_method"] == "S256"
            code = f"code_{len(self.challenges)}"
            self.challenges[code] = (query["code_challenge"], query["redirect_uri"])
            back = urlencode({"code": code, "state": query["state"]})
            return Reply(302, {"location": f"{query['redirect_uri']}?{back}"})
        if parts.path == "/api/v1/auth/token":
            return self._exchanged(json.loads(asked.body))
        if asked.bearer not in self.access:
            return envelope(401, "unauthorized")
        self.access.discard(asked.bearer or "")
        return json_reply(200, {"revoked": True})

    def _exchanged(self, body: dict[str, str]) -> Reply:
        challenge, redirect_uri = self.challenges.pop(body["code"], (None, None))
        if challenge != code_challenge(body["code_verifier"]):
            return envelope(400, "oidc_code_exchange_failed")
        assert redirect_uri == body["redirect_uri"]
        self.access.add("access_new")
        return json_reply(
            200,
            {
                "access_token": "access_new",
                "refresh_token": "refresh_new",
                "token_type": "Bearer",
                "expires_in": 900,
                "user": USER,
                "org": ORG,
                "capabilities": [],
            },
        )


@pytest.fixture
def authority() -> SignInAuthority:
    return SignInAuthority()


@pytest.fixture
def server(authority: SignInAuthority) -> Iterator[FaultServer]:
    with FaultServer(authority) as server:
        yield server


@pytest.fixture
def keyring() -> Keyring:
    return Keyring()


@pytest.fixture
def client(server: FaultServer, keyring: Keyring) -> Iterator[RemoteClient]:
    with RemoteClient(KeyringSession(server.url, keyring)) as client:
        yield client


@pytest.fixture
def attempt(server: FaultServer) -> Iterator[BrowserSignIn]:
    with BrowserSignIn(server.url) as attempt:
        yield attempt


def visit(url: str, **headers: str) -> tuple[int, dict[str, str], str]:
    """What a browser gets that follows no redirect."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=10)
    connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
    response = connection.getresponse()
    found = response.status, dict(response.getheaders()), response.read().decode()
    connection.close()
    return found


def callback(attempt: BrowserSignIn, **query: str) -> str:
    return f"{attempt.redirect_uri}?{urlencode(query)}"


def state_of(attempt: BrowserSignIn) -> str:
    return parse_qs(urlsplit(attempt.url).query)["state"][0]


def test_a_whole_sign_in_ends_in_the_keyring(
    attempt: BrowserSignIn, client: RemoteClient, server: FaultServer, keyring: Keyring
) -> None:
    code, headers, _ = visit(attempt.url)
    assert code == 302
    code, headers, page = visit(headers["location"])
    assert code == 200
    assert "close this page" in page
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    tokens = sign_in(client, attempt.wait(10))
    assert tokens.user.user_id == "user_1"
    assert keyring.item == Session(server.url, "access_new", "refresh_new")
    exchange = server.script.of("POST", "/api/v1/auth/token")[0]
    assert exchange.bearer is None
    assert sign_out(client) is True
    assert keyring.item is None


def test_the_verifier_and_the_code_stay_out_of_words(attempt: BrowserSignIn) -> None:
    visit(callback(attempt, state=state_of(attempt), code="the-code"))
    grant = attempt.wait(10)
    assert "the-code" not in repr(grant)
    assert grant.code_verifier not in repr(grant)
    assert grant.code_verifier not in attempt.url
    assert re.fullmatch(r"[A-Za-z0-9._~-]{43,128}", grant.code_verifier)


def test_the_challenge_is_that_of_the_standard() -> None:
    # RFC 7636, appendix B.
    verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
    assert code_challenge(verifier) == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


def test_attempts_share_nothing(server: FaultServer) -> None:
    with BrowserSignIn(server.url) as one, BrowserSignIn(server.url) as other:
        assert one.redirect_uri != other.redirect_uri
        assert state_of(one) != state_of(other)
        assert urlsplit(one.redirect_uri).hostname == "127.0.0.1"


def test_what_is_not_the_callback_changes_nothing(attempt: BrowserSignIn) -> None:
    state = state_of(attempt)
    base = attempt.redirect_uri.removesuffix("/callback")
    assert visit(f"{base}/favicon.ico")[0] == 404
    assert visit(f"{base}/callback/?code=x&state={state}")[0] == 404
    assert visit(callback(attempt, code="x"))[0] == 400
    assert visit(callback(attempt, code="x", state="guessed"))[0] == 400
    assert visit(callback(attempt, code="x", state="gu\u00e9ssed"))[0] == 400
    assert visit(callback(attempt, error="access_denied", state="guessed"))[0] == 400
    assert visit(callback(attempt, state=state))[0] == 400
    assert visit(callback(attempt, state=state, code="x y"))[0] == 400
    assert visit(f"{attempt.redirect_uri}?state={state}&code=a&code=b")[0] == 400
    assert visit(f"{attempt.redirect_uri}?{'a=1&' * 50}state={state}&code=a")[0] == 400
    assert visit(callback(attempt, state=state, code="x"), host="evil.example")[0] == 404
    assert visit(callback(attempt, state=state, code="right"))[0] == 200
    assert attempt.wait(10).code == "right"


def test_one_request_is_accepted(attempt: BrowserSignIn) -> None:
    state = state_of(attempt)
    assert visit(callback(attempt, state=state, code="first"))[0] == 200
    assert visit(callback(attempt, state=state, code="second"))[0] == 400
    assert attempt.wait(10).code == "first"


def test_connections_that_say_nothing_are_in_nobodys_way(attempt: BrowserSignIn) -> None:
    place = urlsplit(attempt.redirect_uri)
    silent = [socket.create_connection((place.hostname, place.port)) for _ in range(8)]
    try:
        assert visit(callback(attempt, state=state_of(attempt), code="x"))[0] == 200
    finally:
        for each in silent:
            each.close()
    assert attempt.wait(10).code == "x"


def test_a_refusal_is_told_in_the_servers_words(attempt: BrowserSignIn) -> None:
    words = "Nobody invited your address; ask an owner or admin to."
    query = {"state": state_of(attempt), "error": "forbidden", "error_description": words}
    code, _, page = visit(callback(attempt, **query))
    assert code == 200
    assert "invited" not in page
    with pytest.raises(Refused, match=words) as caught:
        attempt.wait(10)
    assert caught.value.code == "forbidden"


@pytest.mark.parametrize(
    ("error", "words", "told"),
    [
        ("access_denied", "\x1b[2Ja\nb", " [2Ja b"),
        ("local_db_error", "", "no reason was given"),
        ("\x1b<script>", "x" * 5_000, "x" * 500),
    ],
)
def test_odd_refusals_are_made_fit_to_print(
    attempt: BrowserSignIn, error: str, words: str, told: str
) -> None:
    visit(callback(attempt, state=state_of(attempt), error=error, error_description=words))
    with pytest.raises(Refused) as caught:
        attempt.wait(10)
    assert caught.value.code == "unauthorized"
    assert told in caught.value.message
    assert len(caught.value.message) < 600
    assert caught.value.message.isprintable()


def test_nobody_came(attempt: BrowserSignIn) -> None:
    with pytest.raises(NotReady) as caught:
        attempt.wait(0.01)
    assert caught.value.code == "request_deadline"


def test_the_port_is_closed_afterwards(server: FaultServer) -> None:
    with BrowserSignIn(server.url) as attempt:
        place = urlsplit(attempt.redirect_uri)
    with pytest.raises(OSError, match=r"refused"):
        socket.create_connection((place.hostname, place.port), timeout=5)


@pytest.mark.parametrize("url", ["http://memory.example.org", "local:", "https://a:b@h"])
def test_nobody_signs_in_at_an_address_that_cannot_be_trusted(url: str) -> None:
    with pytest.raises(InvalidRequest):
        BrowserSignIn(url)


def test_a_browser_is_asked_to_show_it(tmp_path: Path) -> None:
    browser, shown = tmp_path / "browser", tmp_path / "shown"
    browser.write_text(f'#!/bin/sh\nprintf %s "$1" > {shown}\n')
    browser.chmod(0o700)
    asking = (
        "from clumsies.sync.login import open_in_browser as show; assert show('https://h/?a=b')"
    )
    subprocess.run(
        [sys.executable, "-c", asking],
        env={**os.environ, "BROWSER": f"{browser} %s"},
        check=True,
        timeout=60,
    )
    assert shown.read_text() == "https://h/?a=b"


GRANT = Grant("code_9", "http://127.0.0.1:1/callback", "v" * 64)


def test_a_code_that_is_not_known_signs_nobody_in(
    client: RemoteClient, keyring: Keyring, server: FaultServer
) -> None:
    keyring.item = Session(server.url, "access_old", "refresh_old")
    with pytest.raises(Refused) as caught:
        sign_in(client, GRANT)
    assert caught.value.code == "oidc_code_exchange_failed"
    assert keyring.item == Session(server.url, "access_old", "refresh_old")


@pytest.mark.parametrize("fault", [html(200), status(500)], ids=str)
def test_a_failed_exchange_signs_nobody_in(
    client: RemoteClient, keyring: Keyring, server: FaultServer, fault: object
) -> None:
    server.plan(fault)  # type: ignore[arg-type]
    with pytest.raises(ClumsiesError):
        sign_in(client, GRANT)
    assert keyring.item is None


def test_a_session_that_cannot_be_kept_is_ended_again(
    client: RemoteClient,
    authority: SignInAuthority,
    attempt: BrowserSignIn,
    keyring: Keyring,
) -> None:
    visit(visit(attempt.url)[1]["location"])
    keyring.broken = True
    with pytest.raises(CredentialsFailed):
        sign_in(client, attempt.wait(10))
    assert authority.access == set()


def test_without_the_server_one_can_still_sign_out(
    client: RemoteClient, keyring: Keyring, server: FaultServer
) -> None:
    keyring.item = Session(server.url, "access_1", "refresh_1")
    server.plan(status(503))
    assert sign_out(client) is False
    assert keyring.item is None


def test_a_personal_token_is_not_signed_in_or_out(server: FaultServer) -> None:
    with RemoteClient(FixedSession(server.url, "personal")) as client:
        with pytest.raises(InvalidRequest, match="CLUMSIES_TOKEN"):
            sign_in(client, GRANT)
        with pytest.raises(InvalidRequest, match="CLUMSIES_TOKEN"):
            sign_out(client)
