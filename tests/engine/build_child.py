"""A process that builds the same index in several children, which die or compete.

Everything is imported once and each build runs in a fork, before any thread exists.

    python -m tests.engine.build_child crash POINT=DIRECTORY ...   dies at the named points
    python -m tests.engine.build_child kill DIRECTORY              says `embedding`, then waits
    python -m tests.engine.build_child race DIRECTORY COUNT        as many whole builds at once
    python -m tests.engine.build_child share DIRECTORY COUNT       as many updates at once
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from clumsies.engine import commit
from clumsies.engine.plan import Progress
from clumsies.types import Resource, ResourceId
from tests.engine.fake_models import ArithmeticModels, open_engine

DIED = 41
RESOURCES = 100
POINTS = (
    "reading",
    "splitting",
    "embedding",
    "kept",
    "writing",
    "removed",
    "written",
    "committed",
)


def memory(version: str, count: int = RESOURCES) -> list[Resource]:
    """A memory that differs in every resource, in number and in one path from other versions."""
    extra = len(version)
    return [
        Resource(
            ResourceId(f"r{number}"),
            f"notes/{version if number == 1 else 'same'}-{number}.md",
            f"# Note {number}\n\n{version} has its own words: {version}{chr(97 + number % 26)}.",
        )
        for number in range(count + extra)
    ]


def die(*_: object) -> None:
    """End as a kill does: nothing is flushed, closed or rolled back."""
    os._exit(DIED)


def dying_progress(point: str) -> Callable[[Progress], None]:
    moments = {
        "reading": ("reading", 2),
        "splitting": ("splitting", 5),
        "embedding": ("embedding", 1),
        "kept": ("embedding", 70),
        "writing": ("writing", 0),
        "committed": ("writing", 1),
    }

    def progress(now: Progress) -> None:
        if (now.stage, now.done) == moments.get(point):
            die()

    return progress


def crash(point: str, directory: Path) -> None:
    if point == "removed":
        commit._Change._add_unit = die  # type: ignore[method-assign,assignment]
    if point == "written":
        commit._bound_token_vectors = die  # type: ignore[assignment]
    with open_engine(directory, ArithmeticModels()) as engine:
        engine.index(memory("changed"), progress=dying_progress(point))


def kill(directory: Path) -> None:
    def progress(now: Progress) -> None:
        if (now.stage, now.done) == ("embedding", 70):
            sys.stdout.write("embedding\n")
            sys.stdout.flush()
            time.sleep(600)

    with open_engine(directory, ArithmeticModels()) as engine:
        engine.index(memory("changed"), progress=progress)


def race(directory: Path, number: int) -> None:
    with open_engine(directory, ArithmeticModels()) as engine:
        engine.index(memory("x" * (number + 1), 20))


def share(directory: Path, number: int) -> None:
    with open_engine(directory, ArithmeticModels()) as engine:
        for part in range(4):
            name = ResourceId(f"p{number}-{part}")
            engine.update([Resource(name, f"{name}.md", f"text of part {number} {part}")])


def forked(work: Callable[[], None]) -> int:
    """The child that does the work and exits with 0, or 1 after an error."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    finally:
        sys.stderr.flush()
        os._exit(status)


def exit_codes(children: list[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def main(mode: str, *arguments: str) -> None:
    if mode == "crash":
        places = [argument.split("=", 1) for argument in arguments]
        codes = exit_codes([forked(lambda p=p, d=d: crash(p, Path(d))) for p, d in places])  # type: ignore[misc]
    elif mode == "kill":
        kill(Path(arguments[0]))
        return
    else:
        work = race if mode == "race" else share
        directory, count = Path(arguments[0]), int(arguments[1])
        codes = exit_codes([forked(lambda n=n: work(directory, n)) for n in range(count)])  # type: ignore[misc]
    sys.stdout.write(" ".join(map(str, codes)))


if __name__ == "__main__":
    main(*sys.argv[1:])
