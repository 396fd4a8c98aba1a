"""The graph file: its golden layout, and every way in which it must not be believed."""

from __future__ import annotations

import hashlib
import json
import stat
import struct
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

from clumsies.engine.ann_file import GraphStamp, load_graph, save_graph
from clumsies.engine.exact_scan import Float32
from clumsies.engine.hnsw_graph import HnswGraph
from clumsies.engine.vectors import VectorIndex
from clumsies.errors import IndexFailed, IoFailed

STAMP = GraphStamp("index-1", "embedding-1", "sequence-7")
DIMENSIONS = 8
NO_IDS = np.empty(0, dtype=np.int64)


def vectors(seed: int, count: int, dimensions: int = DIMENSIONS) -> Float32:
    rows = np.random.default_rng(seed).standard_normal((count, dimensions))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def graph_of(count: int) -> HnswGraph:
    graph = HnswGraph(DIMENSIONS)
    graph.add(np.arange(1, count + 1), vectors(1, count))
    return graph


def load(path: Path, **changes: object) -> HnswGraph | None:
    arguments: dict[str, object] = {
        "index_identity": "index-1",
        "embedding_revision": "embedding-1",
        "dimensions": DIMENSIONS,
        "known_tokens": {"sequence-6", "sequence-7"},
    }
    return load_graph(path, **{**arguments, **changes})  # type: ignore[arg-type]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "vectors.ann"
    save_graph(path, graph_of(100), STAMP)
    return path


def test_layout(saved: Path) -> None:
    data = saved.read_bytes()
    magic, format_version, metadata_bytes, payload_bytes = struct.unpack_from("<8sIIQ", data)
    assert (magic, format_version) == (b"clumsANN", 1)
    assert len(data) == 56 + metadata_bytes + payload_bytes
    assert data[24:56] == hashlib.sha256(data[:24] + data[56:]).digest()
    assert json.loads(data[56 : 56 + metadata_bytes]) == {
        "connectivity": 16,
        "dimensions": 8,
        "embedding_revision": "embedding-1",
        "expansion_add": 128,
        "index_identity": "index-1",
        "last_row_id": 100,
        "library": f"usearch {version('usearch')}",
        "rows": 100,
        "scalar_kind": "f16",
        "token": "sequence-7",
    }
    assert data[56 + metadata_bytes :] == bytes(graph_of(100).to_bytes()[0])


def test_file_is_private_and_alone(saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    save_graph(saved, graph_of(50), STAMP)
    assert [entry.name for entry in saved.parent.iterdir()] == ["vectors.ann"]


def test_round_trip_answers_as_before(saved: Path) -> None:
    before, after = graph_of(100), load(saved)
    assert after is not None
    assert (len(after), after.last_row_id) == (100, 100)
    for query in vectors(2, 20):
        assert after.nearest(query, 10, 64).tolist() == before.nearest(query, 10, 64).tolist()


def test_empty_graph_makes_the_round_trip(tmp_path: Path) -> None:
    save_graph(tmp_path / "a", HnswGraph(DIMENSIONS), STAMP)
    graph = load(tmp_path / "a")
    assert graph is not None
    assert len(graph.nearest(vectors(1, 1)[0], 10, 64)) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"index_identity": "index-2"},
        {"embedding_revision": "embedding-2"},
        {"dimensions": 16},
        {"known_tokens": set()},
        {"known_tokens": {"sequence-6", "sequence-8"}},
    ],
)
def test_foreign_or_stale_file_is_left_aside(saved: Path, changes: dict[str, object]) -> None:
    assert load(saved) is not None
    assert load(saved, **changes) is None


def test_missing_file_and_directory_in_its_place_are_left_aside(tmp_path: Path) -> None:
    assert load(tmp_path / "nothing") is None
    assert load(tmp_path) is None


def test_file_torn_at_any_place_is_left_aside(saved: Path) -> None:
    data = saved.read_bytes()
    offsets = {*range(70), *range(0, len(data), 97), len(data) - 1}
    for offset in sorted(offsets):
        saved.write_bytes(data[:offset])
        assert load(saved) is None, offset
        zeroed = data[:offset] + bytes(len(data) - offset)
        saved.write_bytes(zeroed)
        assert zeroed == data or load(saved) is None, offset
    saved.write_bytes(data + b"\0")
    assert load(saved) is None
    saved.write_bytes(data)
    assert load(saved) is not None


def test_any_flipped_bit_is_noticed(saved: Path) -> None:
    data = saved.read_bytes()
    for offset in [*range(64), *range(64, len(data), 61)]:
        flipped = bytearray(data)
        flipped[offset] ^= 1 << (offset % 8)
        saved.write_bytes(flipped)
        assert load(saved) is None, offset


def resealed(metadata: bytes, payload: bytes, format_version: int = 1) -> bytes:
    """A file whose lengths and checksum hold, whatever it holds."""
    header = struct.pack("<8sIIQ", b"clumsANN", format_version, len(metadata), len(payload))
    digest = hashlib.sha256(header + metadata + payload).digest()
    return header + digest + metadata + payload


def parts(path: Path) -> tuple[dict[str, object], bytes]:
    data = path.read_bytes()
    end = 56 + struct.unpack_from("<I", data, 12)[0]
    return json.loads(data[56:end]), data[end:]


@pytest.mark.parametrize(
    "change",
    [
        {"library": "usearch 1.0.0"},
        {"scalar_kind": "i8"},
        {"connectivity": 32},
        {"rows": 99},
        {"last_row_id": 99},
        {"rows": "100"},
        {"unknown": 1},
    ],
)
def test_sealed_file_with_other_metadata_is_left_aside(
    saved: Path, change: dict[str, object]
) -> None:
    metadata, payload = parts(saved)
    saved.write_bytes(resealed(json.dumps(metadata).encode(), payload))
    assert load(saved) is not None
    saved.write_bytes(resealed(json.dumps({**metadata, **change}).encode(), payload))
    assert load(saved) is None


def test_sealed_file_of_another_format_is_left_aside(saved: Path) -> None:
    metadata, payload = parts(saved)
    encoded = json.dumps(metadata).encode()
    for content in (
        resealed(encoded, payload, format_version=2),
        resealed(b"\xff" * 10, payload),
        resealed(encoded + b" " * 70_000, payload),
        resealed(encoded, b""),
        resealed(encoded, payload[: len(payload) // 2]),
    ):
        saved.write_bytes(content)
        assert load(saved) is None


def test_a_write_that_fails_leaves_the_old_file(saved: Path) -> None:
    before = saved.read_bytes()
    missing = saved.parent / "gone" / "vectors.ann"
    with pytest.raises(IoFailed):
        save_graph(missing, graph_of(5), STAMP)
    assert saved.read_bytes() == before


def test_index_catches_up_from_a_graph_of_an_earlier_sequence(tmp_path: Path) -> None:
    path = tmp_path / "vectors.ann"
    matrix = vectors(3, 700)
    index = VectorIndex(DIMENSIONS, ann_threshold=200)
    index.load(np.arange(1, 601), matrix[:600])
    while index.tend_graph():
        pass
    assert index.graph is not None
    save_graph(path, index.graph, STAMP)
    # Later, in another process: 31 to 60 were removed, so were the newest, and 601 to 650 added.
    row_ids = np.array([*range(1, 31), *range(61, 590), *range(601, 651)], dtype=np.int64)
    later = VectorIndex(DIMENSIONS, ann_threshold=200)
    snapshot = later.load(row_ids, matrix[row_ids - 1], load(path))
    assert snapshot.approximate
    assert_nearest_is_itself(later, row_ids, matrix)
    assert not later.tend_graph()
    assert later.graph is not None
    assert len(later.graph) == 650
    assert_nearest_is_itself(later, row_ids, matrix)


def test_graph_may_outlive_the_newest_rows_but_not_lend_out_their_ids() -> None:
    matrix = vectors(3, 302)
    graph = HnswGraph(DIMENSIONS)
    graph.add(np.arange(1, 301), matrix[:300])
    index = VectorIndex(DIMENSIONS, ann_threshold=100)
    index.load(np.arange(1, 291), matrix[:290], graph)
    assert index.graph is graph
    with pytest.raises(IndexFailed):
        index.apply(np.array([300]), matrix[301:], NO_IDS)
    snapshot = index.apply(np.array([301]), matrix[301:], NO_IDS)
    assert snapshot.search(matrix[301], 1)[0].tolist() == [301]


def assert_nearest_is_itself(index: VectorIndex, row_ids: np.ndarray, matrix: Float32) -> None:
    for row_id in row_ids[::7].tolist():
        assert index.snapshot.search(matrix[row_id - 1], 1)[0].tolist() == [row_id]
    assert index.snapshot.search(matrix[40], 5)[0].tolist() != [41]


def test_graph_that_lacks_rows_or_has_other_dimensions_is_left_aside() -> None:
    matrix = vectors(3, 300)
    holes = HnswGraph(DIMENSIONS)
    holes.add(np.array([1, 2, 4, 300], dtype=np.int64), matrix[:4])
    other = HnswGraph(DIMENSIONS + 1)
    other.add(np.arange(1, 301), vectors(3, 300, DIMENSIONS + 1))
    for graph in (holes, other):
        index = VectorIndex(DIMENSIONS, ann_threshold=100)
        index.load(np.arange(1, 301), matrix, graph)
        assert index.graph is None
        assert index.snapshot.search(matrix[2], 1)[0].tolist() == [3]


def test_graph_refuses_keys_out_of_order_and_repeated() -> None:
    graph = graph_of(10)
    for row_ids in ([10], [12, 11], [11, 11], [3]):
        with pytest.raises(ValueError, match="increasing"):
            graph.add(np.array(row_ids, dtype=np.int64), vectors(1, len(row_ids)))
    assert graph.row_ids().tolist() == list(range(1, 11))


def test_more_neighbours_than_rows_gives_each_row_once() -> None:
    found = graph_of(10).nearest(vectors(9, 1)[0], 1000, 64)
    assert sorted(found.tolist()) == list(range(1, 11))


def test_graph_library_and_model_runtime_live_in_one_process() -> None:
    """Loaded in the other order they crash the interpreter, hence a process of its own."""
    code = "import clumsies.engine.hnsw_graph, onnxruntime; onnxruntime.SessionOptions()"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
