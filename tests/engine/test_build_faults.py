"""Builders that die anywhere, and builders at once: the next build is right, nothing is lost."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clumsies.engine import build
from clumsies.engine.index import LOCK_NAME
from clumsies.errors import NotReady
from clumsies.files import FileLock
from clumsies.types import Resource, ResourceId
from tests.engine.build_child import DIED, POINTS, memory
from tests.engine.contents import Contents, contents, ranked
from tests.engine.fake_models import ArithmeticModels, open_engine

QUERIES = ["original words", "changed words", "notes/same-7.md", "Note 5"]


def run_child(*arguments: str) -> list[int]:
    """Exit codes of the children that the child process forked."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.build_child", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parents[2],
        check=True,
    )
    return [int(code) for code in done.stdout.split()]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Contents]:
    """What an index of each version consists of."""
    found: dict[str, Contents] = {}
    models = ArithmeticModels()
    for version in ("original", "changed"):
        directory = tmp_path_factory.mktemp(version)
        with open_engine(directory, models) as engine:
            engine.index(memory(version))
        found[version] = contents(directory)
    models.close()
    return found


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By point: an index of `original` whose next build, to `changed`, died there."""
    root = tmp_path_factory.mktemp("crashed")
    models = ArithmeticModels()
    with open_engine(root / "first", models) as engine:
        engine.index(memory("original"))
    models.close()
    places = {point: root / point for point in POINTS}
    for place in places.values():
        shutil.copytree(root / "first", place)
    codes = run_child("crash", *(f"{point}={place}" for point, place in places.items()))
    assert codes == [DIED] * len(POINTS)
    return places


@pytest.mark.parametrize("point", POINTS)
def test_the_build_after_a_crash_is_right(
    crashed: dict[str, Path],
    originals: dict[str, Contents],
    models: ArithmeticModels,
    point: str,
) -> None:
    live = "changed" if point == "committed" else "original"
    with open_engine(crashed[point], models) as engine:
        assert engine.verify() == []
        assert contents(crashed[point]) == originals[live]
        before = [ranked(engine.activate(query)) for query in QUERIES]
        report = engine.index(memory("changed"))
        if point in ("kept", "writing", "removed", "written"):
            assert report.passages_embedded < len(memory("changed"))  # it resumes
        assert engine.verify() == []
        after = [ranked(engine.activate(query)) for query in QUERIES]
    assert contents(crashed[point]) == originals["changed"]
    assert (before == after) == (live == "changed")


def test_a_killed_builder_frees_the_lock_and_its_work_is_resumed(
    tmp_path: Path, originals: dict[str, Contents], models: ArithmeticModels
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.engine.build_child", "kill", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "embedding\n"
        assert not FileLock(tmp_path / LOCK_NAME).try_acquire()
        os.kill(child.pid, signal.SIGKILL)
    with open_engine(tmp_path, models) as engine:
        assert engine.head() is None
        report = engine.index(memory("changed"))
        assert report.passages_embedded <= report.units - 64
        assert engine.verify() == []
    assert contents(tmp_path) == originals["changed"]


def test_builders_at_once_take_turns(tmp_path: Path, models: ArithmeticModels) -> None:
    """Each wants another memory: the last one's stands, whole."""
    assert run_child("race", str(tmp_path / "index"), "4") == [0] * 4
    with open_engine(tmp_path / "index", models) as engine:
        assert engine.verify() == []
        head = engine.head()
        assert head is not None
        assert head.sequence == 4
    found = contents(tmp_path / "index")
    wanted = []
    for number in range(4):
        with open_engine(tmp_path / str(number), models) as engine:
            engine.index(memory("x" * (number + 1), 20))
        wanted.append(contents(tmp_path / str(number)))
    assert found in wanted


def test_updates_at_once_lose_nothing(tmp_path: Path, models: ArithmeticModels) -> None:
    with open_engine(tmp_path, models) as engine:
        engine.index([])
        assert run_child("share", str(tmp_path), "4") == [0] * 4
        head = engine.head()
        assert head is not None
        assert (head.resource_count, head.sequence) == (16, 17)
        names = {c.resource_id for c in engine.activate("text of part").trace.candidates}
        assert names == {f"p{number}-{part}" for number in range(4) for part in range(4)}
        assert engine.verify() == []


def test_two_engines_of_one_process_take_turns_too(
    tmp_path: Path, models: ArithmeticModels
) -> None:
    def work(number: int) -> None:
        with open_engine(tmp_path, models) as engine:
            for part in range(5):
                name = ResourceId(f"p{number}-{part}")
                engine.update([Resource(name, f"{name}.md", f"text of part {number} {part}")])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_engine(tmp_path, models) as engine:
        head = engine.head()
        assert head is not None
        assert head.resource_count == 15
        assert engine.verify() == []


def test_a_builder_that_waits_in_vain_says_so(
    tmp_path: Path, models: ArithmeticModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "BUILD_LOCK_TIMEOUT_S", 0.1)
    with open_engine(tmp_path, models) as engine:
        engine.index(memory("a", 3))
        holder = FileLock(tmp_path / LOCK_NAME)
        assert holder.try_acquire()
        with holder, pytest.raises(NotReady) as caught:
            engine.index(memory("b", 3))
        assert caught.value.code == "search_index_preparing"
        assert engine.activate("a has its own words").trace.candidates
        assert engine.index(memory("b", 3)).resources_changed > 0
