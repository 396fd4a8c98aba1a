"""The neighbour graph inside an engine: built beside the queries, saved, never believed blindly."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clumsies.engine.live_vectors import GRAPH_NAME
from clumsies.engine.pipeline import Engine
from clumsies.types import Resource, ResourceId
from tests.engine.contents import ranked
from tests.engine.fake_models import ArithmeticModels, open_engine

COUNT = 1_500
THRESHOLD = 400
WORDS = [
    "courier",
    "depot",
    "parcel",
    "manifest",
    "tour",
    "label",
    "printer",
    "invoice",
    "backup",
    "release",
    "rollback",
]
QUERIES = ["courier at the depot", "print a label", "roll back the release", "n/77.md"]


def resources(count: int = COUNT, start: int = 0) -> list[Resource]:
    return [
        Resource(
            ResourceId(f"r{i}"),
            f"n/{i}.md",
            " ".join(WORDS[(i * k + k) % len(WORDS)] for k in range(1, 7)) + f" {i}",
        )
        for i in range(start, start + count)
    ]


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not happen within 30 s")


def idle(engine: Engine) -> bool:
    return engine._gardener is not None and not engine._gardener.is_alive()


def uses_graph(engine: Engine) -> bool:
    return engine._vectors._index.snapshot.approximate


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index with its graph file."""
    directory = tmp_path_factory.mktemp("graph") / "index"
    models = ArithmeticModels()
    with open_engine(directory, models, THRESHOLD) as engine:
        engine.index(resources())
        engine.activate("courier")
        wait_until(lambda: (directory / GRAPH_NAME).exists() and idle(engine))
        assert uses_graph(engine)
    models.close()
    return directory


@pytest.fixture
def directory(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "index")
    return tmp_path / "index"


def exact_answers(directory: Path, models: ArithmeticModels) -> list[object]:
    with open_engine(directory, models, ann_threshold=10**9) as engine:
        return [ranked(engine.activate(query)) for query in QUERIES]


def test_a_saved_graph_serves_the_next_process(directory: Path, models: ArithmeticModels) -> None:
    saved = (directory / GRAPH_NAME).read_bytes()
    with open_engine(directory, models, THRESHOLD) as engine:
        answers = [ranked(engine.activate(query)) for query in QUERIES]
        assert uses_graph(engine)
    assert answers == exact_answers(directory, models)
    assert (directory / GRAPH_NAME).read_bytes() == saved


def other_graph(path: Path, models: ArithmeticModels) -> None:
    """The graph of an index of the same texts that is not this one."""
    other = path.parent.parent / "other"
    with open_engine(other, models, THRESHOLD) as engine:
        engine.index(resources()[::-1])
        engine.activate("courier")
        wait_until((other / GRAPH_NAME).exists)
    shutil.copy(other / GRAPH_NAME, path)


FAULTS: dict[str, Callable[[Path, ArithmeticModels], object]] = {
    "missing": lambda path, _: path.unlink(),
    "empty": lambda path, _: path.write_bytes(b""),
    "torn": lambda path, _: path.write_bytes(path.read_bytes()[:-5_000]),
    "garbage": lambda path, _: path.write_bytes(b"\xa5" * 90_000),
    "of another index": other_graph,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_graph_file_that_cannot_be_trusted_is_replaced(
    directory: Path, models: ArithmeticModels, fault: str
) -> None:
    path = directory / GRAPH_NAME
    FAULTS[fault](path, models)
    broken = path.read_bytes() if path.exists() else b""
    expected = exact_answers(directory, models)
    with open_engine(directory, models, THRESHOLD) as engine:
        first = engine.activate(QUERIES[0])
        assert ranked(first) == expected[0]
        wait_until(lambda: path.exists() and path.read_bytes() != broken and idle(engine))
        assert [ranked(engine.activate(query)) for query in QUERIES] == expected
        assert uses_graph(engine)
        assert engine.verify() == []
    with open_engine(directory, models, THRESHOLD) as engine:
        assert ranked(engine.activate(QUERIES[0])) == expected[0]
        assert uses_graph(engine)


def test_a_graph_of_an_earlier_revision_gives_no_text_that_is_gone(
    directory: Path, models: ArithmeticModels
) -> None:
    """Some is deleted, some new and some rewritten while no graph was at work."""
    with open_engine(directory, models, ann_threshold=10**9) as engine:
        engine.index([*resources(COUNT - 100, 100), *resources(40, COUNT)])
        rewritten = [
            Resource(ResourceId(f"r{i}"), f"n/{i}.md", f"courier at the depot {i}")
            for i in range(40)
        ]
        engine.update(rewritten)
    expected = exact_answers(directory, models)
    with open_engine(directory, models, THRESHOLD) as engine:
        assert [ranked(engine.activate(query)) for query in QUERIES] == expected
        assert uses_graph(engine)
        assert [ranked(engine.activate(query)) for query in QUERIES] == expected


def test_changes_are_found_at_once_while_the_graph_follows(
    directory: Path, models: ArithmeticModels
) -> None:
    with open_engine(directory, models, THRESHOLD) as engine:
        engine.activate("courier")
        for step in range(5):
            name = ResourceId(f"new{step}")
            engine.update(
                [Resource(name, f"{name}.md", f"xylophone {step} lessons")], removed=[f"r{step}"]
            )
            trace = engine.activate("xylophone lessons").trace
            assert name in {c.resource_id for c in trace.candidates}
            assert f"r{step}" not in {c.resource_id for c in trace.candidates}
        wait_until(lambda: idle(engine))
        answers = [ranked(engine.activate(query)) for query in QUERIES]
    assert answers == exact_answers(directory, models)


def test_closing_ends_a_graph_that_is_being_built(tmp_path: Path, models: ArithmeticModels) -> None:
    engine = open_engine(tmp_path, models, ann_threshold=100)
    engine.index(resources(600))
    engine.activate("courier")
    engine.close()
    assert engine._gardener is not None
    assert not engine._gardener.is_alive()
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def test_two_engines_that_commit_in_turn_both_stay_right(
    tmp_path: Path, models: ArithmeticModels
) -> None:
    """Each follows its own commits in memory and reads the other's back."""
    with open_engine(tmp_path, models) as one, open_engine(tmp_path, models) as two:
        one.index(resources(30))
        for engine in (one, two):
            engine.activate("courier")
        for step in range(8):
            writer, reader = (one, two) if step % 2 else (two, one)
            for part in range(1 + step % 3):
                name = ResourceId(f"s{step}-{part}")
                writer.update([Resource(name, f"{name}.md", f"xylophone {step} {part}")])
            if step % 4:
                assert ranked(reader.activate(QUERIES[0])) == ranked(writer.activate(QUERIES[0]))
        answers = [ranked(one.activate(query)) for query in QUERIES]
        assert answers == [ranked(two.activate(query)) for query in QUERIES]
    assert answers == exact_answers(tmp_path, models)


def test_an_engine_follows_what_another_commits(directory: Path, models: ArithmeticModels) -> None:
    with (
        open_engine(directory, models, THRESHOLD) as reader,
        open_engine(directory, models, THRESHOLD) as writer,
    ):
        reader.activate("courier")
        for step in range(12):
            writer.update(
                [Resource(ResourceId("w"), "w.md", f"xylophone {step}")], removed=[f"r{step}"]
            )
            if step % 3 == 2:
                (first, *rest) = reader.activate("xylophone").trace.candidates
                assert (first.resource_id, first.text) == ("w", f"xylophone {step}")
                assert "w" not in {c.resource_id for c in rest}
        answers = [ranked(reader.activate(query)) for query in QUERIES]
    assert answers == exact_answers(directory, models)
