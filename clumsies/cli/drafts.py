"""`clumsies drafts`: what was stored and is not the team's yet: list, show, submit, rebase."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.connection import Connection, JsonOption, ProjectOption, connected
from clumsies.cli.difference import print_change, print_conflicts
from clumsies.cli.short_ids import shown, whole
from clumsies.errors import EXIT_CONFLICT, Conflict, InvalidRequest, IoFailed
from clumsies.memory.text_merge import (
    TextMerge,
    conflict_marker_size,
    conflict_text,
    has_conflict_markers,
    merge_texts,
)

SYNC_WAIT_S = 120.0

DraftArgument = Annotated[
    str, typer.Argument(metavar="DRAFT", help="The draft's id, or its beginning.")
]
StatusOption = Annotated[
    str | None, typer.Option("--status", help="open, submitted, merged or discarded.")
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=500)]


def default_(
    context: typer.Context,
    status: StatusOption = None,
    limit: LimitOption = 100,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """What was stored and is not the team's yet. Alone it lists."""
    if context.invoked_subcommand is None:
        list_(status, limit, project, as_json)


def list_(
    status: StatusOption = None,
    limit: LimitOption = 100,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the project's drafts, the latest changed first."""
    with output.failures(as_json), connected() as daemon:
        payload: dict[str, Any] = {"project_id": daemon.project(project), "limit": limit}
        if status is not None:
            payload["status"] = status
        page = daemon.call("list_drafts", payload)
        if as_json:
            output.write_json(page)
            return
        if not page["drafts"]:
            output.stderr().print("There are no drafts.")
            return
        output.stdout().print(_table(page["drafts"]))


def _table(drafts: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("draft", "status", "path", "stands", "changed"):
        table.add_column(column, overflow="fold")
    for draft in drafts:
        table.add_row(
            shown(draft["draft_id"]),
            draft["status"],
            Text(draft.get("path") or ""),
            _standing(draft),
            draft["updated_at"][:19].replace("T", " "),
        )
    return table


def _standing(draft: dict[str, Any]) -> Text:
    """How the draft stands to the team's memory; nothing for one that is done."""
    if draft["status"] in ("merged", "discarded"):
        return Text("")
    if draft.get("reconciliation") == "conflicts":
        return Text("in conflict", style="warning")
    if draft.get("freshness") == "behind":
        same = not draft.get("has_upstream_resource_changes")
        return Text("behind" if same else "behind, changed there too", style="warning")
    return Text("current", style="faint")


def show(draft: DraftArgument, as_json: JsonOption = False) -> None:
    """Show what a draft changes, in colour, and how far its operations were sent."""
    with output.failures(as_json), connected() as daemon:
        draft = _named(daemon, draft)
        detail = daemon.call("get_draft", {"draft_id": draft})
        states = daemon.call("compare_draft", {"draft_id": draft})
        if as_json:
            output.write_json({**detail, "states": states})
            return
        console = output.stdout()
        facts = detail["draft"]
        head = Text(f"{facts['draft_id']}  {facts['status']}  ").append_text(_standing(facts))
        console.print(head)
        print_change(console, states["before"], states["after"])
        for recorded in detail["operations"]:
            [kind] = recorded["operation"]
            when = recorded["created_at"][:19].replace("T", " ")
            problem = f" ({recorded['last_error']})" if recorded.get("last_error") else ""
            console.print(Text(f"  {when}  {kind}  {recorded['sync_status']}{problem}", "faint"))


def _named(daemon: Connection, given: str) -> str:
    """The draft that is named by its id or the beginning of it."""
    return whole(
        given,
        lambda: (each["draft_id"] for each in daemon.call("list_drafts", {"limit": 500})["drafts"]),
    )


def submit(
    drafts: Annotated[
        list[str] | None, typer.Argument(metavar="[DRAFT]...", help="Default: all open ones.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", help="The review's title.")] = None,
    message: Annotated[
        str | None, typer.Option("--message", "-m", help="What reviewers should know.")
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask for a review of drafts, as one group that is merged or not at all."""
    with output.failures(as_json), connected() as daemon:
        payload: dict[str, Any] = {"project_id": daemon.project(project)}
        if drafts:
            payload["draft_ids"] = [_named(daemon, draft) for draft in drafts]
        if title is not None:
            payload["title"] = title
        if message is not None:
            payload["description"] = message
        answer = daemon.call("submit_drafts", payload, SYNC_WAIT_S)
        if as_json:
            output.write_json(answer)
            return
        review = answer["review"]
        count = len(review["draft_ids"])
        output.stdout().print(
            f"Review {review['review_id']} asks for {count} draft{'s' if count != 1 else ''}",
            soft_wrap=True,
        )
        output.stderr().print(
            f"[faint]`clumsies review show {review['review_id']}` shows it as reviewers see it.[/]",
            soft_wrap=True,
        )


def rebase(
    draft: DraftArgument,
    take: Annotated[
        str | None,
        typer.Option("--take", help="Decide conflicts for one side: `draft` or `current`."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="Decide for this text; `-` is stdin."),
    ] = None,
    markers: Annotated[
        Path | None,
        typer.Option("--write", metavar="FILE", help="Write both texts there, to be edited."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Bring a draft onto the team's memory as it is now. Conflicts are shown and left to you:
    --write a file with both sides, edit it, and give it back with --file; or --take a side."""
    with output.failures(as_json), connected() as daemon:
        _check_choice(take, file)
        draft = _named(daemon, draft)
        answer = daemon.call("rebase_draft", {"draft_id": draft}, SYNC_WAIT_S)
        if answer["outcome"] == "conflicts" and (take or file):
            answer = _decide(daemon, draft, answer["candidate"], take, file)
        if answer["outcome"] == "conflicts" and markers is not None:
            _write_markers(answer["candidate"], markers)
        if as_json:
            output.write_json(answer)
        else:
            _print_rebase(answer, draft, markers)
        if answer["outcome"] == "conflicts":
            raise typer.Exit(EXIT_CONFLICT)


def _check_choice(take: str | None, file: Path | None) -> None:
    if take is not None and file is not None:
        raise InvalidRequest("invalid_request", "Give --take or --file, not both.")
    if take not in (None, "draft", "current"):
        raise InvalidRequest("invalid_request", "--take is `draft` or `current`.")


def _decide(
    daemon: Connection,
    draft: str,
    candidate: dict[str, Any],
    take: str | None,
    file: Path | None,
) -> dict[str, Any]:
    """The rebase with the conflicts decided for a side, or for a file's text."""
    if file is not None:
        text = _text_of(file, _merge(candidate))
        resolved = _state(candidate["draft_state"]) | {"exists": True, "content": text}
        if resolved.get("path") is None:
            resolved["path"] = _state(candidate["current_state"]).get("path")
    else:
        resolved = _state(candidate[f"{take}_state"])
    payload = {
        "draft_id": draft,
        "candidate_id": candidate["candidate_id"],
        "resolved": resolved,
    }
    return daemon.call("rebase_draft", payload, SYNC_WAIT_S)


def _state(state: dict[str, Any]) -> dict[str, Any]:
    """A candidate's state as a decision names it."""
    if not state["exists"]:
        return {"exists": False}
    content = state["content"]
    found: dict[str, Any] = {
        "exists": True,
        "path": state["resource"]["path"],
        "content": content["content"],
    }
    if content.get("description") is not None:
        found["description"] = content["description"]
    return found


def _text_of(file: Path, merge: TextMerge) -> str:
    """The decided text; raises Conflict where a place in it is not decided yet."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except OSError as error:
        raise IoFailed(
            "io_error", f"Cannot read {file}: {error.strerror}; check the path and its mode."
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            "invalid_request", f"{file} is not UTF-8; save it as UTF-8 and try again."
        ) from error
    if has_conflict_markers(text, conflict_marker_size(merge)):
        raise Conflict(
            "reconciliation_required",
            "The text still has conflict markers; decide each place and take the markers out.",
        )
    return text


def _merge(candidate: dict[str, Any]) -> TextMerge:
    base, current, draft = (
        _state(candidate[f"{name}_state"]).get("content") or ""
        for name in ("base", "current", "draft")
    )
    return merge_texts(base, current, draft)


def _write_markers(candidate: dict[str, Any], place: Path) -> None:
    try:
        place.write_text(conflict_text(_merge(candidate)), "utf-8")
    except OSError as error:
        raise IoFailed(
            "io_error", f"Cannot write {place}: {error.strerror}; choose another place."
        ) from error


def _print_rebase(answer: dict[str, Any], draft: str, markers: Path | None) -> None:
    console = output.stdout()
    if answer["outcome"] == "current":
        console.print(f"{draft} is current; there is nothing to do.")
        return
    if answer["outcome"] == "rebased":
        console.print(f"Rebased {draft}")
        if answer["review_reopened"]:
            output.stderr().print("[faint]Its review has to be approved again.[/]")
        return
    console.print(f"{draft} and the team's memory changed the same places:")
    print_conflicts(console, answer["candidate"])
    command = f"clumsies drafts rebase {draft}"
    where = (
        f"Edit {markers}, then `{command} --file {markers}`"
        if markers
        else f"`{command} --write FILE` puts both texts into a file to be edited"
    )
    hint = f"Nothing was changed. {where}; or add --take draft, or --take current."
    output.stderr().print(Text(hint, style="faint"), soft_wrap=True)
