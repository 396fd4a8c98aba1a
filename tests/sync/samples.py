"""A small authority for tests of the client: tokens that end, and one thing to read."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

from clumsies.errors import CredentialsFailed
from clumsies.sync.credentials import Session, failed
from tests.sync.fault_server import Asked, Reply, envelope, json_reply

USER = {
    "user_id": "user_1",
    "email": "a@example.org",
    "display_name": "A",
    "avatar_url": None,
    "role": "owner",
}
ORG = {"org_id": "org_1", "name": "Org"}
ME = {
    "user": USER,
    "org": ORG,
    "projects": [{"project_id": "proj_1", "name": "One"}],
    "default_project_id": None,
    "capabilities": ["memory:read"],
}


class Authority:
    """Answers `/me` to `access`, and rotates `refresh`; each refresh token works once."""

    def __init__(self, access: str = "access_1", refresh: str = "refresh_1"):
        self.access = access
        self.refresh = refresh
        self.rotations = 0
        self.on_rotation: Callable[[], None] = lambda: None
        self._mutex = threading.Lock()

    def __call__(self, asked: Asked) -> Reply:
        if asked.path == "/api/v1/auth/token":
            return self._token(json.loads(asked.body))
        if asked.bearer != self.access:
            return envelope(401, "unauthorized")
        if asked.path.partition("?")[0] == "/api/v1/me":
            return json_reply(200, ME, etag='"one"', x_request_id="req_server")
        if asked.method == "POST":
            return json_reply(201, {"echo": json.loads(asked.body)})
        return envelope(404, "not_found")

    def end_access(self) -> None:
        """The access token that is out there is not known any more."""
        self.access = "ended"

    def _token(self, body: dict[str, str]) -> Reply:
        with self._mutex:
            if body.get("refresh_token") != self.refresh:
                return envelope(401, "unauthorized")
            self.rotations += 1
            self.on_rotation()
            number = self.rotations + 1
            self.access, self.refresh = f"access_{number}", f"refresh_{number}"
            return json_reply(
                200,
                {
                    "access_token": self.access,
                    "refresh_token": self.refresh,
                    "token_type": "Bearer",
                    "expires_in": 900,
                    "user": USER,
                    "org": ORG,
                    "capabilities": [],
                },
            )


class Keyring:
    """The store's three methods over memory; `broken` has them fail as a keyring that is locked."""

    def __init__(self, session: Session | None = None):
        self.item = session
        self.saved: list[Session] = []
        self.broken = False

    def load(self, server_url: str, *, timeout_s: float = 0.0) -> Session | None:
        self._check()
        return self.item

    def save(self, session: Session, *, timeout_s: float = 0.0) -> None:
        self._check()
        self.item = session
        self.saved.append(session)

    def clear(self, *, timeout_s: float = 0.0) -> None:
        self._check()
        self.item = None

    def _check(self) -> None:
        if self.broken:
            raise failed("locked")


__all__ = ["Authority", "CredentialsFailed", "Keyring"]
