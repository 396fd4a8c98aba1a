"""Imports without a Server: real commits, stable ids, nothing lost on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from clumsies.errors import InvalidRequest, IoFailed, NotFound
from clumsies.memory.local_authority import ImportedText, LocalAuthority
from clumsies.memory.refs import organization_key, project_key, read_ref
from clumsies.storage import generations
from clumsies.storage.generations import MEMORY_FOLDER, GenerationStore
from clumsies.storage.object_store import read_commit, read_payload
from clumsies.storage.payload_checks import Authority, verify_payload
from clumsies.storage.project_storage import LOCAL_AUTHORITY
from tests.memory.local_memory import LocalMemory, create, discard, update

TEXTS = {"a.md": "alpha", "b/c.md": "beta"}


def generation_store(memory: LocalMemory) -> GenerationStore:
    place = memory.storage.location(LOCAL_AUTHORITY, memory.project_id)
    return GenerationStore(place.generations, memory.project_id)


def test_a_new_project_is_empty_and_ready(memory: LocalMemory) -> None:
    assert memory.project == memory.authority.project(memory.project_id)
    assert memory.authority.projects() == [memory.project]
    view = memory.view()
    assert (view.commit_id, dict(view.entries)) == (None, {})
    generation_store(memory).verify_files(None)
    with pytest.raises(NotFound):
        memory.authority.project("proj_other")
    with pytest.raises(NotFound):
        memory.authority.import_resources("proj_other", [])


@pytest.mark.parametrize("name", ["", "  ", "x" * 201, "a\nb"])
def test_a_name_that_cannot_be_shown_is_refused(memory: LocalMemory, name: str) -> None:
    with pytest.raises(InvalidRequest):
        memory.authority.create_project(name)


def test_an_import_makes_genuine_commits_of_both_refs(memory: LocalMemory) -> None:
    first = memory.bring_in(TEXTS)
    assert (first.created, first.updated) == (("a.md", "b/c.md"), ())
    second = memory.bring_in({"a.md": "ALPHA"})
    org_id = memory.project.org_id
    with memory.database.reader() as connection:
        for key, authority in (
            (project_key(memory.project_id), Authority("project", org_id, memory.project_id)),
            (organization_key(org_id), Authority("org", org_id)),
        ):
            ref = read_ref(connection, key)
            assert ref is not None
            assert ref.commit_id is not None
            assert ref.etag == f'"{ref.commit_id}"'
            payload = read_payload(connection, ref.commit_id)
            assert payload is not None
            verify_payload(payload, authority)
            assert payload.commit.version == 2
            parent = read_commit(connection, payload.commit.parent_commit_id or "")
            assert parent is not None
            assert (parent.version, parent.parent_commit_id) == (1, None)
    assert second.commit_id != first.commit_id
    manifest = generation_store(memory).verify_files(second.commit_id)
    assert sorted(m.path for m in manifest.memories.values()) == ["a.md", "b/c.md"]


def test_ids_stay_and_others_stay_unless_asked(memory: LocalMemory) -> None:
    memory.bring_in(TEXTS)
    ids = {path: memory.id_of(path) for path in TEXTS}
    assert all(name.startswith("mem_") for name in ids.values())
    report = memory.bring_in({"a.md": "changed", "n.md": "new"})
    assert (report.created, report.updated, report.removed) == (("n.md",), ("a.md",), ())
    assert {path: memory.id_of(path) for path in TEXTS} == ids
    report = memory.bring_in({"n.md": "new"}, remove_others=True)
    assert (report.unchanged, report.removed) == (("n.md",), ("a.md", "b/c.md"))
    assert memory.contents() == {"n.md": "new"}


def test_without_a_difference_no_commit_is_made(memory: LocalMemory) -> None:
    assert memory.bring_in({}).commit_id is None
    first = memory.bring_in(TEXTS)
    again = memory.bring_in(TEXTS)
    assert again.commit_id == first.commit_id
    assert again.unchanged == ("a.md", "b/c.md")


def test_descriptions(memory: LocalMemory) -> None:
    bring = memory.authority.import_resources
    bring(memory.project_id, [ImportedText("a.md", "one", "told")])
    assert memory.load("a.md").description == "told"
    bring(memory.project_id, [ImportedText("a.md", "two")])
    assert memory.load("a.md").description == "told"
    report = bring(memory.project_id, [ImportedText("a.md", "two", "")])
    assert report.updated == ("a.md",)
    assert memory.load("a.md").description == ""


@pytest.mark.parametrize(
    "texts",
    [
        {"../x.md": "x"},
        {"/etc/x.md": "x"},
        {"..\\x.md": "x"},
        {"x.md": " "},
        {"A.md": "x"},
        {"a.md/b.md": "x"},
        {"n.md": "x", "N.md": "x"},
    ],
)
def test_what_cannot_be_kept_is_refused_as_a_whole(
    memory: LocalMemory, texts: dict[str, str]
) -> None:
    memory.bring_in(TEXTS)
    before = memory.view()
    with pytest.raises(InvalidRequest):
        memory.bring_in({"fine.md": "x", **texts})
    assert memory.view() is before
    folders = sorted(entry.name for entry in generation_store(memory).directory.iterdir())
    assert folders == sorted([str(before.commit_id), "ref-none"])


@pytest.mark.parametrize("known", [False, True])
def test_the_same_path_twice_is_refused(memory: LocalMemory, known: bool) -> None:
    if known:
        memory.bring_in(TEXTS)
    texts = [ImportedText("a.md", "one"), ImportedText("a.md", "two")]
    with pytest.raises(InvalidRequest):
        memory.authority.import_resources(memory.project_id, texts)


def test_a_failed_import_leaves_ref_and_files(
    memory: LocalMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.bring_in(TEXTS)
    before = memory.view()

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(generations, "_flush", no_space)
    with pytest.raises(IoFailed):
        memory.bring_in({"a.md": "changed"})
    monkeypatch.undo()
    assert memory.view() is before
    assert memory.contents() == TEXTS
    memory.bring_in({"a.md": "changed"})
    assert memory.contents()["a.md"] == "changed"


def test_unchanged_files_are_shared_between_generations(memory: LocalMemory) -> None:
    first = memory.bring_in(TEXTS)
    second = memory.bring_in({"a.md": "changed"})
    store = generation_store(memory)
    old, new = (store.path(r.commit_id) / MEMORY_FOLDER for r in (first, second))
    assert (new / "b/c.md").samefile(old / "b/c.md")
    assert not (new / "a.md").samefile(old / "a.md")


def test_generations_that_nothing_needs_are_collected(memory: LocalMemory) -> None:
    first = memory.bring_in(TEXTS)
    second = memory.bring_in({"a.md": "changed"})
    assert set(memory.authority.collect_generations(memory.project_id)) == {
        str(first.commit_id),
        "ref-none",
    }
    assert memory.contents()["a.md"] == "changed"
    generation_store(memory).verify_files(second.commit_id)


def test_a_drafts_base_commit_is_needed(memory: LocalMemory) -> None:
    first = memory.bring_in(TEXTS)
    with memory.database.writer() as connection:  # a draft whose base is a project's commit
        connection.execute(
            "INSERT INTO local_drafts(draft_id, project_id, base_commit_id, resource_scope, "
            "resource_kind, target_id, created_at, updated_at) "
            "VALUES ('draft_x', ?, ?, 'org', 'memory', ?, '', '')",
            (memory.project_id, first.commit_id, memory.id_of("a.md")),
        )
    memory.bring_in({"a.md": "changed"})
    assert memory.authority.collect_generations(memory.project_id) == ["ref-none"]
    memory.store(discard("draft_x"))
    assert memory.authority.collect_generations(memory.project_id) == [str(first.commit_id)]


def test_a_damaged_generation_of_the_same_commit_is_made_anew(
    tmp_path: Path, memory: LocalMemory
) -> None:
    report = memory.bring_in(TEXTS)
    store = generation_store(memory)
    (store.path(report.commit_id) / "commit-payload.json").write_bytes(b"")
    memory.authority.restore_generation(memory.project_id)
    store.verify_files(report.commit_id)
    assert memory.contents() == TEXTS


def test_projects_are_apart(memory: LocalMemory) -> None:
    other = memory.authority.create_project("Courier")
    memory.bring_in({"README.md": "mine"})
    memory.authority.import_resources(other.project_id, [ImportedText("README.md", "theirs")])
    memory.store(create("n.md", "mine"))
    assert memory.contents() == {"README.md": "mine", "n.md": "mine"}
    view = memory.effective.view(other.project_id)
    assert [r.content for r in memory.effective.resources(view)] == ["theirs"]


def test_drafts_learn_how_far_the_ref_went(memory: LocalMemory) -> None:
    memory.bring_in(TEXTS)
    a = memory.store(update(memory.id_of("a.md"), "drafted"), source="cli")
    c = memory.store(update(memory.id_of("b/c.md"), "drafted"), source="cli")
    with memory.database.writer() as connection:
        connection.execute(
            "UPDATE local_drafts SET reconciliation = 'clean', reconciliation_candidate_id = 'k'"
        )
    memory.bring_in({"a.md": "upstream"})
    with memory.database.reader() as connection:
        facts = {
            row[0]: row[1:]
            for row in connection.execute(
                "SELECT draft_id, freshness, has_upstream_resource_changes, reconciliation, "
                "reconciliation_candidate_id FROM local_drafts"
            )
        }
    assert facts == {
        a.draft_id: ("behind", 1, "unknown", None),
        c.draft_id: ("behind", 0, "unknown", None),
    }


def test_a_second_authority_object_sees_the_same(memory: LocalMemory) -> None:
    memory.bring_in(TEXTS)
    again = LocalAuthority(memory.database, memory.storage)
    assert again.projects() == [memory.project]
