"""What an identity provider says is believed only where everything about it fits."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clumsies.errors import NotReady, Refused
from clumsies.server.identity import oidc
from clumsies.server.identity.oidc import is_safe_url, redeem
from clumsies.server.identity.provider_settings import Provider
from clumsies.server.identity.sign_in import redirect_is_allowed
from tests.server.oidc_forge import KEY, KEY_ID, Forge, new_key, running_forge

CALLBACK = "https://memory.example/login/oauth2/code/oidc"
NONCE = "n" * 43


@pytest.fixture
def forge() -> Iterator[Forge]:
    oidc.forget_fetched()
    with running_forge() as made:
        made.claims = made.fresh(NONCE)
        yield made
    oidc.forget_fetched()


def provider_of(forge: Forge, secret: str | None = "s3cret/+") -> Provider:
    return Provider(forge.issuer, "clumsies", secret)


def redeemed(forge: Forge, secret: str | None = "s3cret/+") -> oidc.Identity:
    return redeem(provider_of(forge, secret), "the-code", CALLBACK, verifier="v" * 43, nonce=NONCE)


def test_a_true_token_is_believed(forge: Forge) -> None:
    found = redeemed(forge)
    assert found == oidc.Identity(
        forge.issuer, "subject-ann", "ann@acme.example", True, "Ann Example", None
    )
    path, form, header = forge.asked[-2]
    assert path == "/token"
    assert form == {
        "grant_type": ["authorization_code"],
        "code": ["the-code"],
        "redirect_uri": [CALLBACK],
        "code_verifier": ["v" * 43],
    }
    assert header is not None
    assert base64.b64decode(header.removeprefix("Basic ")) == b"clumsies:s3cret%2F%2B"


def test_a_public_client_names_itself_in_the_form(forge: Forge) -> None:
    redeemed(forge, secret=None)
    _, form, header = forge.asked[-2]
    assert (form["client_id"], header) == (["clumsies"], None)
    assert "client_secret" not in form


def unsigned(claims: dict[str, Any]) -> str:
    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none', 'typ': 'JWT', 'kid': KEY_ID})}.{part(claims)}."


def by_a_shared_secret(claims: dict[str, Any]) -> str:
    """Signed with the client's secret, which the Server and a thief may know."""
    return jwt.encode(claims, "s" * 64, "HS256", headers={"kid": KEY_ID})


def tampered(claims: dict[str, Any]) -> str:
    head, body, signature = jwt.encode(claims, KEY, "RS256", headers={"kid": KEY_ID}).split(".")
    text = base64.urlsafe_b64decode(body + "==").replace(b"subject-ann", b"subject-bob")
    return f"{head}.{base64.urlsafe_b64encode(text).rstrip(b'=').decode()}.{signature}"


@pytest.mark.parametrize(
    "sign",
    [
        unsigned,
        by_a_shared_secret,
        tampered,
        lambda claims: jwt.encode(claims, new_key(), "RS256", headers={"kid": KEY_ID}),
        lambda claims: jwt.encode(claims, new_key(), "RS256", headers={"kid": "unknown"}),
        lambda claims: jwt.encode(claims, KEY, "PS256", headers={"kid": KEY_ID}),
        lambda claims: "not.a.token",
        lambda claims: "",
    ],
    ids=["none", "hs256", "tampered", "other-key", "unknown-kid", "other-alg", "text", "empty"],
)
def test_a_token_with_a_wrong_signature_is_not_believed(forge: Forge, sign: Any) -> None:
    forge.sign = sign
    with pytest.raises(Refused) as caught:
        redeemed(forge)
    assert caught.value.code == "oidc_id_token_invalid"


@pytest.mark.parametrize(
    "change",
    [
        {"nonce": "m" * 43},
        {"nonce": None},
        {"aud": "another"},
        {"aud": ["another"]},
        {"aud": ["clumsies", "another"], "azp": "another"},
        {"iss": "https://evil.example"},
        {"exp": int(time.time()) - 3600},
        {"exp": None},
        {"iat": None},
        {"iat": int(time.time()) + 3600},
        {"nbf": int(time.time()) + 3600},
        {"sub": None},
        {"sub": ""},
        {"email": None},
        {"email": "nobody"},
        {"email": "a@b\nc"},
    ],
    ids=str,
)
def test_a_token_with_a_wrong_claim_is_not_believed(forge: Forge, change: dict[str, Any]) -> None:
    claims = forge.claims | change
    forge.claims = {name: value for name, value in claims.items() if value is not None}
    with pytest.raises(Refused) as caught:
        redeemed(forge)
    assert caught.value.code == "oidc_id_token_invalid"


@pytest.mark.parametrize(
    ("said", "verified"),
    [(True, True), ("true", True), (False, False), (None, False), ("yes", False), ("false", False)],
)
def test_an_address_is_verified_where_the_provider_says_so(
    forge: Forge, said: Any, verified: bool
) -> None:
    forge.claims["email_verified"] = said
    assert redeemed(forge).email_verified == verified


def test_a_refused_code_is_told(forge: Forge) -> None:
    forge.answers["/token"] = (400, b'{"error": "invalid_grant"}')
    with pytest.raises(Refused) as caught:
        redeemed(forge)
    assert caught.value.code == "oidc_code_exchange_failed"


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/jwks", "/token"])
@pytest.mark.parametrize(
    "answer",
    [(500, b"{}"), (200, b"<html>"), (200, b"[]"), (200, b'{"a": "' + b"x" * 2_000_000 + b'"}')],
    ids=["500", "html", "list", "huge"],
)
def test_a_provider_that_fails_is_unavailable(
    forge: Forge, path: str, answer: tuple[int, bytes]
) -> None:
    forge.answers[path] = answer
    with pytest.raises(NotReady) as caught:
        redeemed(forge)
    assert caught.value.code == "oidc_unavailable"


def test_a_provider_that_is_away_is_unavailable() -> None:
    oidc.forget_fetched()
    with running_forge() as forge:
        issuer = forge.issuer
    with pytest.raises(NotReady):
        oidc.discover(issuer)


@pytest.mark.parametrize(
    "said",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": None},
    ],
    ids=str,
)
def test_a_discovery_that_leads_elsewhere_is_refused(forge: Forge, said: dict[str, Any]) -> None:
    path = "/.well-known/openid-configuration"
    true = json.loads(forge.answer(path)[1])
    forge.answers[path] = (200, json.dumps(true | said).encode())
    with pytest.raises(NotReady):
        oidc.discover(forge.issuer)


def test_discovery_and_keys_are_fetched_once_and_a_new_key_is_found(forge: Forge) -> None:
    redeemed(forge)
    redeemed(forge)
    paths = [path for path, _, _ in forge.asked]
    assert paths.count("/jwks") == 1
    assert paths.count("/.well-known/openid-configuration") == 1


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("https://login.example/x", True),
        ("http://127.0.0.1:9400", True),
        ("http://[::1]:9400/x", True),
        ("http://localhost:9400/x", True),
        ("http://login.example/x", False),
        ("http://127.0.0.1.evil.example/", False),
        ("https://user@login.example/", False),
        ("https:///x", False),
        ("ftp://127.0.0.1/", False),
        ("https://[bad", False),
    ],
)
def test_only_https_or_loopback_is_asked(url: str, safe: bool) -> None:
    assert is_safe_url(url) == safe


TEMPLATE = ("http://127.0.0.1/callback", "https://app.example/done?x=1")


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        ("http://127.0.0.1:4711/callback", True),
        ("http://127.0.0.1/callback", True),
        ("https://app.example/done?x=1", True),
        ("http://127.0.0.1:65535/callback", True),
        ("http://127.0.0.1:65536/callback", False),
        ("http://127.0.0.1:/callback", False),
        ("http://127.0.0.1:04711/callback", False),
        ("https://127.0.0.1:4711/callback", False),
        ("http://localhost:4711/callback", False),
        ("http://127.0.0.2:4711/callback", False),
        ("http://127.0.0.1:4711/callback/", False),
        ("http://127.0.0.1:4711/callback?x=1", False),
        ("http://127.0.0.1:4711/Callback", False),
        ("http://127.0.0.1:4711/callback#x", False),
        ("http://127.0.0.1:4711/callback#", False),
        ("http://u@127.0.0.1:4711/callback", False),
        ("http://127.0.0.1:4711@evil.example/callback", False),
        ("http://evil.example:4711/callback", False),
        ("HTTP://127.0.0.1:4711/callback", False),
        ("https://app.example:8443/done?x=1", False),
        ("https://app.example/done", False),
        ("http://127.0.0.1:4711/../callback", False),
        ("http://127.0.0.1:４７１１/callback", False),
        ("http://127.0.0.1:4711\t/callback", False),
        ("http://127.0.0.1:4711/call\nback", False),
        (" http://127.0.0.1:4711/callback", False),
        ("", False),
    ],
)
def test_a_redirect_is_the_allowed_one_but_for_the_port(asked: str, allowed: bool) -> None:
    assert redirect_is_allowed(asked, TEMPLATE) == allowed


@given(st.text(max_size=60), st.integers(1, 65535))
def test_no_other_text_is_an_allowed_redirect(text: str, port: int) -> None:
    asked = f"http://127.0.0.1:{port}/callback"
    assert redirect_is_allowed(asked, TEMPLATE)
    if text:
        assert not redirect_is_allowed(asked + text, TEMPLATE)
        assert not redirect_is_allowed(text + asked, TEMPLATE)
