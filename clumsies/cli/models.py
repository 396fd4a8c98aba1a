"""`clumsies models`: what is on this machine, bringing the rest here, and choosing a profile.

A ready profile is exit code 0, one that is absent or on its way 3, a wrong file 1.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.model_progress import (
    PreparationView,
    in_background,
    megabytes,
    stopped_by_signals,
)
from clumsies.config import (
    config_file,
    directories,
    hub_settings,
    model_profile,
    read_config,
    with_model_profile,
)
from clumsies.errors import EXIT_FAILURE, EXIT_NOT_READY, EXIT_OK, NotReady
from clumsies.files import ensure_private_directory, write_private
from clumsies.models.choice import chosen_profile, profile_named
from clumsies.models.manifest import DEFAULT_PROFILE, HUB_ENDPOINT, PROFILES, Profile
from clumsies.models.preparation import ModelStore
from clumsies.models.status import ModelStatus, State, TransferFailed
from clumsies.models.verification import Problem

ATTEMPTS = 5
_EXIT_OF_STATE: dict[State, int] = {
    "ready": EXIT_OK,
    "missing": EXIT_NOT_READY,
    "preparing": EXIT_NOT_READY,
    "failed": EXIT_FAILURE,
}

ProfileArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PROFILE",
        help=f"{' or '.join(PROFILES)}; default: the chosen one, else {DEFAULT_PROFILE}.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout.")]


def store_of(
    profile: Profile, wait: Callable[[threading.Event, float], bool] = threading.Event.wait
) -> ModelStore:
    """The profile's files in this user's cache."""
    return ModelStore(directories().models, profile, hub_settings(), wait=wait)


def named_or_chosen(name: str | None) -> Profile:
    """The profile that a command is about."""
    if name is not None:
        return profile_named(name)
    return chosen_profile() or profile_named(DEFAULT_PROFILE)


# status


def status(
    profile: Annotated[
        str | None, typer.Argument(metavar="PROFILE", help="Only this one; default: all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say which models are here.

    The exit code is that of PROFILE, else of the chosen one: 0 ready, 3 absent or on its way,
    1 failed; 0 where none is named or chosen.
    """
    with output.failures(as_json):
        chosen = chosen_profile()
        about = profile_named(profile) if profile is not None else chosen
        listed = [about] if profile is not None and about else list(PROFILES.values())
        code = show_status([store_of(each) for each in listed], chosen, about, as_json)
    raise typer.Exit(code)


def show_status(
    stores: list[ModelStore], chosen: Profile | None, about: Profile | None, as_json: bool
) -> int:
    """Print the state of each store; the exit code of the profile that it is about."""
    found = [(store, store.status()) for store in stores]
    if as_json:
        output.write_json(
            {
                "chosen": chosen.name if chosen else None,
                "directory": str(directories().models),
                "profiles": [status_object(store, each, chosen) for store, each in found],
            }
        )
    else:
        _print_status(output.stdout(), found, chosen)
    codes = [_EXIT_OF_STATE[each.state] for store, each in found if store.profile == about]
    return codes[0] if codes else EXIT_OK


def status_object(
    store: ModelStore, found: ModelStatus, chosen: Profile | None = None
) -> dict[str, Any]:
    """One profile's state; `code`, `reason` and `retry_at` only where it failed."""
    body: dict[str, Any] = {
        "profile": store.profile.name,
        "state": found.state,
        "downloaded_bytes": found.downloaded_bytes,
        "total_bytes": found.total_bytes,
        "chosen": chosen is not None and store.profile.name == chosen.name,
        "packaged": store.profile.packaged,
    }
    if found.state == "failed":
        body |= {"code": found.code, "reason": found.reason, "retry_at": found.retry_at}
    if found.state != "ready":
        body["remedy"] = store.remedy
    return body


def _print_status(
    console: Console, found: list[tuple[ModelStore, ModelStatus]], chosen: Profile | None
) -> None:
    for store, each in found:
        profile = store.profile
        mark = "*" if chosen is not None and profile.name == chosen.name else " "
        line = Text(f"{mark} {profile.name:<14} ")
        line.append(f"{each.state:<10}", style="score" if each.state == "ready" else "warning")
        line.append(f"{megabytes(each.downloaded_bytes)} of {megabytes(each.total_bytes)}")
        if profile.packaged:
            line.append("  comes with clumsies", style="faint")
        console.print(line, soft_wrap=True)
        if each.state in {"missing", "failed"}:
            why = f"{each.reason.rstrip('.')}; " if each.reason else ""
            console.print(Text(f"    {why}run `{store.remedy}`"), soft_wrap=True)


# prepare


def prepare(
    profile: ProfileArgument = None,
    attempts: Annotated[
        int, typer.Option("--attempts", min=1, help="Give up after so many failed attempts.")
    ] = ATTEMPTS,
    as_json: JsonOption = False,
) -> None:
    """Fetch and verify what is missing of a profile.

    Ctrl-C stops it; what was fetched is kept and the next call goes on from there. HF_ENDPOINT
    names a mirror, HF_HOME a cache to take files from, HF_TOKEN a token; proxies are those of the
    platform.
    """
    with output.failures(as_json):
        wanted = named_or_chosen(profile)
        code = prepare_store(lambda wait: store_of(wanted, wait), attempts, as_json)
    raise typer.Exit(code)


def prepare_store(
    open_store: Callable[[Callable[[threading.Event, float], bool]], ModelStore],
    attempts: int,
    as_json: bool,
) -> int:
    """Prepare under a progress bar and print the state that was reached; the exit code.

    `open_store` makes the store with the given way to wait between attempts. Raises NotReady,
    IoFailed, InvalidRequest or ModelFailed where it ended otherwise.
    """
    console = output.stderr()

    def reason() -> str | None:
        return store.status().reason

    view = PreparationView(console, reason)
    store = open_store(view.pause)
    try:
        with stopped_by_signals() as stop, view:
            ended = in_background(lambda: store.prepare(view.show, stop, attempts=attempts), stop)
    except TransferFailed as error:
        raise _given_up(store, error) from error
    # Where it did not end, the lock that says "preparing" goes with this process.
    reached = ended or replace(store.status(), state="missing")
    if as_json:
        output.write_json(status_object(store, reached))
    elif reached.state == "ready":
        size = megabytes(reached.total_bytes)
        console.print(Text(f"{store.profile.name} is ready ({size}, every file verified)"))
    if reached.state != "ready" and stop.is_set():
        kept = f"{megabytes(reached.downloaded_bytes)} of {megabytes(reached.total_bytes)}"
        console.print(
            Text(f"Stopped; {kept} are kept. Run `{store.remedy}` to go on."), soft_wrap=True
        )
        return EXIT_NOT_READY
    return _EXIT_OF_STATE[reached.state]


def _given_up(store: ModelStore, error: TransferFailed) -> NotReady:
    found = store.status()
    kept = f"{megabytes(found.downloaded_bytes)} of {megabytes(found.total_bytes)}"
    return NotReady(
        error.code,
        f"{error.message.rstrip('.')}; {kept} are kept. Run `{store.remedy}` again, or set "
        "HF_ENDPOINT to a mirror.",
        {
            **error.details,
            "profile": store.profile.name,
            "downloaded_bytes": found.downloaded_bytes,
            "total_bytes": found.total_bytes,
        },
    )


# use


def use(
    profile: Annotated[str, typer.Argument(metavar="PROFILE", help=" or ".join(PROFILES))],
    as_json: JsonOption = False,
) -> None:
    """Choose the profile that commands use from now on."""
    with output.failures(as_json):
        chosen = profile_named(profile)
        path = config_file()
        choose(path, chosen.name)
        effective = model_profile()
        if effective != chosen.name:
            output.warn(f"CLUMSIES_MODEL_PROFILE names {effective}, which goes before this choice")
        store = store_of(chosen)
        found = store.status()
        if as_json:
            body = status_object(store, found, chosen)
            output.write_json({**body, "config": str(path), "effective": effective})
            return
        console = output.stdout()
        console.print(Text(f"{chosen.name} is chosen, in {path}"), soft_wrap=True)
        if found.state != "ready":
            console.print(Text(f"it is not ready: run `{store.remedy}`"), soft_wrap=True)


def choose(path: Path, name: str) -> None:
    """Write the choice into the settings file, whose other settings stay.

    Raises InvalidRequest for a file that cannot be understood, IoFailed.
    """
    content = with_model_profile(path, read_config(path), name)
    ensure_private_directory(path.parent)
    # A settings file may be a link into a directory of settings: the link stays.
    write_private(path.resolve(), [content])


# verify


def verify(profile: ProfileArgument = None, as_json: JsonOption = False) -> None:
    """Hash a profile's files and name each wrong one.

    The exit code is 3 where files are merely missing, 1 where one is truncated or foreign.
    """
    with output.failures(as_json):
        code = verify_store(store_of(named_or_chosen(profile)), as_json)
    raise typer.Exit(code)


def verify_store(store: ModelStore, as_json: bool) -> int:
    """Print what is wrong with which file; 0 nothing, 3 files are missing, 1 files are wrong."""
    problems = store.verify()
    wrong = any(p.kind != "missing" or store.profile.packaged for p in problems)
    code = EXIT_FAILURE if wrong else EXIT_NOT_READY if problems else EXIT_OK
    if as_json:
        output.write_json(
            {
                "profile": store.profile.name,
                "ok": not problems,
                "problems": [
                    {
                        "path": str(problem.path),
                        "kind": problem.kind,
                        "expected_size": problem.expected_size,
                        "actual_size": problem.actual_size,
                    }
                    for problem in problems
                ],
                "remedy": store.remedy if problems else None,
            }
        )
        return code
    console = output.stdout()
    for problem in problems:
        console.print(
            Text(problem_line(problem), style="failure" if wrong else "warning"), soft_wrap=True
        )
    if problems:
        console.print(Text(f"run `{store.remedy}`"), soft_wrap=True)
    else:
        console.print(Text(f"{store.profile.name}: every file is the pinned one"))
    return code


def problem_line(problem: Problem) -> str:
    """The kind of problem, the file, its size and the size it must have."""
    if problem.kind == "missing":
        return f"missing: {problem.path} ({problem.expected_size} bytes)"
    same = problem.actual_size == problem.expected_size
    return f"{problem.kind}: {problem.describe()}" + (
        f" (both {problem.expected_size} bytes)" if same else ""
    )


# path


def path(
    profile: ProfileArgument = None,
    files: Annotated[
        bool,
        typer.Option("--files", help="Print every file: place, bytes, SHA-256, where it is from."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the directory that models are kept in."""
    with output.failures(as_json):
        show_path(store_of(named_or_chosen(profile)), files, as_json)


def show_path(store: ModelStore, files: bool, as_json: bool) -> None:
    """Print the store's directory, or its files' places."""
    if as_json:
        output.write_json(
            {
                "profile": store.profile.name,
                "directory": str(store.directory),
                "files": file_objects(store),
            }
        )
    elif files:
        for file in file_objects(store):
            for key in ("path", "size_bytes", "sha256", "source"):
                if file[key] is not None:
                    typer.echo(f"{'' if key == 'path' else '    '}{file[key]}")
    else:
        typer.echo(str(store.directory))


def file_objects(store: ModelStore) -> list[dict[str, Any]]:
    """Every file once: where it belongs, what it must be, and its address (None: packaged)."""
    endpoint = hub_settings().endpoint or HUB_ENDPOINT
    found: dict[Path, dict[str, Any]] = {}
    for artifact in store.profile.artifacts:
        for file in artifact.files:
            place = store.path(artifact.role, file.path)
            source = f"{endpoint}/{artifact.repository}/resolve/{artifact.revision}/{file.path}"
            found[place] = {
                "path": str(place),
                "size_bytes": file.size_bytes,
                "sha256": file.sha256,
                "source": None if store.profile.packaged else source,
            }
    return list(found.values())
