"""What the benchmarks share: the short form, indexes built once a run, models, and texts."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from benchmarks.synthetic import (
    Memory,
    MemoryWriter,
    SyntheticModels,
    read_memory,
    repeated,
    sample_directory,
)
from clumsies.config import worker_threads
from clumsies.engine.pipeline import Engine
from clumsies.models.manifest import COMPACT
from clumsies.models.runtime import ModelRuntime

SIZES = (1_000, 10_000, 100_000)
SHORT_SIZES = (1_000, 10_000)
NO_GRAPH = 1 << 40
SHARED_MARKDOWN = Path(__file__).resolve().parents[2] / "shared" / "data" / "markdown"
_TEXT_BYTES = 1 << 19
_SHORT_TEXT_BYTES = 1 << 17
_MAX_TIME_S = ("0.3", "1.0")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--short", action="store_true", help="no 100,000 units, fewer rounds: under 90 seconds"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("python_files", "bench_*.py")
    config.addinivalue_line("python_functions", "bench_*")
    config.option.benchmark_max_time = Decimal(_MAX_TIME_S[0 if is_short(config) else 1])


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    short = is_short(metafunc.config)
    if "units" in metafunc.fixturenames:
        metafunc.parametrize("units", SHORT_SIZES if short else SIZES)
    if "corpus" in metafunc.fixturenames:
        found = sorted(p.name for p in SHARED_MARKDOWN.glob("*") if any(p.rglob("*.md")))
        metafunc.parametrize("corpus", ["sample"] if short else ["sample", *found])


def pytest_benchmark_update_machine_info(machine_info: dict[str, Any]) -> None:
    """General words only: the results go into the repository."""
    machine_info.clear()
    machine_info.update(
        processors=worker_threads(),
        machine=platform.machine(),
        system=platform.system(),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        sqlite=apsw.sqlite_lib_version(),
        numpy=np.__version__,
    )


def is_short(config: pytest.Config) -> bool:
    return bool(config.getoption("--short"))


@pytest.fixture(scope="session")
def short(request: pytest.FixtureRequest) -> bool:
    return is_short(request.config)


@dataclass(frozen=True, slots=True)
class Index:
    """A built index; `engine` scans, whatever its size, and its models cost next to nothing."""

    memory: Memory
    directory: Path
    engine: Engine
    build_s: float


class Indexes:
    """Synthetic indexes by size, each built when it is first asked for."""

    def __init__(self, root: Path, models: SyntheticModels):
        self.models = models
        self.writer = MemoryWriter()
        self._root = root
        self._memories: dict[int, Memory] = {}
        self._built: dict[int, Index] = {}

    def memory(self, units: int) -> Memory:
        if units not in self._memories:
            self._memories[units] = self.writer.memory(units)
        return self._memories[units]

    def index(self, units: int) -> Index:
        if units not in self._built:
            memory = self.memory(units)
            directory = self._root / str(units)
            engine = Engine.open(directory, models=self.models, ann_threshold=NO_GRAPH)
            start = time.perf_counter()
            engine.index(memory.resources)
            spent = time.perf_counter() - start
            self._built[units] = Index(memory, directory, engine, spent)
        return self._built[units]

    def close(self) -> None:
        for built in self._built.values():
            built.engine.close()


@pytest.fixture(scope="session")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Indexes]:
    models = SyntheticModels.for_profile(COMPACT)
    assert isinstance(models, SyntheticModels)
    held = Indexes(tmp_path_factory.mktemp("indexes"), models)
    yield held
    held.close()
    models.close()


@pytest.fixture(scope="session")
def models() -> Iterator[ModelRuntime]:
    """The compact profile's real models, loaded."""
    runtime = ModelRuntime.for_profile(COMPACT)
    runtime.warm()
    yield runtime
    runtime.close()


@pytest.fixture
def text(corpus: str, short: bool) -> str:
    """The corpus as one text of a fixed length, repeated or cut."""
    root = sample_directory() if corpus == "sample" else SHARED_MARKDOWN / corpus
    texts = (resource.content for resource in read_memory(root))
    return repeated(texts, _SHORT_TEXT_BYTES if short else _TEXT_BYTES)
