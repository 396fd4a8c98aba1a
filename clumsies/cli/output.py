"""What every command shares: data on stdout, everything else on stderr, errors with exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.theme import Theme

from clumsies.errors import EXIT_FAILURE, ClumsiesError

FILE_COLUMNS = 160
"""Width of tables where stdout is a file or a pipe."""
THEME = Theme(
    {
        "place": "bold cyan",
        "heading": "cyan",
        "score": "green",
        "faint": "dim",
        "warning": "yellow",
        "failure": "bold red",
        "added": "green",
        "removed": "red",
    }
)


def stdout() -> Console:
    """The console for data; plain where stdout is no terminal or NO_COLOR is set."""
    width = None if sys.stdout.isatty() else FILE_COLUMNS
    return Console(theme=THEME, highlight=False, emoji=False, width=width)


def stderr() -> Console:
    """The console for progress, warnings and errors."""
    return Console(theme=THEME, stderr=True, highlight=False, emoji=False)


def write_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout, UTF-8 whatever the locale says."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.flush()


def warn(message: str) -> None:
    """A warning on stderr."""
    stderr().print(f"[warning]warning:[/] {_escaped(message)}", soft_wrap=True)


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")


@contextmanager
def failures(as_json: bool) -> Iterator[None]:
    """Turn our errors into a message on stderr and the documented exit code."""
    try:
        yield
    except ClumsiesError as error:
        _show_failure(error, as_json)
        raise typer.Exit(error.exit_code) from error
    except BrokenPipeError:
        # The reader of our output went away (`| head`): nothing to say, and nobody to say it to.
        sys.stderr.close()
        raise typer.Exit(EXIT_FAILURE) from None


def _show_failure(error: ClumsiesError, as_json: bool) -> None:
    if as_json:
        body = {"code": error.code, "message": error.message, "details": error.details}
        sys.stderr.write(json.dumps({"error": body}, ensure_ascii=True, default=str) + "\n")
        return
    stderr().print(
        f"[failure]error:[/] {_escaped(error.message)} [faint]({error.code})[/]", soft_wrap=True
    )
