"""`clumsies init`, `import`, `bind`, `unbind`, `status` and `rebuild`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

import typer
from rich.table import Table
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.connection import (
    Connection,
    JsonOption,
    ProjectOption,
    connected,
    working_directory,
)
from clumsies.cli.project_list import authority_words, project_words
from clumsies.cli.server_requests import ask_server
from clumsies.cli.short_ids import whole
from clumsies.cli.synchronization import (
    errors_of,
    explained,
    synchronized,
    unavailable_words,
    waiting,
)
from clumsies.daemon.client import CALL_TIMEOUT_S, unavailable
from clumsies.daemon.contract import IMPORT_DEADLINE_S
from clumsies.errors import (
    EXIT_OK,
    ClumsiesError,
    Conflict,
    DaemonFailed,
    InvalidRequest,
    NotFound,
)
from clumsies.version import VERSION

JOIN_WAIT_S = 30.0
DirectoryArgument = Annotated[
    Path, typer.Argument(metavar="[DIR]", help="The directory; default: this one.")
]


def init(
    directory: DirectoryArgument = Path(),
    name: Annotated[
        str | None, typer.Option("--name", help="The project's name; default: the directory's.")
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Make it a project of the team's Server.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bind a directory to a new project of this machine, so that agents in it have a memory.

    A directory that is bound already keeps its project. With --shared the project is made at the
    Server, and you are its admin: `clumsies members add EMAIL` lets others in.
    """
    with output.failures(as_json), connected() as daemon:
        root = _directory(directory)
        wanted = name or root.name or "root"
        made = (
            _made_at_server(daemon, wanted, root)
            if shared
            else daemon.call("create_local_project", {"name": wanted, "workspace_root": str(root)})
        )
        if as_json:
            output.write_json(made)
            return
        project = made["project"]
        word = "Made" if made["created"] else "Already bound:"
        console = output.stdout()
        console.print(
            f"{word} project {project['name']} ({project['project_id']})",
            markup=False,
            soft_wrap=True,
        )
        where = authority_words(project["server_url"]) if shared else ""
        console.print(
            f"  in {made['binding']['workspace_root']}" + (f", at {where}" if where else ""),
            markup=False,
            soft_wrap=True,
        )
        if made["created"]:
            output.stderr().print("[faint]Bring Markdown in with `clumsies import PATH`.[/]")


def _made_at_server(daemon: Connection, name: str, root: Path) -> dict[str, Any]:
    bound = _binding_of(daemon, root)
    if bound is not None:
        raise Conflict(
            "project_binding_changed",
            f"{root} is bound to {bound['project_id']} already; `clumsies unbind` first.",
        )
    headers = {"idempotency-key": uuid4().hex}
    made = ask_server(daemon, "POST", "/projects", {"name": name}, headers)
    synchronized(daemon, daemon.call("health"), JOIN_WAIT_S)  # until the daemon knows it
    binding = _bound(daemon, root, made["project_id"], None)
    [project] = [
        each
        for each in daemon.call("list_projects")["projects"]
        if each["project_id"] == made["project_id"]
    ]
    return {"project": project, "created": True, "binding": binding}


def _bound(daemon: Connection, root: Path, project_id: str, revision: int | None) -> dict[str, Any]:
    """The binding; of a Server's project the memory is here, where the Server gives it in time."""
    binding = daemon.call(
        "replace_project_binding",
        {
            "workspace_root": str(root),
            "project_id": project_id,
            "expected_revision": revision,
        },
    )
    if binding["server_url"] != "local:":
        synchronized(daemon, daemon.call("health"), JOIN_WAIT_S)
    return binding


def import_(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Markdown files and directories.")
    ],
    prefix: Annotated[
        str, typer.Option("--prefix", help="A folder of the memory that they go under.")
    ] = "",
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring Markdown into the project's memory, in one commit.

    A path that is there already takes the new text; nothing is deleted.
    """
    with output.failures(as_json), connected() as daemon:
        report = daemon.call(
            "import_memory",
            {
                "project_id": daemon.project(project),
                "paths": [str(working_directory() / path.expanduser()) for path in paths],
                "prefix": prefix,
            },
            timeout_s=IMPORT_DEADLINE_S + CALL_TIMEOUT_S,
        )
        for item in report["left_out"]:
            output.warn(f"{item['path']} {item['reason']}; left out")
        if as_json:
            output.write_json(report)
            return
        output.stdout().print(
            f"{report['added']} added, {report['updated']} updated, "
            f"{report['unchanged']} unchanged; commit {report['commit_id'][:12]}"
        )


def bind(
    project_id: Annotated[
        str, typer.Argument(metavar="PROJECT", help="The project's id, or its beginning.")
    ],
    directory: DirectoryArgument = Path(),
    as_json: JsonOption = False,
) -> None:
    """Bind a directory to a project that exists, or to another than before."""
    with output.failures(as_json), connected() as daemon:
        root = _directory(directory)
        known = daemon.call("list_projects")["projects"]
        project_id = whole(project_id, lambda: (each["project_id"] for each in known))
        old = _binding_of(daemon, root)
        binding = _bound(daemon, root, project_id, old["revision"] if old else None)
        if as_json:
            output.write_json(binding)
            return
        shown = project_words(daemon, binding["project_id"])
        output.stdout().print(f"{binding['workspace_root']} is bound to {shown}", soft_wrap=True)


def unbind(directory: DirectoryArgument = Path(), as_json: JsonOption = False) -> None:
    """Unbind a directory. The project, its memory and its drafts stay."""
    with output.failures(as_json), connected() as daemon:
        root = _directory(directory, must_exist=False)
        old = _binding_of(daemon, root)
        if old is None:
            raise NotFound(
                "project_binding_not_found",
                f"{root} itself is not bound; `clumsies projects` lists what is.",
            )
        binding = daemon.call(
            "remove_project_binding",
            {"workspace_root": old["workspace_root"], "expected_revision": old["revision"]},
        )
        if as_json:
            output.write_json(binding)
            return
        output.stdout().print(f"{binding['workspace_root']} is no longer bound")


def status(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Say how the daemon, this directory's memory and its search index stand.

    Nothing is started by asking. What cannot be told is named, and the exit code is its error's.
    """
    with output.failures(as_json):
        facts = StatusFacts()
        facts.ask(project)
        if as_json:
            output.write_json(facts.as_json())
        else:
            _print_status(facts)
        raise typer.Exit(facts.exit_code)


@dataclass
class StatusFacts:
    """What could be told, by part, and why the rest could not."""

    daemon: dict[str, Any] | None = None
    project_id: str | None = None
    memory: dict[str, Any] | None = None
    index: dict[str, Any] | None = None
    project_name: str | None = None
    sync: dict[str, Any] | None = None
    problems: list[dict[str, str]] = field(default_factory=list)
    exit_code: int = EXIT_OK

    def ask(self, project: str | None) -> None:
        from clumsies.daemon.services import DaemonControl

        found = DaemonControl().status()
        if found.health is None:
            running = found.pid is not None
            self._add(
                "daemon",
                DaemonFailed("daemon_ipc_failed", f"{found.problem}; run `clumsies daemon restart`")
                if running
                else unavailable(),
            )
            return
        self.daemon = {"pid": found.pid, **found.health}
        with connected() as daemon:
            self._ask_parts(daemon, project)

    def _ask_parts(self, daemon: Connection, project: str | None) -> None:
        with self._noted("project"):
            self.project_id = daemon.project(project)
        if self.project_id is None:
            with self._noted("sync"):
                self.sync = daemon.call("sync_status")
            return
        with self._noted("project"):
            self.project_name = project_words(daemon, self.project_id)
        with self._noted("sync"):
            self.sync = daemon.call("project_sync_status", {"project_id": self.project_id})
        with self._noted("memory"):
            self.memory = daemon.call("memory_cache", {"project_id": self.project_id})
        with self._noted("index"):
            self.index = daemon.call("search_index_status", {"project_id": self.project_id})

    @contextmanager
    def _noted(self, part: str) -> Iterator[None]:
        try:
            yield
        except ClumsiesError as error:
            self._add(part, error)

    def _add(self, part: str, error: ClumsiesError) -> None:
        self.problems.append({"part": part, "code": error.code, "message": error.message})
        self.exit_code = self.exit_code or error.exit_code

    def as_json(self) -> dict[str, Any]:
        facts = asdict(self)
        del facts["exit_code"], facts["project_name"]
        return facts

    def line(self, part: str, told: Callable[[dict[str, Any]], str]) -> str:
        """What is known of a part, else why it is not, else nothing."""
        known: dict[str, Any] | None = getattr(self, part, None)
        if known:
            return told(known)
        found = (each for each in self.problems if each["part"] == part)
        return next((f"{each['message']} ({each['code']})" for each in found), "")


def _print_status(facts: StatusFacts) -> None:
    rows = [
        ("daemon", facts.line("daemon", _daemon_line)),
        ("project", facts.project_name or facts.line("project", lambda _: "")),
        ("memory", facts.line("memory", _memory_line)),
        ("index", facts.line("index", _index_line)),
        ("models", _models_line(facts.index) if facts.index else ""),
        ("sync", facts.line("sync", lambda sync: _sync_line(sync, facts.daemon or {}))),
    ]
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="faint")
    table.add_column(overflow="fold")
    for name, line in rows:
        if line:
            table.add_row(name, Text(line))
    output.stdout().print(table)


def _sync_line(sync: dict[str, Any], daemon: dict[str, Any]) -> str:
    """What waits to be sent, and what keeps either channel from its work."""
    parts = [": ".join(explained(code, daemon)) for code in errors_of(sync)]
    parts += waiting(sync)
    parts += [unavailable_words(each)[0] for each in sync["unavailable_projects"]]
    return "\n".join(parts or ["nothing waits"])


def _daemon_line(daemon: dict[str, Any]) -> str:
    line = f"{daemon['daemon_version']}, process {daemon['pid']}"
    if daemon["server_url"] != "local:":
        line += f", Server {daemon['server_url']}"
    if daemon["daemon_version"] != VERSION:
        line += f"; this is {VERSION}: run `clumsies daemon restart`"
    return line


def _memory_line(memory: dict[str, Any]) -> str:
    line = f"{memory['state'].replace('_', ' ')}{_short_commit(memory)}"
    if memory["state"] in ("generation_missing", "generation_corrupt"):
        line += "; `clumsies daemon restart` writes it anew"
    return line


def _short_commit(memory: dict[str, Any]) -> str:
    return f", commit {memory['commit_id'][:12]}" if memory.get("commit_id") else ", nothing yet"


def rebuild(project: ProjectOption = None, as_json: JsonOption = False) -> None:
    """Delete the project's search index and build it anew; memory and drafts are not touched."""
    with output.failures(as_json), connected() as daemon:
        found = daemon.call("rebuild_search_index", {"project_id": daemon.project(project)})
        if as_json:
            output.write_json(found)
            return
        output.stdout().print("The search index is being built; `clumsies status` says how far.")


def _index_line(index: dict[str, Any]) -> str:
    if index["ready"]:
        return "ready"
    if index.get("last_error"):
        return f"failed ({index['last_error']}); tried again by itself, or by `clumsies rebuild`"
    if index.get("units_total"):
        return f"building, {index.get('units_done', 0)} of {index['units_total']} passages"
    return str(index.get("build_state", "not built yet"))


def _models_line(index: dict[str, Any]) -> str:
    if index["model_status"] == "preparing":
        done, total = index.get("model_downloaded_bytes", 0), index.get("model_total_bytes", 0)
        return f"preparing, {done / 1e6:.0f} of {total / 1e6:.0f} MB"
    return str(index["model_status"])


def _directory(directory: Path, *, must_exist: bool = True) -> Path:
    root = working_directory() / directory.expanduser()
    if must_exist and not root.is_dir():
        raise InvalidRequest("invalid_request", f"{root} is not a directory; check the path.")
    return root


def _binding_of(daemon: Connection, root: Path) -> dict[str, Any] | None:
    """The binding of exactly this directory."""
    wanted = {str(root), str(root.resolve())}
    bindings: list[dict[str, Any]] = daemon.call("list_project_bindings")["bindings"]
    return next((item for item in bindings if item["workspace_root"] in wanted), None)
