"""`clumsies projects`, and how a project and its authority are named to a person."""

from __future__ import annotations

from typing import Any

from rich.table import Table
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.connection import Connection, JsonOption, connected
from clumsies.cli.short_ids import shown
from clumsies.storage.project_storage import LOCAL_AUTHORITY


def projects(as_json: JsonOption = False) -> None:
    """List the projects of this machine and of the Server, and the directories bound to them."""
    with output.failures(as_json), connected() as daemon:
        found = daemon.call("list_projects")["projects"]
        bindings = daemon.call("list_project_bindings")["bindings"]
        away = daemon.call("sync_status")["unavailable_projects"]
        if as_json:
            output.write_json(
                {"projects": found, "bindings": bindings, "unavailable_projects": away}
            )
            return
        if not found and not away:
            output.stderr().print("There are no projects yet; `clumsies init` makes one.")
            return
        server_url = daemon.call("health")["server_url"]
        output.stdout().print(_table(found, bindings, away, server_url))
        if away:
            output.stderr().print(
                "[faint]What is not available is kept here: ask an owner or admin to let you in, "
                "then `clumsies sync`.[/]",
                soft_wrap=True,
            )


def _table(
    found: list[dict[str, Any]],
    bindings: list[dict[str, Any]],
    away: list[dict[str, Any]],
    server_url: str,
) -> Table:
    """With a Server in use, also where each project's authority is."""
    shared = server_url != LOCAL_AUTHORITY or any(
        project["server_url"] != LOCAL_AUTHORITY for project in found
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("project", "id", *(["authority"] if shared else []), "bound directories"):
        table.add_column(column, overflow="fold")
    lines = [
        (each["project_id"], each["name"], Text(_where(each["server_url"], server_url)))
        for each in found
    ] + [
        (each["project_id"], each.get("name") or "?", Text("not available", style="warning"))
        for each in away
    ]
    for project_id, name, where in lines:
        roots = [b["workspace_root"] for b in bindings if b["project_id"] == project_id]
        table.add_row(
            Text(name), shown(project_id), *([where] if shared else []), Text("\n".join(roots))
        )
    return table


def _where(url: str, in_use: str) -> str:
    words = authority_words(url)
    return words if url in (in_use, LOCAL_AUTHORITY) else f"{words} (not in use)"


def authority_words(url: str) -> str:
    """A Server's address, or that there is none."""
    return "this machine" if url == LOCAL_AUTHORITY else url


def project_words(daemon: Connection, project_id: str) -> str:
    """Name, id and, for a Server's, where its authority is."""
    for project in daemon.call("list_projects")["projects"]:
        if project["project_id"] == project_id:
            words = f"{project['name']} ({project_id})"
            if project["server_url"] == LOCAL_AUTHORITY:
                return words
            return f"{words} at {project['server_url']}"
    return project_id
