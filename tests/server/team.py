"""People who draft, review and merge over HTTP, in few words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx

from clumsies.server.acting import Acting
from clumsies.server.memory.publication import ResourceChange
from clumsies.server.memory.refs import etag_of
from clumsies.storage.objects import Commit
from tests.server.memories import As, paths, publish, ref_at
from tests.server.world import World

API = "/api/v1"
Json = dict[str, Any]


def create(path: str, text: str, **more: Any) -> Json:
    return {
        "action": "create",
        "resource": {"scope": "org", "path": path},
        "content": {"content": text},
        **more,
    }


def update(name: str, text: str, **more: Any) -> Json:
    return {
        "action": "update",
        "resource": {"scope": "org", "id": name},
        "content": {"content": text},
        **more,
    }


def rename(name: str, path: str, **more: Any) -> Json:
    return {
        "action": "rename",
        "resource": {"scope": "org", "id": name},
        "new_path": path,
        **more,
    }


def delete(name: str, **more: Any) -> Json:
    return {"action": "delete", "resource": {"scope": "org", "id": name}, **more}


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and error code of a refusal."""
    return answer.status_code, answer.json()["error"]["code"]


def good(answer: httpx.Response, status: int = 200) -> Any:
    """The body of an answer that must have this status."""
    assert answer.status_code == status, answer.text
    return answer.json()


@dataclass
class Team:
    """The organisation acme at work in the project alpha."""

    world: World
    client: Callable[[str | None], httpx.Client]
    acting: As
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def commit_id(self) -> str | None:
        """Where the organisation's Ref stands."""
        return ref_at(self.world.database, "org:org_acme").commit_id

    @property
    def at_ref(self) -> dict[str, str]:
        """The header that names where the Ref stands."""
        return {"if_match": etag_of(self.commit_id)}

    @property
    def memory(self) -> dict[str, str]:
        """Text by path of what is published."""
        return paths(self.world.database, self.commit_id)

    def acts(self, user: str = "owner") -> Acting:
        return self.acting(user)

    def publish(self, *changes: ResourceChange) -> Commit | None:
        """Publish past every review."""
        return publish(self.acts(), *changes, carrying="proj_alpha")

    def post(self, user: str, path: str, body: Any, **headers: str) -> httpx.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client(user).post(f"{API}{path}", json=body, headers=named)

    def get(self, user: str, path: str, **query: Any) -> httpx.Response:
        return self.client(user).get(f"{API}{path}", params=query)

    def draft_body(self, *operations: Json, **more: Any) -> Json:
        """The creation of a draft on the Ref, for what the first operation is for."""
        first = operations[0]["resource"] if operations else {"scope": "org", "path": "empty.md"}
        return {
            "daemon_installation_id": "machine_1",
            "project_id": "proj_alpha",
            "base_commit_id": self.commit_id,
            "title": "A change",
            "resource": first,
            "operations": list(operations),
            **more,
        }

    def draft(self, user: str, *operations: Json, **more: Any) -> Json:
        """The draft (without its operations) that these made."""
        answer = self.post(user, "/drafts", self.draft_body(*operations, **more))
        return good(answer, 201)["draft"]  # type: ignore[no-any-return]

    def read(self, user: str, draft_id: str) -> Json:
        return good(self.get(user, f"/drafts/{draft_id}"))  # type: ignore[no-any-return]

    def append(self, user: str, draft: Json, operation: Json) -> httpx.Response:
        return self.post(
            user,
            f"/drafts/{draft['draft_id']}/operations",
            {"operation": operation},
            if_match=str(draft["version"]),
        )

    def discard(self, user: str, draft: Json) -> httpx.Response:
        return self.client(user).delete(
            f"{API}/drafts/{draft['draft_id']}", headers={"if-match": str(draft["version"])}
        )

    def candidate(self, user: str, draft: Json) -> Json:
        """A candidate for the draft as it is."""
        answer = self.post(
            user,
            f"/drafts/{draft['draft_id']}/reconciliation-candidates",
            {"expected_draft_version": draft["version"]},
        )
        return good(answer, 201)  # type: ignore[no-any-return]

    def rebase(self, user: str, candidate: Json, resolved: Json | None = None) -> httpx.Response:
        body = {
            "candidate_id": candidate["candidate_id"],
            "expected_draft_version": candidate["draft_version"],
        }
        if resolved is not None:
            body["resolved_state"] = resolved
        path = f"/drafts/{candidate['draft_id']}/rebases"
        return self.post(user, path, body, **self.at_ref)

    def submit(self, user: str, *drafts: Json, **more: Any) -> httpx.Response:
        """A review of the drafts as they are."""
        return self.post(user, "/reviews", {"drafts": picked(*drafts), **more}, **self.at_ref)

    def review(self, user: str, *operations: Json) -> Json:
        """A review of one new draft with these operations."""
        answer = self.submit(user, self.draft(user, *operations))
        return good(answer, 201)["review"]  # type: ignore[no-any-return]

    def decide(self, user: str, review: Json, decision: str, **more: Any) -> httpx.Response:
        body = {"decision": decision, "expected_review_version": review["version"], **more}
        return self.post(user, f"/reviews/{review['review_id']}/decisions", body)

    def merge(self, user: str, review: Json) -> httpx.Response:
        body = {"expected_review_version": review["version"]}
        return self.post(user, f"/reviews/{review['review_id']}/merges", body, **self.at_ref)

    def review_now(self, review: Json, user: str = "ann") -> Json:
        """The whole review as it is now."""
        return good(self.get(user, f"/reviews/{review['review_id']}"))  # type: ignore[no-any-return]

    def events(self, user: str) -> list[tuple[str, str, int]]:
        """(type, draft, version) of everything in a user's feed."""
        found = good(self.get(user, "/draft-events", limit=200))
        assert not found["has_more"]
        return [(e["event_type"], e["draft_id"], e["version"]) for e in found["events"]]


def picked(*drafts: Json) -> list[Json]:
    """Drafts as a review takes current ones."""
    return [
        {"draft_id": draft["draft_id"], "expected_draft_version": draft["version"]}
        for draft in drafts
    ]
