"""An OpenID provider on loopback that signs whatever it is told to, for tokens that lie."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

KEY_ID = "key-1"


def new_key() -> RSAPrivateKey:
    return generate_private_key(public_exponent=65537, key_size=2048)


KEY = new_key()


@dataclass
class Forge:
    """`claims` go into the next token; `sign` makes it; `answers` replaces a path's answer."""

    issuer: str
    claims: dict[str, Any] = field(default_factory=dict)
    sign: Callable[[dict[str, Any]], str] = field(
        default=lambda claims: jwt.encode(claims, KEY, "RS256", headers={"kid": KEY_ID})
    )
    answers: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, list[str]], str | None]] = field(default_factory=list)

    def fresh(self, nonce: str, client_id: str = "clumsies") -> dict[str, Any]:
        """Claims that are all as they should be."""
        now = int(time.time())
        return {
            "iss": self.issuer,
            "aud": client_id,
            "sub": "subject-ann",
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            "email": "ann@acme.example",
            "email_verified": True,
            "name": "Ann Example",
        }

    def published_keys(self) -> list[dict[str, Any]]:
        key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(KEY.public_key()))
        return [key | {"kid": KEY_ID, "use": "sig", "alg": "RS256"}]

    def answer(self, path: str) -> tuple[int, bytes]:
        if path in self.answers:
            return self.answers[path]
        found: dict[str, Any] = {
            "/.well-known/openid-configuration": {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            },
            "/jwks": {"keys": self.published_keys()},
            "/token": {"token_type": "Bearer", "access_token": "x"},
        }
        if path not in found:
            return 404, b"{}"
        if path == "/token":
            found[path]["id_token"] = self.sign(self.claims)
        return 200, json.dumps(found[path]).encode()


@contextmanager
def running_forge() -> Iterator[Forge]:
    """A forge that listens."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply({})

        def do_POST(self) -> None:
            size = int(self.headers.get("content-length", 0))
            self._reply(parse_qs(self.rfile.read(size).decode()))

        def _reply(self, form: dict[str, list[str]]) -> None:
            forge.asked.append((self.path, form, self.headers.get("authorization")))
            status, body = forge.answer(self.path)
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    forge = Forge(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield forge
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
