"""`clumsies doctor`: is this installation sound, and what mends it.

A check is a function that yields findings; what one of them raises becomes a finding, too, so
that one broken thing never hides another.
"""

from __future__ import annotations

import os
import platform
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.doctor_daemon import (
    check_daemon,
    check_database,
    check_projects,
    check_server,
    check_socket,
)
from clumsies.cli.findings import Finding, Level
from clumsies.cli.models import problem_line, store_of
from clumsies.config import config_file, directories, parse_config, read_config
from clumsies.errors import EXIT_FAILURE, EXIT_OK, ClumsiesError
from clumsies.files import DIRECTORY_MODE
from clumsies.models.choice import chosen_profile
from clumsies.models.manifest import PROFILES
from clumsies.models.preparation import ModelStore
from clumsies.version import VERSION

_STYLES: dict[Level, str] = {"ok": "score", "warning": "warning", "failure": "failure"}
_LIBRARIES = ("apsw", "httpx", "msgspec", "numpy", "onnxruntime", "tokenizers", "usearch")
_MEGABYTE = 1_000_000


Check = Callable[[], Iterator[Finding]]


def check_versions() -> Iterator[Finding]:
    """clumsies, Python and the libraries that answers depend on."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("versions", "ok", f"clumsies {VERSION}, {python}, {sys.platform}")
    found = []
    for name in _LIBRARIES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            yield Finding(
                "versions", "failure", f"{name} is not installed", f"python -m pip install {name}"
            )
    yield Finding("versions", "ok", ", ".join(found))


def check_directories() -> Iterator[Finding]:
    """The user's directories: there or not, whose, and whether others can look inside."""
    places = directories()
    for name in ("data", "config", "cache", "logs"):
        yield directory_finding(name, getattr(places, name))


def directory_finding(name: str, path: Path) -> Finding:
    """How one of our directories is; one that is not there yet is well."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Finding("directories", "ok", f"{name}: {path} (made when it is needed)")
    except OSError as error:
        return Finding(
            "directories",
            "failure",
            f"{name}: {path} cannot be read: {error.strerror}",
            f"check the owner and mode of {path.parent}",
        )
    mode = stat.S_IMODE(found.st_mode)
    described = f"{name}: {path} (mode {mode:04o})"
    level: Level = "failure"
    wrong, remedy = "", None
    if not stat.S_ISDIR(found.st_mode):
        wrong, remedy = " is no directory", f"move {path} away"
    elif found.st_uid != os.getuid():
        wrong, remedy = " belongs to another user", f"chown {os.getuid()} {path}"
    elif not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        wrong, remedy = " cannot be written", f"chmod 700 {path}"
    elif mode & ~DIRECTORY_MODE:
        level, wrong, remedy = "warning", " is open to other users", f"chmod 700 {path}"
    else:
        level = "ok"
    return Finding("directories", level, described + wrong, remedy)


def check_settings() -> Iterator[Finding]:
    """The settings file, and the profile that it or the environment chooses."""
    path = config_file()
    parse_config(path, read_config(path))
    where = str(path) if path.exists() else f"{path} (not there; the defaults hold)"
    yield Finding("settings", "ok", where)
    chosen = chosen_profile()
    yield Finding("settings", "ok", f"model profile: {chosen.name if chosen else 'none chosen'}")


def check_models() -> Iterator[Finding]:
    """Every profile's files, hashed where they are there."""
    try:
        chosen = chosen_profile()
    except ClumsiesError:  # The settings check says why.
        chosen = None
    for profile in PROFILES.values():
        yield from model_findings(store_of(profile), is_chosen=profile == chosen)


def model_findings(store: ModelStore, *, is_chosen: bool) -> Iterator[Finding]:
    """A line for each wrong file, or one for the profile."""
    profile = store.profile
    problems = store.verify()
    wrong = [p for p in problems if p.kind != "missing" or profile.packaged]
    for problem in wrong:
        yield Finding("models", "failure", problem_line(problem), store.remedy)
    if wrong:
        return
    state = store.status()
    if not problems:
        size = f"{state.total_bytes / _MEGABYTE:.1f} MB"
        yield Finding("models", "ok", f"{profile.name}: {size}, every file is the pinned one")
        return
    have = f"{state.downloaded_bytes / _MEGABYTE:.1f} of {state.total_bytes / _MEGABYTE:.1f} MB"
    why = f"; {state.reason}" if state.reason else ""
    yield Finding(
        "models",
        "warning" if is_chosen or state.state == "failed" else "ok",
        f"{profile.name}: {state.state}, {have}{why}",
        store.remedy,
    )


def check_kernels() -> Iterator[Finding]:
    """The compiled kernels: there, and built from these sources."""
    try:
        from clumsies import _native
    except ImportError as error:
        yield Finding(
            "kernels", "failure", str(error), "python -m pip install --force-reinstall clumsies"
        )
        return
    built = ", ".join(f"{name} {number}" for name, number in _native.EXPECTED_VERSIONS.items())
    yield Finding("kernels", "ok", built)


def check_sqlite() -> Iterator[Finding]:
    """SQLite as we open it, and a full-text search that finds something."""
    from clumsies.storage.database import connect

    with tempfile.TemporaryDirectory(prefix="clumsies-doctor-") as place:
        connection = connect(Path(place) / "probe" / "probe.sqlite")
        try:
            number, source = next(
                connection.execute("SELECT sqlite_version(), substr(sqlite_source_id(), 1, 10)")
            )
            connection.execute("CREATE VIRTUAL TABLE probe USING fts5(text)")
            connection.execute("INSERT INTO probe VALUES ('full text search')")
            found = list(connection.execute("SELECT rowid FROM probe WHERE probe MATCH 'search'"))
        finally:
            connection.close()
    yield Finding("sqlite", "ok" if found else "failure", f"SQLite {number} ({source}), FTS5 works")


def check_searches() -> Iterator[Finding]:
    """The indexes of searched directories: derived, so that they may always be deleted."""
    root = directories().searches
    sizes = [directory_bytes(each) for each in sorted(root.iterdir())] if root.is_dir() else []
    total = f"{sum(sizes) / _MEGABYTE:.1f} MB"
    largest = f", the largest {max(sizes) / _MEGABYTE:.1f} MB" if len(sizes) > 1 else ""
    count = f"{len(sizes)} search index{'' if len(sizes) == 1 else 'es'}"
    yield Finding("searches", "ok", f"{count}, {total}{largest} in {root} (may be deleted)")


def directory_bytes(path: Path) -> int:
    """Bytes of the files below `path`; what vanishes meanwhile counts as nothing."""
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                total += (Path(folder) / name).lstat().st_size
            except OSError:
                continue
    return total


CHECKS: list[Check] = [
    check_versions,
    check_directories,
    check_settings,
    check_models,
    check_kernels,
    check_sqlite,
    check_searches,
    check_daemon,
    check_socket,
    check_database,
    check_server,
    check_projects,
]


def run_checks(checks: list[Check]) -> Iterator[Finding]:
    """The findings of every check, in order."""
    for check in checks:
        name = check.__name__.removeprefix("check_")
        try:
            yield from check()
        except ClumsiesError as error:
            yield Finding(name, "failure", f"{error.message} ({error.code})")
        except Exception as error:  # The outermost turn: the next check still has its say.
            yield Finding(name, "failure", f"the check itself failed: {type(error).__name__}")


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object on stdout.")
    ] = False,
) -> None:
    """Look for what is broken, and name the command that mends it.

    The exit code is 1 where something is.
    """
    raise typer.Exit(report(CHECKS, as_json))


def report(checks: list[Check], as_json: bool) -> int:
    """Run the checks and print what they found; the exit code."""
    found: list[Finding] = []
    console = output.stdout()
    for finding in run_checks(checks):
        found.append(finding)
        if not as_json:
            _print(console, finding)
    broken = sum(finding.level == "failure" for finding in found)
    if as_json:
        output.write_json({"ok": not broken, "findings": [asdict(finding) for finding in found]})
    elif broken:
        output.stderr().print(f"[failure]{broken} broken[/]")
    return EXIT_FAILURE if broken else EXIT_OK


def _print(console: Console, finding: Finding) -> None:
    line = Text(f"{finding.level:<8}", style=_STYLES[finding.level])
    line.append(f"{finding.check:<12}{finding.message}", style="none")
    console.print(line, soft_wrap=True)
    if finding.remedy is not None:
        # A remedy that is a command, or words that say what to do.
        console.print(Text(f"{'':<20}→ {finding.remedy}"), soft_wrap=True)
