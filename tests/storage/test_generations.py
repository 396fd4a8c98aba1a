"""Generations on a real file system: golden files, races, links, damage."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from clumsies.errors import ClumsiesError, IoFailed
from clumsies.storage import generations
from clumsies.storage.generations import MEMORY_FOLDER, GenerationStore
from tests.storage.payloads import PROJECT, project_payload

TEXTS = {"a.md": "one", "b/ü.md": "two"}


@pytest.fixture
def store(tmp_path: Path) -> GenerationStore:
    return GenerationStore(tmp_path / "generations", PROJECT)


def code_of(error: pytest.ExceptionInfo[ClumsiesError]) -> str:
    return error.value.code


def test_golden_files_and_modes(store: GenerationStore) -> None:
    payload = project_payload(TEXTS)
    place = store.install(payload)
    commit, tree = payload.commit, payload.tree
    assert place == store.directory / commit.commit_id
    files = {
        str(file.relative_to(place)): file.read_text("utf-8")
        for file in place.rglob("*")
        if file.is_file()
    }
    a, b, chosen = payload.blobs
    selection = '{"project_id":"proj_1","revision":1,"resource_ids":[]}'
    assert files == {
        "cache/memory/a.md": "one",
        "cache/memory/b/ü.md": "two",
        "manifest.json": f'{{"project_id":"proj_1","commit_id":"{commit.commit_id}",'
        f'"tree_id":"{tree.tree_id}","ref_name":"refs/heads/main","memories":{{'
        '"mem_a.md":{"path":"a.md","hash":'
        '"sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",'
        '"description":""},'
        '"mem_b_ü.md":{"path":"b/ü.md","hash":'
        '"sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3",'
        '"description":""}}}',
        "commit-payload.json": f'{{"commit":{{"commit_id":"{commit.commit_id}",'
        f'"scope":"project","org_id":"org_1","project_id":"proj_1","tree_id":"{tree.tree_id}",'
        '"version":1,"created_at":"2026-01-02T03:04:05.123456789Z"},'
        f'"tree":{{"tree_id":"{tree.tree_id}","entries":['
        f'{{"id":"mem_a.md","type":"memory","scope":"org","path":"a.md","blob_id":"{a.blob_id}",'
        '"source":"selected_org"},'
        f'{{"id":"mem_b_ü.md","type":"memory","scope":"org","path":"b/ü.md",'
        f'"blob_id":"{b.blob_id}","source":"selected_org"}},'
        '{"id":"selection","type":"project_org_selection","scope":"daemon",'
        f'"project_id":"proj_1","blob_id":"{chosen.blob_id}","source":"config"}}]}},'
        f'"blobs":[{{"blob_id":"{a.blob_id}","content":"one"}},'
        f'{{"blob_id":"{b.blob_id}","content":"two"}},'
        f'{{"blob_id":"{chosen.blob_id}","content":{quoted(selection)}}}],'
        f'"project_org_selection":{selection}}}',
    }
    modes = {stat.S_IMODE(entry.lstat().st_mode) for entry in place.rglob("*") if entry.is_file()}
    assert modes == {0o600}
    folders = [place, *(entry for entry in place.rglob("*") if entry.is_dir())]
    assert {stat.S_IMODE(entry.lstat().st_mode) for entry in folders} == {0o700}
    assert names(store.directory) == [commit.commit_id]
    assert store.verify_files(commit.commit_id).tree_id == tree.tree_id


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def quoted(text: str) -> str:
    return '"' + text.replace('"', '\\"') + '"'


def test_an_empty_ref(store: GenerationStore) -> None:
    place = store.install(None)
    assert place.name == "ref-none"
    marker = (place / "commit-payload.json").read_text()
    assert marker == '{"project_id":"proj_1","commit_id":null}'
    assert store.verify_files(None).memories == {}


def test_unchanged_files_are_linked_and_changed_ones_are_not(store: GenerationStore) -> None:
    old = store.install(project_payload(TEXTS))
    changed = project_payload({**TEXTS, "a.md": "uno", "c.md": "two"}, version=2)
    new = store.install(changed, previous_commit_id=old.name)
    assert (new / MEMORY_FOLDER / "b/ü.md").samefile(old / MEMORY_FOLDER / "b/ü.md")
    assert (new / MEMORY_FOLDER / "c.md").samefile(old / MEMORY_FOLDER / "b/ü.md")
    assert not (new / MEMORY_FOLDER / "a.md").samefile(old / MEMORY_FOLDER / "a.md")
    store.verify_files(new.name)
    store.collect({new.name})
    store.verify_files(new.name)


def test_a_changed_file_of_the_previous_generation_is_not_linked(store: GenerationStore) -> None:
    old = store.install(project_payload(TEXTS))
    (old / MEMORY_FOLDER / "b/ü.md").write_text("tampered")
    (old / MEMORY_FOLDER / "a.md").unlink()
    (old / MEMORY_FOLDER / "a.md").symlink_to("/etc/hostname")
    new = store.install(project_payload(TEXTS, version=2), previous_commit_id=old.name)
    store.verify_files(new.name)


def test_installing_twice_keeps_the_first(store: GenerationStore) -> None:
    payload = project_payload(TEXTS)
    before = store.install(payload).stat()
    assert store.install(payload).stat().st_ino == before.st_ino


def test_a_lost_race_is_accepted_where_the_winner_installed_the_same(
    store: GenerationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = project_payload(TEXTS)
    start = threading.Barrier(4)
    failures: list[BaseException] = []
    flush = generations._flush

    def flush_together(building: Path, written: list[Path]) -> None:
        flush(building, written)
        start.wait(30)  # all of them have built before any renames

    def install() -> None:
        try:
            store.install(payload)
        except BaseException as error:
            failures.append(error)

    monkeypatch.setattr(generations, "_flush", flush_together)
    threads = [threading.Thread(target=install) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert names(store.directory) == [payload.commit.commit_id]
    store.verify_files(payload.commit.commit_id)


def test_a_generation_of_other_bytes_is_not_accepted(store: GenerationStore) -> None:
    payload = project_payload(TEXTS)
    place = store.install(payload)
    (place / "commit-payload.json").write_text("{}")
    with pytest.raises(ClumsiesError) as caught:
        store.install(payload)
    assert code_of(caught) == "commit_generation_corrupt"
    store.discard(place.name)
    store.install(payload)
    store.verify_files(place.name)


def test_a_build_that_fails_leaves_nothing_and_the_old_generation(
    store: GenerationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = store.install(project_payload(TEXTS))

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(generations, "_flush", no_space)
    with pytest.raises(IoFailed) as caught:
        store.install(project_payload(TEXTS, version=2))
    assert caught.value.code == "insufficient_space"
    assert names(store.directory) == [old.name]
    store.verify_files(old.name)


DAMAGE = {
    "no manifest": lambda place: (place / "manifest.json").unlink(),
    "torn manifest": lambda place: (place / "manifest.json").write_bytes(b'{"project_id":"pro'),
    "no marker": lambda place: (place / "commit-payload.json").unlink(),
    "torn marker": lambda place: (place / "commit-payload.json").write_bytes(b""),
    "marker of an empty ref": lambda place: (place / "commit-payload.json").write_bytes(
        b'{"project_id":"proj_1","commit_id":null}'
    ),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_damaged_generation_is_corrupt(store: GenerationStore, what: str) -> None:
    place = store.install(project_payload(TEXTS))
    facts = store.facts(place.name)
    DAMAGE[what](place)
    assert store.facts(place.name) != facts
    with pytest.raises(ClumsiesError) as caught:
        store.verify(place.name)
    assert code_of(caught) == "commit_generation_corrupt"


def test_anothers_generation_is_corrupt(store: GenerationStore) -> None:
    first, second = project_payload(TEXTS), project_payload(TEXTS, version=2)
    place = store.install(first)
    place.rename(store.path(second.commit.commit_id))
    other = GenerationStore(store.directory, "proj_2")
    for checked, name in ((store, second.commit.commit_id), (other, second.commit.commit_id)):
        with pytest.raises(ClumsiesError) as caught:
            checked.verify(name)
        assert code_of(caught) == "commit_generation_corrupt"


def test_a_missing_generation(store: GenerationStore, tmp_path: Path) -> None:
    with pytest.raises(ClumsiesError) as caught:
        store.verify("0" * 64)
    assert code_of(caught) == "commit_generation_missing"
    assert store.facts("0" * 64) is None
    place = store.install(project_payload(TEXTS))
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClumsiesError) as caught:
        store.verify(place.name)
    assert code_of(caught) == "commit_generation_missing"


@pytest.mark.parametrize("how", ["changed", "missing", "link"])
def test_a_changed_file_is_found_by_the_full_check(store: GenerationStore, how: str) -> None:
    place = store.install(project_payload(TEXTS))
    file = place / MEMORY_FOLDER / "a.md"
    file.unlink()
    if how == "changed":
        file.write_bytes(b"\xff")
    elif how == "link":
        file.symlink_to("b/ü.md")
    store.verify(place.name)
    with pytest.raises(ClumsiesError) as caught:
        store.verify_files(place.name)
    assert code_of(caught) == "commit_generation_corrupt"


def test_collection_keeps_what_is_needed_and_removes_the_rest(store: GenerationStore) -> None:
    kept = [store.install(project_payload(TEXTS, version=n)).name for n in (1, 2, 3)]
    store.install(None)
    (store.directory / ".tmp-left-behind").mkdir()
    assert set(store.collect({kept[1], None})) == {kept[0], kept[2], ".tmp-left-behind"}
    assert names(store.directory) == sorted([kept[1], "ref-none"])
    assert store.collect({kept[1], None}) == []
    assert GenerationStore(store.directory / "nowhere", PROJECT).collect(set()) == []


def test_a_path_that_leads_outside_is_never_written(store: GenerationStore) -> None:
    payload = project_payload(TEXTS)
    first = replace(payload.tree.entries[0], path="../../../outside.md")
    tree = replace(payload.tree, entries=[first, *payload.tree.entries[1:]])
    with pytest.raises(ClumsiesError) as caught:
        store.install(replace(payload, tree=tree))
    assert code_of(caught) == "object_corrupt"
    assert names(store.directory) == []


def test_two_memories_on_one_file_are_refused(store: GenerationStore) -> None:
    payload = project_payload(TEXTS)
    same = [replace(entry, path="same.md") for entry in payload.tree.entries[:2]]
    with pytest.raises(IoFailed):
        store.install(replace(payload, tree=replace(payload.tree, entries=same)))
    assert names(store.directory) == []


def test_a_commit_id_that_is_no_name_is_refused(store: GenerationStore) -> None:
    for name in ("..", "a/b", ""):
        with pytest.raises(ClumsiesError):
            store.path(name)
