"""The old settings file: matched by name, migrated once, edited without loss."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from clumsies.errors import InvalidRequest, NotFound
from clumsies.memory.bindings import BindingStore
from clumsies.memory.legacy_config import (
    NamedProject,
    migrate_entry,
    resolve_or_migrate,
    without_entry,
)
from tests.memory.local_memory import LocalMemory

PROJECTS = [
    NamedProject("proj_1", "Courier"),
    NamedProject("proj_2", "Depot"),
    NamedProject("proj_3", "Twin"),
    NamedProject("proj_4", "Twin"),
]


@pytest.fixture
def bindings(memory: LocalMemory) -> BindingStore:
    return BindingStore(memory.database, lambda: ["local:"], lambda _: "local:")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    for name in ("courier/src", "depot", "twin", "lost"):
        (tmp_path / "work" / name).mkdir(parents=True)
    return tmp_path / "work"


@pytest.fixture
def file(tmp_path: Path, work: Path) -> Path:
    """The array form, with comments and a setting that must stay."""
    place = tmp_path / "config.toml"
    place.write_text(
        f"""# my settings
editor = "vi"  # mine

[[workspaces]]
path = "{work}/courier"
name = "Courier"
ws_id = "ws_1"

# the depot
[[workspaces]]
path = "{work}/depot"
name = "Depot"
ws_id = "ws_2"

[[workspaces]]
path = "{work}/twin"
name = "Twin"
ws_id = "ws_3"

[[workspaces]]
path = "{work}/lost"
name = "Unknown"
ws_id = "ws_4"

[other]
keep = [1, 2]  # this too
""",
        "utf-8",
    )
    return place


def test_an_entry_becomes_a_binding_and_leaves_the_file(
    bindings: BindingStore, work: Path, file: Path
) -> None:
    before = file.read_text()
    bound = resolve_or_migrate(file, work / "courier" / "src", PROJECTS, bindings)
    assert (bound.project_id, bound.workspace_root) == ("proj_1", str(work / "courier"))
    block = f'[[workspaces]]\npath = "{work}/courier"\nname = "Courier"\nws_id = "ws_1"\n'
    assert file.read_text() == before.replace(block, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = resolve_or_migrate(file, work / "courier", PROJECTS, bindings)
    assert again == bound
    resolve_or_migrate(file, work / "depot", PROJECTS, bindings)
    settings = tomllib.loads(file.read_text())
    assert [entry["name"] for entry in settings["workspaces"]] == ["Twin", "Unknown"]
    assert settings["other"] == {"keep": [1, 2]}
    assert settings["editor"] == "vi"


def test_the_file_is_used_only_where_nothing_is_bound(
    bindings: BindingStore, work: Path, file: Path
) -> None:
    before = file.read_bytes()
    bindings.replace(work, "proj_2")
    bound = resolve_or_migrate(file, work / "courier", PROJECTS, bindings)
    assert bound.project_id == "proj_2"
    assert file.read_bytes() == before


@pytest.mark.parametrize(("folder", "count"), [("twin", 2), ("lost", 0)])
def test_missing_and_duplicate_names_fail_and_change_nothing(
    bindings: BindingStore, work: Path, file: Path, folder: str, count: int
) -> None:
    before = file.read_bytes()
    with pytest.raises(NotFound) as caught:
        resolve_or_migrate(file, work / folder, PROJECTS, bindings)
    assert caught.value.code == "project_binding_unresolved"
    assert len(caught.value.details["projects"]) == count  # type: ignore[arg-type]
    assert "ws_" not in caught.value.message
    assert file.read_bytes() == before
    assert bindings.list() == []


def test_no_file_and_no_entry(bindings: BindingStore, work: Path, file: Path) -> None:
    assert migrate_entry(file, work, PROJECTS, bindings) is None
    assert migrate_entry(file.with_name("none"), work, PROJECTS, bindings) is None
    with pytest.raises(NotFound) as caught:
        resolve_or_migrate(file, work, PROJECTS, bindings)
    assert caught.value.code == "project_binding_not_found"


@pytest.mark.parametrize("content", [b"[", b"\xff", b"# " + b"x" * 70_000])
def test_a_file_that_cannot_be_read_as_settings(
    bindings: BindingStore, work: Path, file: Path, content: bytes
) -> None:
    file.write_bytes(content)
    with pytest.raises(InvalidRequest) as caught:
        migrate_entry(file, work / "courier", PROJECTS, bindings)
    assert caught.value.code == "invalid_config"
    assert file.read_bytes() == content


FORMS = [
    '[workspaces."{root}"]\nname = "Courier"\nws_id = "ws"\n\n[workspaces."/else"]\nws_id = "x"\n',
    '[workspaces]\n"{root}" = {{ name = "Courier", ws_id = "ws" }}\n"/else" = {{ ws_id = "x" }}\n',
    'a = """\n[not a header]\n"""\n[["x y"]]\npath = "{root}"\nname = "Courier"\nws_id = "ws"\n',
    '[[w]]\r\npath = "{root}"\r\nname = "Courier"\r\nws_id = "ws"\r\n[w.more]\r\nx = 1\r\n',
    '[w."{root}"]\nname = "Courier"\nws_id = "ws"\n[w."{root}".deep]\nx = 1\n[rest]\ny = 2\n',
]


@pytest.mark.parametrize("form", FORMS)
def test_other_forms_of_an_entry(bindings: BindingStore, work: Path, file: Path, form: str) -> None:
    file.write_bytes(form.format(root=work / "courier").encode())
    bound = migrate_entry(file, work / "courier", PROJECTS, bindings)
    assert bound is not None
    assert bound.project_id == "proj_1"
    rest = file.read_text()
    tomllib.loads(rest)
    assert "Courier" not in rest
    assert ("/else" in rest, "[rest]" in rest) == ("/else" in form, "[rest]" in form)


def test_an_entry_that_cannot_be_taken_out_is_said(
    bindings: BindingStore, work: Path, file: Path
) -> None:
    text = (
        f'w = [{{ path = "{work}/courier", name = "Courier", ws_id = "a" }}, {{ ws_id = "b" }}]\n'
    )
    file.write_text(text)
    with pytest.raises(InvalidRequest, match="by hand"):
        migrate_entry(file, work / "courier", PROJECTS, bindings)
    assert file.read_text() == text
    assert bindings.list() == []


def test_a_link_to_the_file_stays_a_link(bindings: BindingStore, work: Path, file: Path) -> None:
    link = file.with_name("link.toml")
    link.symlink_to(file)
    assert migrate_entry(link, work / "courier", PROJECTS, bindings) is not None
    assert link.is_symlink()
    assert "Courier" not in file.read_text()


def test_only_whole_lines_are_taken_out() -> None:
    text = "x = 1\n[a]\nws_id = 1\n# b's\n[b]\ny = 2\n"
    assert without_entry(text, ["a"]) == "x = 1\n# b's\n[b]\ny = 2\n"
