"""The OpenID provider's side of a sign-in: discovery, the code's exchange, the identity token.

Every address must be HTTPS, or HTTP of a loopback host. What the provider says is bounded in size
and time, and redirects are not followed. An identity token is believed when its signature is of one
of the provider's keys by an algorithm of ALGORITHMS, and issuer, audience, expiry and nonce fit
(OpenID Connect Core 1.0, 3.1.3.7).
"""

from __future__ import annotations

import hmac
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

import httpx
import jwt

from clumsies.errors import NotReady, Refused
from clumsies.server.identity.provider_settings import Provider

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Public-key signatures alone: no `none`, and nothing that a shared secret signs."""
TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 1024 * 1024
CACHE_S = 3600.0
KEYS_AGAIN_S = 60.0
"""An unknown key makes the keys be fetched again, no more often than this."""
CLOCK_LEEWAY_S = 60
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class Discovery:
    """What an issuer's `/.well-known/openid-configuration` says."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    token_auth_methods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Identity:
    """A person as the provider vouches for them."""

    issuer: str
    subject: str
    email: str
    email_verified: bool
    name: str | None
    picture: str | None


class _Cache:
    """What was fetched, by address, with the time of it; shared by the threads of a worker."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._found: dict[str, tuple[float, dict[str, Any]]] = {}

    def get(self, url: str, max_age_s: float) -> dict[str, Any]:
        """The JSON object at `url`, fetched again where it is older."""
        with self._mutex:
            found = self._found.get(url)
        if found is not None and time.monotonic() - found[0] < max_age_s:
            return found[1]
        value = _json(_send("GET", url))
        with self._mutex:
            self._found[url] = (time.monotonic(), value)
        return value

    def clear(self) -> None:
        with self._mutex:
            self._found.clear()


_CACHE = _Cache()


def forget_fetched() -> None:
    """Fetch everything anew."""
    _CACHE.clear()


def discover(issuer: str) -> Discovery:
    """The provider's endpoints; raises NotReady("oidc_unavailable")."""
    said = _CACHE.get(issuer.rstrip("/") + "/.well-known/openid-configuration", CACHE_S)
    if said.get("issuer") != issuer:
        raise _unavailable("names another issuer")
    methods = said.get("token_endpoint_auth_methods_supported")
    if not (isinstance(methods, list) and all(isinstance(item, str) for item in methods)):
        methods = ["client_secret_basic"]  # the default of OpenID Connect Discovery 1.0, 3
    return Discovery(
        issuer,
        _endpoint(said, "authorization_endpoint"),
        _endpoint(said, "token_endpoint"),
        _endpoint(said, "jwks_uri"),
        tuple(methods),
    )


def authorization_url(
    provider: Provider,
    redirect_uri: str,
    *,
    state: str,
    nonce: str,
    challenge: str,
    login_hint: str | None = None,
) -> str:
    """Where the browser goes; raises NotReady("oidc_unavailable")."""
    endpoint = discover(provider.issuer).authorization_endpoint
    asked = {
        "response_type": "code",
        "client_id": provider.client_id,
        "redirect_uri": redirect_uri,
        "scope": "openid email profile",
        "state": state,
        "nonce": nonce,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
    }
    if login_hint:
        asked["login_hint"] = login_hint
    return endpoint + ("&" if urlsplit(endpoint).query else "?") + urlencode(asked, quote_via=quote)


def redeem(
    provider: Provider, code: str, redirect_uri: str, *, verifier: str, nonce: str
) -> Identity:
    """Who signed in. Raises NotReady("oidc_unavailable"), Refused("oidc_code_exchange_failed") or
    Refused("oidc_id_token_invalid")."""
    found = discover(provider.issuer)
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "code_verifier": verifier,
    }
    auth = None
    if provider.client_secret is not None and "client_secret_basic" in found.token_auth_methods:
        auth = (quote(provider.client_id, safe=""), quote(provider.client_secret, safe=""))
    else:
        form["client_id"] = provider.client_id
        if provider.client_secret is not None:
            form["client_secret"] = provider.client_secret
    answer = _send("POST", found.token_endpoint, form, auth)
    if answer.status_code != 200:
        raise Refused(
            "oidc_code_exchange_failed",
            "The identity provider did not accept the sign-in; sign in again.",
        )
    token = _json(answer).get("id_token")
    if not isinstance(token, str):
        raise _distrusted("it sent no identity token")
    return _identity(verified_claims(provider, found, token, nonce), provider.issuer)


def verified_claims(
    provider: Provider, found: Discovery, token: str, nonce: str
) -> Mapping[str, Any]:
    """The claims of an identity token; raises Refused("oidc_id_token_invalid")."""
    try:
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS:
            raise _distrusted("its signature is of a kind that is not accepted")
        claims = jwt.decode(
            token,
            _key(found.jwks_uri, header.get("kid"), str(header["alg"])),
            algorithms=list(ALGORITHMS),
            audience=provider.client_id,
            issuer=provider.issuer,
            leeway=CLOCK_LEEWAY_S,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )
    except jwt.PyJWTError as error:
        raise _distrusted(f"its identity token fails ({type(error).__name__})") from error
    said = claims.get("nonce")
    if not (isinstance(said, str) and hmac.compare_digest(said.encode(), nonce.encode())):
        raise _distrusted("the identity token is of another sign-in")
    if claims.get("azp", provider.client_id) != provider.client_id:
        raise _distrusted("the identity token is of another client")
    return cast(Mapping[str, Any], claims)


def _key(jwks_uri: str, kid: object, algorithm: str) -> jwt.PyJWK:
    for max_age_s in (CACHE_S, KEYS_AGAIN_S):
        said = _CACHE.get(jwks_uri, max_age_s)
        keys = said.get("keys")
        fitting = [
            key
            for key in (keys if isinstance(keys, list) else [])
            if isinstance(key, dict)
            and key.get("use", "sig") == "sig"
            and key.get("alg", algorithm) == algorithm
            and (kid is None or key.get("kid") == kid)
        ]
        if len(fitting) == 1:
            return jwt.PyJWK(fitting[0], algorithm=algorithm)
    raise _distrusted("its identity token is signed by a key it does not publish")


def _identity(claims: Mapping[str, Any], issuer: str) -> Identity:
    subject, email = claims.get("sub"), claims.get("email")
    if not (isinstance(subject, str) and 1 <= len(subject) <= 255):
        raise _distrusted("its identity token names nobody")
    if not (isinstance(email, str) and "@" in email and len(email) <= 254 and email.isprintable()):
        raise _distrusted("it tells no email address; give this client the scope `email`")
    return Identity(
        issuer,
        subject,
        email,
        claims.get("email_verified") is True or claims.get("email_verified") == "true",
        _text(claims.get("name"), 300),
        _text(claims.get("picture"), 2_048),
    )


def _text(value: object, longest: int) -> str | None:
    fits = isinstance(value, str) and 1 <= len(value) <= longest and value.isprintable()
    return cast(str, value) if fits else None


def _endpoint(said: Mapping[str, Any], name: str) -> str:
    url = said.get(name)
    if not (isinstance(url, str) and is_safe_url(url)):
        raise _unavailable(f"names no usable {name}")
    return url


def is_safe_url(url: str) -> bool:
    """Whether the address is HTTPS, or HTTP of a loopback host, without user and fragment."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if not host or parts.username is not None or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)


def _send(
    method: str,
    url: str,
    form: dict[str, str] | None = None,
    auth: tuple[str, str] | None = None,
) -> httpx.Response:
    """An answer below 500 and of bounded size; raises NotReady("oidc_unavailable")."""
    if not is_safe_url(url):
        raise _unavailable("has an address that is not HTTPS")
    headers = {"accept": "application/json"}
    try:
        with (
            httpx.Client(timeout=TIMEOUT_S, follow_redirects=False) as client,
            client.stream(method, url, data=form, auth=auth, headers=headers) as answer,
        ):
            body = b""
            for part in answer.iter_bytes():
                body += part
                if len(body) > MAX_ANSWER_BYTES:
                    raise _unavailable("sends too much")
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise _unavailable(f"cannot be reached ({type(error).__name__})") from error
    if answer.status_code >= 500 or (method == "GET" and answer.status_code != 200):
        raise _unavailable(f"answers with status {answer.status_code}")
    return httpx.Response(answer.status_code, content=body)


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        value = answer.json()
    except ValueError as error:
        raise _unavailable("does not answer with JSON") from error
    if not isinstance(value, dict):
        raise _unavailable("does not answer with a JSON object")
    return value


def _unavailable(what: str) -> NotReady:
    return NotReady("oidc_unavailable", f"The identity provider {what}; try again in a moment.")


def _distrusted(what: str) -> Refused:
    return Refused(
        "oidc_id_token_invalid",
        f"The identity provider's word cannot be trusted: {what}. Sign in again.",
    )
