"""`clumsies activate`, `load` and `store`: the memory of this directory's project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.connection import JsonOption, ProjectOption, connected
from clumsies.cli.preview import print_text
from clumsies.errors import InvalidRequest, IoFailed

MAX_INPUT_BYTES = 8 * 1024 * 1024

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The memory's id.")]
FileOption = Annotated[
    str | None,
    typer.Option("--file", metavar="FILE", help="The text's file; `-` is standard input."),
]
DescriptionOption = Annotated[
    str | None, typer.Option("--description", help="One line that says what it is for.")
]


def activate(
    query: Annotated[str, typer.Argument(help="What you are about to do, in plain words.")],
    state: Annotated[
        str | None, typer.Option("--state", help="`next_state` of an earlier answer.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print fragments whole.")] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the fragments of the project's memory that matter for QUERY."""
    with output.failures(as_json), connected() as daemon:
        payload: dict[str, Any] = {"project_id": daemon.project(project), "query": query}
        if state is not None:
            payload["state"] = state
        answer = daemon.call("activate_memory", payload)
        if as_json:
            output.write_json(answer)
            return
        for rank, fragment in enumerate(answer["fragments"], 1):
            _print_fragment(rank, fragment, full)
        if not answer["fragments"]:
            output.stderr().print("Nothing in this memory is about that.")
        for item in answer["skipped"]:
            output.stderr().print(f"[faint]skipped {item['stage']}: {item['reason']}[/]")


def _print_fragment(rank: int, fragment: dict[str, Any], full: bool) -> None:
    console = output.stdout()
    line = Text()
    line.append(f"{rank:>2} ", style="faint")
    line.append(fragment["path"], style="place")
    for heading in fragment["heading_path"]:
        line.append(f" › {heading}", style="heading")
    line.append(f"  {fragment['resource_id']}", style="faint")
    console.print(line, soft_wrap=True)
    text = fragment.get("content", "(unchanged since the state you sent)")
    print_text(console, text, full=full, superseded_by=fragment.get("superseded_by"))


def load(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids or exact paths.")],
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print whole memories by id or exact path."""
    with output.failures(as_json), connected() as daemon:
        answer = daemon.call("load_memory", {"project_id": daemon.project(project), "ids": ids})
        if as_json:
            output.write_json(answer)
            return
        console = output.stdout()
        for resource in answer["resources"]:
            head = Text()
            head.append(resource["path"], style="place")
            head.append(f"  {resource['resource_id']}  {resource['content_hash']}", style="faint")
            output.stderr().print(head, soft_wrap=True)
            console.print(Text(resource["content"].rstrip("\n")), soft_wrap=True)


def create(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Its path in the memory.")],
    file: FileOption = None,
    description: DescriptionOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Propose a new memory; its text comes from --file or standard input."""
    content: dict[str, Any] = {}
    with output.failures(as_json):
        content["content"] = _text(file)
        if description is not None:
            content["description"] = description
        _store({"create": {"path": path, "content": content}}, project, as_json)


def update(
    memory_id: IdArgument,
    old: Annotated[
        list[str] | None,
        typer.Option("--old", help="Exact text to replace; may be given several times."),
    ] = None,
    new: Annotated[
        list[str] | None, typer.Option("--new", help="What takes the place of the --old before.")
    ] = None,
    expected_hash: Annotated[
        str | None,
        typer.Option("--expected-hash", help="The content hash that `load` showed."),
    ] = None,
    file: FileOption = None,
    description: DescriptionOption = None,
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Propose a change: exact replacements (--old, --new), or a whole text (--file)."""
    with output.failures(as_json):
        part: dict[str, Any] = {"id": memory_id}
        if description is not None:
            part["description"] = description
        if old or new:
            part |= _replacements(memory_id, old or [], new or [], expected_hash, project)
        else:
            part["content"] = {"content": _text(file)}
        _store({"update": part}, project, as_json)


def _replacements(
    memory_id: str, old: list[str], new: list[str], expected_hash: str | None, project: str | None
) -> dict[str, Any]:
    if len(old) != len(new):
        raise InvalidRequest(
            "invalid_request", "Every --old needs a --new after it; give them in pairs."
        )
    if expected_hash is None:
        with connected() as daemon:
            loaded = daemon.call(
                "load_memory", {"project_id": daemon.project(project), "ids": [memory_id]}
            )
        expected_hash = loaded["resources"][0]["content_hash"]
    pairs = [{"old_text": o, "new_text": n} for o, n in zip(old, new, strict=True)]
    return {"expected_hash": expected_hash, "replacements": pairs}


def rename(
    memory_id: IdArgument,
    new_path: Annotated[str, typer.Argument(metavar="NEW_PATH", help="Its new path.")],
    project: ProjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Propose another path for a memory."""
    with output.failures(as_json):
        _store({"rename": {"id": memory_id, "new_path": new_path}}, project, as_json)


def delete(
    memory_id: IdArgument, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """Propose that a memory goes. One that only a draft made is taken back at once."""
    with output.failures(as_json):
        _store({"delete": {"id": memory_id}}, project, as_json)


def discard(
    memory_id: IdArgument, project: ProjectOption = None, as_json: JsonOption = False
) -> None:
    """Give up the open draft of a memory."""
    with output.failures(as_json):
        _store({"discard": {"id": memory_id}}, project, as_json)


def _store(operation: dict[str, Any], project: str | None, as_json: bool) -> None:
    with connected() as daemon:
        receipt = daemon.call(
            "desktop_store_draft_operation",
            {
                "project_id": daemon.project(project),
                "scope": "org",
                "resource": "memory",
                "op": operation,
                "source": "cli",
            },
        )
        if as_json:
            output.write_json(receipt)
            return
        output.stdout().print(f"Stored in draft {receipt['draft_id']}")


def _text(file: str | None) -> str:
    """The text of a file or of standard input; raises InvalidRequest unless it is UTF-8."""
    if file is None and sys.stdin.isatty():
        raise InvalidRequest(
            "invalid_request", "There is no text: name a --file, or pipe the text in."
        )
    try:
        if file is None or file == "-":
            data = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
        else:
            with Path(file).expanduser().open("rb") as stream:
                data = stream.read(MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise IoFailed(
            "io_error", f"Cannot read {file}: {error.strerror}; check the path and its mode."
        ) from error
    if len(data) > MAX_INPUT_BYTES:
        raise InvalidRequest("invalid_request", "The text is over 8 MiB; a memory is shorter.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            "invalid_request", "The text is not UTF-8; save it as UTF-8 and try again."
        ) from error
