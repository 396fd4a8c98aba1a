"""Which project a directory belongs to: ancestors, links, worktrees, revisions."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from clumsies.errors import ClumsiesError, Conflict, InvalidRequest, NotFound
from clumsies.memory.bindings import BindingStore, main_checkout
from tests.memory.local_memory import Clock, LocalMemory

SERVER = "https://memory.example"


def store_of(memory: LocalMemory, *authorities: str) -> BindingStore:
    """The bindings where these are in use and every project is of the first."""
    return BindingStore(
        memory.database, lambda: authorities, lambda _: authorities[0], clock_ns=Clock()
    )


@pytest.fixture
def bindings(memory: LocalMemory) -> BindingStore:
    return store_of(memory, SERVER)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    place = tmp_path / "work"
    (place / "app" / "src").mkdir(parents=True)
    return place


def test_the_longest_bound_ancestor_decides(bindings: BindingStore, work: Path) -> None:
    bindings.replace(work, "proj_outer")
    bindings.replace(work / "app", "proj_app")
    for directory, project in (
        (work, "proj_outer"),
        (work / "other" / "not" / "there", "proj_outer"),
        (work / "app", "proj_app"),
        (work / "app" / "src", "proj_app"),
        (work / "application", "proj_outer"),
    ):
        assert bindings.resolve(directory).project_id == project
    with pytest.raises(NotFound) as caught:
        bindings.resolve(work.parent)
    assert caught.value.code == "project_binding_not_found"


def test_both_sides_are_canonical(bindings: BindingStore, work: Path) -> None:
    link = work.parent / "link"
    link.symlink_to(work / "app")
    bound = bindings.replace(link, "proj_app")
    assert bound.workspace_root == str((work / "app").resolve())
    assert bindings.resolve(work / "app" / "src" / ".." / "src").project_id == "proj_app"
    assert bindings.resolve(link / "src").project_id == "proj_app"
    outside = work / "app" / "leads-out"
    outside.symlink_to(work.parent)
    with pytest.raises(NotFound):
        bindings.resolve(outside)


def test_authorities_are_apart(memory: LocalMemory, bindings: BindingStore, work: Path) -> None:
    bindings.replace(work, "proj_1")
    other = store_of(memory, "https://other.example")
    with pytest.raises(NotFound):
        other.resolve(work)
    assert store_of(memory, f"{SERVER}/").resolve(work).project_id == "proj_1"


def test_compare_and_swap(bindings: BindingStore, work: Path) -> None:
    first = bindings.replace(work, "proj_1")
    assert (first.revision, first.server_url) == (1, SERVER)
    assert first.created_at == first.updated_at
    assert bindings.replace(work, "proj_1") == first
    for expected in (None, 2):
        with pytest.raises(Conflict) as caught:
            bindings.replace(work, "proj_2", expected)
        assert caught.value.code == "project_binding_changed"
        assert caught.value.details == {"revision": 1, "project_id": "proj_1"}
    second = bindings.replace(work, "proj_2", 1)
    assert (second.revision, second.created_at) == (2, first.created_at)
    assert second.updated_at > first.updated_at
    with pytest.raises(Conflict):
        bindings.remove(work, 1)
    bindings.remove(work, 2)
    with pytest.raises(NotFound):
        bindings.remove(work, 2)
    with pytest.raises(Conflict):
        bindings.replace(work, "proj_2", 2)


def test_of_many_at_once_one_wins(bindings: BindingStore, work: Path) -> None:
    bindings.replace(work, "proj_0")
    outcomes: list[str] = []

    def swap(number: int) -> None:
        try:
            outcomes.append(bindings.replace(work, f"proj_{number}", 1).project_id)
        except Conflict as error:
            outcomes.append(error.code)

    threads = [threading.Thread(target=swap, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("project_binding_changed") == 3
    assert bindings.resolve(work).project_id in outcomes


def test_a_directory_that_is_gone_can_be_unbound(bindings: BindingStore, work: Path) -> None:
    bindings.replace(work / "app", "proj_app")
    shutil.rmtree(work)
    assert [b.project_id for b in bindings.list()] == ["proj_app"]
    bindings.remove(work / "app", 1)
    assert bindings.list() == []


def test_lists(bindings: BindingStore, work: Path) -> None:
    bindings.replace(work / "app", "proj_1")
    bindings.replace(work, "proj_2")
    assert [b.project_id for b in bindings.list()] == ["proj_2", "proj_1"]
    assert [b.project_id for b in bindings.list("proj_1")] == ["proj_1"]


def test_what_cannot_be_bound(bindings: BindingStore, work: Path) -> None:
    (work / "file").touch()
    (work / "loop").symlink_to(work / "loop")
    named = Path(os.fsdecode(os.fsencode(work) + b"/caf\xe9"))
    named.mkdir()
    for directory in (work / "file", work / "nowhere", Path("app"), work / "loop", named):
        with pytest.raises(InvalidRequest) as caught:
            bindings.replace(directory, "proj_1")
        caught.value.message.encode("utf-8")
    with pytest.raises(InvalidRequest):
        bindings.replace(work, "../x")
    with pytest.raises(InvalidRequest):
        bindings.resolve(Path("/x\x00y"))
    with pytest.raises(ClumsiesError):
        bindings.resolve(named)


def git(directory: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example", *arguments],
        cwd=directory,
        check=True,
        capture_output=True,
    )


@pytest.fixture
def worktree(work: Path) -> Path:
    """A worktree beside `work/app`, with a folder `src`."""
    app = work / "app"
    (app / "src" / "x").touch()
    git(app, "init", "-q")
    git(app, "add", ".")
    git(app, "commit", "-q", "-m", "first")
    git(app, "worktree", "add", "-q", str(work.parent / "tree"))
    return work.parent / "tree"


def test_a_worktree_falls_back_to_its_main_checkout(
    bindings: BindingStore, work: Path, worktree: Path
) -> None:
    assert main_checkout(worktree) == (work / "app").resolve()
    assert main_checkout(work / "app") is None
    bindings.replace(work / "app", "proj_app")
    assert bindings.resolve(worktree).project_id == "proj_app"
    bindings.replace(work / "app" / "src", "proj_src")
    assert bindings.resolve(worktree / "src").project_id == "proj_src"
    bindings.replace(worktree, "proj_tree")
    assert bindings.resolve(worktree / "src").project_id == "proj_tree"


def test_a_file_in_a_clone_cannot_choose_a_project(
    bindings: BindingStore, work: Path, worktree: Path
) -> None:
    bindings.replace(work / "app", "proj_app")
    evil = work.parent / "evil"
    evil.mkdir()
    shutil.copy(worktree / ".git", evil / ".git")  # names a private folder that is not its own
    assert main_checkout(evil) is None
    with pytest.raises(NotFound):
        bindings.resolve(evil)
    private = evil / "private"  # or a private folder of its own making
    private.mkdir()
    (private / "commondir").write_text(str(work / "app" / ".git"))
    (private / "gitdir").write_text(str(evil / ".git"))
    (evil / ".git").write_text(f"gitdir: {private}")
    with pytest.raises(NotFound):
        bindings.resolve(evil)


@pytest.mark.parametrize(
    "content", [b"", b"gitdir:", b"gitdir: \x00", b"\xff", b"gitdir: nowhere", b"other: x"]
)
def test_an_odd_git_file_is_no_worktree(bindings: BindingStore, work: Path, content: bytes) -> None:
    (work / ".git").write_bytes(content)
    with pytest.raises(NotFound):
        bindings.resolve(work / "app")


def test_one_directory_has_one_binding_among_the_authorities_in_use(
    memory: LocalMemory, work: Path
) -> None:
    local = store_of(memory, "local:", SERVER).replace(work, "proj_mine")
    both = store_of(memory, SERVER, "local:")
    with pytest.raises(Conflict):
        both.replace(work, "proj_team")
    moved = both.replace(work, "proj_team", local.revision)
    assert (moved.server_url, moved.revision) == (SERVER, local.revision + 1)
    assert [b.project_id for b in both.list()] == ["proj_team"]
    assert both.resolve(work / "app").project_id == "proj_team"
    with pytest.raises(NotFound):
        store_of(memory, "local:").resolve(work)
