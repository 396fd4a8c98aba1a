"""`clumsies eval`: cases made of runs, judged, exported, asked again elsewhere, compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.candidate_table import SEPARATOR, candidate_table
from clumsies.cli.connection import Connection, JsonOption, ProjectOption, connected
from clumsies.cli.history import RunArgument, run_id
from clumsies.cli.report_tables import number, read_report, report_table
from clumsies.config import directories
from clumsies.errors import EXIT_FAILURE, InvalidRequest

if TYPE_CHECKING:
    from clumsies.engine.pipeline import Engine
    from clumsies.history.fixtures import Fixture
    from clumsies.history.report import Report

OFFLINE_PROFILE = "compact"

CaseArgument = Annotated[str, typer.Argument(metavar="CASE", help="A case's id.")]
FixtureArgument = Annotated[
    Path, typer.Argument(metavar="FIXTURE", help="A file that `clumsies eval export` wrote.")
]
CategoryOption = Annotated[
    str | None, typer.Option("--category", help="What kind of query it is, in a word.")
]
NotesOption = Annotated[str | None, typer.Option("--notes", help="What a judge should know.")]
GradeOption = Annotated[
    list[str] | None,
    typer.Option("--grade", metavar="N=0..3", help="Grade the candidate with final rank N."),
]
MissedOption = Annotated[
    list[str] | None,
    typer.Option(
        "--missed", metavar="PATH=0..3", help="A resource that should have been found, and grade."
    ),
]


def add(
    run: RunArgument = "latest",
    category: CategoryOption = None,
    notes: NotesOption = None,
    grade: GradeOption = None,
    missed: MissedOption = None,
    export_to: Annotated[
        Path | None, typer.Option("--export", metavar="FILE", help="Write the fixture at once.")
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an evaluation case of a run: its memory and trace are kept from now on."""
    with output.failures(as_json), connected() as daemon:
        payload = {"run_id": run_id(daemon, run, project)}
        case = daemon.call("create_evaluation_case", payload | _labels(category, notes))
        if grade or missed:
            case = _judged(daemon, case, grade or [], missed or [], {})
        if export_to is not None:
            _export(daemon, [case["evaluation_case"]["case_id"]], None, export_to)
        _show_case(case, as_json)


def judge(
    case: CaseArgument,
    grade: GradeOption = None,
    missed: MissedOption = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Forget the grades there are, instead of adding.")
    ] = False,
    category: CategoryOption = None,
    notes: NotesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Grade what a case's run found (0 useless to 3 exactly that), and what it missed."""
    with output.failures(as_json), connected() as daemon:
        found = daemon.call("get_evaluation_case", {"case_id": case})
        if anew:
            found["judgments"] = []
        labels = _labels(category, notes)
        _show_case(_judged(daemon, found, grade or [], missed or [], labels), as_json)


def show(case: CaseArgument, as_json: JsonOption = False) -> None:
    """Show a case: its grades, candidates, numbers, and what else may be evidence."""
    with output.failures(as_json), connected() as daemon:
        _show_case(daemon.call("get_evaluation_case", {"case_id": case}), as_json)


def list_(
    everywhere: Annotated[bool, typer.Option("--all", help="Of all projects.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=1, max=500)] = 100,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the project's cases, the latest first."""
    with output.failures(as_json), connected() as daemon:
        payload: dict[str, Any] = {"limit": limit}
        if not everywhere:
            payload["project_id"] = daemon.project(project)
        page = daemon.call("list_evaluation_cases", payload)
        if as_json:
            output.write_json(page)
            return
        if not page["cases"]:
            output.stderr().print("There are no cases yet; `clumsies eval add` makes one.")
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("case", "category", "version", "query"):
            table.add_column(column, overflow="fold")
        for case in page["cases"]:
            table.add_row(
                case["case_id"],
                Text(case.get("query_category", "")),
                str(case["judgment_version"]),
                Text(" ".join(case["query"].split())),
            )
        output.stdout().print(table)


def remove(
    case: CaseArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Forget a case and its grades. Its run stays in the history until its time is over."""
    with output.failures(as_json), connected() as daemon:
        found = daemon.call("get_evaluation_case", {"case_id": case})
        own = found["evaluation_case"]
        if not yes:
            count = len(found["judgments"])
            grades = f"its {count} grade{'s' * (count != 1)}" if count else "no grades in it"
            query = " ".join(own["query"].split())
            typer.confirm(f"Forget the case “{query}” with {grades}?", abort=True, err=True)
        version = own["judgment_version"]
        removed = daemon.call(
            "remove_evaluation_case", {"case_id": case, "expected_judgment_version": version}
        )
        if as_json:
            output.write_json(removed)
            return
        output.stdout().print(f"Forgot the case {removed['case_id']}")


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the fixture goes.")],
    case: Annotated[
        list[str] | None, typer.Option("--case", metavar="CASE", help="Only this case; repeatable.")
    ] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="Cases of all projects.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the project's cases with all they need into one file. It holds memory text."""
    with output.failures(as_json), connected() as daemon:
        of_project = None if everywhere or case else daemon.project(project)
        done = _export(daemon, case or [], of_project, file)
        if as_json:
            output.write_json(done)
            return
        output.stdout().print(f"Wrote {done['case_count']} cases to {file}", soft_wrap=True)


def import_(
    file: FixtureArgument,
    keep_projects: Annotated[
        bool, typer.Option("--keep-projects", help="Leave cases in the projects they came from.")
    ] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a fixture's cases in this machine's history, for this directory's project."""
    with output.failures(as_json), connected() as daemon:
        payload: dict[str, Any] = {"path": _absolute(file)}
        if not keep_projects:
            payload["project_id"] = daemon.project(project)
        done = daemon.call("import_evaluation_set", payload)
        if as_json:
            output.write_json(done)
            return
        output.stdout().print(
            f"Imported {len(done['imported'])}, {len(done['unchanged'])} were here already."
        )


def run(
    file: FixtureArgument,
    profile: Annotated[
        str | None, typer.Option("--profile", help="Model profile; default: the fixture's.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", metavar="FILE", help="Also write the JSON there.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a fixture's queries of its own memory on this machine: no daemon, no project."""
    from clumsies.history.fixtures import read_fixture

    with output.failures(as_json):
        fixture = read_fixture(file)
        name = profile or _profile_of(fixture)
        report = _replayed(fixture, name)
        body: dict[str, Any] = {
            "profile": name,
            "report": msgspec.to_builtins(report),
            "recorded": msgspec.to_builtins(fixture.report),
        }
        if write is not None:
            _write(write, body)
        if as_json:
            output.write_json(body)
            return
        console = output.stdout()
        cases = len(fixture.cases)
        console.print(report_table(body["report"], f"now: {cases} cases, profile {name}"))
        console.print(report_table(body["recorded"], "as recorded"))


def compare(
    before: Annotated[Path, typer.Argument(help="A fixture, or JSON of `eval run`.")],
    after: Annotated[Path, typer.Argument(help="The same cases, later.")],
    threshold: Annotated[
        float, typer.Option("--threshold", min=0.0, help="Largest loss of a mean that is allowed.")
    ] = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Compare two reports; exit 1 where a mean got worse by more than the threshold."""
    from clumsies.history.comparison import compare_reports

    with output.failures(as_json):
        changes = compare_reports(read_report(before), read_report(after), threshold)
    lost = any(change.lost for change in changes)
    if as_json:
        verdict = {"verdict": "lost" if lost else "ok", "threshold": threshold}
        output.write_json(verdict | {"changes": msgspec.to_builtins(changes)})
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("variant", "metric", "before", "after", ""):
            table.add_column(column, justify="left" if column in ("variant", "metric") else "right")
        for change in changes:
            mark = Text("lost", style="failure") if change.lost else Text("")
            numbers = [number(change.before), number(change.after)]
            table.add_row(change.variant, change.metric, *numbers, mark)
        output.stdout().print(table)
    if lost:
        raise typer.Exit(EXIT_FAILURE)


def _labels(category: str | None, notes: str | None) -> dict[str, Any]:
    given = {"query_category": category, "notes": notes}
    return {name: value for name, value in given.items() if value is not None}


def _judged(
    daemon: Connection,
    case: Mapping[str, Any],
    grades: list[str],
    missed: list[str],
    labels: Mapping[str, Any],
) -> dict[str, Any]:
    """The case with these grades put over those it has."""
    kept = ("resource_id", "relevance", "missed", "unit_key", "notes")
    judgments = {
        (j["resource_id"], j.get("unit_key")): {k: j[k] for k in kept if k in j}
        for j in case["judgments"]
    }
    for given in (*_units(case, grades), *_resources(case, missed)):
        judgments[given["resource_id"], given.get("unit_key")] = given
    own = case["evaluation_case"]
    payload = {
        "case_id": own["case_id"],
        "expected_judgment_version": own["judgment_version"],
        "judgments": list(judgments.values()),
    }
    return daemon.call("replace_evaluation_judgments", payload | dict(labels))


def _units(case: Mapping[str, Any], grades: list[str]) -> Iterator[dict[str, Any]]:
    by_rank = {str(c.get("final_rank")): c for c in case["candidates"]}
    for text in grades:
        rank, grade = _pair(text, "--grade 3=2")
        if rank not in by_rank:
            raise InvalidRequest(
                "invalid_request",
                f"No candidate has the final rank {rank}; `eval show` lists them.",
            )
        unit = by_rank[rank]
        yield {
            "resource_id": unit["resource_id"],
            "unit_key": unit["unit_key"],
            "relevance": grade,
            "missed": False,
        }


def _resources(case: Mapping[str, Any], missed: list[str]) -> Iterator[dict[str, Any]]:
    known = {
        r[name]: r["resource_id"] for r in case["resources"] for name in ("path", "resource_id")
    }
    for text in missed:
        name, grade = _pair(text, "--missed rules/release.md=3")
        if name not in known:
            raise InvalidRequest(
                "invalid_request", f"The searched memory has no {name!r}; give its path or id."
            )
        yield {"resource_id": known[name], "relevance": grade, "missed": True}


def _pair(text: str, example: str) -> tuple[str, int]:
    name, found, grade = text.rpartition("=")
    if not found or grade not in ("0", "1", "2", "3"):
        raise InvalidRequest(
            "invalid_request", f"{text!r} is no grade from 0 to 3; write it like {example}."
        )
    return name, int(grade)


def _show_case(case: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.write_json(case)
        return
    console = output.stdout()
    own = case["evaluation_case"]
    head = Text(own["query"], style="place")
    head.append(f"\n{own['case_id']}  version {own['judgment_version']}", style="faint")
    head.append(f"  {own.get('query_category', '')}", style="heading")
    console.print(head, soft_wrap=True)
    shown = [c for c in case["candidates"] if c.get("reranker_rank") or c["selected"]]
    console.print(
        candidate_table(shown, console.width, relevance="reranker_relevance", deltas=False)
    )
    names = {r["resource_id"]: r["path"] for r in case["resources"]}
    ranks = {c["unit_key"]: c.get("final_rank") for c in case["candidates"]}
    for judgment in case["judgments"]:
        unit = judgment.get("unit_key")
        where = "missed" if unit is None else f"rank {ranks.get(unit)}"
        path = names[judgment["resource_id"]]
        console.print(Text(f"grade {judgment['relevance']}  {path}  ({where})"), soft_wrap=True)
    for found in case["suggestions"]:
        place = SEPARATOR.join([found["path"], *found["heading_path"][-1:]])
        console.print(
            Text(f"look at  {place}  (dropped in {found['failure_stage']})", style="faint"),
            soft_wrap=True,
        )
    console.print(report_table(case["report"], "as recorded"))


def _export(
    daemon: Connection, cases: list[str], project_id: str | None, file: Path
) -> dict[str, Any]:
    payload: dict[str, Any] = {"path": _absolute(file), "case_ids": cases}
    if project_id is not None:
        payload["project_id"] = project_id
    return daemon.call("export_evaluation_set", payload)


def _absolute(file: Path) -> str:
    return str(file.expanduser().absolute())


def _profile_of(fixture: Fixture) -> str:
    return next((c.source_run.profile for c in fixture.cases if c.source_run.profile), None) or (
        OFFLINE_PROFILE
    )


def _replayed(fixture: Fixture, profile: str) -> Report:
    from clumsies.engine.pipeline import Engine
    from clumsies.history.replay import replay_fixture, replayed_report

    def opened(corpus_id: str) -> AbstractContextManager[Engine]:
        return Engine.open(directories().searches / f"{profile}-{corpus_id[-32:]}", profile)

    replayed = []
    for case, trace in replay_fixture(fixture, opened):
        replayed.append((case, trace))
        output.stderr().print(f"[faint]asked {len(replayed)} of {len(fixture.cases)}[/]")
    return replayed_report(replayed)


def _write(file: Path, body: Mapping[str, Any]) -> None:
    from clumsies.files import io_failed, write_private

    try:
        write_private(file, [msgspec.json.format(msgspec.json.encode(body), indent=1)])
    except OSError as error:
        raise io_failed(error, "write", file) from error
