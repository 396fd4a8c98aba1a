"""Reading memory: the organisation's by all its people, a project's by its members."""

from __future__ import annotations

from clumsies.types import content_hash
from tests.server.memories import As, memory_id, publish, put
from tests.server.world import World

ORG = "/api/v1/org/memories"


def alpha_of(world: World) -> str:
    return f"/api/v1/projects/{world.projects['alpha']}/memories"


def test_a_list_is_in_order_of_path(world: World, acting: As, client) -> None:
    names = ["b.md", "B2.md", "a.md", "_x.md", "Z.md", "ä.md", "a/b.md"]
    publish(acting("ann"), *(put(name, f"# {name}\n") for name in names))
    for url, expected in ((ORG, sorted(names)), (alpha_of(world), [])):
        page = client("ann").get(url).json()
        assert [item["path"] for item in page["items"]] == expected
        assert page["page_info"] == {"next_cursor": None, "has_more": False}


def test_a_memory_with_its_text(world: World, acting: As, client) -> None:
    publish(
        acting("ann"),
        put("a.md", "# Title\nA\x00", description="d"),
        carrying=world.projects["alpha"],
    )
    publish(acting("ann"), put("a.md", "# Title\nA2\x00"))
    name = memory_id("a.md")
    for url in (ORG, alpha_of(world)):
        answer = client("ann").get(f"{url}/{name}")
        assert answer.status_code == 200, answer.text
        assert answer.headers["etag"] == answer.json()["etag"] == '"rev-2"'
        assert answer.json()["content"] == "# Title\nA2\x00"
        memory = answer.json()["memory"]
        assert client("ann").get(url).json()["items"] == [memory]
        assert memory | {"updated_at": ""} == {
            "memory_id": name,
            "scope": "org",
            "project_id": None,
            "path": "a.md",
            "name": "Title",
            "description": "d",
            "content_hash": content_hash("# Title\nA2\x00"),
            "status": "active",
            "updated_at": "",
        }


def test_a_list_ends_at_its_limit(world: World, acting: As, client) -> None:
    publish(
        acting("ann"),
        *(put(f"{number:03}.md", "x") for number in range(205)),
        carrying=world.projects["alpha"],
    )
    for url in (ORG, alpha_of(world)):
        page = client("ann").get(url).json()
        assert [item["path"] for item in page["items"]] == [f"{n:03}.md" for n in range(200)]
        assert not page["page_info"]["has_more"]
    selection = client("ann").get(f"/api/v1/projects/{world.projects['alpha']}/org-selections")
    assert len(selection.json()["memories"]) == 205


def test_who_may_read(world: World, acting: As, client) -> None:
    publish(acting("ann"), put("a.md", "A"), carrying=world.projects["alpha"])
    name = memory_id("a.md")
    for user, org, project in (
        ("owner", 200, 200),
        ("ann", 200, 200),
        ("ben", 200, 404),
        ("stranger", 404, 404),
        (None, 401, 401),
    ):
        assert client(user).get(f"{ORG}/{name}").status_code == org
        assert client(user).get(f"{alpha_of(world)}/{name}").status_code == project
        assert client(user).get(alpha_of(world)).status_code == project
    assert client("stranger").get(ORG).json()["items"] == []


def test_a_project_shows_only_what_it_has(world: World, acting: As, client) -> None:
    publish(acting("ann"), put("a.md", "A"), carrying=world.projects["beta"])
    assert client("ann").get(f"{alpha_of(world)}/{memory_id('a.md')}").status_code == 404
    assert client("ann").get(f"{ORG}/{memory_id('a.md')}").status_code == 200
    assert client("ann").get(f"{ORG}/mem_none").status_code == 404
