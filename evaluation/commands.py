"""The commands of `python -m evaluation`: data on stdout, everything else on stderr.

Exit codes are those of the error tree: 0 ok, 1 failure or a loss beyond the threshold of
`compare`, 2 usage or bad input, 5 not found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from clumsies.errors import EXIT_FAILURE, ClumsiesError, InvalidRequest
from clumsies.models.choice import profile_named
from evaluation import calibration, display, drawing_commands, fixture_commands, tuning
from evaluation.comparison import compare as compare_results
from evaluation.comparison import read_thresholds
from evaluation.datasets import EvaluationSet, PathStyle, find_all, find_set, read_set
from evaluation.fusion_sweep import sweep_fusion
from evaluation.harness import (
    DEFAULT_CACHE,
    DEFAULT_JOBS,
    DEFAULT_WARM,
    SetRun,
    Settings,
    run_set,
    runs_of,
    write_run_files,
)
from evaluation.metrics import Gain
from evaluation.outsiders import empty_shares, run_outsiders
from evaluation.pool import pool
from evaluation.report import Row, write_results
from evaluation.rerank_sweep import sweep_limits
from evaluation.results import SetResult, read_results, result_of
from evaluation.traces import KeptTrace, read_traces, write_traces

app = typer.Typer(
    help="Ranking quality on sets of judged queries.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

app.add_typer(drawing_commands.app)
app.add_typer(fixture_commands.app)

Profile = Annotated[str, typer.Option(help="Model profile.")]
Data = Annotated[Path | None, typer.Option(help="Folder in which sets are found by name.")]
Cache = Annotated[Path, typer.Option(help="Where indexes are kept between runs.")]
Jobs = Annotated[int, typer.Option(min=1, help="Queries asked side by side.")]
Warm = Annotated[int, typer.Option(min=0, help="Queries timed again, warm; 0 for no latency.")]
Paths = Annotated[PathStyle, typer.Option(help="Paths of documents: codes, or spelling the id.")]
Limit = Annotated[int | None, typer.Option("--queries", min=1, help="Only the first N queries.")]
RerankLimit = Annotated[
    int | None, typer.Option(min=1, max=60, help="Candidates reranked; default the profile's.")
]
NdcgGain = Annotated[Gain, typer.Option(help="nDCG gain; they differ for grades above 1 only.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Top = Annotated[int, typer.Option(min=1, help="Weightings shown.")]


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="SET", help="A set's folder, or its name.")],
    *,
    profile: Profile = "compact",
    data: Data = None,
    cache: Cache = DEFAULT_CACHE,
    jobs: Jobs = DEFAULT_JOBS,
    warm: Warm = DEFAULT_WARM,
    paths: Paths = "neutral",
    queries: Limit = None,
    rerank_limit: RerankLimit = None,
    gain: NdcgGain = "exponential",
    as_json: AsJson = False,
    details: Annotated[bool, typer.Option(help="Every query's metrics in the JSON.")] = False,
    run_file: Annotated[Path | None, typer.Option(help="TREC run files, one a variant.")] = None,
    keep_traces: Annotated[Path | None, typer.Option(help="Keep the traces, .jsonl(.gz).")] = None,
) -> None:
    """Ask a set's queries: recall, nDCG and MRR of the four variants, beside grep and bm25s."""
    evaluation_set = read_set(find_set(name, data)).first(queries)
    finished = _run(evaluation_set, Settings(profile, cache, jobs, warm, paths, rerank_limit))
    if run_file is not None:
        write_run_files(run_file, finished)
    if keep_traces is not None:
        write_traces(keep_traces, finished.traces)
    row = _row(evaluation_set, result_of(finished, gain))
    if as_json:
        _print_json(_row_record(row, details=details))
    else:
        _print_row(row)


@app.command(name="all")
def run_all(
    *,
    profile: Profile = "compact",
    data: Data = None,
    cache: Cache = DEFAULT_CACHE,
    jobs: Jobs = DEFAULT_JOBS,
    warm: Warm = DEFAULT_WARM,
    paths: Paths = "neutral",
    queries: Limit = None,
    gain: NdcgGain = "exponential",
    as_json: AsJson = False,
    write: Annotated[
        Path | None, typer.Option(help="Write the Markdown report, set by set.")
    ] = None,
    keep_traces: Annotated[Path | None, typer.Option(help="Folder for the sets' traces.")] = None,
) -> None:
    """Run every set of the data folder (without --data our own, too), beside grep and bm25s."""
    settings = Settings(profile, cache, jobs, warm, paths)
    rows: list[Row] = []
    for folder in find_all(data):
        evaluation_set = read_set(folder).first(queries)
        finished = _run(evaluation_set, settings)
        if keep_traces is not None:
            write_traces(keep_traces / f"{evaluation_set.name}.jsonl.gz", finished.traces)
        rows.append(_row(evaluation_set, result_of(finished, gain)))
        if not as_json:
            _print_row(rows[-1])
        if write is not None:
            command = f"python -m evaluation all --profile {profile}"
            write_results(write, rows, command=command)
    if as_json:
        _print_json([_row_record(row, details=True) for row in rows])
    else:
        display.console().print(display.overview_table(rows))


@app.command()
def cross(
    name: Annotated[str, typer.Argument(metavar="SET", help="The set whose documents are asked.")],
    other: Annotated[str, typer.Argument(metavar="QUERIES", help="The set whose queries ask.")],
    *,
    keep_traces: Annotated[Path, typer.Option(help="Where the traces go, .jsonl(.gz).")],
    profile: Profile = "compact",
    data: Data = None,
    cache: Cache = DEFAULT_CACHE,
    jobs: Jobs = DEFAULT_JOBS,
    paths: Paths = "neutral",
    queries: Limit = None,
) -> None:
    """Ask one set's documents another set's queries: what nothing answers, for `calibrate`."""
    asked = read_set(find_set(name, data)).asked_with(read_set(find_set(other, data)))
    finished = _run(asked.first(queries), Settings(profile, cache, jobs, 0, paths))
    write_traces(keep_traces, finished.traces)
    result = result_of(finished)
    for note in display.result_notes(result):
        display.console().print(note, highlight=False)


@app.command(name="score")
def score_traces(
    traces: Annotated[list[Path], typer.Argument(help="Files of `run --keep-traces`.")],
    gain: NdcgGain = "exponential",
    as_json: AsJson = False,
    details: Annotated[bool, typer.Option(help="Every query's metrics in the JSON.")] = False,
) -> None:
    """Score stored traces again, without an engine."""
    results = [result_of(finished, gain) for finished in runs_of(_load(traces))]
    if as_json:
        _print_json([result.as_dict(details=details) for result in results])
        return
    for result in results:
        _print_row(Row(result, {}))


@app.command()
def compare(
    before: Annotated[Path, typer.Argument(help="JSON of `run` or `all`.")],
    after: Annotated[Path, typer.Argument(help="JSON of the same sets, later.")],
    threshold: Annotated[float, typer.Option(min=0.0, help="Largest loss allowed.")] = 0.0,
    allow: Annotated[
        list[str] | None,
        typer.Option(help="Another threshold: set=loss, metric=loss or set:metric=loss."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two results; exit 1 where a metric lost more than the threshold."""
    changes = compare_results(
        read_results(before), read_results(after), read_thresholds(threshold, allow or [])
    )
    lost = [change for change in changes if change.lost]
    if as_json:
        record = {"verdict": "lost" if lost else "ok", "threshold": threshold}
        _print_json({**record, "changes": [change.as_dict() for change in changes]})
    else:
        display.console().print(display.change_table(changes))
    if lost:
        raise typer.Exit(EXIT_FAILURE)


@app.command()
def tune(
    traces: Annotated[list[Path], typer.Argument(help="Files of `run --keep-traces`.")],
    gain: NdcgGain = "exponential",
    top: Top = 10,
    fine: Annotated[bool, typer.Option(help="Nine values a weight instead of five.")] = False,
) -> None:
    """Sweep the weights of the final blend and of the first pass, rrf_k, and how many to rerank."""
    loaded = _load(traces)
    fusions = sweep_fusion(loaded, gain=gain)
    display.console().print(display.fusion_table(fusions[:top]))
    values = tuple(step / 8 for step in range(9)) if fine else tuning.GRID_VALUES
    profile = profile_named(loaded[0].profile)
    final = tuning.pools_of(loaded, tuning.FINAL_STAGES, gain)
    pinned = tuning.pinned_weights(profile.blend_weights, final.stages)
    grid = _grid(final, values, pinned)
    blends = tuning.sweep_final(final, grid)
    _print_blends("final blend, nDCG@10", final.stages, blends, pinned, top)
    first = tuning.pools_of(loaded, tuning.FIRST_PASS_STAGES, gain)
    pinned = tuning.pinned_weights(profile.first_pass_weights, first.stages)
    cut = profile.rerank_limit
    blends = tuning.sweep_first_pass(first, _grid(first, values, pinned), cut)
    _print_blends(f"first pass, Recall@{cut}", first.stages, blends, pinned, top)
    if profile.first_pass_weights:
        display.console().print(display.limit_table(sweep_limits(loaded, profile, gain=gain)))


@app.command()
def calibrate(
    traces: Annotated[list[Path], typer.Argument(help="Files of `run` and `cross` traces.")],
    features: Annotated[
        list[str] | None, typer.Option("--feature", help="A raw score; default the profile's four.")
    ] = None,
    left_out: Annotated[
        list[Path] | None,
        typer.Option("--left-out", help="Traces of `run` whose answers are taken out; repeatable."),
    ] = None,
) -> None:
    """Fit the chance that the top candidate is relevant, and show what floors do."""
    names = tuple(features) if features else calibration.FEATURES
    unknown = sorted(set(names) - set(calibration.KNOWN_FEATURES))
    if unknown:
        raise InvalidRequest(
            "invalid_request",
            f"unknown feature {unknown[0]!r};"
            f" choose among {', '.join(calibration.KNOWN_FEATURES)}.",
        )
    kept = list(_load(traces))
    kept += [calibration.without_answers(t) for t in _load(left_out or []) if t.answerable]
    examples = calibration.examples_of(kept, names)
    for name in names:
        curve = calibration.area_under_curve(
            examples.only([name]).features[:, 0], examples.relevant
        )
        display.console().print(f"{name} alone: AUC {curve:.4f}", highlight=False)
    _print_calibration(examples)


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="JSON files of `run --json --details`.")],
    write: Annotated[Path, typer.Option(help="Write the Markdown report here.")],
    data: Data = None,
) -> None:
    """Write the Markdown report from results that were kept as JSON."""
    rows = []
    for result in (result for file in results for result in read_results(file)):
        rows.append(_row(_asked(read_set(find_set(result.set_name, data)), result), result))
    write_results(write, rows, command="python -m evaluation report")


@app.command(name="pool")
def pool_judgments(
    name: Annotated[str, typer.Argument(metavar="SET", help="A set's folder, or its name.")],
    *,
    depth: Annotated[int, typer.Option(min=1, help="Documents taken from each ranking.")] = 5,
    unjudged: Annotated[bool, typer.Option(help="Only pairs without a grade.")] = False,
    profile: Profile = "compact",
    data: Data = None,
    cache: Cache = DEFAULT_CACHE,
    jobs: Jobs = DEFAULT_JOBS,
) -> None:
    """Print the pairs that a judge should see: the tops of grep, bm25s and the variants.

    Tab-separated: query, document, grade (empty where nobody judged), rank by ranking.
    """
    evaluation_set = read_set(find_set(name, data))
    finished = _run(evaluation_set, Settings(profile, cache, jobs, warm=0))
    for pair in pool(evaluation_set, finished.traces, depth):
        if not (unjudged and pair.grade is not None):
            print(pair.as_line())


def main() -> None:
    """Run the command line; errors of the tree become one line on stderr and their exit code."""
    try:
        app()
    except ClumsiesError as error:
        print(f"error ({error.code}): {error.message}", file=sys.stderr)
        sys.exit(error.exit_code)


def _run(evaluation_set: EvaluationSet, settings: Settings) -> SetRun:
    with display.progress_of(evaluation_set.name) as step:
        return run_set(evaluation_set, settings, on_step=step)


def _load(files: list[Path]) -> list[KeptTrace]:
    return [trace for file in files for trace in read_traces(file)]


def _print_json(record: object) -> None:
    print(json.dumps(record, ensure_ascii=False))


def _row(evaluation_set: EvaluationSet, result: SetResult) -> Row:
    outsiders = run_outsiders(evaluation_set, result.gain)
    return Row(result, outsiders, empty_shares(evaluation_set))


def _asked(evaluation_set: EvaluationSet, result: SetResult) -> EvaluationSet:
    """The set with the queries of the result alone, for outsiders to stand beside it fairly."""
    return evaluation_set.first(result.queries + result.no_answer.queries)


def _print_row(row: Row) -> None:
    console = display.console()
    console.print(display.result_table(row))
    for note in display.result_notes(row.result):
        console.print(note, highlight=False)


def _row_record(row: Row, *, details: bool) -> dict[str, object]:
    beside = {name: scores.as_dict() for name, scores in row.outsiders.items()}
    record = row.result.as_dict(details=details)
    return {**record, "outsiders": beside, "outsiders_empty": dict(row.outsiders_empty)}


def _grid(
    pools: tuning.Pools, values: Sequence[float], pinned: tuple[float, ...]
) -> list[tuple[float, ...]]:
    grid = tuning.weight_grid(len(pools.stages), values)
    return list(dict.fromkeys([*grid, *([pinned] if pinned else [])]))


def _print_blends(
    title: str,
    stages: tuple[str, ...],
    blends: list[tuning.Blend],
    pinned: tuple[float, ...],
    top: int,
) -> None:
    """The best weightings, and below them the profile's own, equal weights, each stage alone."""
    named = {tuple(1.0 for _ in stages)} | {
        tuple(float(at == number) for at in range(len(stages))) for number in range(len(stages))
    }
    console = display.console()
    console.print(display.blend_table(title, stages, blends[:top]))
    own = [blend for blend in blends if blend.weights == pinned]
    if own:
        console.print(display.blend_table(f"{title}: as the profile pins it", stages, own))
    plain = [blend for blend in blends if blend.weights in named]
    console.print(display.blend_table(f"{title}: equal weights, and each alone", stages, plain))


def _print_calibration(examples: calibration.Examples) -> None:
    console = display.console()
    fitted = calibration.fit(examples)
    unseen = calibration.cross_validated(examples)
    answerable = int(examples.answerable.sum())
    console.print(
        f"{answerable:,} answerable queries ({int(examples.relevant.sum()):,} with a relevant top"
        f" candidate), {len(examples.pools) - answerable:,} without an answer",
        highlight=False,
    )
    for line in display.calibration_lines(fitted):
        console.print(line, highlight=False)
    console.print(
        f"cross-validated: AUC {calibration.area_under_curve(unseen, examples.relevant):.4f},"
        f" log loss {calibration.log_loss(unseen, examples.relevant):.4f}",
        highlight=False,
    )
    floors = calibration.floors(examples, fitted)
    console.print(display.floor_table("relevance floors", floors))
