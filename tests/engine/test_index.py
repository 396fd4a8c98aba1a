"""Revisions: a build changes what differs, loses nothing, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from clumsies.engine import commit
from clumsies.engine.index import DATABASE_NAME, LINEAGE_LENGTH
from clumsies.engine.pipeline import Engine
from clumsies.engine.plan import Progress
from clumsies.errors import (
    ClumsiesError,
    IndexFailed,
    InvalidRequest,
    IoFailed,
    ModelFailed,
    NotFound,
    NotReady,
)
from clumsies.storage.database import all_rows, connect, only_row
from clumsies.types import Resource, ResourceId
from tests.engine.contents import contents, count, ranked
from tests.engine.fake_models import ArithmeticModels, arithmetic_profile, open_engine

FILLER = "the parcel waits at the depot until its courier comes " * 30


def mark(number: int) -> str:
    """A word that shares no part with that of another number."""
    return "q" + "".join("bcdfghjklm"[int(digit)] for digit in str(number))


def resource(number: int, content: str | None = None, path: str | None = None) -> Resource:
    body = content if content is not None else f"# Note {number}\n\n{mark(number)} and more."
    return Resource(ResourceId(f"r{number}"), path or f"notes/{number}.md", body)


def sectioned(*marks: str) -> str:
    """A body with one unit a mark."""
    return "\n\n".join(f"# Section {i}\n\n{mark} {FILLER}" for i, mark in enumerate(marks))


@pytest.fixture
def engine(tmp_path: Path, models: ArithmeticModels) -> Iterator[Engine]:
    with open_engine(tmp_path / "index", models) as opened:
        yield opened
        assert opened.verify() == []


def found(engine: Engine, query: str) -> list[str]:
    """Keys of the units that hold a word of the query."""
    trace = engine.activate(query).trace
    return [c.unit_key for c in trace.candidates if c.bm25_rank is not None]


def unit_rows(tmp_path: Path) -> dict[str, int]:
    connection = connect(tmp_path / "index" / DATABASE_NAME)
    rows = dict(all_rows(connection, "SELECT unit_key, unit_rowid FROM units"))
    connection.close()
    return rows


def test_a_first_build(tmp_path: Path, engine: Engine, models: ArithmeticModels) -> None:
    seen: list[Progress] = []
    report = engine.index([resource(i) for i in range(5)], progress=seen.append)
    assert (report.resources, report.units, report.units_added) == (5, 5, 5)
    assert (report.resources_changed, report.passages_embedded, report.inputs_cut) == (5, 5, 0)
    head = engine.head()
    assert head is not None
    assert (head.sequence, head.revision, head.unit_count) == (1, report.revision, 5)
    assert models.embedder.embedded == 5
    assert [p.stage for p in seen if p.done == p.total] == ["splitting", "embedding", "writing"]
    assert [p.done for p in seen if p.stage == "reading"] == [1, 2, 3, 4, 5]
    assert found(engine, mark(3)) == ["r3/root/0/0"]


def test_the_same_memory_again_is_no_new_revision(engine: Engine, models: ArithmeticModels) -> None:
    resources = [resource(i) for i in range(3)]
    first = engine.index(resources)
    again = engine.index(reversed(resources))
    head = engine.head()
    assert head is not None
    assert (again.revision, head.sequence) == (first.revision, 1)
    assert (again.resources_changed, again.units_added, again.passages_embedded) == (0, 0, 0)
    assert (again.resources, again.units) == (3, 3)


def test_one_changed_section_is_all_that_is_embedded_and_rewritten(
    tmp_path: Path, engine: Engine, models: ArithmeticModels
) -> None:
    engine.index([resource(1, sectioned("alpha", "beta", "gamma")), resource(2)])
    before, embedded = unit_rows(tmp_path), models.embedder.embedded
    report = engine.index([resource(1, sectioned("alpha", "delta", "gamma")), resource(2)])
    after = unit_rows(tmp_path)
    assert (report.units_added, report.units_removed, report.passages_embedded) == (1, 1, 1)
    assert models.embedder.embedded == embedded + 1
    changed = {key for key in before if before[key] != after[key]}
    assert changed == {"r1/section-1/0/0"}
    assert after["r1/section-1/0/0"] > max(before.values())
    assert found(engine, "beta") == []
    assert found(engine, "delta") == ["r1/section-1/0/0"]


def test_an_inserted_section_moves_the_others_without_rewriting_them(
    tmp_path: Path, engine: Engine
) -> None:
    engine.index([resource(1, sectioned("alpha", "beta"))])
    before = unit_rows(tmp_path)
    inserted = f"\n\n# New\n\ninserted {FILLER}\n\n# Section 1"
    body = sectioned("alpha", "beta").replace("\n\n# Section 1", inserted)
    report = engine.update([resource(1, body)])
    after = unit_rows(tmp_path)
    assert (report.units_added, report.units_removed) == (1, 0)
    assert {key: after[key] for key in before} == before
    (candidate,) = (
        c for c in engine.activate("beta").trace.candidates if c.unit_key == "r1/section-1/0/0"
    )
    assert body.encode()[candidate.locator.start : candidate.locator.end].decode() == candidate.text


def test_shortened_text_is_gone(engine: Engine, tmp_path: Path) -> None:
    engine.index([resource(1, sectioned("alpha", "beta")), resource(2)])
    engine.update([resource(1, "short")])
    assert found(engine, "alpha") == found(engine, "courier") == []
    keys = {c.unit_key for c in engine.activate("courier depot parcel").trace.candidates}
    assert keys == {"r1/root/0/0", "r2/root/0/0"}
    assert (
        count(tmp_path / "index", "units") == count(tmp_path / "index", "unit_terms_docsize") == 2
    )


def test_a_deleted_resource_is_gone_by_words_by_vector_and_by_name(engine: Engine) -> None:
    engine.index([resource(1), resource(2)])
    assert found(engine, mark(1))
    report = engine.update(removed=["r1", "nobody"])
    assert (report.resources_removed, report.units_removed, report.resources) == (1, 1, 1)
    for query in (mark(1), "r1", "notes/1.md", "Note 1"):
        assert "r1" not in {c.resource_id for c in engine.activate(query).trace.candidates}
    with pytest.raises(NotFound):
        engine.load(["r1"])


def test_a_renamed_resource_is_found_by_its_new_path_alone(engine: Engine) -> None:
    engine.index([resource(1), resource(2)])
    engine.update([resource(1, path="elsewhere/moved.md")])
    assert found(engine, "elsewhere") == ["r1/root/0/0"]
    (first, *_) = engine.activate("elsewhere/moved.md").trace.candidates
    assert (first.resource_id, first.identity) == ("r1", "equal")
    assert engine.activate("notes/1.md").trace.candidates[0].identity != "equal"
    assert engine.load(["elsewhere/moved.md"])[0].resource_id == "r1"
    with pytest.raises(NotFound):
        engine.load(["notes/1.md"])


def test_ids_and_paths_may_change_hands(engine: Engine, tmp_path: Path) -> None:
    """Deleted and added again, and two resources that swap their paths: nothing is mixed up."""
    engine.index([resource(1), resource(2)])
    engine.update(removed=["r1"])
    engine.update([resource(1, "# Other\n\nnewword")])
    assert found(engine, mark(1)) == []
    assert found(engine, "newword") == ["r1/root/0/0"]
    engine.index([resource(1, path="notes/2.md"), resource(2, path="notes/1.md")])
    assert {r.path: r.resource_id for r in engine.load(["r1", "r2"])} == {
        "notes/2.md": "r1",
        "notes/1.md": "r2",
    }


def test_the_same_text_at_three_paths(engine: Engine, tmp_path: Path) -> None:
    engine.index([resource(i, "# Same\n\nzebra") for i in (1, 2, 3)])
    assert sorted(found(engine, "zebra")) == [f"r{i}/root/0/0" for i in (1, 2, 3)]
    engine.update(removed=["r2"])
    assert sorted(found(engine, "zebra")) == ["r1/root/0/0", "r3/root/0/0"]
    engine.update([resource(1, "# Same\n\nlion")])
    assert found(engine, "zebra") == ["r3/root/0/0"]


def test_one_vector_serves_units_that_read_alike(
    engine: Engine, models: ArithmeticModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "IDLE_VECTOR_LIMIT", 0)
    long = "d/" * 200 + "same.md"
    twins = [resource(1, "zebra", f"a/{long}"), resource(2, "zebra", f"b/{long}")]
    engine.index(twins)
    assert models.embedder.embedded == 1
    engine.update(removed=["r1"])
    assert found(engine, "zebra") == ["r2/root/0/0"]
    engine.update(removed=["r2"])
    engine.index(twins)
    assert sorted(found(engine, "zebra")) == ["r1/root/0/0", "r2/root/0/0"]


def test_an_edit_undone_embeds_nothing(engine: Engine) -> None:
    engine.index([resource(1)])
    engine.update([resource(1, "# Note 1\n\nchanged")])
    assert engine.update([resource(1)]).passages_embedded == 0


def test_a_description_and_labels_change_alone(engine: Engine, tmp_path: Path) -> None:
    engine.index([resource(1), resource(2)])
    rows = unit_rows(tmp_path)
    described = replace(resource(1), description="about zebras")
    assert engine.update([described]).units_added == 1
    assert found(engine, "zebra") == ["r1/description"]
    report = engine.update([replace(described, kind="rule", scope="user", draft_id="d")])
    assert (report.units_added, report.units_removed) == (0, 0)
    assert {key: row for key, row in unit_rows(tmp_path).items() if key in rows} == rows
    candidate = engine.activate("zebra").trace.candidates[0]
    assert (candidate.kind, candidate.scope) == ("rule", "user")
    engine.update([resource(1)])
    assert found(engine, "zebra") == []


def test_a_changed_title_is_searched_in_every_unit(engine: Engine) -> None:
    engine.index([resource(1, sectioned("alpha", "beta"))])
    engine.update([resource(1, "# Giraffe\n\nintro\n\n" + sectioned("alpha", "beta"))])
    assert "r1/section-1/0/0" in found(engine, "giraffe")


def test_an_empty_memory(engine: Engine, tmp_path: Path) -> None:
    assert engine.index([]).units == 0
    assert engine.activate("anything").response.fragments == ()
    engine.index([resource(1), resource(2, "")])
    assert engine.load(["r2"])[0].content == ""
    assert engine.index([]).units_removed == 1
    assert engine.activate(mark(1)).trace.candidates == []
    assert count(tmp_path / "index", "unit_terms_docsize") == 0


def test_500_edits_of_one_note_do_not_grow_the_index(
    engine: Engine, tmp_path: Path, models: ArithmeticModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "IDLE_VECTOR_LIMIT", 10)
    engine.index([resource(1, sectioned("alpha", mark(0))), resource(2)])
    pages: list[int] = []
    for edit in range(1, 501):
        engine.update([resource(1, sectioned("alpha", mark(edit)))])
        if edit in (100, 500):
            pages.append(sum(1 for _ in range(0, size_bytes(tmp_path), 4096)))
    assert models.embedder.embedded == 3 + 500
    assert (
        count(tmp_path / "index", "units") == count(tmp_path / "index", "unit_terms_docsize") == 3
    )
    assert count(tmp_path / "index", "vectors") <= 3 + 10
    assert count(tmp_path / "index", "lineage") == LINEAGE_LENGTH
    assert pages[1] <= 1.25 * pages[0]
    assert found(engine, mark(499)) == found(engine, mark(0)) == []
    assert found(engine, mark(500)) == ["r1/section-1/0/0"]
    with open_engine(tmp_path / "scratch", models) as scratch:
        scratch.index([resource(1, sectioned("alpha", mark(500))), resource(2)])
        assert ranked(scratch.activate(mark(500))) == ranked(engine.activate(mark(500)))
    assert contents(tmp_path / "index") == contents(tmp_path / "scratch")


def size_bytes(tmp_path: Path) -> int:
    connection = connect(tmp_path / "index" / DATABASE_NAME)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return (tmp_path / "index" / DATABASE_NAME).stat().st_size


def test_idle_vectors_go_least_recently_used_first(
    engine: Engine, tmp_path: Path, models: ArithmeticModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "IDLE_VECTOR_LIMIT", 2)
    texts = [f"text number {i}" for i in range(4)]
    for text in texts:
        engine.index([resource(1, text)])
    assert count(tmp_path / "index", "vectors") == 3
    assert count(tmp_path / "index", "token_vectors") == 3
    assert engine.index([resource(1, texts[1])]).passages_embedded == 0
    assert engine.index([resource(1, texts[0])]).passages_embedded == 1


def test_token_vectors_stay_within_their_bound(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "TOKEN_VECTOR_BYTES", 30_000)
    engine.index([resource(i, f"{mark(i)} {FILLER}") for i in range(8)])
    connection = connect(tmp_path / "index" / DATABASE_NAME)
    sizes = all_rows(connection, "SELECT length(data) FROM token_vectors")
    plan = all_rows(
        connection,
        "EXPLAIN QUERY PLAN SELECT vector_id, length(data) FROM token_vectors "
        "INDEXED BY token_vectors_by_size ORDER BY vector_id DESC",
    )
    connection.close()
    assert 20_000 < sum(size for (size,) in sizes) <= 30_000
    assert "COVERING INDEX" in plan[0][3]
    assert found(engine, mark(3)) == ["r3/root/0/0"]


def test_a_failing_source_leaves_the_old_revision(engine: Engine, tmp_path: Path) -> None:
    engine.index([resource(1)])
    before = contents(tmp_path / "index")

    def broken() -> Iterator[Resource]:
        yield resource(2)
        raise OSError("the disk went away")

    def refuses(progress: Progress) -> None:
        if progress.stage == "writing":
            raise KeyboardInterrupt

    with pytest.raises(OSError, match="went away"):
        engine.index(broken())
    with pytest.raises(KeyboardInterrupt):
        engine.index([resource(3)], progress=refuses)
    assert contents(tmp_path / "index") == before
    assert engine.index([resource(3)]).units == 1


@pytest.mark.parametrize("fault", ["id", "path", "content", "description"])
def test_text_that_is_no_text_is_refused_by_name(engine: Engine, fault: str) -> None:
    engine.index([resource(1)])
    broken = {
        "id": replace(resource(2), resource_id=ResourceId("r\udcff")),
        "path": replace(resource(2), path="notes/\udcff.md"),
        "content": replace(resource(2), content="\ud800"),
        "description": replace(resource(2), description="\udfff"),
    }[fault]
    for build in (engine.index, engine.update):
        with pytest.raises(InvalidRequest) as caught:
            build([broken])
        assert caught.value.code == "invalid_request"
        caught.value.message.encode("utf-8")
    assert found(engine, mark(1)) == ["r1/root/0/0"]


def test_ambiguous_requests_are_refused(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match="r1"):
        engine.index([resource(1), resource(1, "other")])
    with pytest.raises(InvalidRequest, match="r1"):
        engine.update([resource(1)], removed=["r1"])
    assert engine.head() is None


def test_before_the_first_build(engine: Engine) -> None:
    with pytest.raises(NotReady) as caught:
        engine.activate("anything")
    assert caught.value.code == "search_index_not_ready"
    assert "index the resources" in caught.value.message


@pytest.mark.parametrize(
    "other",
    [
        arithmetic_profile("newer", revision="2"),
        arithmetic_profile("smaller", dimensions=16),
    ],
)
def test_another_profile_names_what_helps_and_rebuilds(
    tmp_path: Path, engine: Engine, models: ArithmeticModels, other: object
) -> None:
    resources = [resource(i) for i in range(4)]
    engine.index(resources)
    engine.activate(mark(1))
    changed = ArithmeticModels(other)  # type: ignore[arg-type]
    with open_engine(tmp_path / "index", changed) as second:
        attempts: list[Callable[[], object]] = [
            lambda: second.activate(mark(1)),
            lambda: second.update([resource(9)]),
        ]
        for attempt in attempts:
            with pytest.raises(NotReady) as caught:
                attempt()
            assert caught.value.code == "search_index_not_ready"
            assert "again" in caught.value.message
        second.warm()
        assert second.load(["r1"])[0].content is not None
        report = second.index(resources)
        assert (report.passages_embedded, report.units) == (4, 4)
        assert found(second, mark(1)) == ["r1/root/0/0"]
        with pytest.raises(NotReady):
            engine.activate(mark(1))
        assert second.verify() == []
    engine.index(resources)
    assert found(engine, mark(1)) == ["r1/root/0/0"]
    changed.close()


def test_rows_of_other_rules_are_not_believed(
    tmp_path: Path, engine: Engine, models: ArithmeticModels
) -> None:
    resources = [resource(i) for i in range(3)]
    engine.index(resources)
    connection = connect(tmp_path / "index" / DATABASE_NAME)
    connection.execute("UPDATE head SET rules = 'older rules'")
    connection.execute("UPDATE units SET text = 'as older rules had it' WHERE unit_rowid = 1")
    connection.close()
    with pytest.raises(NotReady):
        engine.activate(mark(1))
    report = engine.index(resources)
    assert (report.units_added, report.passages_embedded) == (3, 0)
    with open_engine(tmp_path / "scratch", models) as scratch:
        scratch.index(resources)
    assert contents(tmp_path / "index") == contents(tmp_path / "scratch")


def overwritten(path: Path, start: int, data: bytes) -> None:
    body = bytearray(path.read_bytes())
    body[start : start + len(data)] = data
    path.write_bytes(body)


def foreign_database(path: Path, schema: str) -> None:
    path.unlink(missing_ok=True)
    connection = connect(path)
    connection.execute(schema)
    connection.close()


FAULTS: dict[str, Callable[[Path], object]] = {
    "text": lambda p: p.write_text("this is no database " * 500),
    "short": lambda p: p.write_bytes(p.read_bytes()[:5_000]),
    "half": lambda p: p.write_bytes(p.read_bytes()[: p.stat().st_size // 2]),
    "header": lambda p: overwritten(p, 0, b"\0" * 100),
    "schema": lambda p: overwritten(p, 100, b"\xff" * 3_000),
    "pages": lambda p: overwritten(p, 4_096, b"\xa5" * (p.stat().st_size - 8_192)),
    "another program": lambda p: foreign_database(p, "CREATE TABLE songs(name)"),
    "another meta": lambda p: foreign_database(p, "CREATE TABLE meta(k, v)"),
    "newer layout": lambda p: foreign_database(
        p, "CREATE TABLE meta(key, value); INSERT INTO meta VALUES ('layout', '99')"
    ),
    "half a schema": lambda p: foreign_database(
        p, "CREATE TABLE meta(key, value); INSERT INTO meta VALUES ('layout', '1')"
    ),
}


def use_whole(directory: Path, models: ArithmeticModels) -> None:
    """Read and write every row of an index."""
    with open_engine(directory, models) as engine:
        engine.activate(mark(1))
        engine.index([resource(i, "new text") for i in range(20)])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_damaged_index_says_so_and_can_be_discarded(
    tmp_path: Path, models: ArithmeticModels, fault: str
) -> None:
    directory = tmp_path / "index"
    with open_engine(directory, models) as engine:
        engine.index([resource(i) for i in range(20)])
    size_bytes(tmp_path)
    FAULTS[fault](directory / DATABASE_NAME)
    with pytest.raises(IndexFailed) as caught:
        use_whole(directory, models)
    assert caught.value.code == "search_index_corrupt"
    assert "delete it and index again" in caught.value.message
    Engine.discard(directory)
    with open_engine(directory, models) as engine:
        engine.index([resource(i) for i in range(20)])
        assert found(engine, mark(7)) == ["r7/root/0/0"]
        assert engine.verify() == []


def test_a_stored_vector_of_a_wrong_size_is_named(tmp_path: Path, models: ArithmeticModels) -> None:
    with open_engine(tmp_path / "index", models) as engine:
        engine.index([resource(i) for i in range(3)])
        connection = connect(tmp_path / "index" / DATABASE_NAME)
        connection.execute("UPDATE vectors SET vector = x'00' WHERE vector_id = 2")
        connection.close()
        with pytest.raises(ModelFailed) as caught:
            engine.activate(mark(1))
        assert caught.value.code == "search_vector_corrupt"


def test_an_empty_file_is_a_new_index(tmp_path: Path, models: ArithmeticModels) -> None:
    (tmp_path / DATABASE_NAME).touch()
    with open_engine(tmp_path, models) as engine:
        assert engine.head() is None
        assert engine.index([resource(1)]).units == 1


def test_something_else_in_the_place_of_the_index(tmp_path: Path, models: ArithmeticModels) -> None:
    (tmp_path / "index" / DATABASE_NAME).mkdir(parents=True)
    with pytest.raises(ClumsiesError) as caught:
        open_engine(tmp_path / "index", models)
    assert caught.value.code == "io_error"
    (tmp_path / "file").touch()
    with pytest.raises(IoFailed):
        open_engine(tmp_path / "file", models)


def test_a_full_disk_leaves_the_old_revision(
    tmp_path: Path, engine: Engine, models: ArithmeticModels
) -> None:
    engine.index([resource(1)])
    before = contents(tmp_path / "index")
    with engine._store.writer() as connection:
        (pages,) = only_row(connection, "PRAGMA page_count")
    engine._store._writer.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(IoFailed) as caught:
        engine.index([resource(i, f"w{i} {FILLER}") for i in range(50)])
    assert caught.value.code == "insufficient_space"
    assert contents(tmp_path / "index") == before
    engine._store._writer.execute("PRAGMA max_page_count = 1000000")
    assert engine.index([resource(i, f"w{i} {FILLER}") for i in range(50)]).units == 50


def test_verify_sees_terms_that_drifted_away(tmp_path: Path, models: ArithmeticModels) -> None:
    with open_engine(tmp_path / "index", models) as engine:
        engine.index([resource(i) for i in range(3)])
        assert engine.verify() == []
        connection = connect(tmp_path / "index" / DATABASE_NAME)
        connection.execute("DELETE FROM unit_terms WHERE rowid = 2")
        assert engine.verify() == ["1 units without terms, 0 terms without unit"]
        connection.execute("INSERT INTO unit_terms(rowid, body) VALUES (2, 'x'), (77, 'y')")
        assert engine.verify() == ["0 units without terms, 1 terms without unit"]
        connection.close()
