"""Preparation against a real server on loopback, real files, real processes.

No test waits for a retry: the pauses are recorded instead of slept.
"""

from __future__ import annotations

import base64
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from clumsies.config import HubSettings
from clumsies.errors import InvalidRequest, IoFailed, ModelFailed, NotReady
from clumsies.files import FileLock
from clumsies.models.manifest import COMPACT, Profile
from clumsies.models.preparation import ModelStore
from clumsies.models.reuse import snapshot_path
from clumsies.models.status import Patience, Progress, TransferFailed, part_of
from tests.models import fault_server as faults
from tests.models.fault_server import FaultServer
from tests.models.tiny_profile import contents, profile_of, url_path

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = url_path("embedder", "onnx/model.onnx")
BODIES = contents()
PROFILE = profile_of(BODIES)
SIZE = len(BODIES["embedder"]["onnx/model.onnx"])
OTHER = contents(seed=2)["embedder"]["onnx/model.onnx"]
PATIENCE = Patience(connect_s=5.0, read_s=5.0)
HASTY = Patience(connect_s=5.0, read_s=0.2)
NOW = 1_700_000_000.0
DEADLINE_S = 60.0
TOKEN = "hf_secretsecretsecret"


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        for role, files in BODIES.items():
            for path, body in files.items():
                running.files[url_path(role, path)] = body
        yield running


class Pauses:
    """A wait that records how long it would have been, and what `look` saw meanwhile."""

    def __init__(self, look: Callable[[], None] = lambda: None):
        self.seconds: list[float] = []
        self._look = look

    def __call__(self, cancel: threading.Event, seconds: float) -> bool:
        self.seconds.append(seconds)
        self._look()
        return cancel.is_set()


def store_at(
    root: Path,
    server: FaultServer | None = None,
    *,
    profile: Profile = PROFILE,
    hub: HubSettings | None = None,
    pauses: Pauses | None = None,
    patience: Patience = PATIENCE,
    **options,
) -> ModelStore:
    if hub is None:
        hub = HubSettings(server.endpoint if server else "http://127.0.0.1:9")
    return ModelStore(
        root,
        profile,
        hub,
        patience=patience,
        wait=pauses or Pauses(),
        wall_clock=lambda: NOW,
        **options,
    )


def model_path(store: ModelStore) -> Path:
    return store.path("embedder", "onnx/model.onnx")


def assert_complete(store: ModelStore) -> None:
    """Every file has its bytes, is private, and nothing else lies about."""
    for artifact in store.profile.artifacts:
        for file in artifact.files:
            path = store.path(artifact.role, file.path)
            assert path.read_bytes() == BODIES[artifact.role][file.path]
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for path in store.root.rglob("*"):
        if path.is_dir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
    leftovers = [p.name for p in store.root.rglob("*") if p.suffix in {".part", ".etag", ".tmp"}]
    assert leftovers == []
    assert not list(store.root.glob("*.failure.json"))
    assert store.verify() == []
    store.require_ready()


def interrupt_at(server: FaultServer, root: Path, count: int) -> None:
    """Leave a part of `count` bytes by a transfer that was cut there."""
    server.plan(MODEL, faults.cut(count))
    with pytest.raises(TransferFailed):
        store_at(root, server).prepare(attempts=1)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


# A server that does right


def test_a_fresh_machine_gets_every_file(tmp_path: Path, server: FaultServer) -> None:
    store = store_at(tmp_path / "models", server)
    assert store.status().state == "missing"

    reached = store.prepare()

    assert (reached.state, reached.downloaded_bytes) == ("ready", PROFILE.total_bytes)
    assert_complete(store)
    assert len(server.requests) == 3


def test_progress_counts_each_file_and_the_whole(tmp_path: Path, server: FaultServer) -> None:
    seen: list[Progress] = []
    store_at(tmp_path, server).prepare(seen.append)

    totals = [each.downloaded_bytes for each in seen]
    assert totals == sorted(totals)
    assert totals[-1] == PROFILE.total_bytes == seen[-1].total_bytes
    for role, files in BODIES.items():
        for path, body in files.items():
            own = [e for e in seen if (e.path, e.file_total) == (path, len(body))]
            assert own[0].file_bytes == 0, role
            assert own[-1].file_bytes == len(body), role


def test_nothing_is_asked_of_the_network_when_everything_verifies(
    tmp_path: Path, server: FaultServer
) -> None:
    store_at(tmp_path, server).prepare()
    asked = len(server.requests)

    again = store_at(tmp_path, server)
    assert again.prepare().state == "ready"
    again.require_ready()

    assert len(server.requests) == asked


def test_a_complete_part_needs_no_request(tmp_path: Path, server: FaultServer) -> None:
    store = store_at(tmp_path, server)
    path = model_path(store)
    path.parent.mkdir(parents=True)
    part_of(path).write_bytes(BODIES["embedder"]["onnx/model.onnx"])

    store.prepare(attempts=1)

    assert server.ranges(MODEL) == []
    assert_complete(store)


# Resuming


def test_a_cut_transfer_goes_on_at_the_same_byte(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, faults.cut(20_000))
    pauses = Pauses()
    store = store_at(tmp_path, server, pauses=pauses)

    assert store.prepare().state == "ready"

    assert server.ranges(MODEL) == [None, "bytes=20000-"]
    assert pauses.seconds == [5.0]
    assert_complete(store)


def test_an_end_that_looks_like_the_end_is_no_end(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, faults.cut_unannounced(20_000))
    store = store_at(tmp_path, server)
    store.prepare()
    assert server.ranges(MODEL) == [None, "bytes=20000-"]
    assert_complete(store)


def test_a_resumed_transfer_names_the_entity_it_began_with(
    tmp_path: Path, server: FaultServer
) -> None:
    interrupt_at(server, tmp_path, 20_000)
    store_at(tmp_path, server).prepare()
    body = BODIES["embedder"]["onnx/model.onnx"]
    assert server.requests[1].headers["if-range"] == faults.etag_of(body)


def test_a_server_without_entity_tags_is_resumed(tmp_path: Path, server: FaultServer) -> None:
    store = store_at(tmp_path, server)
    path = model_path(store)
    path.parent.mkdir(parents=True)
    part_of(path).write_bytes(BODIES["embedder"]["onnx/model.onnx"][:30_000])
    server.plan(MODEL, faults.serve_without_etag)

    store.prepare(attempts=1)

    assert server.ranges(MODEL) == ["bytes=30000-"]
    assert_complete(store)


def test_a_server_that_ignores_ranges_starts_again(tmp_path: Path, server: FaultServer) -> None:
    interrupt_at(server, tmp_path, 20_000)
    server.plan(MODEL, faults.ignore_range)
    store = store_at(tmp_path, server)
    store.prepare(attempts=1)
    assert server.ranges(MODEL) == [None, "bytes=20000-"]
    assert_complete(store)


@pytest.mark.parametrize(
    "behaviour",
    [faults.start_elsewhere, faults.resume_another(OTHER), faults.unsatisfiable],
    ids=["another start", "another entity", "unsatisfiable"],
)
def test_a_range_that_does_not_fit_is_refused_and_the_file_begun_again(
    tmp_path: Path, server: FaultServer, behaviour: faults.Behaviour
) -> None:
    interrupt_at(server, tmp_path, 20_000)
    server.plan(MODEL, behaviour)
    store = store_at(tmp_path, server)
    with pytest.raises(TransferFailed) as refused:
        store.prepare(attempts=1)
    assert refused.value.cause == "range_refused"

    store.prepare(attempts=1)

    assert server.ranges(MODEL) == [None, "bytes=20000-", None]
    assert_complete(store)


def test_a_range_that_nobody_asked_for_is_refused(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, faults.start_elsewhere)
    store = store_at(tmp_path, server)
    with pytest.raises(TransferFailed, match="another range") as refused:
        store.prepare(attempts=1)
    assert refused.value.cause == "range_refused"
    assert not part_of(model_path(store)).exists()


def test_an_entity_that_changed_between_attempts_is_never_joined_to_the_old_one(
    tmp_path: Path, server: FaultServer
) -> None:
    server.files[MODEL] = OTHER
    interrupt_at(server, tmp_path, 20_000)
    store = store_at(tmp_path, server)
    assert part_of(model_path(store)).read_bytes() == OTHER[:20_000]

    server.files[MODEL] = BODIES["embedder"]["onnx/model.onnx"]
    store.prepare(attempts=1)

    assert server.ranges(MODEL) == [None, "bytes=20000-"]
    assert_complete(store)


def test_a_part_longer_than_its_file_is_thrown_away(tmp_path: Path, server: FaultServer) -> None:
    store = store_at(tmp_path, server)
    path = model_path(store)
    path.parent.mkdir(parents=True)
    part_of(path).write_bytes(b"x" * (SIZE + 1))
    store.prepare(attempts=1)
    assert server.ranges(MODEL) == [None]
    assert_complete(store)


def test_a_killed_preparer_is_resumed_at_the_same_byte(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, faults.stall(31_000))
    child = start_child(tmp_path, server)
    store = store_at(tmp_path, server)
    part = part_of(model_path(store))
    until(lambda: part.exists() and part.stat().st_size == 31_000)
    seen = store.status()
    assert (seen.state, seen.downloaded_bytes) == ("preparing", 31_000)

    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=DEADLINE_S)
    assert child.returncode == -signal.SIGKILL
    assert store.status().state == "missing"

    store.prepare(attempts=1)

    assert server.ranges(MODEL) == [None, "bytes=31000-"]
    assert_complete(store)


# Wrong files are never kept


@pytest.mark.parametrize(
    ("behaviour", "cause", "words"),
    [
        (faults.html, "wrong_content", "web page"),
        (faults.html_in_disguise, "wrong_content", "other bytes"),
        (faults.serve_bytes(OTHER), "wrong_content", "other bytes"),
        (faults.compressed, "wrong_content", "re-encoded"),
        (faults.claim(SIZE - 10), "wrong_size", "instead of"),
        (faults.claim(SIZE + 10), "wrong_size", "instead of"),
        (faults.send_too_much, "wrong_size", "more than"),
        (faults.status(429), "http_status", "429"),
        (faults.status(503), "http_status", "503"),
        (faults.status(404), "http_status", "pinned revision"),
        (faults.status(401), "http_status", "HF_TOKEN"),
    ],
    ids=[
        "html",
        "html of the right size",
        "other bytes",
        "gzip",
        "shorter",
        "longer",
        "endless",
        "429",
        "503",
        "404",
        "401",
    ],
)
def test_a_wrong_answer_is_named_and_leaves_nothing(
    tmp_path: Path, server: FaultServer, behaviour: faults.Behaviour, cause: str, words: str
) -> None:
    server.plan(MODEL, behaviour)
    store = store_at(tmp_path, server)
    with pytest.raises(TransferFailed, match=words) as failed:
        store.prepare(attempts=1)
    assert failed.value.cause == cause
    assert failed.value.code == "search_model_unavailable"
    assert not model_path(store).exists()
    assert not part_of(model_path(store)).exists()
    seen = store.status()
    assert (seen.state, seen.code, seen.retry_at) == ("failed", cause, None)

    store.prepare(attempts=1)
    assert_complete(store)


def test_a_server_without_end_is_left_at_the_files_end(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, faults.flood)
    store = store_at(tmp_path, server)
    with pytest.raises(TransferFailed) as failed:
        store.prepare(attempts=1)
    assert failed.value.cause == "wrong_size"
    assert server.broken_off.wait(DEADLINE_S)
    assert not part_of(model_path(store)).exists()


@pytest.mark.parametrize(
    "behaviour",
    [faults.html, faults.claim(100), faults.compressed, faults.status(503)],
    ids=["html", "shorter", "gzip", "503"],
)
def test_an_answer_that_is_no_file_does_not_cost_the_part(
    tmp_path: Path, server: FaultServer, behaviour: faults.Behaviour
) -> None:
    interrupt_at(server, tmp_path, 20_000)
    server.plan(MODEL, behaviour)
    store = store_at(tmp_path, server)
    with pytest.raises(TransferFailed):
        store.prepare(attempts=1)
    store.prepare(attempts=1)
    assert server.ranges(MODEL) == [None, "bytes=20000-", "bytes=20000-"]
    assert_complete(store)


# Patience


@pytest.mark.parametrize("behaviour", [faults.stall(10_000), faults.never_answer])
def test_a_server_that_stops_sending_is_given_up(
    tmp_path: Path, server: FaultServer, behaviour: faults.Behaviour
) -> None:
    server.plan(MODEL, behaviour)
    store = store_at(tmp_path, server, patience=HASTY)
    with pytest.raises(TransferFailed) as failed:
        store.prepare(attempts=1)
    assert failed.value.cause == "stalled"


def test_a_server_that_trickles_is_given_up(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, faults.trickle(200, 0.01))
    patience = Patience(connect_s=5.0, read_s=5.0, window_s=0.1, window_bytes=1_000)
    store = store_at(tmp_path, server, patience=patience)
    with pytest.raises(TransferFailed, match="all but stopped") as failed:
        store.prepare(attempts=1)
    assert failed.value.cause == "stalled"


def test_a_server_that_is_not_there_is_named(tmp_path: Path, server: FaultServer) -> None:
    store = store_at(tmp_path, hub=HubSettings("http://127.0.0.1:1"))
    with pytest.raises(TransferFailed, match=r"127\.0\.0\.1 cannot be reached"):
        store.prepare(attempts=1)


def test_pauses_double_from_five_seconds_to_a_minute(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, *[faults.status(503)] * 6)
    pauses = Pauses()
    store = store_at(tmp_path, server, pauses=pauses)
    store.prepare()
    assert pauses.seconds == [5, 10, 20, 40, 60, 60]
    assert_complete(store)


def test_an_attempt_that_brought_bytes_starts_the_pauses_anew(
    tmp_path: Path, server: FaultServer
) -> None:
    server.plan(MODEL, faults.status(503), faults.status(503), faults.cut(9_000))
    server.plan(MODEL, faults.status(503))
    pauses = Pauses()
    store_at(tmp_path, server, pauses=pauses).prepare()
    assert pauses.seconds == [5, 10, 5, 10]


@pytest.mark.parametrize(
    ("asked", "pause"),
    [
        ("30", 30),
        ("1", 5),
        ("100000", 600),
        (formatdate(NOW + 42, usegmt=True), 42),
        (formatdate(NOW - 42, usegmt=True), 5),
        ("soon", 5),
        ("-7", 5),
    ],
)
def test_retry_after_is_honoured_within_bounds(
    tmp_path: Path, server: FaultServer, asked: str, pause: float
) -> None:
    server.plan(MODEL, faults.status(429, asked))
    pauses = Pauses()
    store_at(tmp_path, server, pauses=pauses).prepare()
    assert pauses.seconds == [pause]


def test_the_pause_is_visible_to_other_processes(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, faults.status(503))
    other = store_at(tmp_path, server)
    seen = []
    pauses = Pauses(lambda: seen.append(other.status()))

    store_at(tmp_path, server, pauses=pauses).prepare()

    (status,) = seen
    assert (status.state, status.code, status.retry_at) == ("failed", "http_status", NOW + 5)
    assert "503" in (status.reason or "")


# Cancellation


@pytest.mark.parametrize("planned", [faults.stall(12_000), faults.trickle(3_000, 0.01)])
def test_cancelling_stops_a_transfer_and_keeps_its_part(
    tmp_path: Path, server: FaultServer, planned: faults.Behaviour
) -> None:
    server.plan(MODEL, planned)
    patience = Patience(read_s=600.0)
    store = store_at(tmp_path, server, patience=patience)
    cancel = threading.Event()
    reached = []
    preparer = threading.Thread(target=lambda: reached.append(store.prepare(None, cancel)))
    preparer.start()
    until(lambda: store.status().downloaded_bytes > 0)
    assert store.status().state == "preparing"

    cancel.set()
    preparer.join(DEADLINE_S)

    assert not preparer.is_alive()
    assert reached[0].state == "missing"
    kept = part_of(model_path(store)).stat().st_size
    assert 0 < kept < SIZE
    store.prepare(attempts=1)
    assert server.ranges(MODEL) == [None, f"bytes={kept}-"]
    assert_complete(store)


def test_cancelling_stops_before_the_next_chunk(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, faults.trickle(500, 0.01))
    cancel = threading.Event()
    seen: list[int] = []

    def look(progress: Progress) -> None:
        seen.append(progress.file_bytes)
        if len(seen) == 5:
            cancel.set()

    store = store_at(tmp_path, server)
    store.prepare(look, cancel)
    assert len(seen) == 5
    assert part_of(model_path(store)).stat().st_size == seen[-1]


def test_cancelling_ends_a_pause(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, *[faults.status(503)] * 3)
    cancel = threading.Event()
    pauses = Pauses(cancel.set)
    reached = store_at(tmp_path, server, pauses=pauses).prepare(None, cancel)
    assert pauses.seconds == [5]
    assert len(server.ranges(MODEL)) == 1
    assert (reached.state, reached.code, reached.retry_at) == ("failed", "http_status", None)


def test_cancelling_ends_the_wait_for_another_preparer(tmp_path: Path, server: FaultServer) -> None:
    store = store_at(tmp_path, server)
    lock = FileLock(tmp_path / "tiny.lock")
    assert lock.try_acquire()
    cancel = threading.Event()
    with lock:
        reached = store.prepare(lambda progress: cancel.set(), cancel)
        assert reached.state == "preparing"
    assert server.requests == []


# Two processes


def start_child(root: Path, server: FaultServer) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.models.prepare_child", str(root), server.endpoint, "1"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_two_processes_at_once_download_once(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, faults.stall(10_000))
    first, second = start_child(tmp_path, server), start_child(tmp_path, server)
    assert server.sent_enough.wait(DEADLINE_S)
    # The stalled one is cut off now and resumes; the other waits for it all the while.
    store = store_at(tmp_path, server)
    server.release.set()
    for child in (first, second):
        out, err = child.communicate(timeout=DEADLINE_S)
        assert (out.strip(), err, child.returncode) == ("ready", "", 0)
    assert server.ranges(MODEL) == [None, "bytes=10000-"]
    assert len(server.requests) == 4
    assert_complete(store)


def test_a_second_preparer_in_the_same_process_waits_too(
    tmp_path: Path, server: FaultServer
) -> None:
    server.plan(MODEL, faults.stall(10_000))
    stores = [store_at(tmp_path, server), store_at(tmp_path, server)]
    seen: list[Progress] = []
    reached = []
    first = threading.Thread(target=lambda: reached.append(stores[0].prepare()))
    first.start()
    assert server.sent_enough.wait(DEADLINE_S)
    second = threading.Thread(target=lambda: reached.append(stores[1].prepare(seen.append)))
    second.start()
    until(lambda: bool(seen))
    assert (seen[0].path, seen[0].total_bytes) == (None, PROFILE.total_bytes)
    server.release.set()
    first.join(DEADLINE_S)
    second.join(DEADLINE_S)
    assert [each.state for each in reached] == ["ready", "ready"]
    assert server.ranges(MODEL) == [None, "bytes=10000-"]


# Files that are there already


def hub_cache(root: Path, bodies=BODIES) -> Path:
    """A hub cache with its links from snapshots to blobs."""
    cache = root / "hub"
    for artifact in PROFILE.artifacts:
        for number, file in enumerate(artifact.files):
            path = snapshot_path(cache, artifact, file)
            path.parent.mkdir(parents=True, exist_ok=True)
            blob = path.parents[len(Path(file.path).parts) + 1] / "blobs" / f"blob{number}"
            blob.parent.mkdir(exist_ok=True)
            blob.write_bytes(bodies[artifact.role][file.path])
            blob.chmod(0o600)
            path.symlink_to(os.path.relpath(blob, path.parent))
    return cache


def test_a_hub_cache_is_used_without_network(tmp_path: Path) -> None:
    cache = hub_cache(tmp_path)
    root = tmp_path / "models"
    store = store_at(root, hub=HubSettings("http://127.0.0.1:1", cache=cache))
    assert store.prepare(attempts=1).state == "ready"
    assert_complete(store)
    assert not model_path(store).is_symlink()


def test_a_cached_file_that_others_may_write_is_copied(tmp_path: Path) -> None:
    cache = hub_cache(tmp_path)
    source = snapshot_path(cache, PROFILE.embedder, PROFILE.embedder.files[0]).resolve()
    source.chmod(0o666)
    store = store_at(tmp_path / "models", hub=HubSettings("http://127.0.0.1:1", cache=cache))
    store.prepare(attempts=1)
    assert model_path(store).stat().st_ino != source.stat().st_ino
    assert_complete(store)


def test_a_wrong_file_in_the_hub_cache_is_fetched_instead(
    tmp_path: Path, server: FaultServer
) -> None:
    bodies = {role: dict(files) for role, files in BODIES.items()}
    bodies["embedder"]["onnx/model.onnx"] = OTHER
    cache = hub_cache(tmp_path, bodies)
    store = store_at(tmp_path / "models", hub=HubSettings(server.endpoint, cache=cache))
    store.prepare(attempts=1)
    assert [each.path for each in server.requests] == [MODEL]
    assert_complete(store)
    source = snapshot_path(cache, PROFILE.embedder, PROFILE.embedder.files[0])
    assert source.read_bytes() == OTHER


def test_files_put_there_by_hand_are_used_without_network(tmp_path: Path) -> None:
    store = store_at(tmp_path, hub=HubSettings(offline=True))
    drop_by_hand(store)
    store.require_ready()
    assert store.prepare(attempts=1).state == "ready"
    assert store.verify() == []


def test_a_hub_cache_put_into_the_root_by_hand_is_used(tmp_path: Path) -> None:
    hub_cache(tmp_path).rename(tmp_path / "models")
    store = store_at(tmp_path / "models", hub=HubSettings(offline=True))
    assert store.prepare(attempts=1).state == "ready"
    store.require_ready()


def test_offline_says_so_and_asks_nothing(tmp_path: Path, server: FaultServer) -> None:
    store = store_at(tmp_path, hub=HubSettings(server.endpoint, offline=True))
    with pytest.raises(TransferFailed, match="HF_HUB_OFFLINE") as failed:
        store.prepare(attempts=1)
    assert failed.value.cause == "offline"
    assert server.requests == []


def drop_by_hand(store: ModelStore, bodies=BODIES) -> None:
    for role, files in bodies.items():
        for name, body in files.items():
            path = store.path(role, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)


# Space


def test_the_disk_is_measured_before_the_network_is_asked(
    tmp_path: Path, server: FaultServer
) -> None:
    store = store_at(tmp_path, server, free_space=lambda path: PROFILE.total_bytes)
    with pytest.raises(IoFailed, match="Free some space") as failed:
        store.prepare(attempts=1)
    assert failed.value.code == "insufficient_space"
    assert failed.value.details["needed_bytes"] == PROFILE.total_bytes
    assert server.requests == []
    assert store.status().code == "insufficient_space"


def test_a_full_disk_is_tried_again_and_needs_only_the_rest(
    tmp_path: Path, server: FaultServer
) -> None:
    interrupt_at(server, tmp_path, 20_000)
    spare = 64 * 1024 * 1024
    rest = PROFILE.total_bytes - 20_000
    free = iter([spare + rest - 1, spare + rest])
    pauses = Pauses()
    store = store_at(tmp_path, server, pauses=pauses, free_space=lambda path: next(free))
    store.prepare()
    assert pauses.seconds == [5]
    assert_complete(store)


def test_a_write_that_is_refused_keeps_what_was_written(
    tmp_path: Path, server: FaultServer
) -> None:
    child = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), server.endpoint],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert child.stdout.strip() == "io_error", child.stderr
    store = store_at(tmp_path, server)
    kept = part_of(model_path(store)).stat().st_size
    assert kept == 16_384
    store.prepare(attempts=1)
    assert server.ranges(MODEL) == [None, "bytes=16384-"]
    assert_complete(store)


LIMITED = """
import resource, signal, sys
from pathlib import Path
from clumsies.config import HubSettings
from clumsies.errors import IoFailed
from clumsies.models.preparation import ModelStore
from tests.models.tiny_profile import contents, profile_of
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, 16_384))
store = ModelStore(Path(sys.argv[1]), profile_of(contents(1)), HubSettings(sys.argv[2]))
try:
    store.prepare(attempts=1)
except IoFailed as error:
    print(error.code)
"""


# The token, redirects, proxies, settings


def test_the_token_goes_to_the_endpoint_and_no_further(
    tmp_path: Path, server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.files["/stored/model"] = server.files[MODEL]
    server.plan(MODEL, faults.redirect(f"{server.other_name}/stored/model"))
    hub = HubSettings(server.endpoint, token=TOKEN)
    store = store_at(tmp_path, hub=hub)

    store.prepare(attempts=1)

    sent = {each.path: each.headers.get("authorization") for each in server.requests}
    assert sent.pop("/stored/model") is None
    assert set(sent.values()) == {f"Bearer {TOKEN}"}
    assert TOKEN not in caplog.text
    assert TOKEN not in repr(hub)
    assert_complete(store)


def test_a_range_survives_a_redirect(tmp_path: Path, server: FaultServer) -> None:
    interrupt_at(server, tmp_path, 20_000)
    server.files["/stored/model"] = server.files[MODEL]
    server.plan(MODEL, faults.redirect(f"{server.other_name}/stored/model"))
    store = store_at(tmp_path, server)
    store.prepare(attempts=1)
    assert server.ranges("/stored/model") == ["bytes=20000-"]
    assert_complete(store)


def test_no_failure_shows_the_token_or_the_endpoints_password(
    tmp_path: Path, server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.plan(MODEL, faults.status(401))
    endpoint = f"http://someone:hunter2@127.0.0.1:{server.port}"
    store = store_at(tmp_path, hub=HubSettings(endpoint, token=TOKEN))
    with pytest.raises(TransferFailed) as failed:
        store.prepare(attempts=1)
    with pytest.raises(NotReady) as not_ready:
        store.require_ready()
    shown = f"{failed.value} {failed.value.details} {not_ready.value} {store.status()}"
    assert TOKEN not in shown + caplog.text
    assert "hunter2" not in shown + caplog.text
    assert server.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


def test_a_name_and_password_of_the_endpoint_are_sent_to_it(
    tmp_path: Path, server: FaultServer
) -> None:
    endpoint = f"http://someone:hunter2@127.0.0.1:{server.port}"
    store_at(tmp_path, hub=HubSettings(endpoint)).prepare(attempts=1)
    sent = {each.headers["authorization"] for each in server.requests}
    assert sent == {"Basic " + base64.b64encode(b"someone:hunter2").decode()}


def test_a_circle_of_redirects_ends(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, *[faults.redirect(MODEL)] * 20)
    with pytest.raises(TransferFailed, match="circle"):
        store_at(tmp_path, server).prepare(attempts=1)
    assert len(server.ranges(MODEL)) == 6


def test_the_platforms_proxy_is_used(
    tmp_path: Path, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", server.endpoint)
    store = store_at(tmp_path, hub=HubSettings("http://mirror.invalid"))
    store.prepare(attempts=1)
    assert {each.path.split("/")[2] for each in server.requests} == {"mirror.invalid"}
    assert_complete(store)


@pytest.mark.parametrize(
    "endpoint", ["mirror", "ftp://mirror", "http://", "http://[", "http://h:x", "file:///x"]
)
def test_an_endpoint_that_is_no_address_is_refused_at_once(tmp_path: Path, endpoint: str) -> None:
    pauses = Pauses()
    store = store_at(tmp_path, hub=HubSettings(endpoint), pauses=pauses)
    with pytest.raises(InvalidRequest, match="HF_ENDPOINT"):
        store.prepare()
    assert pauses.seconds == []
    assert store.status().code == "invalid_config"


@pytest.mark.parametrize("token", ["two words", "line\nbreak", "naïve"])
def test_a_token_that_is_none_is_refused_without_being_shown(tmp_path: Path, token: str) -> None:
    store = store_at(tmp_path, hub=HubSettings("http://127.0.0.1:1", token=token))
    with pytest.raises(InvalidRequest, match="HF_TOKEN") as refused:
        store.prepare()
    assert token not in str(refused.value)


# Verification before use


def test_problems_are_listed_per_file_with_their_sizes(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    drop_by_hand(store)
    model, tokenizer = model_path(store), store.path("embedder", "tokenizer.json")
    model.write_bytes(OTHER)
    tokenizer.write_bytes(b"short")
    reranker = store.path("reranker", "model.onnx")
    reranker.unlink()

    found = {p.path: (p.kind, p.expected_size, p.actual_size) for p in store.verify()}

    assert found == {
        model: ("foreign", SIZE, SIZE),
        tokenizer: ("truncated", 3_000, 5),
        reranker: ("missing", 7_000, None),
    }


@pytest.mark.parametrize("wrong", [OTHER, OTHER[:-1], OTHER + b"x", b""])
def test_a_wrong_file_is_refused_before_use_and_mended_by_preparing(
    tmp_path: Path, server: FaultServer, wrong: bytes
) -> None:
    store = store_at(tmp_path, server)
    drop_by_hand(store)
    model_path(store).write_bytes(wrong)
    with pytest.raises(ModelFailed, match="models prepare") as refused:
        store.require_ready()
    assert refused.value.code == "search_model_invalid"
    assert str(model_path(store)) in refused.value.message
    assert store.status().state != "ready"

    store.prepare(attempts=1)

    assert [each.path for each in server.requests] == [MODEL]
    store.require_ready()
    assert store.status().state == "ready"


def test_a_file_changed_after_its_verification_is_noticed(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    drop_by_hand(store)
    store.require_ready()
    path = model_path(store)
    times = path.stat()
    path.write_bytes(OTHER)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    with pytest.raises(ModelFailed):
        store.require_ready()


def test_a_model_that_is_not_there_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotReady) as missing:
        store_at(tmp_path / "models").require_ready()
    assert missing.value.code == "search_model_unavailable"
    for words in ("clumsies models prepare", "HF_ENDPOINT", str(tmp_path / "models")):
        assert words in missing.value.message
    assert missing.value.details["total_bytes"] == PROFILE.total_bytes
    assert not (tmp_path / "models").exists()


def test_a_model_that_is_being_prepared_says_how_far_it_is(
    tmp_path: Path, server: FaultServer
) -> None:
    server.plan(MODEL, faults.stall(11_000))
    preparing, asking = store_at(tmp_path, server), store_at(tmp_path, server)
    cancel = threading.Event()
    preparer = threading.Thread(target=preparing.prepare, args=(None, cancel))
    preparer.start()
    until(lambda: asking.status().downloaded_bytes == 11_000)
    with pytest.raises(NotReady) as early:
        asking.require_ready()
    cancel.set()
    preparer.join(DEADLINE_S)
    assert early.value.code == "search_model_preparing"
    assert early.value.details == {
        "profile": "tiny",
        "downloaded_bytes": 11_000,
        "total_bytes": PROFILE.total_bytes,
    }


def test_a_failed_preparation_says_why_when_the_model_is_asked_for(
    tmp_path: Path, server: FaultServer
) -> None:
    server.plan(MODEL, faults.status(503))
    with pytest.raises(TransferFailed):
        store_at(tmp_path, server).prepare(attempts=1)
    with pytest.raises(NotReady, match="answered 503") as failed:
        store_at(tmp_path, server).require_ready()
    assert failed.value.details["cause"] == "http_status"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 9}'])
def test_a_damaged_word_of_failure_says_nothing(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "tiny.failure.json").write_bytes(damage)
    assert store_at(tmp_path).status().state == "missing"


def test_paths_are_those_of_the_manifest(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    assert model_path(store) == (
        tmp_path / "someone--tiny-embedder" / "0123456789abcdef" / "onnx" / "model.onnx"
    )
    with pytest.raises(KeyError):
        store.path("embedder", "model.onnx")


# The packaged profile


def packaged_at(tmp_path: Path) -> ModelStore:
    """A store of a packaged profile whose package lies in `tmp_path / "package"`."""
    package = tmp_path / "package"
    profile = profile_of(BODIES, name="shipped", packaged=True)
    for artifact in profile.artifacts:
        for file in artifact.files:
            path = package / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(BODIES[artifact.role][file.path])
    return store_at(tmp_path / "models", profile=profile, packaged_root=package)


def test_a_packaged_profile_is_ready_at_once(tmp_path: Path) -> None:
    store = packaged_at(tmp_path)
    assert store.status().state == "ready"
    assert store.prepare().state == "ready"
    assert model_path(store) == tmp_path / "package" / "onnx" / "model.onnx"


@pytest.mark.parametrize("wrong", [OTHER, OTHER[:-1]])
def test_a_damaged_package_says_to_install_it_again(tmp_path: Path, wrong: bytes) -> None:
    store = packaged_at(tmp_path)
    model_path(store).write_bytes(wrong)
    for ask in (store.require_ready, store.prepare):
        with pytest.raises(ModelFailed, match="install clumsies again"):
            ask()
    assert store.status().state == "failed"
    assert model_path(store).read_bytes() == wrong


def test_the_compact_profile_of_this_package_is_ready(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, COMPACT, HubSettings(offline=True))
    store.require_ready()
    assert store.verify() == []
    for artifact in COMPACT.artifacts:
        assert store.path(artifact.role, artifact.model_file.path).is_file()
