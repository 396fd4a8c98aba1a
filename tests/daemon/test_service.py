"""The whole system: a real daemon, a real socket, the real client, real models."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from clumsies.errors import ClumsiesError, Conflict, InvalidRequest, NotFound
from tests.daemon.resident import Project, Resident, write_files
from tests.daemon.running import wait_for

MONEY = "# Money\n\nAmounts are integers of cents.\n"
DEPLOY = "# Deploying\n\nThe rollout needs the blue key.\n"
FILES = {"money.md": MONEY, "guides/deploy.md": DEPLOY}


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    running = Resident(tmp_path_factory.mktemp("r"))
    yield running
    assert running.end() == 0


@pytest.fixture
def project(resident: Resident, tmp_path: Path) -> Project:
    """A project of its own in the shared daemon."""
    return resident.project(tmp_path / "w", FILES)


def code_of(error: pytest.ExceptionInfo[ClumsiesError]) -> str:
    return error.value.code


def test_an_update_is_in_the_next_answer(project: Project) -> None:
    [found] = [
        f for f in project.activate("rollout key")["fragments"] if f["path"] == "guides/deploy.md"
    ]
    [loaded] = project.load(found["resource_id"])
    assert loaded["content"] == DEPLOY
    receipt = project.replace(loaded, ("blue key", "green key"), ("rollout", "release"))
    assert (receipt["queued"], receipt["sync_status"]) == (True, "queued")
    text = project.texts("release key")
    assert "The release needs the green key." in text
    assert "blue key" not in text
    assert project.load(loaded["resource_id"])[0]["content_hash"] != loaded["content_hash"]


def test_a_known_text_is_not_sent_again(project: Project) -> None:
    [loaded] = project.load("money.md")
    [again] = project.call(
        "load_memory", ids=["money.md"], known_hashes={"money.md": loaded["content_hash"]}
    )["resources"]
    assert again["changed"] is False
    assert "content" not in again
    state = project.activate("integers of cents")["next_state"]
    [known] = [
        f
        for f in project.activate("integers of cents", state=state)["fragments"]
        if f["path"] == "money.md"
    ]
    assert known["action"] == "reuse"


def test_every_kind_of_change(project: Project) -> None:
    made = project.create("new.md", "# New\n\nQuartz is stored in drawer nine.\n")
    assert "drawer nine" in project.texts("where is quartz?")
    renamed = project.store(rename={"id": made["draft_id"], "new_path": "quartz/where.md"})
    assert renamed["draft_id"] == made["draft_id"]
    assert "quartz/where.md" in project.contents()
    [money] = project.load("money.md")
    project.store(delete={"id": money["resource_id"]})
    assert set(project.contents()) == {"guides/deploy.md", "quartz/where.md"}
    with pytest.raises(NotFound) as caught:
        project.load("money.md")
    assert caught.value.details["missing"] == ["money.md"]
    project.store(discard={"id": money["resource_id"]})
    assert project.contents()["money.md"] == MONEY
    taken_back = project.store(delete={"id": made["draft_id"]})
    detail = project.client.call("get_draft", {"draft_id": taken_back["draft_id"]})
    assert detail["draft"]["status"] == "discarded"
    assert [next(iter(o["operation"])) for o in detail["operations"]] == [
        "create",
        "rename",
        "discard",
    ]
    assert set(project.contents()) == set(FILES)
    assert "drawer nine" not in project.texts("where is quartz?")


def test_two_edits_from_one_base_lose_neither(project: Project) -> None:
    [loaded] = project.load("money.md")
    project.replace(loaded, ("integers", "whole numbers"))
    with pytest.raises(Conflict) as caught:
        project.replace(loaded, ("cents", "pennies"))
    assert code_of(caught) == "memory_content_changed"
    [now] = project.load("money.md")
    assert caught.value.details["content_hash"] == now["content_hash"]
    project.replace(now, ("cents", "pennies"))
    assert project.contents()["money.md"] == "# Money\n\nAmounts are whole numbers of pennies.\n"


def test_a_replacement_has_to_match_once(project: Project) -> None:
    [loaded] = project.load("money.md")
    for pairs, code in (
        ([("gold", "x")], "text_replacement_not_found"),
        ([("e", "x")], "text_replacement_ambiguous"),
        ([("Amounts are", "x"), ("are integers", "y")], "text_replacement_overlap"),
        ([("cents", "cents")], "text_replacement_no_change"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            project.replace(loaded, *pairs)
        assert code_of(caught) == code
    assert project.contents() == FILES
    assert project.call("list_drafts")["drafts"] == []


OUTSIDE = [
    "../../etc/passwd",
    "/etc/passwd",
    "..\\secret.md",
    "a/../../b.md",
    "C:\\windows\\x.md",
    "a\0b.md",
    "./x.md",
    "a//b.md",
    "~/x.md",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_nothing_outside_of_the_memory_is_read_or_named(project: Project, path: str) -> None:
    with pytest.raises(NotFound) as missing:
        project.load(path)
    assert code_of(missing) == "memory_resource_not_found"
    [money] = project.load("money.md")
    if path != "~/x.md":  # a folder of this odd name is inside
        with pytest.raises(InvalidRequest) as caught:
            project.create(path, "# X\n")
        assert code_of(caught) == "invalid_request"
        with pytest.raises(InvalidRequest):
            project.store(rename={"id": money["resource_id"], "new_path": path})
        with pytest.raises(InvalidRequest):
            project.call("import_memory", paths=["/tmp"], prefix=path)
    assert project.contents() == FILES


def test_links_that_lead_out_are_not_imported(resident: Resident, tmp_path: Path) -> None:
    write_files(tmp_path / "outside", {"secret.md": "# Secret\n"})
    inside = tmp_path / "w"
    write_files(inside, {"a.md": "# A\n"})
    (inside / "link.md").symlink_to(tmp_path / "outside" / "secret.md")
    (inside / "folder").symlink_to(tmp_path / "outside")
    project = resident.project(inside, {})
    report = project.call("import_memory", paths=[str(inside)])
    assert report["added"] == 1
    assert project.contents() == {"a.md": "# A\n"}


def test_what_is_not_text_is_left_out_by_name(resident: Resident, tmp_path: Path) -> None:
    write_files(tmp_path / "w", {"a.md": "# A\n"})
    (tmp_path / "w" / "bad.md").write_bytes(b"\xff\xfe\x00")
    project = resident.project(tmp_path / "w", {})
    report = project.call("import_memory", paths=[str(tmp_path / "w")])
    assert report["added"] == 1
    assert {Path(item["path"]).name for item in report["left_out"]} == {"bad.md"}


WRONG = [
    ("activate_memory", {"query": "x", "sate": "y"}, "sate"),
    ("activate_memory", {"query": None}, "query"),
    ("load_memory", {"ids": ["a"], "knownHashes": {}}, "knownHashes"),
    ("load_memory", {"ids": []}, "ids"),
    ("import_memory", {"paths": ["/tmp"], "prefx": "a"}, "prefx"),
    ("list_drafts", {"limit": 501}, "limit"),
]


@pytest.mark.parametrize(("method", "payload", "field"), WRONG)
def test_a_wrong_field_is_refused_by_name(
    project: Project, method: str, payload: dict[str, object], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        project.call(method, **payload)
    assert field in caught.value.message


@pytest.mark.parametrize(
    ("op", "words"),
    [
        ({"update": {"id": "a", "expected_hsh": "x", "replacements": []}}, "expected_hsh"),
        ({"create": {"path": "a.md", "content": {"content": "x", "titel": "y"}}}, "titel"),
        ({"delete": {"id": None}}, "id"),
        ({"delete": {"id": "a"}, "discard": {"id": "a"}}, "exactly one"),
        ({}, "exactly one"),
        ({"remove": {"id": "a"}}, "remove"),
    ],
)
def test_a_wrong_operation_is_refused_by_name(
    project: Project, op: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        project.store(**op)
    assert words in caught.value.message


def test_a_directory_keeps_its_project_and_the_longest_binding_wins(
    resident: Resident, tmp_path: Path
) -> None:
    outer, inner = tmp_path / "o", tmp_path / "o" / "a" / "b"
    inner.mkdir(parents=True)
    first = resident.project(outer, {"x.md": "# X\n"})
    again = resident.project(outer, {})
    assert again.project_id == first.project_id
    second = resident.project(inner, {"y.md": "# Y\n"})

    def owner(directory: Path) -> str:
        found = first.client.call("resolve_project_binding", {"directory": str(directory)})
        return str(found["project_id"])

    assert owner(outer / "a") == first.project_id
    assert owner(inner / "c") == second.project_id
    with pytest.raises(NotFound) as caught:
        owner(tmp_path)
    assert code_of(caught) == "project_binding_not_found"
    for wrong in ("relative", "/a\0b"):
        with pytest.raises(InvalidRequest):
            first.client.call("resolve_project_binding", {"directory": wrong})


def test_an_unknown_project_is_not_found(resident: Resident) -> None:
    nobody = Project(resident.client(), "proj_nobody")
    for ask in (
        lambda: nobody.load("a"),
        lambda: nobody.activate("a"),
        lambda: nobody.create("a.md", "# A"),
        lambda: nobody.call("search_index_status"),
        lambda: nobody.call("rebuild_search_index"),
    ):
        with pytest.raises(NotFound):
            ask()


def is_synced(project: Project) -> bool:
    """Whether the local authority has every operation of the project."""
    return project.call("project_sync_status")["pending_operation_count"] == 0


@pytest.mark.parametrize("synced", [True, False])
def test_a_restart_keeps_everything(tmp_path: Path, synced: bool) -> None:
    """Synchronization runs beside this: what it alone writes is compared once it is through."""
    own = Resident(tmp_path / "r")
    project = own.project(tmp_path / "w", FILES)
    project.create("kept.md", "# Kept\n\nThe heron nests at the mill.\n")
    [money] = project.load("money.md")
    project.replace(money, ("cents", "pennies"))
    before = project.contents()
    if synced:
        wait_for(lambda: is_synced(project), "the drafts are synced")
    drafts = project.call("list_drafts")["drafts"]
    assert own.end(signal.SIGTERM) == 0
    again = Resident(tmp_path / "r")
    try:
        same = Project(again.client(), project.project_id)
        assert same.contents() == before
        kept = same.call("list_drafts")["drafts"]
        if synced:
            assert kept == drafts
        else:
            assert {d["draft_id"]: d["path"] for d in kept} == {
                d["draft_id"]: d["path"] for d in drafts
            }
            wait_for(lambda: is_synced(same), "the drafts are synced")
            assert same.contents() == before
        assert "heron" in same.texts("where does the heron nest?")
        bound = same.client.call("resolve_project_binding", {"directory": str(tmp_path / "w")})
        assert bound["project_id"] == project.project_id
        wait_for(lambda: same.call("search_index_status")["ready"], "the index is ready")
        assert "worker_failed" not in again.logs()
    finally:
        assert again.end() == 0


def test_the_locale_changes_nothing(tmp_path: Path) -> None:
    own = Resident(tmp_path / "r", LC_ALL="C", PYTHONIOENCODING="cp1252")
    try:
        project = own.project(tmp_path / "w", {"笔记.md": "# 发布\n\n回滚要用蓝色的钥匙。\n"})
        assert "蓝色的钥匙" in project.texts("回滚 钥匙")
        project.create("é/naïve.md", "# Füße\n")
        assert set(project.contents()) == {"笔记.md", "é/naïve.md"}
    finally:
        assert own.end() == 0


def test_memory_text_and_queries_are_in_no_log(tmp_path: Path) -> None:
    own = Resident(tmp_path / "r")
    project = own.project(tmp_path / "w", {"a.md": "# Marmalade\n\nSaffron lives here.\n"})
    project.texts("periwinkle saffron")
    with pytest.raises(ClumsiesError):
        project.load("periwinkle/none.md")
    [loaded] = project.load("a.md")
    with pytest.raises(ClumsiesError):
        project.replace(loaded, ("periwinkle", "x"))
    assert own.end() == 0
    for word in ("Marmalade", "marmalade", "saffron", "Saffron", "periwinkle"):
        assert word not in own.logs()
