"""`clumsies review`: what others propose, judged and merged."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.connection import Connection, JsonOption, ProjectOption, connected
from clumsies.cli.difference import print_change
from clumsies.cli.short_ids import shown, whole
from clumsies.errors import InvalidRequest

MERGE_WAIT_S = 120.0

_NEXT = {
    "open": "An owner or admin decides: `clumsies review approve {0}`, reject, or merge.",
    "approved": "`clumsies review merge {0}` makes it the team's memory.",
    "rejected": "`clumsies review resubmit {0}` asks again, once the drafts are better.",
}

ReviewArgument = Annotated[
    str, typer.Argument(metavar="REVIEW", help="The review's id, or its beginning.")
]
MessageOption = Annotated[
    str | None, typer.Option("--message", "-m", help="Words for the author and the record.")
]
StatusOption = Annotated[
    str | None, typer.Option("--status", help="open, approved, rejected or merged.")
]


def default_(
    context: typer.Context,
    status: StatusOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Proposals of the project's members: judge and merge. Alone it lists."""
    if context.invoked_subcommand is None:
        list_(status, project, as_json)


def list_(
    status: StatusOption = None, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """List the project's reviews, the latest changed first."""
    with output.failures(as_json), connected() as daemon:
        payload: dict[str, Any] = {"project_id": daemon.project(project)}
        if status is not None:
            payload["status"] = status
        found = daemon.call("list_reviews", payload)
        if as_json:
            output.write_json(found)
            return
        if not found["reviews"]:
            output.stderr().print("There are no reviews.")
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("review", "status", "title", "author", "drafts", "changed"):
            table.add_column(column, overflow="fold")
        for review in found["reviews"]:
            table.add_row(
                shown(review["review_id"]),
                _status(review),
                Text(review["title"]),
                Text(review["author"]["display_name"]),
                str(len(review["draft_ids"])),
                review["updated_at"][:16].replace("T", " "),
            )
        output.stdout().print(table)


def _status(review: dict[str, Any]) -> Text:
    styles = {"approved": "added", "merged": "faint", "rejected": "removed"}
    text = Text(review["status"], style=styles.get(review["status"], ""))
    live = review["status"] in ("open", "approved")
    if live and review["coordination"]["freshness"] == "behind":
        text.append(", behind", style="warning")
    return text


def show(
    review: ReviewArgument, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """Show what a review would change, in colour, and what was said about it."""
    with output.failures(as_json), connected() as daemon:
        found = daemon.call("get_review", _of_review(daemon, review, project))
        if as_json:
            output.write_json(found)
            return
        _print_review(found)
        facts = found["detail"]["review"]
        hint = _NEXT.get(facts["status"], "").format(shown(facts["review_id"]))
        if hint:
            output.stderr().print(Text(hint, style="faint"), soft_wrap=True)


def _of_review(daemon: Connection, given: str, project: str | None) -> dict[str, Any]:
    """Project and review; the review is named by its id or the beginning of it."""
    of_project = {"project_id": daemon.project(project)}
    review = whole(
        given,
        lambda: (r["review_id"] for r in daemon.call("list_reviews", of_project)["reviews"]),
    )
    return {**of_project, "review_id": review}


def _print_review(found: dict[str, Any]) -> None:
    console = output.stdout()
    review = found["detail"]["review"]
    line = Text(f"{review['review_id']}  ").append_text(_status(review))
    console.print(line)
    console.print(Text(review["title"], style="place"), soft_wrap=True)
    console.print(Text(f"by {review['author']['display_name']}", style="faint"))
    if review["description"]:
        console.print(Text(review["description"]), soft_wrap=True)
    for change in found["changes"]:
        console.print()
        print_change(console, _flat(change["before"]), _flat(change["after"]))
    for comment in found["detail"]["comments"]:
        console.print()
        where = ""
        if comment["anchor_path"]:
            where = f" on {comment['anchor_path']}:{comment['anchor_line']}"
        when = comment["created_at"][:19].replace("T", " ")
        head = f"{comment['author']['display_name']}{where}, {when}"
        console.print(Text(head, style="heading"), soft_wrap=True)
        console.print(Text(comment["body"]), soft_wrap=True)
    if review["decided_by"]:
        words = f": {review['decision_body']}" if review["decision_body"] else ""
        console.print()
        console.print(
            Text(f"{review['status']} by {review['decided_by']['display_name']}{words}"),
            soft_wrap=True,
        )


def _flat(state: dict[str, Any]) -> dict[str, Any]:
    """A Server's state of a memory as the difference of two is shown from."""
    resource, content = state.get("resource") or {}, state.get("content") or {}
    return {
        "exists": state["exists"],
        "path": resource.get("path"),
        "content": content.get("content"),
        "description": content.get("description"),
    }


def comment(
    review: ReviewArgument,
    body: Annotated[str, typer.Argument(metavar="TEXT", help="What you say.")],
    on: Annotated[
        str | None, typer.Option("--on", metavar="PATH:LINE", help="The line it is about.")
    ] = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say something about a review, or about a line of a memory in it."""
    with output.failures(as_json), connected() as daemon:
        payload = {"body": body, **_anchor(on), **_of_review(daemon, review, project)}
        answer = daemon.call("comment_review", payload)
        if as_json:
            output.write_json(answer)
            return
        output.stdout().print(f"Commented on {review}")


def _anchor(on: str | None) -> dict[str, Any]:
    if on is None:
        return {}
    path, _, line = on.rpartition(":")
    if not path or not line.isdecimal() or int(line) < 1:
        raise InvalidRequest("invalid_request", "--on is PATH:LINE, the line from 1.")
    return {"anchor_path": path, "anchor_line": int(line)}


def approve(
    review: ReviewArgument,
    message: MessageOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve a review; merging it is another step."""
    _decide(review, "approved", message, project, as_json)


def reject(
    review: ReviewArgument,
    message: MessageOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Reject a review; its drafts are open again, and nothing of them is lost."""
    _decide(review, "rejected", message, project, as_json)


def _decide(
    review: str, decision: str, message: str | None, project: str | None, as_json: bool
) -> None:
    with output.failures(as_json), connected() as daemon:
        payload = {**_of_review(daemon, review, project), "decision": decision}
        if message is not None:
            payload["body"] = message
        answer = daemon.call("decide_review", payload)
        if as_json:
            output.write_json(answer)
            return
        output.stdout().print(f"{decision.capitalize()} {review}")


def resubmit(
    review: ReviewArgument,
    title: Annotated[str | None, typer.Option("--title", help="Another title.")] = None,
    message: MessageOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask again for a review that was rejected, with its drafts as they are now."""
    with output.failures(as_json), connected() as daemon:
        payload = _of_review(daemon, review, project)
        if title is not None:
            payload["title"] = title
        if message is not None:
            payload["description"] = message
        answer = daemon.call("resubmit_review", payload, MERGE_WAIT_S)
        if as_json:
            output.write_json(answer)
            return
        output.stdout().print(f"Review {review} is open again")


def merge(
    review: ReviewArgument, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """Make a review the team's memory, all of it or nothing."""
    with output.failures(as_json), connected() as daemon:
        payload = _of_review(daemon, review, project)
        answer = daemon.call("merge_review", payload, MERGE_WAIT_S)
        if as_json:
            output.write_json(answer)
            return
        count = answer["applied_operation_count"]
        commit = (answer["commit_id"] or "")[:12]
        output.stdout().print(
            f"Merged {review}: {count} change{'s' if count != 1 else ''}"
            + (f" in commit {commit}" if commit else "")
        )
        if not answer["installed"]:
            output.stderr().print("[faint]It comes here with the next sync: `clumsies sync`.[/]")
