"""`clumsiesd`: what was asked is found out before anything else is imported.

`mcp serve` and `_agent` are short-lived processes that hosts wait for; they must not pay for what
the resident process needs.
"""

import sys

USAGE = """\
usage: clumsiesd run                  the resident daemon, in the foreground
       clumsiesd start                the same in the background, or through its service
       clumsiesd mcp serve [OPTION]   the proxy that agent hosts start
       clumsiesd _agent ...           the bridge that agent hosts' hooks call
       clumsiesd --version
"""
_EXIT_USAGE = 2


def main(arguments: list[str] | None = None) -> int:
    """Run one mode; the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:2] == ["mcp", "serve"]:
        return _hand_over("clumsies.agent.proxy", given[2:])
    if given[:1] == ["_agent"]:
        return _bridge(given[1:])
    if given == ["run"]:
        from clumsies.daemon.process import run_command

        return run_command()
    if given == ["start"]:
        from clumsies.daemon.services import start_command

        return start_command()
    if given == ["--version"]:
        from clumsies.version import VERSION

        sys.stdout.write(f"clumsiesd {VERSION}\n")
        return 0
    wanted = given in ([], ["-h"], ["--help"])
    (sys.stdout if wanted else sys.stderr).write(USAGE)
    return 0 if wanted else _EXIT_USAGE


def _hand_over(module: str, arguments: list[str]) -> int:
    from importlib import import_module

    return int(import_module(module).main(arguments) or 0)


def _bridge(arguments: list[str]) -> int:
    """A hook that fails must never stop the agent, so its failure is silence and success."""
    try:
        return _hand_over("clumsies.agent.hook", arguments)
    except Exception:
        return 0


if __name__ == "__main__":
    sys.exit(main())
