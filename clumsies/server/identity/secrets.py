"""Tokens and codes: random texts of which the database keeps the SHA-256 alone."""

from __future__ import annotations

import base64
import hashlib
import secrets
from typing import Literal

SecretKind = Literal["access", "refresh", "personal", "code", "state", "setup", "cookie"]
_PREFIX: dict[SecretKind, str] = {
    "access": "cla_",
    "refresh": "clr_",
    "personal": "clp_",
    "code": "clc_",
    "state": "cls_",
    "setup": "setup_",
    "cookie": "clk_",
}
_ENTROPY_BYTES = 32


def new_secret(kind: SecretKind) -> str:
    """A new secret of 256 random bits, with a prefix that says what it is for."""
    return _PREFIX[kind] + secrets.token_urlsafe(_ENTROPY_BYTES)


def is_personal(bearer: str) -> bool:
    """Whether the text claims to be a personal token."""
    return bearer.startswith(_PREFIX["personal"])


def hashed(secret: str) -> str:
    """What the database keeps. A plain hash is enough, since the text is 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8")).hexdigest()


def code_challenge(verifier: str) -> str:
    """The PKCE challenge of a verifier: base64url of its SHA-256, without padding (RFC 7636)."""
    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode("ascii")
