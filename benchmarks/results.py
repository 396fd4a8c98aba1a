"""`python -m benchmarks.results benchmarks.json`: the run's ratios as `benchmarks/RESULTS.md`.

Every number is a ratio of two medians of one run: on another machine, or on a busy one, seconds
mean nothing. `benchmarks/NOTES.md` is written by hand and appended as it stands.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
COMMANDS = """\
```
python -m pytest benchmarks -q --benchmark-json=benchmarks.json
python -m benchmarks.results benchmarks.json
```"""
_STAGES = ("index_ensure", "bm25", "vector", "rrf", "late", "rerank", "assembly")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`other` took how many times as long as `ours`; names of benchmarks without parameters."""

    what: str
    ours: str
    other: str


KERNELS = (
    Comparison("block scan, beside markdown-it-py (CommonMark)", "scan", "markdown_it"),
    Comparison("block scan, beside markdown-it-py without inlines", "scan", "markdown_it_blocks"),
    Comparison("block scan, beside MarkdownSplitter by characters", "scan", "markdown_splitter"),
    Comparison("units with tokens, beside MarkdownSplitter", "units", "markdown_splitter_tokens"),
    Comparison("block scan, beside the tokenizer alone", "scan", "tokenization"),
    Comparison("search terms, beside the tokenizer alone", "terms", "tokenization"),
)
FUSION = (
    Comparison("rank fusion of 2 x 60, beside NumPy", "fusion", "fusion_numpy"),
    Comparison("rank fusion of 2,000 queries, beside NumPy", "fusion_batch", "fusion_batch_numpy"),
)
MODELS = (
    Comparison(
        "passages one a call side by side, beside padded batches of 8",
        "passages_side_by_side",
        "passages_padded[unsorted]",
    ),
    Comparison(
        "the same, beside batches sorted by length",
        "passages_side_by_side",
        "passages_padded[sorted]",
    ),
    Comparison(
        "a query's pairs side by side, beside one session on all threads",
        "rerank_pairs_side_by_side",
        "rerank_pairs_wide_session",
    ),
    Comparison(
        "the same, beside sorted batches of 8 on all threads",
        "rerank_pairs_side_by_side",
        "rerank_padded_wide_session",
    ),
    Comparison("query embedding, beside reranking", "query_embedding", "rerank"),
    Comparison("late pass over 60 cached, beside reranking", "late_cached", "rerank"),
    Comparison("late pass over 60 cached, beside 60 new ones", "late_cached", "late_cold"),
    Comparison("reranking, beside a whole warm activation", "rerank", "activation"),
)
PEERS = (
    Comparison("BM25 through SQLite, beside bm25s in memory", "lexical", "lexical_bm25s"),
    Comparison("exact vector scan, beside NumPy brute force", "vectors", "vectors_numpy"),
    Comparison("BM25 + vectors + RRF, beside LanceDB's hybrid", "hybrid", "hybrid_lancedb"),
)


class Run:
    """One run's benchmarks by name; a name is without `bench_`, with its parameter."""

    def __init__(self, data: dict[str, Any], statistic: str = "median"):
        self.machine: dict[str, Any] = data["machine_info"]
        self._statistic = statistic
        self._found = {b["name"].removeprefix("bench_"): b for b in data["benchmarks"]}

    def seconds(self, name: str) -> float | None:
        found = self._found.get(name)
        return None if found is None else float(found["stats"][self._statistic])

    def extra(self, name: str, key: str) -> Any:
        """What the benchmark noted under `key`; None without it."""
        return self._found.get(name, {"extra_info": {}})["extra_info"].get(key)

    def ratio(self, over: str, under: str) -> float | None:
        """Seconds of `over` in those of `under`; None where either was not run."""
        top, bottom = self.seconds(over), self.seconds(under)
        return None if top is None or bottom is None else top / bottom

    def parameters(self, name: str) -> list[str]:
        """The parameters `name` ran with, `""` for none, numbers in ascending order."""
        found = [full[len(name) :].strip("[]") for full in self._found if full == name]
        found += [f[len(name) + 1 : -1] for f in self._found if f.startswith(f"{name}[")]
        return sorted(found, key=lambda p: (int(p) if p.isdigit() else 0, p))


def named(name: str, parameter: str) -> str:
    return f"{name}[{parameter}]" if parameter and "[" not in name else name


def figure(value: float) -> str:
    """Two or three digits that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2g}" if value < 1 else f"{value:.2f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def comparisons(run: Run, wanted: Sequence[Comparison], parameter: str) -> str:
    """A table of ratios, a column for each parameter the run has."""
    columns = list(dict.fromkeys(p for each in wanted for p in run.parameters(each.ours)))
    rows = []
    for each in wanted:
        ratios = [run.ratio(named(each.other, c), named(each.ours, c)) for c in columns]
        # A comparison without the parameter stands in the first column.
        if run.parameters(each.ours) == [""]:
            ratios = [run.ratio(each.other, each.ours)] + [None] * (len(columns) - 1)
        rows.append([each.what, *("" if r is None else f"{figure(r)} x" for r in ratios)])
    heads = [f"{int(c):,}" if c.isdigit() else c or "times as long" for c in columns]
    return table([parameter, *heads], rows)


@dataclass(frozen=True, slots=True)
class Demand:
    """A ratio that must stay on one side of its bound; `measured` None: not in this run."""

    what: str
    measured: float | None
    bound: float
    at_least: bool = False

    def row(self) -> list[str]:
        relation = "at least" if self.at_least else "at most"
        wanted = f"{relation} {figure(self.bound)}"
        if self.measured is None:
            return [self.what, wanted, "not in this run", ""]
        holds = self.measured >= self.bound if self.at_least else self.measured <= self.bound
        return [self.what, wanted, figure(self.measured), "holds" if holds else "does not hold"]


def demands(run: Run) -> Iterator[Demand]:
    """What the project promises about its speed."""
    for corpus in run.parameters("scan"):
        ratio = run.ratio(named("markdown_it", corpus), named("scan", corpus))
        yield Demand(f"block scan over markdown-it-py, {corpus}", ratio, 50, at_least=True)
    yield Demand(
        "non-model time over model time, 10,000 units",
        run.ratio("non_model[10000]", "model_time[10000]"),
        0.1,
    )
    yield Demand(
        "non-model time, 100,000 units over 10,000, exact scan",
        run.ratio("non_model[100000]", "non_model[10000]"),
        4,
    )
    yield Demand(
        "non-model time, 100,000 units over 10,000, neighbour graph",
        run.ratio("non_model_graph[100000]", "non_model[10000]"),
        4,
    )
    for units in ("10000", "100000"):
        built = run.extra(named("build", units), "build_s")
        update = run.seconds(named("update", units))
        share = None if built is None or update is None else update / built
        yield Demand(
            f"one resource's update over the full build, {int(units):,} units", share, 0.01
        )
    yield Demand(
        "`initialize` of the MCP proxy over an interpreter that imports asyncio and json",
        run.extra("proxy_initialize", "over_asyncio_json"),
        3,
    )
    for name, memory in (("history_sample", "the sample"), ("history_large", "10,000 units")):
        for key, what in (
            ("in_the_way", "what an answer waits for its run"),
            ("beside", "recording a run, processor time"),
            ("changed_memory", "the same after one resource changed"),
        ):
            measured = run.extra(name, key)
            yield Demand(f"{what}, over a compact activation, {memory}", measured, 0.05)
    yield Demand(
        "`health` between a client and the daemon, median milliseconds",
        run.extra("health_round_trip", "median_ms"),
        1,
    )


def stages(run: Run) -> str:
    """Median microseconds of each stage as shares of the activation at 10,000 units."""
    names = [n for n in ("non_model", "non_model_graph") for _ in run.parameters(n)]
    keys = [
        named(name, parameter)
        for name in dict.fromkeys(names)
        for parameter in run.parameters(name)
    ]
    base = run.extra("non_model[10000]", "stages_us")
    if base is None:
        return "Not in this run."
    rows = []
    for key in keys:
        times = run.extra(key, "stages_us")
        shares = [times[f"{stage}_us"] / base["total_us"] for stage in (*_STAGES, "total")]
        size = key[key.index("[") + 1 : -1]
        label = f"{int(size):,}" + (", graph" if "graph" in key else "")
        rows.append([label, *(figure(share) for share in shares)])
    return table(["units", *_STAGES, "total"], rows)


def index_rates(run: Run) -> str:
    """Build throughput and the cost of changes, as ratios within the run."""
    rows = []
    tokenized = run.extra("tokenization[sample]", "bytes")
    seconds = run.seconds("tokenization[sample]")
    for units in run.parameters("build"):
        built = float(run.extra(named("build", units), "build_s"))
        rate = run.extra(named("build", units), "bytes") / built
        beside = "" if seconds is None else figure(rate / (tokenized / seconds))
        update = run.seconds(named("update", units))
        unchanged = run.seconds(named("unchanged", units))
        shares = ["" if s is None else f"{100 * s / built:.2g} %" for s in (update, unchanged)]
        rows.append([f"{int(units):,}", beside, *shares])
    head = ["units", "bytes/s over the tokenizer's", "one update / build", "no change / build"]
    return table(head, rows)


def machine(run: Run) -> str:
    info = run.machine
    return (
        f"{info['processors']} processors ({info['machine']}, {info['system']}), "
        f"{info['python']}, SQLite {info['sqlite']}, NumPy {info['numpy']}"
    )


def document(run: Run, notes: str) -> str:
    rows = [demand.row() for demand in demands(run)]
    parts = [
        "# Benchmarks",
        f"Every number is a ratio within one run, of medians. {machine(run)}. To reproduce:",
        COMMANDS,
        "`--short` leaves out what takes long. The indexes are synthetic Markdown with hashing "
        "vectors (`synthetic.py`): they measure cost, not quality.",
        "## What must hold",
        table(["demand", "wanted", "measured", ""], rows),
        "The non-model time is the whole activation with models that cost next to nothing, late "
        "interaction over cached token vectors included; the model time is the compact models' "
        "query embedding and cross-encoder alone. A build spends nothing on embedding here, so an "
        "update's share of a real one is smaller.",
        "## Kernels",
        "How many times as long the other takes.",
        comparisons(run, KERNELS, "text"),
        comparisons(run, FUSION, "fusion"),
        "## Stages of an activation without models",
        "1 is the whole non-model time at 10,000 units. `late` is late interaction over cached "
        "token vectors, `rerank` what stands around the cross-encoder.",
        stages(run),
        "## Index",
        index_rates(run),
        "## Models",
        comparisons(run, MODELS, "compact profile"),
        "## Peers",
        "How many times as long the peer takes, by units; below 1 it is faster.",
        comparisons(run, PEERS, "60 best"),
    ]
    return "\n\n".join([*parts, notes.strip()]).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.results")
    parser.add_argument("run", type=Path, help="what --benchmark-json wrote")
    parser.add_argument("--output", type=Path, default=HERE / "RESULTS.md")
    parser.add_argument("--statistic", choices=["median", "min"], default="median")
    given = parser.parse_args()
    run = Run(json.loads(given.run.read_text(encoding="utf-8")), given.statistic)
    notes = HERE / "NOTES.md"
    text = notes.read_text(encoding="utf-8") if notes.exists() else ""
    given.output.write_text(document(run, text), encoding="utf-8")
    print(f"wrote {given.output}")


if __name__ == "__main__":
    main()
