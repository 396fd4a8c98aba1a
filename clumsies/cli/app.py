"""The command tree."""

from __future__ import annotations

import typer

from clumsies.cli import doctor, models, search

EPILOG = "Exit codes: 0 ok, 1 failure, 2 usage, 3 not ready, 4 conflict, 5 not found."

app = typer.Typer(
    name="clumsies",
    help="Team memory for coding agents: ranked fragments of a project's Markdown, offline.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=EPILOG)(search.search)
app.command(epilog=EPILOG)(search.demo)
app.command(epilog=EPILOG)(doctor.doctor)

models_app = typer.Typer(
    help="The models that search: which are here, fetching, choosing and verifying them.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
)
for _command in (models.status, models.prepare, models.use, models.verify, models.path):
    models_app.command(epilog=EPILOG)(_command)
app.add_typer(models_app, name="models")


@app.callback()
def _root() -> None:
    """Team memory for coding agents: ranked fragments of a project's Markdown, offline."""
