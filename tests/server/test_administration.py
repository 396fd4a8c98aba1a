"""Administration: members, projects, tokens, the audit trail, the export."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

Client = Callable[[str | None], httpx.Client]


def ok(answer: httpx.Response, status: int = 200) -> Any:
    assert answer.status_code == status, answer.text
    return answer.json()


def code_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_an_organisation_is_counted_and_renamed(client: Client) -> None:
    found = ok(client("admin").get("/api/v1/admin/org"))
    assert (found["name"], found["member_count"], found["project_count"]) == ("Acme", 4, 2)
    assert ok(client("admin").patch("/api/v1/admin/org", json={"name": "New"}))["name"] == "New"
    assert ok(client("ann").get("/api/v1/me"))["org"]["name"] == "New"
    assert ok(client("stranger").get("/api/v1/me"))["org"]["name"] == "Other"


def test_members_are_paged(client: Client) -> None:
    names: list[str] = []
    cursor: str | None = None
    for _ in range(4):
        query: dict[str, Any] = {"limit": 1} | ({"cursor": cursor} if cursor else {})
        page = ok(client("owner").get("/api/v1/admin/members", params=query))
        names += [item["display_name"] for item in page["items"]]
        cursor = page["page_info"]["next_cursor"]
        assert page["page_info"]["has_more"] == (cursor is not None)
    assert cursor is None
    assert sorted(names) == ["Admin", "Ann", "Ben", "Owner"]
