from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import pytest

from clumsies.errors import InvalidRequest, StoreFailed
from clumsies.storage.project_storage import (
    LOCAL_AUTHORITY,
    ProjectStorage,
    authority_hash,
    canonical_authority,
    read_marker,
)

SERVER = "https://memory.example"


def test_the_default_place_and_its_marker(tmp_path: Path) -> None:
    storage = ProjectStorage(tmp_path)
    place = storage.prepare(f" {SERVER}// ", "proj_1")
    key = hashlib.sha256(SERVER.encode()).hexdigest()
    assert place.managed_root == tmp_path / "projects" / key / "proj_1"
    assert place.location_revision == 1
    assert (place.managed_root / "ownership.json").read_bytes() == (
        b'{"layout_version":1,"authority_key":"https://memory.example","project_id":"proj_1"}'
    )
    for folder in (place.managed_root, place.generations, place.search, place.staging):
        assert stat.S_IMODE(folder.lstat().st_mode) == 0o700
    assert stat.S_IMODE((place.managed_root / "ownership.json").lstat().st_mode) == 0o600
    assert storage.prepare(SERVER, "proj_1") == place
    assert storage.location(SERVER, "proj_1") == place


def test_authorities() -> None:
    assert canonical_authority(f"{SERVER}/") == SERVER
    assert authority_hash(f"{SERVER}/") == authority_hash(SERVER) != authority_hash(LOCAL_AUTHORITY)
    with pytest.raises(InvalidRequest):
        canonical_authority(" / ")


@pytest.mark.parametrize("project_id", ["", "..", "a/b", "../../x", "ä"])
def test_a_project_id_that_is_no_name_is_refused(tmp_path: Path, project_id: str) -> None:
    with pytest.raises(InvalidRequest):
        ProjectStorage(tmp_path).prepare(SERVER, project_id)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "marker",
    [
        b'{"layout_version":1,"authority_key":"https://memory.example","project_id":"proj_2"}',
        b'{"layout_version":2,"authority_key":"https://memory.example","project_id":"proj_1"}',
        b'{"layout_version":1,"authority_key":"local:","project_id":"proj_1"}',
        b"{",
        b"",
    ],
)
def test_a_foreign_marker_is_refused(tmp_path: Path, marker: bytes) -> None:
    storage = ProjectStorage(tmp_path)
    place = storage.prepare(SERVER, "proj_1")
    (place.managed_root / "ownership.json").write_bytes(marker)
    with pytest.raises(StoreFailed) as caught:
        storage.prepare(SERVER, "proj_1")
    assert caught.value.code == "marker_mismatch"
    assert (place.managed_root / "ownership.json").read_bytes() == marker


def test_a_directory_with_content_and_no_marker_is_refused(tmp_path: Path) -> None:
    root = ProjectStorage(tmp_path).location(SERVER, "proj_1").managed_root
    root.mkdir(parents=True)
    (root / "thesis.md").write_text("mine")
    with pytest.raises(StoreFailed) as caught:
        ProjectStorage(tmp_path).prepare(SERVER, "proj_1")
    assert caught.value.code == "marker_mismatch"
    assert [entry.name for entry in root.iterdir()] == ["thesis.md"]


def test_a_marker_that_is_a_link_is_refused(tmp_path: Path) -> None:
    storage = ProjectStorage(tmp_path)
    root = storage.prepare(SERVER, "proj_1").managed_root
    (root / "ownership.json").rename(tmp_path / "marker")
    (root / "ownership.json").symlink_to(tmp_path / "marker")
    assert read_marker(root) is None
    with pytest.raises(StoreFailed):
        storage.prepare(SERVER, "proj_1")


def test_the_old_layout_is_adopted_once(tmp_path: Path) -> None:
    legacy = tmp_path / "projects" / "proj_1"
    (legacy / "generations" / "g").mkdir(parents=True)
    (legacy / "generations" / "g" / "file").write_text("kept")
    (legacy / "generations" / "g" / "file").chmod(0o644)
    storage = ProjectStorage(tmp_path)
    place = storage.prepare(SERVER, "proj_1")
    moved = place.generations / "g" / "file"
    assert moved.read_text() == "kept"
    assert stat.S_IMODE(moved.lstat().st_mode) == 0o600
    assert read_marker(place.managed_root) is not None
    assert not legacy.exists()
    legacy.mkdir()
    storage.prepare(SERVER, "proj_1")
    assert legacy.exists()


@pytest.mark.parametrize("inside", [False, True])
def test_links_are_not_adopted(tmp_path: Path, inside: bool) -> None:
    legacy = tmp_path / "projects" / "proj_1"
    target = tmp_path / "elsewhere"
    target.mkdir()
    if inside:
        legacy.mkdir(parents=True)
        (legacy / "generations").symlink_to(target)
    else:
        legacy.parent.mkdir(parents=True)
        legacy.symlink_to(target)
    with pytest.raises(StoreFailed) as caught:
        ProjectStorage(tmp_path).prepare(SERVER, "proj_1")
    assert caught.value.code == "marker_mismatch"
    assert list(target.iterdir()) == []
