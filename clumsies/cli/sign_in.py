"""`clumsies login`, `logout` and `whoami`: the team's Server and who one is there."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from clumsies.cli import output
from clumsies.cli.connection import Connection, JsonOption, connected
from clumsies.cli.synchronization import TOKEN_REMEDY, synchronized
from clumsies.errors import InvalidRequest, Refused
from clumsies.sync.login import LOGIN_TIMEOUT_S, BrowserSignIn, open_in_browser

KEYRING_WAIT_S = 70.0
"""A keyring may ask for its password first."""
PROJECTS_WAIT_S = 15.0


def login(
    server: Annotated[
        str | None,
        typer.Argument(metavar="[URL]", help="The Server; default: the one that is set."),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or print the address.")
    ] = True,
    timeout_s: Annotated[
        float, typer.Option("--timeout", help="Seconds to wait for the browser.", min=1.0)
    ] = LOGIN_TIMEOUT_S,
    as_json: JsonOption = False,
) -> None:
    """Sign in to a team's Server with a browser. Tokens go to the system's keyring.

    On a machine without one, set CLUMSIES_TOKEN to a personal token before the daemon starts, and
    give the Server's URL here: then nobody has to sign in.
    """
    with output.failures(as_json), connected() as daemon:
        url = _server(daemon, server)
        if _has_token(daemon, url):
            answer = _me(daemon)
        else:
            answer = _signed_in(daemon, url, browser, timeout_s)
        synchronized(daemon, daemon.call("health"), PROJECTS_WAIT_S)  # `bind` needs their ids
        if as_json:
            output.write_json(answer)
            return
        output.stdout().print(_person(answer), soft_wrap=True)
        _print_projects(daemon, answer)


def _print_projects(daemon: Connection, answer: dict[str, Any]) -> None:
    console = output.stderr()
    if not answer["project_count"]:
        console.print(
            "[faint]You are a member of no project yet: ask to be let into one, or make one with "
            "`clumsies init --shared`.[/]",
            soft_wrap=True,
        )
        return
    for project in daemon.call("list_projects")["projects"]:
        if project["server_url"] == answer["server_url"]:
            line = Text(f"  {project['name']}  ").append(project["project_id"], style="faint")
            console.print(line, soft_wrap=True)
    console.print(
        "[faint]`clumsies bind ID` binds the directory you are in to one.[/]", soft_wrap=True
    )


def _server(daemon: Connection, given: str | None) -> str:
    if given is not None:
        return given
    configured = str(daemon.call("project_config")["server_url"])
    if configured == "local:":
        raise InvalidRequest(
            "invalid_request", "No Server is set; name its address: `clumsies login https://host`."
        )
    return configured


def _has_token(daemon: Connection, url: str) -> bool:
    """Whether the daemon has a personal token, so that there is nobody to sign in."""
    if not daemon.call("health").get("has_personal_token"):
        return False
    daemon.call("replace_project_config", {"server_url": url})
    return True


def _signed_in(daemon: Connection, url: str, browser: bool, timeout_s: float) -> dict[str, Any]:
    with BrowserSignIn(url) as attempt:
        if not (browser and open_in_browser(attempt.url)):
            output.stderr().print("Open this address in a browser:")
            output.stderr().print(Text(attempt.url), soft_wrap=True)
        else:
            output.stderr().print("[faint]Waiting for the browser…[/]")
        grant = attempt.wait(timeout_s)
    return daemon.call(
        "sign_in",
        {
            "server_url": url,
            "code": grant.code,
            "redirect_uri": grant.redirect_uri,
            "code_verifier": grant.code_verifier,
        },
        KEYRING_WAIT_S,
    )


def logout(
    forget: Annotated[bool, typer.Option("--forget", help="Also stop using the Server.")] = False,
    as_json: JsonOption = False,
) -> None:
    """End the session. What was stored here stays, and is sent after the next sign-in."""
    with output.failures(as_json), connected() as daemon:
        if forget and daemon.call("health").get("has_personal_token"):
            answer = {"server_url": _server(daemon, None), "revoked": True}  # no session to end
        else:
            answer = daemon.call("sign_out", None, KEYRING_WAIT_S)
        if forget:
            daemon.call("replace_project_config", {"server_url": None})
        if as_json:
            output.write_json(answer)
            return
        word = "No longer using" if forget else "Signed out of"
        output.stdout().print(f"{word} {answer['server_url']}", soft_wrap=True)
        if not answer["revoked"]:
            output.stderr().print(
                "[warning]The Server could not be told; its session ends by itself.[/]",
                soft_wrap=True,
            )


def whoami(as_json: JsonOption = False) -> None:
    """Say who is signed in, where, and with which role."""
    with output.failures(as_json), connected() as daemon:
        if daemon.call("project_config")["server_url"] == "local:":
            if as_json:
                output.write_json({"server_url": "local:"})
            else:
                output.stdout().print(
                    "No Server is set: this machine's projects are yours alone.", soft_wrap=True
                )
            return
        answer = _me(daemon)
        if as_json:
            output.write_json(answer)
            return
        output.stdout().print(_person(answer), soft_wrap=True)


def _me(daemon: Connection) -> dict[str, Any]:
    """Who is signed in, as the Server says; a refused token is told from an ended session."""
    try:
        return daemon.call("signed_in")
    except Refused as error:
        if error.code != "unauthorized" or not daemon.call("health").get("has_personal_token"):
            raise
        words = f"The Server does not accept the token: {TOKEN_REMEDY}."
        raise Refused(error.code, words) from error


def _person(answer: dict[str, Any]) -> Text:
    line = Text(answer["display_name"], style="place")
    line.append(f" <{answer['email']}>, {answer['role']} of {answer['org_name']}", style="")
    return line.append(f"  {answer['server_url']}", style="faint")
