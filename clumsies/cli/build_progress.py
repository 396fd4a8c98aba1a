"""The progress bar of an index build."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from clumsies.cli.output import stderr
from clumsies.engine.plan import Progress as BuildProgress
from clumsies.engine.plan import ProgressCallback

_STAGE_WORDS = {
    "reading": "Reading",
    "splitting": "Splitting",
    "embedding": "Embedding",
    "writing": "Writing",
}


@contextmanager
def build_progress() -> Iterator[ProgressCallback]:
    """A progress bar on stderr for an index build; silent where stderr is no terminal."""
    console = stderr()
    with Progress(
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        tasks: dict[str, Any] = {}

        def show(progress: BuildProgress) -> None:
            if progress.total == 0 and progress.done == 0:
                return
            if progress.stage not in tasks:
                tasks[progress.stage] = bar.add_task(_STAGE_WORDS[progress.stage], total=None)
            bar.update(
                tasks[progress.stage],
                completed=progress.done,
                total=progress.total or None,
            )

        yield show
