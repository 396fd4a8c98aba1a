"""A fragment's text as a person sees it in a list."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

PREVIEW_LINES = 6


def print_text(
    console: Console, text: str, *, full: bool, superseded_by: str | None = None
) -> None:
    """A fragment's text, indented; without `full` its first lines, front matter left out.

    Above it stands which page replaces its page, where one does.
    """
    if superseded_by is not None:
        console.print(Text(f"   superseded by {superseded_by}", style="warning"), soft_wrap=True)
    lines = text.splitlines()
    shown = lines if full else _without_front_matter(lines)[:PREVIEW_LINES]
    for line in shown:
        console.print(Text("   " + line), soft_wrap=True)
    if len(lines) > len(shown):
        console.print(Text(f"   … {len(lines) - len(shown)} more lines", style="faint"))
    console.print()


def _without_front_matter(lines: list[str]) -> list[str]:
    if lines[:1] != ["---"] or "---" not in lines[1:]:
        return lines
    rest = lines[lines.index("---", 1) + 1 :]
    return rest if any(line.strip() for line in rest) else lines
