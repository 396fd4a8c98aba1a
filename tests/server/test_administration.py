"""Administration: members, projects, tokens, the audit trail, the export."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import msgspec
import pytest

from clumsies.api.admin import MemoryExport
from clumsies.config import ServerSettings
from clumsies.server.acting import Acting
from clumsies.server.context import ServerContext
from clumsies.server.http.app import make_app
from clumsies.server.memory.publication import ResourceChange, publish_org
from clumsies.types import content_hash

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


@pytest.mark.parametrize("cursor", ["x", "b2Zmc2V0Oi0x", "b2Zmc2V0OjE", "é"])
def test_a_cursor_of_no_list_is_refused(client: Client, cursor: str) -> None:
    answer = client("owner").get("/api/v1/admin/members", params={"cursor": cursor})
    assert code_of(answer) == (400, "invalid_request")


@pytest.mark.parametrize("limit", ["0", "201", "many", "-1"])
def test_a_page_has_1_to_200_items(client: Client, limit: str) -> None:
    answer = client("owner").get("/api/v1/admin/members", params={"limit": limit})
    assert code_of(answer) == (400, "invalid_request")


def test_somebody_is_invited_once(client: Client) -> None:
    admin = client("admin")
    body = {"email": "New@acme.example", "role": "member", "display_name": "New"}
    made = ok(admin.post("/api/v1/admin/members", json=body), 201)
    assert (made["status"], made["signs_in"], made["revision"]) == ("invited", False, 1)
    again = admin.post("/api/v1/admin/members", json={"email": "new@ACME.example"})
    assert code_of(again) == (409, "already_exists")
    assert ok(admin.get(f"/api/v1/admin/members/{made['user_id']}")) == made
    assert code_of(client("stranger").get(f"/api/v1/admin/members/{made['user_id']}")) == (
        404,
        "not_found",
    )


@pytest.mark.parametrize("email", ["", "a", "a@", "@b", "a b@c", "a@b\n", "a@b,c@d", "<a@b>"])
def test_an_address_that_is_none_is_not_invited(client: Client, email: str) -> None:
    answer = client("owner").post("/api/v1/admin/members", json={"email": email})
    assert code_of(answer) == (400, "invalid_request")


def test_owners_are_the_owners_affair(client: Client) -> None:
    admin, owner = client("admin"), client("owner")

    def change(who: httpx.Client, user: str, **values: Any) -> httpx.Response:
        return who.patch(f"/api/v1/admin/members/user_{user}", json=values)

    for answer in (
        change(admin, "owner", role="member"),
        change(admin, "owner", status="disabled"),
        change(admin, "ann", role="owner"),
        admin.post("/api/v1/admin/members", json={"email": "a@b", "role": "owner"}),
    ):
        assert code_of(answer) == (403, "forbidden")
    assert ok(change(admin, "ann", role="admin"))["role"] == "admin"
    assert ok(change(owner, "admin", role="owner"))["role"] == "owner"


def test_the_last_owner_stays(client: Client) -> None:
    owner = client("owner")
    path = "/api/v1/admin/members/user_owner"
    for values in ({"role": "admin"}, {"status": "disabled"}):
        assert code_of(owner.patch(path, json=values)) == (400, "invalid_request")
    ok(owner.patch("/api/v1/admin/members/user_ann", json={"role": "owner"}))
    ok(owner.patch("/api/v1/admin/members/user_ann", json={"status": "disabled"}))
    assert code_of(owner.patch(path, json={"role": "admin"})) == (400, "invalid_request")
    ok(owner.patch("/api/v1/admin/members/user_ann", json={"status": "active"}))
    assert ok(owner.patch(path, json={"role": "admin"}))["role"] == "admin"


def test_two_owners_who_leave_at_once_leave_one(client: Client) -> None:
    ok(client("owner").patch("/api/v1/admin/members/user_ann", json={"role": "owner"}))
    clients = [client("owner"), client("owner")]

    def leave(number: int) -> httpx.Response:
        user = ("owner", "ann")[number]
        return clients[number].patch(f"/api/v1/admin/members/user_{user}", json={"role": "member"})

    with ThreadPoolExecutor(2) as pool:
        found = sorted(answer.status_code for answer in pool.map(leave, range(2)))
    assert found == [200, 400]


def test_a_change_of_nothing_is_none(client: Client) -> None:
    path = "/api/v1/admin/members/user_ann"
    before = ok(client("owner").get(path))
    assert ok(client("owner").patch(path, json={"role": "member"})) == before
    assert ok(client("owner").patch(path, json={}))["revision"] == before["revision"]
    changed = ok(client("owner").patch(path, json={"display_name": "Ann B."}))
    assert (changed["display_name"], changed["revision"]) == ("Ann B.", before["revision"] + 1)


def test_an_admin_sees_and_fills_every_project(client: Client) -> None:
    admin = client("admin")
    listed = ok(admin.get("/api/v1/admin/projects"))["items"]
    assert [(item["name"], item["member_count"]) for item in listed] == [("Alpha", 3), ("Beta", 3)]
    path = "/api/v1/admin/projects/proj_beta/members"
    names = [item["user"]["user_id"] for item in ok(admin.get(path))["items"]]
    assert names == ["user_ann", "user_ben", "user_owner"]
    assert ok(admin.put(f"{path}/user_admin", json={}))["role"] == "member"
    assert ok(admin.put(f"{path}/user_admin", json={"role": "admin"}))["role"] == "admin"
    assert len(ok(admin.get("/api/v1/me"))["projects"]) == 2
    assert ok(admin.delete(f"{path}/user_admin")) == {"removed": True}
    assert ok(admin.delete(f"{path}/user_admin")) == {"removed": False}
    assert code_of(admin.put(f"{path}/user_stranger", json={})) == (404, "not_found")
    assert code_of(admin.get("/api/v1/admin/projects/proj_gamma")) == (404, "not_found")
    other = "/api/v1/admin/projects/proj_gamma/members/user_ann"
    assert code_of(admin.put(other, json={})) == (404, "not_found")


def test_a_disabled_member_joins_no_project(client: Client) -> None:
    owner = client("owner")
    ok(owner.patch("/api/v1/admin/members/user_ben", json={"status": "disabled"}))
    answer = owner.put("/api/v1/admin/projects/proj_alpha/members/user_ben", json={})
    assert code_of(answer) == (400, "invalid_request")


def test_the_audit_trail_tells_who_did_what(client: Client) -> None:
    admin = client("admin")
    sent = {"x-request-id": "req_of_ann"}
    path = "/api/v1/admin/members/user_ann"
    ok(admin.patch(path, json={"role": "admin"}, headers=sent))
    ok(admin.put("/api/v1/admin/projects/proj_alpha/members/user_ben", json={}))
    events = ok(admin.get("/api/v1/admin/audit-events"))["items"]
    assert [item["action"] for item in events] == ["project.member_put", "member.changed"]
    assert events[1]["details"] == {"fields": ["role"], "role": "admin"}
    assert (events[1]["actor_id"], events[1]["target_id"]) == ("user_admin", "user_ann")
    assert events[1]["request_id"] == "req_of_ann"
    assert ok(client("stranger").get("/api/v1/admin/audit-events"))["items"] == []
    first = ok(admin.get("/api/v1/admin/audit-events", params={"limit": 1}))
    assert first["page_info"]["has_more"]


def test_the_secret_of_the_provider_is_not_shown(
    context: ServerContext, connect: Callable[..., httpx.Client]
) -> None:
    settings = ServerSettings(
        public_origin="https://memory.example",
        oidc_issuer="https://login.example",
        oidc_client_id="clumsies",
        oidc_client_secret="hush",
    )
    assert "hush" not in repr(settings)
    answer = connect(make_app(replace(context, settings=settings)), "admin").get(
        "/api/v1/admin/identity-provider"
    )
    assert ok(answer)["has_client_secret"] is True
    assert "hush" not in answer.text


def test_an_export_is_the_whole_memory_of_a_commit(
    client: Client, acting: Callable[[str], Acting]
) -> None:
    texts = {f"notes/{number:03}.md": f"# Note {number}\n\u2028é" for number in range(120)}
    empty = ok(client("owner").get("/api/v1/admin/memory-export"))
    assert (empty["commit_id"], empty["memories"]) == (None, [])
    changes = [
        ResourceChange(f"mem_{number}", path=path, content=text, description="d")
        for number, (path, text) in enumerate(texts.items())
    ]
    acting("owner").write(lambda act: publish_org(act, changes))
    found = msgspec.json.decode(
        client("owner").get("/api/v1/admin/memory-export").content, type=MemoryExport
    )
    assert found.commit_id is not None
    assert [item.path for item in found.memories] == sorted(texts)
    assert {item.path: item.content for item in found.memories} == texts
    assert found.memories[0].content_hash == content_hash(texts["notes/000.md"])
