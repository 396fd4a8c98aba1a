"""The command tree. A command's module is imported when that command is asked for.

Most commands only talk to the daemon and must not pay for the engine that others need.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import typer

EPILOG = "Exit codes: 0 ok, 1 failure, 2 usage, 3 not ready, 4 conflict, 5 not found."
HELP = "Team memory for coding agents: ranked fragments of a project's Markdown, offline."

COMMANDS: Mapping[str, tuple[str, str]] = {
    "search": ("search", "search"),
    "demo": ("search", "demo"),
    "init": ("projects", "init"),
    "import": ("projects", "import_"),
    "activate": ("memory", "activate"),
    "load": ("memory", "load"),
    "login": ("sign_in", "login"),
    "logout": ("sign_in", "logout"),
    "whoami": ("sign_in", "whoami"),
    "sync": ("synchronization", "sync"),
    "status": ("projects", "status"),
    "rebuild": ("projects", "rebuild"),
    "projects": ("project_list", "projects"),
    "bind": ("projects", "bind"),
    "unbind": ("projects", "unbind"),
    "doctor": ("doctor", "doctor"),
}
"""Module and function of each command, in the order of the help text."""

GROUPS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "store": (
        "memory",
        ("create", "update", "rename", "delete", "discard"),
        "Propose a change of the memory: safe at once, and for the team after review.",
    ),
    "drafts": (
        "drafts",
        ("list_", "show", "submit", "rebase"),
        "What was stored and is not the team's yet; alone it lists.",
    ),
    "review": (
        "reviews",
        ("list_", "show", "comment", "approve", "reject", "resubmit", "merge"),
        "What others propose, judged and merged; alone it lists.",
    ),
    "members": (
        "members",
        ("list_", "add", "remove"),
        "Who is in a shared project; alone it lists.",
    ),
    "daemon": (
        "daemon",
        ("run", "start", "stop", "restart", "status", "logs", "install", "uninstall"),
        "The resident process that owns everything local.",
    ),
    "history": (
        "history",
        ("list_", "show", "replay", "clear"),
        "What activations did: every candidate of each, and what changed since.",
    ),
    "eval": (
        "evaluation",
        ("add", "judge", "show", "list_", "remove", "export", "import_", "run", "compare"),
        "Judged queries: kept, carried to another machine, asked again and compared.",
    ),
    "server": (
        "server",
        ("run", "init", "migrate", "create_user", "health"),
        "The authority of an organisation: shared memory, reviews, members.",
    ),
    "models": (
        "models",
        ("status", "prepare", "use", "verify", "path"),
        "The models that search: which are here, fetching, choosing and verifying them.",
    ),
}
"""Module, functions and help of each group."""


def make_app(wanted: str | None) -> typer.Typer:
    """The tree with the command or group `wanted` alone, or with all where it is neither."""
    app = typer.Typer(
        name="clumsies",
        help=HELP,
        epilog=EPILOG,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    known = wanted in COMMANDS or wanted in GROUPS
    for name, (module, function) in COMMANDS.items():
        if not known or name == wanted:
            found = getattr(import_module(f"clumsies.cli.{module}"), function)
            app.command(name, epilog=EPILOG)(found)
    for name in GROUPS:
        if not known or name == wanted:
            app.add_typer(_group(name), name=name)

    @app.callback()
    def root() -> None:
        """Makes the tree one of commands even where it holds a single one."""

    root.__doc__ = HELP
    return app


def _group(name: str) -> typer.Typer:
    module, functions, text = GROUPS[name]
    found = getattr(import_module(f"clumsies.cli.{module}"), "default_", None)
    group = typer.Typer(
        help=text, epilog=EPILOG, no_args_is_help=found is None, rich_markup_mode=None
    )
    if found is not None:
        group.callback(invoke_without_command=True, help=text, epilog=EPILOG)(found)
    for function in functions:
        found = getattr(import_module(f"clumsies.cli.{module}"), function)
        group.command(_command_name(function), epilog=EPILOG)(found)
    return group


def _command_name(function: str) -> str:
    """A function's name without the underscore that keeps it apart from a word of Python."""
    return function.rstrip("_").replace("_", "-")
