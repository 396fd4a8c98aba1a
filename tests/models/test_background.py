"""Preparation in a thread of its own: it tells when it is ready, and it stops when asked."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clumsies.config import HubSettings
from clumsies.models.background import BackgroundPreparation
from clumsies.models.preparation import ModelStore
from tests.models import fault_server as faults
from tests.models.fault_server import FaultServer
from tests.models.tiny_profile import contents, profile_of, url_path

BODIES = contents()
MODEL = url_path("embedder", "onnx/model.onnx")
DEADLINE_S = 60.0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setenv("NO_PROXY", "*")
    with FaultServer() as running:
        for role, files in BODIES.items():
            for path, body in files.items():
                running.files[url_path(role, path)] = body
        yield running


def test_it_tells_when_every_file_is_there(tmp_path: Path, server: FaultServer) -> None:
    store = ModelStore(tmp_path, profile_of(BODIES), HubSettings(server.endpoint))
    ready = threading.Event()
    preparation = BackgroundPreparation(store, ready.set)
    preparation.start()
    assert ready.wait(DEADLINE_S)
    assert preparation.stop(DEADLINE_S)
    assert store.status().state == "ready"
    assert store.verify() == []


def test_it_tells_at_once_where_nothing_is_to_be_fetched(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, profile_of(BODIES), HubSettings(offline=True))
    for role, files in BODIES.items():
        for name, body in files.items():
            store.path(role, name).parent.mkdir(parents=True, exist_ok=True)
            store.path(role, name).write_bytes(body)
    ready = threading.Event()
    preparation = BackgroundPreparation(store, ready.set)
    preparation.start()
    assert ready.wait(DEADLINE_S)
    assert preparation.stop(DEADLINE_S)


def test_it_stops_in_the_middle_of_a_file(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, faults.stall(10_000))
    store = ModelStore(tmp_path, profile_of(BODIES), HubSettings(server.endpoint))
    ready = threading.Event()
    preparation = BackgroundPreparation(store, ready.set)
    preparation.start()
    assert server.sent_enough.wait(DEADLINE_S)
    assert preparation.stop(DEADLINE_S)
    assert not ready.is_set()
    assert store.status().state == "missing"


def test_it_stops_in_the_middle_of_a_pause(tmp_path: Path, server: FaultServer) -> None:
    server.plan(MODEL, *[faults.status(503)] * 10)
    pausing = threading.Event()

    def wait(cancel: threading.Event, seconds: float) -> bool:
        pausing.set()
        return cancel.wait(600.0)

    store = ModelStore(tmp_path, profile_of(BODIES), HubSettings(server.endpoint), wait=wait)
    preparation = BackgroundPreparation(store, lambda: None)
    preparation.start()
    assert pausing.wait(DEADLINE_S)
    assert preparation.stop(DEADLINE_S)
    assert len(server.ranges(MODEL)) == 1


def test_settings_that_cannot_be_used_end_it_and_stay_visible(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = ModelStore(tmp_path, profile_of(BODIES), HubSettings("no address"))
    ready = threading.Event()
    preparation = BackgroundPreparation(store, ready.set)
    preparation.start()
    assert preparation.stop(DEADLINE_S)
    assert not ready.is_set()
    assert store.status().code == "invalid_config"
    assert "HF_ENDPOINT" in caplog.text


def test_stopping_before_the_start_is_allowed(tmp_path: Path) -> None:
    store = ModelStore(tmp_path, profile_of(BODIES), HubSettings())
    assert BackgroundPreparation(store, lambda: None).stop(0.0)
