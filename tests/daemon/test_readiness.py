"""Broken and unready states, made for real: what is derived comes back, what is durable stays."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from clumsies.engine.index import DATABASE_NAME
from clumsies.errors import IoFailed, NotReady, StoreFailed
from clumsies.storage.project_storage import LOCAL_AUTHORITY, ProjectStorage
from tests.daemon.resident import Project, Resident, launch_resident
from tests.daemon.running import LONG_S, wait_for

FILES = {"heron.md": "# Heron\n\nThe heron nests at the mill.\n"}
QUESTION = "where does the heron nest?"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Resident]:
    running = Resident(tmp_path / "r")
    yield running
    running.end()


@pytest.fixture
def project(own: Resident, tmp_path: Path) -> Project:
    made = own.project(tmp_path / "w", FILES)
    assert "mill" in made.texts(QUESTION)
    return made


def cache_of(own: Resident, project: Project) -> tuple[Path, Path]:
    """The directories of the project's generations and of its search index."""
    place = ProjectStorage(own.places.root / "cache").location(LOCAL_AUTHORITY, project.project_id)
    return place.generations, place.search


def installed(own: Resident, project: Project) -> Path:
    commit_id = project.call("memory_cache")["commit_id"]
    return cache_of(own, project)[0] / str(commit_id)


def damaged(path: Path) -> None:
    """Overwrite the middle of a file, as a bad disk would."""
    data = bytearray(path.read_bytes())
    start = min(4096, len(data) // 4)
    data[start:-1] = b"\x5a" * (len(data) - start - 1)
    path.write_bytes(data)


def without_manifest(generation: Path) -> None:
    (generation / "manifest.json").unlink()


def with_torn_marker(generation: Path) -> None:
    for marker in generation.iterdir():
        if marker.is_file() and marker.name != "manifest.json":
            marker.write_bytes(marker.read_bytes()[:20])


@pytest.mark.parametrize("harm", [shutil.rmtree, without_manifest, with_torn_marker])
def test_a_harmed_generation_is_restored_by_its_first_reader(
    own: Resident, project: Project, harm: Callable[[Path], None]
) -> None:
    harm(installed(own, project))
    assert project.call("memory_cache")["state"] in ("generation_missing", "generation_corrupt")
    assert "mill" in project.texts(QUESTION)
    assert project.call("memory_cache")["state"] == "ready"
    assert project.contents() == FILES
    assert "generation_restored" in own.logs()


def test_a_changed_file_of_a_generation_is_restored_at_the_next_start(
    own: Resident, project: Project
) -> None:
    [text] = installed(own, project).rglob("heron.md")
    text.write_text("# Somebody edited the cache\n")
    assert project.call("memory_cache")["state"] == "generation_corrupt"
    assert project.contents() == FILES
    own.end()
    again = Resident(own.places.root.parent)
    try:
        same = Project(again.client(), project.project_id)
        wait_for(lambda: same.call("memory_cache")["state"] == "ready", "restored")
    finally:
        again.end()


def test_many_readers_of_a_lost_cache_all_get_their_answer(own: Resident, project: Project) -> None:
    shutil.rmtree(own.places.root / "cache")
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            assert "mill" in project.texts(QUESTION)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_an_index_damaged_while_it_is_open_is_built_anew(own: Resident, project: Project) -> None:
    damaged(cache_of(own, project)[1] / DATABASE_NAME)
    project.create("owl.md", "# Owl\n\nThe owl sleeps in the barn.\n")
    assert "barn" in project.texts("where does the owl sleep?")
    assert "mill" in project.texts(QUESTION)


def test_an_index_damaged_while_the_daemon_is_down_is_built_anew(
    own: Resident, project: Project
) -> None:
    place = cache_of(own, project)[1] / DATABASE_NAME
    own.end()
    damaged(place)
    again = Resident(own.places.root.parent)
    try:
        same = Project(again.client(), project.project_id)
        assert "mill" in same.texts(QUESTION)
        assert "index_discarded" in again.logs()
    finally:
        assert again.end() == 0


def test_something_else_in_the_place_of_the_index_is_named(own: Resident, project: Project) -> None:
    place = cache_of(own, project)[1]
    shutil.rmtree(place)
    place.write_text("mine")
    for _ in range(2):
        with pytest.raises(IoFailed) as caught:
            project.activate(QUESTION)
        assert str(place) in caught.value.message
    assert place.read_text() == "mine"
    assert project.contents() == FILES
    place.unlink()
    assert "mill" in project.texts(QUESTION)


def test_an_index_of_another_profile_is_built_anew(own: Resident, project: Project) -> None:
    """What the index was built with is in its head: hash equal, models not."""
    import apsw

    place = cache_of(own, project)[1] / DATABASE_NAME
    own.end()
    connection = apsw.Connection(str(place))
    connection.execute("UPDATE head SET embedding_revision = 'another', profile = 'another'")
    connection.close()
    again = Resident(own.places.root.parent)
    try:
        assert "mill" in Project(again.client(), project.project_id).texts(QUESTION)
    finally:
        assert again.end() == 0


def test_a_rebuild_while_queries_run(own: Resident, project: Project) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []
    answers: list[str] = []

    def ask() -> None:
        while not stop.is_set():
            try:
                answers.append(project.texts(QUESTION))
            except NotReady as error:
                if error.code != "search_index_preparing":
                    failures.append(error)
            except BaseException as error:
                failures.append(error)

    def enough(wanted: int) -> bool:
        return len(answers) >= wanted or bool(failures)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        wanted = len(answers) + 3
        assert project.call("rebuild_search_index")["project_id"] == project.project_id
        wait_for(partial(enough, wanted), "answers after the rebuild")
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all("mill" in answer for answer in answers)
    wait_for(lambda: project.call("search_index_status")["ready"], "the index is ready")


def test_a_damaged_database_is_named_and_left_as_it_is(own: Resident, project: Project) -> None:
    own.end()
    database = own.places.root / "local.db"
    damaged(database)
    harmed = database.read_bytes()
    process = launch_resident(own.environment)
    _, said = process.communicate(timeout=LONG_S)
    assert process.returncode == 1
    assert str(database) in said
    assert "(local_db_error)" in said
    assert database.read_bytes() == harmed
    assert not own.places.socket.exists()


def test_a_start_that_is_refused_says_why(own: Resident, project: Project) -> None:
    """What a client that starts the daemon tells its user, at once."""
    own.end()
    damaged(own.places.root / "local.db")
    run = subprocess.run(
        [sys.executable, "-P", "-m", "clumsies", "projects"],
        env=own.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LONG_S,
    )
    assert run.returncode == 1
    assert "local.db is damaged" in run.stderr
    assert "(local_db_error)" in run.stderr


def test_missing_models_are_told_at_once_and_stop_nothing_else(tmp_path: Path) -> None:
    """A hub that refuses connections: search says what lacks, memory works."""
    own = Resident(
        tmp_path / "r", CLUMSIES_MODEL_PROFILE="multilingual", HF_ENDPOINT="http://127.0.0.1:9"
    )
    try:
        project = own.project(tmp_path / "w", FILES)
        with pytest.raises(NotReady) as caught:
            project.activate(QUESTION)
        assert caught.value.code in ("search_model_unavailable", "search_model_preparing")
        assert caught.value.details["downloaded_bytes"] == 0
        assert caught.value.details["total_bytes"]
        project.create("owl.md", "# Owl\n")
        assert project.load("owl.md")[0]["content"] == "# Owl\n"
        status = project.call("search_index_status")
        assert status["ready"] is False
        assert status["model_status"] in ("missing", "preparing", "failed")
    finally:
        assert own.end() == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(place)]
    try:
        made = subprocess.run(options, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        made = False
    if not made:
        pytest.skip("a file system of its own takes the right to mount one")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_is_said_and_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    """Everything durable is on the small disk; index and logs have another."""
    places = {
        "CLUMSIES_DAEMON_ROOT": str(small_disk / "root"),
        "CLUMSIES_LOG_DIR": str(tmp_path / "logs"),
    }
    own = Resident(tmp_path / "r", **places)
    project = own.project(tmp_path / "w", FILES)
    acknowledged = ["heron.md"]

    def fill() -> None:
        for number in range(100):
            project.create(f"n{number}.md", f"# N{number}\n" + "x" * 200_000)
            acknowledged.append(f"n{number}.md")

    with pytest.raises((IoFailed, StoreFailed)) as caught:
        fill()
    assert caught.value.code == "insufficient_space"
    assert len(acknowledged) > 1
    assert set(project.contents()) == set(acknowledged)
    own.end(signal.SIGKILL)
    subprocess.run(["mount", "-o", "remount,size=32m", str(small_disk)], check=True)
    again = Resident(tmp_path / "r", **places)
    try:
        same = Project(again.client(), project.project_id)
        assert set(same.contents()) == set(acknowledged)
        same.create("room.md", "# Room\n")
    finally:
        assert again.end() == 0


def test_a_stop_does_not_wait_for_a_long_build(own: Resident, tmp_path: Path) -> None:
    """What is embedded is kept; the daemon ends in time with status 0, and goes on later."""
    words = [" ".join(f"w{n}x{k}" for k in range(60)) for n in range(400)]
    project = own.project(
        tmp_path / "w", {f"n{n}.md": f"# N{n}\n\n{words[n]}\n" for n in range(400)}
    )
    wait_for(
        lambda: project.call("search_index_status").get("build_state") == "building", "a build"
    )
    time.sleep(0.2)
    assert own.end() == 0
    assert "internal_error" not in own.logs()
