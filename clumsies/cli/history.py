"""`clumsies history`: what activations of this directory's project did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.candidate_table import SEPARATOR, candidate_table
from clumsies.cli.connection import Connection, JsonOption, ProjectOption, connected

QUERY_CHARS = 60
_STAGES = ("effective_memory", "index_ensure", "bm25", "embedding", "vector", "rrf", "late")
_LATER_STAGES = ("rerank", "assembly", "persistence", "total")

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, or `latest`: this project's last one.")
]


def list_(
    limit: Annotated[int, typer.Option("--limit", min=1, max=100)] = 20,
    cursor: Annotated[
        str | None, typer.Option("--cursor", help="`next_cursor` of the page before.")
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the project's runs, the latest first."""
    with output.failures(as_json), connected() as daemon:
        payload: dict[str, Any] = {"project_id": daemon.project(project), "limit": limit}
        if cursor is not None:
            payload["cursor"] = cursor
        page = daemon.call("list_retrieval_runs", payload)
        if as_json:
            output.write_json(page)
            return
        if not page["runs"]:
            output.stderr().print("There are no runs yet; `clumsies activate` makes one.")
            return
        output.stdout().print(_run_table(page["runs"]))
        if "next_cursor" in page:
            output.stderr().print(f"[faint]more: --cursor {page['next_cursor']}[/]")


def _run_table(runs: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("run", no_wrap=True)
    table.add_column("when", no_wrap=True)
    table.add_column("ms", justify="right")
    table.add_column("frag.", justify="right")
    table.add_column("outcome", no_wrap=True)
    table.add_column("query", overflow="fold", ratio=1)
    for run in runs:
        table.add_row(
            run["run_id"],
            _moment(run["created_at"]),
            f"{run.get('total_us', 0) / 1000:.0f}",
            str(run.get("returned_fragment_count", 0)),
            Text(run.get("error_code", run["status"])),
            Text(_shortened(run["query"])),
        )
    return table


def show(
    run: RunArgument = "latest",
    limit: Annotated[
        int, typer.Option("--limit", min=1, help="At most this many candidates are drawn.")
    ] = 40,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one run: every candidate's ranks and scores, and why it was left out."""
    with output.failures(as_json), connected() as daemon:
        detail = daemon.call("get_retrieval_run", {"run_id": run_id(daemon, run, project)})
        if as_json:
            output.write_json(detail)
            return
        console = output.stdout()
        console.print(_heading(detail), soft_wrap=True)
        candidates = detail["candidates"]
        console.print(
            candidate_table(
                candidates[:limit], console.width, relevance="reranker_relevance", deltas=True
            )
        )
        if len(candidates) > limit:
            output.stderr().print(f"[faint]… {len(candidates) - limit} more; --limit shows them[/]")
        console.print(_times(detail["run"]), soft_wrap=True)


def _heading(detail: Mapping[str, Any]) -> Text:
    run = detail["run"]
    text = Text(run["query"], style="place")
    text.append(f"\n{run['run_id']}  {_moment(run['created_at'])}  {run['status']}", style="faint")
    if detail["pinned"]:
        text.append("  in the evaluation set", style="score")
    if "error_code" in run:
        text.append(f"\n{run['error_code']} in {run['error_stage']}: ", style="failure")
        text.append(run.get("error_summary", ""))
    else:
        text.append(
            f"\n{run.get('unit_count', 0)} units of {run.get('resource_count', 0)} resources, "
            f"profile {run.get('profile', '?')}",
            style="faint",
        )
    return text


def _times(run: Mapping[str, Any]) -> Text:
    spent = [(name, run.get(f"{name}_us", 0)) for name in (*_STAGES, *_LATER_STAGES)]
    words = [f"{name.replace('_', ' ')} {us / 1000:.1f}" for name, us in spent if us]
    return Text(f"ms: {', '.join(words)}", style="dim")


def clear(
    project: ProjectOption = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove the project's runs; those of evaluation cases stay."""
    with output.failures(as_json), connected() as daemon:
        project_id = daemon.project(project)
        if not yes:
            typer.confirm("Remove all runs that no case pins?", abort=True, err=True)
        cleared = daemon.call("clear_retrieval_runs", {"project_id": project_id})
        if as_json:
            output.write_json(cleared)
            return
        output.stdout().print(f"Removed {cleared['removed']}, kept {cleared['pinned']} pinned.")


def replay(
    limit: Annotated[int, typer.Option("--limit", min=1, max=100)] = 10,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask the latest queries of the memory as it is now, and show what changed rank."""
    with output.failures(as_json), connected() as daemon:
        page = daemon.call(
            "list_retrieval_runs", {"project_id": daemon.project(project), "limit": 100}
        )
        latest: dict[str, str] = {}
        for run in page["runs"]:
            if run["status"] == "succeeded":
                latest.setdefault(run["query"], run["run_id"])
        replays = []
        for name in list(latest.values())[:limit]:
            replays.append(daemon.call("replay_retrieval_run", {"run_id": name}))
            if not as_json:
                _print_replay(replays[-1])
        if as_json:
            output.write_json({"replays": replays})
        elif not replays:
            output.stderr().print("There is no run to replay; `clumsies activate` makes one.")


def _print_replay(replay: Mapping[str, Any]) -> None:
    console = output.stdout()
    line = Text(_shortened(replay["query"]), style="place")
    if not replay["changes"]:
        line.append("  unchanged", style="faint")
    elif not replay["same_memory"]:
        line.append("  the memory changed", style="faint")
    console.print(line, soft_wrap=True)
    for change in replay["changes"]:
        before, after = (_place(change, side) for side in ("before", "after"))
        text = Text(f"  {before:>5} → {after:<5} {change['path']}")
        for heading in change["heading_path"][-1:]:
            text.append(SEPARATOR + heading, style="heading")
        if change["text_changed"]:
            text.append("  new text", style="warning")
        console.print(text, soft_wrap=True)


def _place(change: Mapping[str, Any], side: str) -> str:
    """`3` for a returned fragment, `(3)` for a candidate that was not, `–` for none."""
    rank = change.get(f"{side}_rank")
    if rank is None:
        return "–"
    return str(rank) if change[f"{side}_selected"] else f"({rank})"


def run_id(daemon: Connection, given: str, project: str | None) -> str:
    """The run that was named, or the project's last one for `latest`."""
    if given != "latest":
        return given
    page = daemon.call("list_retrieval_runs", {"project_id": daemon.project(project), "limit": 1})
    return str(page["runs"][0]["run_id"]) if page["runs"] else given


def _shortened(query: str) -> str:
    words = " ".join(query.split())
    return words if len(words) <= QUERY_CHARS else words[:QUERY_CHARS] + "…"


def _moment(text: str) -> str:
    return text[:19].replace("T", " ")
