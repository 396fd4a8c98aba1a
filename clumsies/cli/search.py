"""`clumsies search` and `clumsies demo`: an engine over a directory's Markdown, no daemon."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from clumsies.cli import output
from clumsies.cli.build_progress import build_progress
from clumsies.cli.fragments import (
    answer_object,
    explanation_object,
    print_answer,
    print_explanation,
    summary,
)
from clumsies.config import DEFAULT_RESOURCE_LIMIT_BYTES, directories, model_profile
from clumsies.engine.activation import FRAGMENT_LIMIT, Budget
from clumsies.engine.pipeline import Answer, Engine
from clumsies.errors import IndexFailed, IoFailed, NotFound
from clumsies.memory.directory import DirectoryScan
from clumsies.types import Resource

SAMPLE = Path(__file__).parent / "sample"
DEMO_CUE = (
    "two couriers were offline and their phones disagree about one parcel, which version is kept"
)
OFFLINE_PROFILE = "compact"

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]
ExplainOption = Annotated[
    bool,
    typer.Option("--explain", help="Show every candidate: ranks, scores, and why it was left out."),
]
LimitOption = Annotated[
    int, typer.Option("--limit", min=1, max=100, help="At most this many fragments.")
]
FullOption = Annotated[bool, typer.Option("--full", help="Print fragments whole.")]
ProfileOption = Annotated[
    str | None,
    typer.Option(
        "--profile",
        help="Model profile; default: CLUMSIES_MODEL_PROFILE, else the one that `clumsies models "
        "use` chose, else compact (offline).",
    ),
]


def search(
    query: Annotated[str, typer.Argument(help="What you are about to do, in plain words.")],
    directory: Annotated[
        Path, typer.Option("--in", metavar="DIR", help="The directory whose Markdown is searched.")
    ] = Path(),
    limit: LimitOption = FRAGMENT_LIMIT,
    explain: ExplainOption = False,
    full: FullOption = False,
    as_json: JsonOption = False,
    profile: ProfileOption = None,
) -> None:
    """Print the fragments of a directory's Markdown that matter for QUERY.

    The index is kept in the cache and brought up to date by the next call; only files that changed
    are read into it again. `.gitignore` is honoured.
    """
    with output.failures(as_json):
        answer = search_directory(query, directory, limit, profile)
        show(answer, as_json=as_json, explain=explain, full=full)


def demo(
    query: Annotated[str, typer.Argument(help="A task cue for the sample memory.")] = DEMO_CUE,
    limit: LimitOption = 3,
    explain: ExplainOption = False,
    full: FullOption = False,
    as_json: JsonOption = False,
) -> None:
    """Search the sample memory of a made-up company that ships with clumsies."""
    with output.failures(as_json):
        if not as_json:
            output.stderr().print(f"[faint]cue:[/] {query}\n", soft_wrap=True)
        answer = search_directory(query, SAMPLE, limit, OFFLINE_PROFILE)
        show(answer, as_json=as_json, explain=explain, full=full)


def search_directory(query: str, directory: Path, limit: int, profile: str | None) -> Answer:
    """Bring the directory's index up to date and ask it."""
    root = directory.expanduser().absolute()
    name = profile or model_profile() or OFFLINE_PROFILE
    with _engine(root, name) as engine:
        _bring_up_to_date(engine, root)
        return engine.activate(query, budget=Budget(fragments=limit))


def index_directory(root: Path) -> Path:
    """Where the index of a directory is kept: by the directory's real path."""
    real = str(root.resolve())
    key = hashlib.sha256(real.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return directories().searches / key


def _engine(root: Path, profile: str) -> Engine:
    """The directory's engine; a damaged index is derived data, so it is made anew, with a word."""
    if not root.is_dir():
        raise NotFound("not_found", f"There is no directory {root}; check the path.")
    place = index_directory(root)
    try:
        return Engine.open(place, profile)
    except IndexFailed as error:
        if error.code != "search_index_corrupt":
            raise
        output.warn(f"the index of {root} is damaged or of another version; it is built anew")
        Engine.discard(place)
        return Engine.open(place, profile)


def _bring_up_to_date(engine: Engine, root: Path) -> None:
    scan = DirectoryScan(root, DEFAULT_RESOURCE_LIMIT_BYTES)
    with build_progress() as progress:
        report = engine.index(_with_kept(engine, scan), progress=progress)
    for item in scan.warnings:
        output.warn(f"{item.path} {item.reason}; left out")
    if report.inputs_cut:
        output.warn(f"{report.inputs_cut} passages were longer than the model reads and were cut")
    if report.resources:
        return
    if scan.unread:
        raise IoFailed(
            "io_error", f"None of the Markdown files in {root} could be read; see the warnings."
        )
    raise NotFound("not_found", f"There is no Markdown in {root}; name a directory with .md files.")


def _with_kept(engine: Engine, scan: DirectoryScan) -> Iterator[Resource]:
    """What the scan reads, then what was indexed of files that it could not read this time."""
    yield from scan.resources()
    kept = [name for name in engine.resource_ids() if scan.was_unread(name)]
    for resource in engine.resources(kept):
        output.warn(f"{resource.path} is searched as it was when it could last be read")
        yield resource


def show(answer: Answer, *, as_json: bool, explain: bool, full: bool) -> None:
    """Print an answer the way the options ask for."""
    if as_json:
        body = answer_object(answer)
        if explain:
            body["candidates"] = explanation_object(answer)
        output.write_json(body)
        return
    console = output.stdout()
    if explain:
        print_explanation(console, answer)
    else:
        print_answer(console, answer, full=full)
    errors = output.stderr()
    if not answer.response.fragments:
        errors.print("Nothing in this memory is about that.")
    errors.print(f"[faint]{summary(answer)}[/]", soft_wrap=True)
