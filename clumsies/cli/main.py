"""The entry point. `--version` answers before anything heavy is imported."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command line; the exit code says how it ended.

    0 ok, 1 failure, 2 usage, 3 not ready, 4 conflict, 5 not found.
    """
    if sys.argv[1:] == ["--version"]:
        from clumsies.version import VERSION

        sys.stdout.write(f"clumsies {VERSION}\n")
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character shows a mark for it; nothing fails.
            stream.reconfigure(errors="replace")
    from clumsies.cli.app import make_app

    make_app(next(iter(sys.argv[1:]), None))()
