"""What each way of running the compact models costs beside the way the engine runs them.

    python -m benchmarks.bench_model_speed [--rounds N]

Variants take turns within a round, so that what else the machine does falls on all of them. Two
ratios are given: of the quickest rounds, and of processor time (all threads of the process, median
over rounds), which other programs hardly change.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from onnxruntime import GraphOptimizationLevel as Level

from benchmarks.results import figure, table
from benchmarks.synthetic import read_memory, sample_directory
from clumsies.config import worker_threads
from clumsies.engine.units import InputBudget, model_text, split
from clumsies.models.manifest import COMPACT
from clumsies.models.preparation import PACKAGED_ROOT
from clumsies.models.runtime import ModelRuntime
from clumsies.models.sessions import WorkerPool
from clumsies.models.tokenizer import ModelInput

QUERY = "How do we roll back a release that already ran its database migration?"
WORKERS = 2
OURS = "ours"
NO_SPINNING = {
    "session.intra_op.allow_spinning": "0",
    "session.inter_op.allow_spinning": "0",
}
MAPPED = {
    "session.use_memory_mapped_ort_model": "1",
    "session.use_ort_model_bytes_for_initializers": "1",
}
NO_PREPACKING = {"session.disable_prepacking": "1"}

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Beside OURS: the quickest round's wall time, and the processor time."""

    wall: float
    processor: float


class Graph:
    """A session of any options; the engine's are the defaults."""

    def __init__(
        self,
        path: Path,
        *,
        threads: int = 1,
        level: Level = Level.ORT_ENABLE_ALL,
        entries: Mapping[str, str] | None = None,
        save_to: Path | None = None,
    ):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.graph_optimization_level = level
        options.log_severity_level = 3
        for key, value in (NO_SPINNING | dict(entries or {})).items():
            options.add_session_config_entry(key, value)
        if save_to is not None:
            options.optimized_model_filepath = str(save_to)
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._names = {item.name for item in self._session.get_inputs()}

    def run(self, pair: ModelInput) -> float:
        feeds = {
            "input_ids": np.asarray([pair.ids], dtype=np.int64),
            "attention_mask": np.ones((1, len(pair)), dtype=np.int64),
            "token_type_ids": np.asarray([pair.type_ids], dtype=np.int64),
        }
        used = {name: array for name, array in feeds.items() if name in self._names}
        return float(self._session.run(None, used)[0].reshape(-1)[0])

    def run_all(self, pairs: Sequence[ModelInput]) -> list[float]:
        return [self.run(pair) for pair in pairs]


def sample_pairs() -> list[ModelInput]:
    """`rerank_limit` pairs of the sample memory, spread over it, in the order of its files."""
    models = ModelRuntime.for_profile(COMPACT, threads=1)
    budget = InputBudget.of(models.tokenizer, COMPACT.max_tokens, "")
    texts = [
        model_text(resource.path, unit.heading_path, unit.text)
        for resource in read_memory(sample_directory())
        for unit in split(resource, models.tokenizer, budget)
    ]
    chosen = texts[:: len(texts) // COMPACT.rerank_limit][: COMPACT.rerank_limit]
    pairs = models.reranker.inputs(QUERY, chosen)
    models.close()
    return pairs


def taking_turns(variants: Mapping[str, Work], rounds: int) -> dict[str, Ratio]:
    """What each variant takes beside OURS."""
    walls: dict[str, list[float]] = {name: [] for name in variants}
    processor: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds):
        names = list(variants)
        if number % 2:
            names.reverse()
        for name in names:
            wall, used = time.perf_counter(), time.process_time()
            variants[name]()
            walls[name].append(time.perf_counter() - wall)
            processor[name].append(time.process_time() - used)
    return {
        name: Ratio(
            min(walls[name]) / min(walls[OURS]),
            statistics.median(np.divide(processor[name], processor[OURS]).tolist()),
        )
        for name in variants
    }


def on_pool(pool: WorkerPool, graph: Graph, pairs: Sequence[ModelInput], sign: int) -> Work:
    """The pairs side by side; `sign` 1 starts the longest first, -1 the shortest, 0 as given."""
    return lambda: pool.map(graph.run, pairs, cost=lambda pair: sign * len(pair))


def side_by_side(path: Path, pairs: list[ModelInput], rounds: int) -> dict[str, Ratio]:
    """Who uses the processors: calls beside each other, or threads within one."""
    pool, one, two = WorkerPool(WORKERS), Graph(path), Graph(path, threads=WORKERS)
    sessions = [Graph(path), Graph(path)]
    spinning = Graph(path, threads=WORKERS, entries=dict.fromkeys(NO_SPINNING, "1"))
    halves = [pairs[0::2], pairs[1::2]]
    for graph in (one, two, spinning, *sessions):
        graph.run_all(pairs)

    def separate() -> object:
        work = list(zip(sessions, halves, strict=True))
        return pool.map(lambda item: item[0].run_all(item[1]), work, cost=lambda _: 1)

    found = taking_turns(
        {
            OURS: on_pool(pool, one, pairs, 1),
            "two sessions of one thread, half of the pairs each": separate,
            "one session of two threads, pair after pair": lambda: two.run_all(pairs),
            "the same, threads spinning": lambda: spinning.run_all(pairs),
            "one session of one thread, pair after pair": lambda: one.run_all(pairs),
        },
        rounds,
    )
    pool.close()
    return found


def orders(path: Path, pairs: list[ModelInput], rounds: int) -> dict[str, Ratio]:
    """Which pair starts first on the pool."""
    pool, graph = WorkerPool(WORKERS), Graph(path)
    graph.run_all(pairs)
    by_length = sorted(pairs, key=len)
    found = taking_turns(
        {
            OURS: on_pool(pool, graph, pairs, 1),
            "as they come": on_pool(pool, graph, pairs, 0),
            "shortest first": on_pool(pool, graph, pairs, -1),
            "longest first, all at the longest's length": on_pool(
                pool, graph, [by_length[-1]] * len(pairs), 1
            ),
        },
        rounds,
    )
    pool.close()
    return found


def levels(path: Path, pairs: list[ModelInput], rounds: int) -> tuple[dict[str, Ratio], ...]:
    """Graph optimisation: seconds of a pass, and of opening the session."""
    named = {
        OURS: Level.ORT_ENABLE_ALL,
        "extended": Level.ORT_ENABLE_EXTENDED,
        "basic": Level.ORT_ENABLE_BASIC,
        "none": Level.ORT_DISABLE_ALL,
    }
    graphs = {name: Graph(path, level=level) for name, level in named.items()}
    for graph in graphs.values():
        graph.run_all(pairs)
    runs = {name: _run(graph, pairs) for name, graph in graphs.items()}
    opens = {name: _open(path, level=level) for name, level in named.items()}
    return taking_turns(runs, rounds), taking_turns(opens, rounds)


def mappings(path: Path, pairs: list[ModelInput], rounds: int) -> tuple[dict[str, Ratio], ...]:
    """ORT-format files, which alone can be mapped: seconds of a pass, and of opening."""
    with tempfile.TemporaryDirectory() as place:
        ort = Path(place) / "model.ort"
        Graph(path, entries={"session.save_model_format": "ORT"}, save_to=ort)
        ways: dict[str, tuple[Path, dict[str, str]]] = {
            OURS: (path, {}),
            "without prepacked weights": (path, NO_PREPACKING),
            "ORT format, read": (ort, {}),
            "ORT format, mapped": (ort, MAPPED),
            "ORT format, mapped, without prepacked weights": (ort, MAPPED | NO_PREPACKING),
        }
        graphs = {name: Graph(file, entries=entries) for name, (file, entries) in ways.items()}
        expected = graphs[OURS].run_all(pairs)
        for name, graph in graphs.items():
            found = graph.run_all(pairs)
            if not np.allclose(found, expected, atol=1e-4):
                raise SystemExit(f"{name}: other scores than ours")
        runs = {name: _run(graph, pairs) for name, graph in graphs.items()}
        opens = {name: _open(file, entries=e) for name, (file, e) in ways.items()}
        return taking_turns(runs, rounds), taking_turns(opens, rounds)


def warm_up(path: Path, pairs: list[ModelInput], rounds: int) -> dict[str, float]:
    """Opening a session and its first calls, beside a later call of the same pair."""
    pair = sorted(pairs, key=len)[len(pairs) // 2]
    held: list[Graph] = []

    def opening() -> object:
        held[:] = [Graph(path)]
        return held

    steps = {"opening": opening, "first call": lambda: held[0].run(pair)}
    ratios: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        spent = {name: _seconds(work) for name, work in steps.items()}
        later = statistics.median(_seconds(lambda: held[0].run(pair)) for _ in range(9))
        for name, seconds in spent.items():
            ratios[name].append(seconds / later)
    return {name: statistics.median(found) for name, found in ratios.items()}


def _run(graph: Graph, pairs: list[ModelInput]) -> Work:
    return lambda: graph.run_all(pairs)


def _open(path: Path, *, level: Level = Level.ORT_ENABLE_ALL, **options: dict[str, str]) -> Work:
    return lambda: Graph(path, level=level, entries=options.get("entries"))


def _seconds(work: Work) -> float:
    """Processor time."""
    start = time.process_time()
    work()
    return time.process_time() - start


def rows(
    ours: str, ratios: Mapping[str, Ratio], opening: Mapping[str, Ratio] | None = None
) -> list[list[str]]:
    """A table's rows: OURS under the name `ours`, then the others."""
    found = []
    for name, ratio in ratios.items():
        row = [ours if name == OURS else name, *map(_times, (ratio.wall, ratio.processor))]
        if opening is not None:
            row.append(_times(opening[name].processor))
        found.append(row)
    return found


def _times(ratio: float) -> str:
    return f"{figure(ratio)} x"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_model_speed")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each table (15)")
    rounds = parser.parse_args().rounds
    path = PACKAGED_ROOT / COMPACT.reranker.model_file.path
    pairs = sample_pairs()
    some = pairs[::3]
    lengths = sorted(map(len, pairs))
    print(
        f"The compact reranker, {len(pairs)} pairs of {lengths[0]} to {lengths[-1]} tokens "
        f"(median {lengths[len(lengths) // 2]}), {worker_threads()} processors, ONNX Runtime "
        f"{onnxruntime.__version__}, {rounds} rounds.\n"
    )
    beside = ["time", "processor time"]
    ours = "one session of one thread, pairs side by side on two threads (ours)"
    show(["processors", *beside], rows(ours, side_by_side(path, pairs, rounds)))
    ours = "longest first (ours)"
    show(["order on the pool", *beside], rows(ours, orders(path, pairs, rounds)))
    opens = [*beside, "opening, processor time"]
    show(["graph optimisation", *opens], rows("all (ours)", *levels(path, some, rounds)))
    show(["weights", *opens], rows("ONNX, read (ours)", *mappings(path, some, rounds)))
    warm = [[name, _times(ratio)] for name, ratio in warm_up(path, pairs, rounds).items()]
    show(["warm-up", "processor time beside a later call"], warm)


def show(head: Sequence[str], body: Sequence[Sequence[str]]) -> None:
    print(table(head, body), "\n", flush=True)


if __name__ == "__main__":
    main()
