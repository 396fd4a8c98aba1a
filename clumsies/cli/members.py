"""`clumsies members`: who is in a shared project. Letting people in and out is for admins."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer
from rich.table import Table
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.connection import Connection, JsonOption, ProjectOption, connected
from clumsies.cli.server_requests import ask_server
from clumsies.errors import NotFound

EmailArgument = Annotated[str, typer.Argument(metavar="EMAIL", help="The person's address.")]
_PAGE = 100


def default_(
    context: typer.Context, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """Who is in a shared project. Alone it lists."""
    if context.invoked_subcommand is None:
        list_(project, as_json)


def list_(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """List the project's members."""
    with output.failures(as_json), connected() as daemon:
        project_id = daemon.project(project)
        found = ask_server(daemon, "GET", f"/projects/{quote(project_id)}/members")
        if as_json:
            output.write_json(found)
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("member", "email", "in the project", "in the organisation"):
            table.add_column(column, overflow="fold")
        for item in found["items"]:
            user = item["user"]
            table.add_row(Text(user["display_name"]), user["email"], item["role"], user["role"])
        output.stdout().print(table)


def add(
    email: EmailArgument,
    role: Annotated[
        Literal["admin", "member"], typer.Option(help="What the person is in the project.")
    ] = "member",
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let somebody of the organisation into the project, or change what they are in it."""
    with output.failures(as_json), connected() as daemon:
        path = _membership(daemon, project, email)
        answer = ask_server(daemon, "PUT", path, {"role": role})
        if as_json:
            output.write_json(answer)
            return
        output.stdout().print(f"{email} is {role} of the project", markup=False, soft_wrap=True)


def remove(
    email: EmailArgument, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """Take somebody out of the project. What they stored on their machine stays there."""
    with output.failures(as_json), connected() as daemon:
        answer = ask_server(daemon, "DELETE", _membership(daemon, project, email))
        if as_json:
            output.write_json(answer)
            return
        output.stdout().print(f"{email} is out of the project", markup=False, soft_wrap=True)


def _membership(daemon: Connection, project: str | None, email: str) -> str:
    project_id = daemon.project(project)
    user_id = _user_id(daemon, email)
    return f"/admin/projects/{quote(project_id)}/members/{quote(user_id)}"


def _user_id(daemon: Connection, email: str) -> str:
    """The id of the organisation's member with this address."""
    cursor: str | None = ""
    while cursor is not None:
        path = f"/admin/members?limit={_PAGE}" + (f"&cursor={quote(cursor)}" if cursor else "")
        page: dict[str, Any] = ask_server(daemon, "GET", path)
        for member in page["items"]:
            if member["email"].casefold() == email.strip().casefold():
                return str(member["user_id"])
        cursor = page["page_info"]["next_cursor"]
    raise NotFound(
        "not_found",
        f"Nobody of the organisation has the address {email}; on the Server's machine "
        "`clumsies server create-user` adds one.",
    )
