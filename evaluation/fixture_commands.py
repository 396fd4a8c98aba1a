"""`python -m evaluation fixture`: a file of `clumsies eval export`, asked again or as recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from clumsies.engine.pipeline import Engine
from clumsies.history.fixtures import Fixture, read_fixture
from evaluation import display
from evaluation.fixtures import replayed_run, stored_run
from evaluation.harness import DEFAULT_CACHE, SetRun, Settings, write_run_files
from evaluation.metrics import Gain
from evaluation.report import Row
from evaluation.results import result_of
from evaluation.traces import write_traces

app = typer.Typer()


@app.command()
def fixture(
    file: Annotated[Path, typer.Argument(help="A fixture that `clumsies eval export` wrote.")],
    *,
    stored: Annotated[bool, typer.Option("--stored", help="Score the traces it holds.")] = False,
    profile: Annotated[str, typer.Option(help="Model profile.")] = "compact",
    cache: Annotated[Path, typer.Option(help="Where indexes are kept.")] = DEFAULT_CACHE,
    gain: Annotated[Gain, typer.Option(help="nDCG gain.")] = "exponential",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    details: Annotated[bool, typer.Option(help="Every case's metrics in the JSON.")] = False,
    run_file: Annotated[Path | None, typer.Option(help="TREC run files, one a variant.")] = None,
    keep_traces: Annotated[Path | None, typer.Option(help="Keep the traces, .jsonl(.gz).")] = None,
) -> None:
    """Score a fixture's cases by resource; `compare`, `score` and the sweeps read the output."""
    finished = _run(file.stem, read_fixture(file), stored, Settings(profile, cache))
    if run_file is not None:
        write_run_files(run_file, finished)
    if keep_traces is not None:
        write_traces(keep_traces, finished.traces)
    result = result_of(finished, gain)
    if as_json:
        print(json.dumps(result.as_dict(details=details), ensure_ascii=False))
        return
    console = Console()
    console.print(display.result_table(Row(result, {})))
    for note in display.result_notes(result):
        console.print(note, highlight=False)


def _run(name: str, read: Fixture, stored: bool, settings: Settings) -> SetRun:
    return stored_run(name, read) if stored else replayed_run(name, read, settings, Engine.open)
