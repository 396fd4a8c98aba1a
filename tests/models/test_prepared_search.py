"""From an empty disk to an answer: a profile of the `multilingual` kind is fetched, verified,
opened and searched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clumsies.config import HubSettings
from clumsies.engine.pipeline import Answer, Engine
from clumsies.errors import ModelFailed, NotReady
from clumsies.models.background import BackgroundPreparation
from clumsies.models.preparation import ModelStore
from clumsies.models.runtime import ModelRuntime
from clumsies.models.verification import Problem
from clumsies.types import Resource, ResourceId
from tests.models import fault_server as faults
from tests.models.fault_server import FaultServer
from tests.models.tiny_models import tiny_multilingual, working
from tests.models.tiny_profile import url_path

PROFILE = tiny_multilingual()
GRAPH = "onnx/model_qint8_avx512_vnni.onnx"
SERVED = url_path("embedder", GRAPH)
SIZE = len(working()["embedder"][GRAPH])
WAIT_S = 60.0
MEMORY = {
    "deploy/rollback.md": "# Roll back a release\n\nPoint the balancer at the previous build.",
    "deploy/staging.md": "# Deploy to staging\n\nTag the build and deploy to the staging cluster.",
    "rules/money.md": "# Money\n\nAmounts are integers. Never use floating numbers for prices.",
    "rules/logging.md": "# Log\n\nNever write numbers of customers to the log.",
    "任务.md": "# 对账任务\n\n重跑 文件.",
}
RESOURCES = [Resource(ResourceId(path), path, text) for path, text in MEMORY.items()]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setenv("NO_PROXY", "*")
    with FaultServer() as running:
        for role, files in working().items():
            for path, body in files.items():
                running.files[url_path(role, path)] = body
        yield running


@pytest.fixture
def store(tmp_path: Path, server: FaultServer) -> ModelStore:
    return ModelStore(tmp_path / "models", PROFILE, HubSettings(server.endpoint))


@pytest.fixture
def engine(tmp_path: Path, store: ModelStore) -> Iterator[Engine]:
    runtime = ModelRuntime(PROFILE, store, threads=2)
    with Engine.open(tmp_path / "index", models=runtime) as opened:
        yield opened
    runtime.close()


def paths(answer: Answer) -> list[str]:
    return [fragment.path for fragment in answer.response.fragments]


def refused(ask: Callable[[], object]) -> NotReady:
    with pytest.raises(NotReady) as caught:
        ask()
    return caught.value


def test_a_profile_is_missing_then_prepared_then_answers(
    engine: Engine, store: ModelStore, server: FaultServer
) -> None:
    for ask in (lambda: engine.activate("undo"), lambda: engine.index(RESOURCES)):
        error = refused(ask)
        assert error.code == "search_model_unavailable"
        assert error.details["downloaded_bytes"] == 0
        assert error.details["total_bytes"] == PROFILE.total_bytes
        assert f"clumsies models prepare {PROFILE.name}" in error.message
    assert server.requests == []

    assert store.prepare(attempts=1).state == "ready"
    engine.index(RESOURCES)
    answer = engine.activate("how do we roll back to the previous build?")

    assert paths(answer)[0] == "deploy/rollback.md"
    assert answer.response.profile == PROFILE.name
    assert answer.response.skipped == ()
    assert engine.verify() == []


def test_the_reranker_alone_makes_the_order_and_the_floor(
    engine: Engine, store: ModelStore
) -> None:
    store.prepare(attempts=1)
    engine.index(RESOURCES)
    candidates = engine.activate("never use numbers for prices").trace.candidates

    logits = [c.reranker_logit for c in candidates if c.reranker_logit is not None]
    assert logits == sorted(logits, reverse=True)
    assert len(set(logits)) > 1
    assert {c.late_score for c in candidates} == {None}
    assert next(c.path for c in candidates if c.selected) == "rules/money.md"
    assert {c.exclusion_reason for c in candidates} == {"selected", "below_relevance"}
    assert paths(engine.activate("zyxwvut")) == []


def test_every_script_is_embedded(engine: Engine, store: ModelStore) -> None:
    store.prepare(attempts=1)
    engine.index(RESOURCES)
    trace = engine.activate("重跑对账任务").trace
    assert trace.skipped == []
    assert trace.candidates[0].path == "任务.md"
    assert trace.candidates[0].vector_rank == 1


def test_while_it_is_prepared_an_activation_fails_at_once_with_the_bytes(
    engine: Engine, store: ModelStore, server: FaultServer
) -> None:
    server.plan(SERVED, faults.stall(1_000))
    ready = threading.Event()
    preparation = BackgroundPreparation(store, ready.set)
    preparation.start()
    assert server.sent_enough.wait(WAIT_S)
    arrived = threading.Event()

    def until_arrived() -> NotReady:
        while True:
            error = refused(lambda: engine.activate("undo"))
            if error.details["downloaded_bytes"] == 1_000 or arrived.wait(0.01):
                return error

    watchdog = threading.Timer(WAIT_S, arrived.set)
    watchdog.start()
    error = until_arrived()
    watchdog.cancel()
    assert error.code == "search_model_preparing"
    assert error.details == {
        "profile": PROFILE.name,
        "downloaded_bytes": 1_000,
        "total_bytes": PROFILE.total_bytes,
    }
    assert error.retryable
    assert preparation.stop(WAIT_S)

    assert store.prepare(attempts=1).state == "ready"
    assert server.ranges(SERVED) == [None, "bytes=1000-"]
    engine.index(RESOURCES)
    assert paths(engine.activate("how do we roll back?"))[0] == "deploy/rollback.md"


def flip(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda body: body[: SIZE // 2], f"has {SIZE // 2} of its {SIZE} bytes"),
        (lambda body: body + b"more", f"has {SIZE + 4} bytes instead of {SIZE}"),
        (flip, "other bytes"),
    ],
)
def test_a_wrong_file_is_named_with_the_command_that_mends_it(
    engine: Engine, store: ModelStore, damage: Callable[[bytes], bytes], words: str
) -> None:
    store.prepare(attempts=1)
    place = store.path("embedder", GRAPH)
    place.write_bytes(damage(place.read_bytes()))

    with pytest.raises(ModelFailed) as caught:
        engine.activate("undo")
    assert caught.value.code == "search_model_invalid"
    for expected in (str(place), words, f"clumsies models prepare {PROFILE.name}"):
        assert expected in caught.value.message
    (problem,) = store.verify()
    assert isinstance(problem, Problem)
    assert problem.path == place

    store.prepare(attempts=1)
    engine.index(RESOURCES)
    assert paths(engine.activate("how do we roll back?"))[0] == "deploy/rollback.md"


def test_files_dropped_in_by_hand_are_enough(tmp_path: Path) -> None:
    store = ModelStore(tmp_path / "models", PROFILE, HubSettings(offline=True))
    for role, files in working().items():
        for name, body in files.items():
            place = store.path(role, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(body)
    runtime = ModelRuntime(PROFILE, store, threads=1)
    with Engine.open(tmp_path / "index", models=runtime) as engine:
        engine.index(RESOURCES)
        assert paths(engine.activate("how do we roll back?"))[0] == "deploy/rollback.md"
    runtime.close()


def test_a_hub_cache_dropped_in_by_hand_is_taken_over(tmp_path: Path) -> None:
    root = tmp_path / "models"
    for artifact in PROFILE.artifacts:
        snapshot = root / ("models--" + artifact.repository.replace("/", "--")) / "snapshots"
        for name, body in working()[artifact.role].items():
            place = snapshot / artifact.revision / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(body)
    store = ModelStore(root, PROFILE, HubSettings(offline=True))
    assert store.prepare(attempts=1).state == "ready"
    runtime = ModelRuntime(PROFILE, store, threads=1)
    with Engine.open(tmp_path / "index", models=runtime) as engine:
        engine.index(RESOURCES)
        assert paths(engine.activate("how do we roll back?"))[0] == "deploy/rollback.md"
    runtime.close()
