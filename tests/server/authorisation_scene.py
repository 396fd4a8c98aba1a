"""A Server with one of each kind of asker, and fresh targets for whatever they ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx
from sqlalchemy import Connection

from clumsies.server.database import Database
from clumsies.server.identity.schema_identity import personal_tokens
from clumsies.server.identity.secrets import hashed
from clumsies.server.schema import project_members, users
from tests.server.world import BEGAN, World

ASKERS = ("nobody", "expired", "outsider", "member", "lead", "admin", "owner", "stranger")
"""`outsider`, `member` and `lead` are members of the organisation; of the project `outsider` is
none, `member` is one and `lead` is an admin. `stranger` owns another organisation."""
_USER_OF = {
    "expired": "user_ann",
    "outsider": "user_ben",
    "member": "user_ann",
    "lead": "user_lena",
    "admin": "user_admin",
    "owner": "user_owner",
    "stranger": "user_stranger",
}
PROJECT = "proj_alpha"


@dataclass(frozen=True)
class Call:
    """One request; `path` fills the places of the route's path."""

    path: dict[str, str] = field(default_factory=dict)
    json: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    query: dict[str, str] = field(default_factory=dict)


def bearer_of(asker: str) -> str | None:
    return None if asker == "nobody" else f"clp_{asker}"


def make_askers(database: Database, world: World) -> None:
    """A project's admin, and a personal token of everybody."""

    def work(connection: Connection) -> None:
        row = {
            "user_id": "user_lena",
            "org_id": world.orgs["acme"],
            "email": "lena@acme.example",
            "email_key": "lena@acme.example",
            "display_name": "Lena",
            "role": "member",
            "status": "active",
            "revision": 1,
            "created_at": BEGAN,
            "updated_at": BEGAN,
        }
        connection.execute(users.insert().values(row))
        connection.execute(
            project_members.insert().values(
                project_id=PROJECT, user_id="user_lena", role="admin", joined_at=BEGAN
            )
        )
        for asker, user_id in _USER_OF.items():
            connection.execute(
                personal_tokens.insert().values(
                    token_id=f"token_{asker}",
                    token_hash=hashed(f"clp_{asker}"),
                    org_id=world.orgs["other" if asker == "stranger" else "acme"],
                    user_id=user_id,
                    name=asker,
                    created_at=BEGAN,
                    expires_at=BEGAN if asker == "expired" else None,
                )
            )

    database.write(work)


class Scene:
    """Makes targets by the interface itself, as those who may."""

    def __init__(self, client: Callable[[str | None], httpx.Client]):
        self._client = client
        self._numbers = count(1)
        self.memory_id = self._first_memory()

    def by(self, asker: str, method: str, path: str, json: Any = None, **headers: str) -> Any:
        answer = self._client(bearer_of(asker)).request(
            method,
            f"/api/v1{path}",
            json=json,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )
        assert answer.status_code < 300, (method, path, answer.text)
        return answer.json() if answer.content else None

    def _first_memory(self) -> str:
        body = {"files": [{"path": "first.md", "content": "# First\n"}]}
        self.by("owner", "POST", f"/projects/{PROJECT}/memory-imports", body)
        return str(self.by("owner", "GET", "/org/memories")["items"][0]["memory_id"])

    def number(self) -> int:
        return next(self._numbers)

    def commit_id(self, of: str = "/org") -> str:
        return str(self.by("owner", "GET", f"{of}/commit-state")["latest"]["commit_id"])

    def etag(self) -> dict[str, str]:
        return {"if-match": f'"{self.commit_id()}"'}

    def draft_body(self) -> dict[str, Any]:
        resource = {"scope": "org", "path": f"notes/{self.number()}.md"}
        create = {"action": "create", "resource": resource, "content": {"content": "# Note\n"}}
        return {
            "daemon_installation_id": "daemon_1",
            "project_id": PROJECT,
            "base_commit_id": self.commit_id(),
            "title": "A note",
            "resource": resource,
            "operations": [create],
        }

    def draft(self, *, empty: bool = False) -> dict[str, Any]:
        """An open draft of `member`, with an operation unless it is to be empty."""
        body = self.draft_body() | ({"operations": []} if empty else {})
        found: dict[str, Any] = self.by("member", "POST", "/drafts", body)["draft"]
        return found

    def append_body(self, draft: dict[str, Any]) -> dict[str, Any]:
        return {
            "operation": {
                "action": "create",
                "resource": draft["resource"],
                "content": {"content": "# Another\n"},
            }
        }

    def behind(self) -> dict[str, Any]:
        """An open draft of `member` that the Ref has left behind."""
        draft = self.draft()
        body = {"files": [{"path": f"moved/{self.number()}.md", "content": "# Moved\n"}]}
        self.by("owner", "POST", f"/projects/{PROJECT}/memory-imports", body)
        found: dict[str, Any] = self.by("member", "GET", f"/drafts/{draft['draft_id']}")["draft"]
        return found

    def candidate(self) -> tuple[dict[str, Any], str]:
        """A draft that is behind, and the id of a candidate of it."""
        draft = self.behind()
        path = f"/drafts/{draft['draft_id']}/reconciliation-candidates"
        body = {"expected_draft_version": draft["version"]}
        return draft, str(self.by("member", "POST", path, body)["candidate_id"])

    def review_body(self, draft: dict[str, Any]) -> dict[str, Any]:
        part = {"draft_id": draft["draft_id"], "expected_draft_version": draft["version"]}
        return {"title": "A review", "drafts": [part]}

    def review(self, *, rejected: bool = False) -> dict[str, Any]:
        """A review of a draft of `member`, open or rejected."""
        body = self.review_body(self.draft())
        made = self.by("member", "POST", "/reviews", body, if_match=self.etag()["if-match"])
        review: dict[str, Any] = made.get("review", made)
        if rejected:
            decision = {"decision": "rejected", "expected_review_version": review["version"]}
            path = f"/reviews/{review['review_id']}/decisions"
            made = self.by("owner", "POST", path, decision)
            review = made.get("review", made)
        return review

    def project(self) -> str:
        """A project with the same people as PROJECT."""
        body = {"name": f"Project {self.number()}"}
        key = f"key-{self.number()}"
        made = self.by("owner", "POST", "/projects", body, idempotency_key=key)
        path = f"/admin/projects/{made['project_id']}/members"
        for user, role in (("admin", "member"), ("ann", "member"), ("lena", "admin")):
            self.by("owner", "PUT", f"{path}/user_{user}", {"role": role})
        return str(made["project_id"])

    def bundle(self) -> str:
        body = {"name": "Mine", "resource_ids": [self.memory_id]}
        made = self.by("member", "POST", "/me/bundles", body)
        return str(made.get("bundle", made)["bundle_id"])

    def invited(self) -> str:
        body = {"email": f"p{self.number()}@acme.example"}
        return str(self.by("owner", "POST", "/admin/members", body)["user_id"])

    def token(self) -> str:
        """A personal token of `member`."""
        made = self.by("member", "POST", "/me/tokens", {"name": "t"})
        return str(made["token"]["token_id"])
