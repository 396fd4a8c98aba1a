"""The commands that draw results: `plot` and `html`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clumsies.errors import InvalidRequest, NotFound
from evaluation.cases import Cases, Source, cases_of
from evaluation.datasets import EvaluationSet, find_set, read_set
from evaluation.page import page
from evaluation.plots import write_plots
from evaluation.results import SetResult, read_results
from evaluation.traces import KeptTrace, read_traces

app = typer.Typer()

Results = Annotated[
    list[Path], typer.Argument(metavar="RESULTS...", help="JSON of `run --json --details`.")
]


@app.command()
def plot(
    results: Results,
    out: Annotated[Path, typer.Option(help="Folder for the plots, SVG and PNG.")],
) -> None:
    """Draw quality, latency and query-by-query differences (needs the extra `plots`)."""
    for file in write_plots(_read(results), out):
        print(file)


@app.command(name="html")
def write_page(
    results: Results,
    out: Annotated[Path, typer.Option(help="Write the page here.")],
    traces: Annotated[
        list[Path] | None, typer.Option(help="Traces of the same runs, for candidate tables.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder in which sets are found.")] = None,
    count: Annotated[
        int, typer.Option("--queries", min=0, help="Worst and best queries shown of each set.")
    ] = 5,
) -> None:
    """Write one page of tables, plots, and worst and best queries; it needs nothing else."""
    loaded = _read(results)
    kept = [trace for file in traces or [] for trace in read_traces(file)]
    out.write_text(
        page(loaded, [_cases(result, kept, data, count) for result in loaded]), encoding="utf-8"
    )
    print(out)


def _read(files: list[Path]) -> list[SetResult]:
    found = [result for file in files for result in read_results(file)]
    if not found:
        raise InvalidRequest("invalid_request", "these files hold no result. Give files of `run`.")
    return found


def _cases(result: SetResult, kept: list[KeptTrace], data: Path | None, count: int) -> Cases:
    own = tuple(
        trace
        for trace in kept
        if (trace.set_name, trace.profile) == (result.set_name, result.profile)
    )
    return cases_of(result, Source(_set_of(result, data), own), count)


def _set_of(result: SetResult, data: Path | None) -> EvaluationSet | None:
    """The set with the queries' texts; None where it is not at hand: a page can do without."""
    try:
        return read_set(find_set(result.set_name, data))
    except NotFound:
        return None
