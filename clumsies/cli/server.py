"""`clumsies server`: the authority of an organisation, on the machine it runs on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from clumsies.cli import output
from clumsies.cli.connection import JsonOption
from clumsies.config import server_settings
from clumsies.errors import EXIT_NOT_READY, EXIT_OK

if TYPE_CHECKING:
    from clumsies.server.context import ServerContext

OrganizationOption = Annotated[
    str | None,
    typer.Option("--organization", help="The organisation's name; default: the only one."),
]
_STYLES = {"ok": "score", "degraded": "warning", "down": "failure"}


def run(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535)] = 8787,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes that serve.")] = 1,
    behind_tls_proxy: Annotated[
        bool, typer.Option(help="A proxy in front speaks TLS; needed beyond loopback.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve until SIGTERM or SIGINT; the log goes to stderr."""
    from clumsies.server.process import serve

    with output.failures(as_json):
        serve(host, port, workers=workers, behind_tls_proxy=behind_tls_proxy)


def init(
    organization: Annotated[str, typer.Option("--organization", help="Its name.")],
    owner: Annotated[str, typer.Option("--owner", metavar="EMAIL", help="The owner's address.")],
    as_json: JsonOption = False,
) -> None:
    """Make an organisation with its owner, and print a setup code that is good once for a day.

    Said again for an organisation that is there, it prints a new code, and earlier ones are void.
    """
    from clumsies.errors import Conflict
    from clumsies.server.identity import setup
    from clumsies.server.migrations import migrate as bring_up

    with output.failures(as_json), _context() as context:
        bring_up(context.database)
        try:
            setup.create_organization(context, organization, owner)
            made = True
        except Conflict:
            made = False
        org_id = setup.organization_by_name(context, organization)
        code = setup.new_setup_code(context, org_id)
        facts = {"org_id": org_id, "created": made, "setup_code": code}
        if as_json:
            output.write_json(facts)
            return
        console = output.stdout()
        word = "made" if made else "there already"
        console.print(f"organisation {org_id}: {word}", markup=False)
        console.print(f"setup code   {code}", markup=False, soft_wrap=True)


def migrate(as_json: JsonOption = False) -> None:
    """Bring the database to this program's schema, all of it or nothing."""
    from clumsies.server.migrations import VERSION
    from clumsies.server.migrations import migrate as bring_up

    with output.failures(as_json), _context() as context:
        before = bring_up(context.database)
        if as_json:
            output.write_json({"before": before, "version": VERSION})
        else:
            output.stdout().print(f"schema {VERSION} (it was {before})", markup=False)


def create_user(
    email: Annotated[str, typer.Argument(metavar="EMAIL")],
    role: Annotated[Literal["owner", "admin", "member"], typer.Option()] = "member",
    name: Annotated[str | None, typer.Option(help="Shown to others; default: the address.")] = None,
    organization: OrganizationOption = None,
    token: Annotated[
        bool, typer.Option("--token", help="Make a personal token and print it, this once.")
    ] = False,
    token_name: Annotated[str, typer.Option(help="What the token is called.")] = "command line",
    as_json: JsonOption = False,
) -> None:
    """Add a member. Without --token they come in by signing in with that address."""
    from clumsies.server.identity import setup

    with output.failures(as_json), _context() as context:
        org_id = setup.organization_by_name(context, organization)
        user_id, secret = setup.create_user(
            context, org_id, email, role, name, token_name if token else None
        )
        if as_json:
            output.write_json({"user_id": user_id, "org_id": org_id, "token": secret})
            return
        console = output.stdout()
        console.print(f"user  {user_id}", markup=False)
        if secret is not None:
            console.print(f"token {secret}", markup=False, soft_wrap=True)


def health(as_json: JsonOption = False) -> None:
    """Say how the database, its schema, the commits and sign-in are; exit code 3 where one is
    down."""
    import msgspec

    from clumsies.server.organization.health import health_of

    with output.failures(as_json), _context() as context:
        found = health_of(context)
        if as_json:
            output.write_json(msgspec.to_builtins(found))
        else:
            console = output.stdout()
            for label, part in (
                ("database", found.database),
                ("schema", found.schema),
                ("commits", found.commit_service),
                ("sign-in", found.oidc),
            ):
                console.print(f"{label:9}", end="")
                console.print(f"{part.status:9}", style=_STYLES[part.status], end="")
                console.print(part.message, markup=False, soft_wrap=True)
        failed = found.status == "down"
    raise typer.Exit(EXIT_NOT_READY if failed else EXIT_OK)


@contextmanager
def _context() -> Iterator[ServerContext]:
    from clumsies.server.settings import make_context

    context = make_context(server_settings())
    try:
        yield context
    finally:
        context.database.close()
