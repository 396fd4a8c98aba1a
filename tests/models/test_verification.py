"""What is hashed again, and what a remembered verdict may vouch for."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path

import pytest

from clumsies.models.manifest import ModelFile
from clumsies.models.verification import (
    SETTLED_NS,
    Cancelled,
    Problem,
    Verdicts,
    digest,
)

BODY = b"the pinned bytes" * 100
PINNED = ModelFile("model.onnx", len(BODY), hashlib.sha256(BODY).hexdigest())
OTHER = bytes(reversed(BODY))


def later() -> int:
    """A clock by which every file of the test was changed long ago."""
    return time.time_ns() + 2 * SETTLED_NS


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(BODY)
    return path


def exchange(path: Path, body: bytes) -> None:
    """Other bytes under the same size and modification time, in place."""
    times = path.stat()
    with path.open("r+b") as stream:
        stream.write(body)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        (BODY, None, ""),
        (OTHER, "foreign", "other bytes"),
        (BODY[:-1], "truncated", "1599 of its 1600"),
        (BODY + b"x", "foreign", "1601 bytes instead of 1600"),
        (b"", "truncated", "0 of its 1600"),
    ],
)
def test_size_and_digest_decide(model: Path, body: bytes, kind: str | None, words: str) -> None:
    model.write_bytes(body)
    problem = Verdicts().examine(model, PINNED)
    if kind is None:
        assert problem is None
    else:
        assert problem == Problem(model, kind, len(BODY), len(body))
        assert words in problem.describe()


def test_what_is_no_file_is_missing(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    for path in (tmp_path / "nothing", tmp_path / "directory", tmp_path / "nothing" / "below"):
        problem = Verdicts().examine(path, PINNED)
        assert problem == Problem(path, "missing", len(BODY), None)
        assert "is missing" in problem.describe()


def test_a_cancelled_digest_stops(model: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        digest(model, cancel)


def test_only_a_hashed_file_is_known_to_be_foreign(model: Path) -> None:
    verdicts = Verdicts()
    model.write_bytes(OTHER)
    assert not verdicts.known_foreign(model, PINNED)
    verdicts.examine(model, PINNED)
    assert verdicts.known_foreign(model, PINNED)
    model.write_bytes(BODY)
    assert not verdicts.known_foreign(model, PINNED)


def test_bytes_exchanged_under_the_same_times_are_hashed_again(model: Path) -> None:
    verdicts = Verdicts()
    assert verdicts.examine(model, PINNED) is None
    before = model.stat().st_ctime_ns
    while model.stat().st_ctime_ns == before:  # One step of the file system's clock.
        exchange(model, OTHER)
    problem = verdicts.examine(model, PINNED)
    assert problem is not None
    assert problem.kind == "foreign"


def remembered(stamps: Path, **changes: object) -> None:
    document = json.loads(stamps.read_text())
    stamps.write_text(json.dumps(document | changes))


def test_a_verdict_is_remembered_by_the_next_process(model: Path, tmp_path: Path) -> None:
    stamps = tmp_path / "verified.json"
    assert Verdicts(stamps, later).examine(model, PINNED) is None
    found = model.stat()
    assert json.loads(stamps.read_text()) == {
        "version": 1,
        "files": {
            str(model): [
                PINNED.sha256,
                found.st_dev,
                found.st_ino,
                found.st_size,
                found.st_mtime_ns,
                found.st_ctime_ns,
            ]
        },
    }
    # A stamp that lies shows that it is believed, and that `again` does not believe it.
    lie = [PINNED.sha256, *json.loads(stamps.read_text())["files"][str(model)][1:]]
    exchange(model, OTHER)
    lie[-1] = model.stat().st_ctime_ns
    remembered(stamps, files={str(model): lie})
    assert Verdicts(stamps, later).examine(model, PINNED) is None
    assert Verdicts(stamps, later).examine(model, PINNED, again=True) is not None


def test_a_file_that_has_just_changed_is_not_remembered(model: Path, tmp_path: Path) -> None:
    stamps = tmp_path / "verified.json"
    assert Verdicts(stamps).examine(model, PINNED) is None
    assert not stamps.exists()


def test_a_foreign_file_is_not_remembered(model: Path, tmp_path: Path) -> None:
    stamps = tmp_path / "verified.json"
    model.write_bytes(OTHER)
    assert Verdicts(stamps, later).examine(model, PINNED) is not None
    assert not stamps.exists()


def test_a_stamp_of_another_pin_vouches_for_nothing(model: Path, tmp_path: Path) -> None:
    stamps = tmp_path / "verified.json"
    Verdicts(stamps, later).examine(model, PINNED)
    other = ModelFile("model.onnx", len(BODY), "0" * 64)
    assert Verdicts(stamps, later).examine(model, other) is not None


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 2}', '{"version": 1, "files": 3}'])
def test_damaged_stamps_remember_nothing_and_are_written_anew(
    model: Path, tmp_path: Path, damage: str
) -> None:
    stamps = tmp_path / "verified.json"
    stamps.write_text(damage)
    assert Verdicts(stamps, later).examine(model, PINNED) is None
    assert str(model) in json.loads(stamps.read_text())["files"]


def test_a_place_that_cannot_be_written_costs_only_the_memory(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    verdicts = Verdicts(tmp_path / "file" / "verified.json", later)
    assert verdicts.examine(model, PINNED) is None
    assert verdicts.examine(model, PINNED, again=True) is None
